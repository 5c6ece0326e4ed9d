"""The master's cost of a pull, from the bytes of the frame to the bytes of the reply: CPU for each message, and a bare probe.

    python -m scripts.bench.pullpath [--pulls 3000] [--bodies 1024,100] [--groups 1,8] [--old] [--profile ROWS]

The master is that of scripts.bench.sendpath. A queue's records are each alone in the log (`scattered`) or end to end
(`joined`), more than 64 MiB before the log's end, or alone and just before the end (`newest`). With `--old` segments have 16
MiB, so that the other records are older than those which are sent from the mapping. Pulls of 32 messages are sent as by Java's
pull consumer (with a subscription in each pull, and without waiting) or its push consumer (which has sent its subscription,
commits an offset with each pull, and would wait). So many pulls, one for each queue, come in one receive. CPU is that of the
one thread, in the cheapest tenth of turns, because the machine does other things, too. With `sent` the replies leave through
TCP to another process, which throws them away, and the kernel's copy counts. Otherwise they are thrown away here.

In the same turns, the probe does the least that a master must do, in plain Python: `orjson` for headers of requests and
replies, `struct` over a slice of the queue's file, and one slice of the log's mapping for each record or, if that is cheaper,
a join of the slices. Instead, `--profile` prints that many rows of the profile of each shape."""

from __future__ import annotations

import asyncio
import cProfile
import mmap
import pstats
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from struct import Struct
from subprocess import DEVNULL, Popen
from typing import Any

import orjson
import uvloop

from messagestore.queues.consumequeue import ENTRY
from mqclient.message import OutgoingMessage, encode_batch
from remoting.bodies.heartbeats import ConsumerData, HeartbeatData, SubscriptionData
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.frame import encode
from remoting.peer import Peer
from scripts.bench import sendpath
from scripts.bench.measured import machine
from scripts.bench.options import bounded, options
from scripts.bench.sendpath import QUEUES, TOPIC, Master, Wire, numbers, properties

GROUP, COUNT = "CG", 32
PULL, PUSH = "pull", "push"
SCATTERED, JOINED, NEWEST = "scattered", "joined", "newest"
BEHIND_BYTES = 65 << 20
SMALL_SEGMENTS = f"mappedFileSizeCommitLog={16 << 20}"
PULLS_OF_A_QUEUE = 64
"""Pulls of a queue with each layout. Each turn takes the next pulls, so that the CPU caches are not warmer than for a
reader."""
FLAGS = {PULL: 4, PUSH: 3}  # has a subscription; commits an offset and may wait
SINK = """import socket, sys
connection, room = socket.create_connection(("127.0.0.1", int(sys.argv[1]))), bytearray(1 << 20)
while connection.recv_into(room): pass"""


@dataclass(frozen=True)
class Shape:
    kind: str
    layout: str
    pulls: int
    body: int
    sent: bool

    @property
    def name(self) -> str:
        way = ", sent" if self.sent else ""
        return f"{self.kind}, {self.layout}, {self.body} bytes, {self.pulls} in a receive{way}"


def request(kind: str, opaque: int, queue_id: int, offset: int) -> bytes:
    """The frame of a pull as a Java consumer of 5.3 writes it."""
    ext = {
        "queueId": str(queue_id), "maxMsgBytes": "2147483647" if kind == PULL else "262144", "maxMsgNums": str(COUNT),
        "sysFlag": str(FLAGS[kind]), "suspendTimeoutMillis": "15000", "commitOffset": str(offset), "bname": "broker-a",
        "topic": TOPIC, "queueOffset": str(offset), "expressionType": "TAG", "subVersion": "0", "consumerGroup": GROUP,
    }  # fmt: skip
    if kind == PULL:
        ext["subscription"] = "*"
    return b"".join(
        map(bytes, encode(RemotingCommand(RequestCode.PULL_MESSAGE, opaque, ext=ext, language="JAVA")))
    )


def receives(shape: Shape, newest: int) -> list[bytes]:
    """The received bytes, one element for each turn. `newest` is the first pull of a queue that reads the newest records."""
    first = {SCATTERED: 0, JOINED: PULLS_OF_A_QUEUE, NEWEST: newest}[shape.layout]
    found = []
    for number in range(PULLS_OF_A_QUEUE):
        for queue_id in range(0, QUEUES, shape.pulls):
            asked = range(queue_id, queue_id + shape.pulls)
            offset = (first + number) * COUNT
            found.append(b"".join(request(shape.kind, each, each % QUEUES, offset) for each in asked))
    return found


async def fill(master: Master, body: bytes) -> int:
    """Fill queues with records for `PULLS_OF_A_QUEUE` pulls: first single records, then as many and more records of batches,
    and then single records again. Returns how many pulls of a queue come before the last part."""
    await fill_alone(master, body)
    named = {"KEYS": "order", "UNIQ_KEY": "0" * 32, "WAIT": "true", "TAGS": "TagA"}
    batch = encode_batch([OutgoingMessage(body, named)] * COUNT)
    pulls, joined_end = PULLS_OF_A_QUEUE, 1 << 62
    while pulls < 2 * PULLS_OF_A_QUEUE or master.store.max_offset() < joined_end + BEHIND_BYTES:
        for each in range(QUEUES):
            sent = sendpath.request(RequestCode.SEND_BATCH_MESSAGE, each, properties(each), batch, "true")
            await master.serve([sent])
        pulls += 1
        if pulls == 2 * PULLS_OF_A_QUEUE:
            joined_end = master.store.max_offset()
    await fill_alone(master, body)
    listed = (pulls + PULLS_OF_A_QUEUE) * COUNT
    while master.store.max_queue_offset(TOPIC, QUEUES - 1) < listed:  # noqa: ASYNC110 - as in sendpath
        await asyncio.sleep(0.001)
    return pulls


async def fill_alone(master: Master, body: bytes) -> None:
    for first in range(0, PULLS_OF_A_QUEUE * COUNT * QUEUES, QUEUES):
        sends = [
            sendpath.request(RequestCode.SEND_MESSAGE_V2, each, properties(each), body, "false")
            for each in range(first, first + QUEUES)
        ]
        await master.serve([b"".join(sends)])


START = Struct(">II")


class Probe:
    """Reads the files of the store in `root`."""

    def __init__(self, root: Path) -> None:
        self._logs = [memoryview(mapped(path)) for path in sorted((root / "commitlog").iterdir())]
        queues = [root / "consumequeue" / TOPIC / str(each) / f"{0:020}" for each in range(QUEUES)]
        self._queues = [memoryview(mapped(path)) for path in queues]

    def serve(self, received: bytes) -> list[list[bytes | memoryview]]:
        view, at, replies = memoryview(received), 0, []
        while at < len(view):
            length, header_bytes = START.unpack_from(view, at)
            replies.append(self._answer(orjson.loads(view[at + 8 : at + 8 + header_bytes])))
            at += 4 + length
        return replies

    def _answer(self, fields: dict[str, Any]) -> list[bytes | memoryview]:
        ext = fields["extFields"]
        offset, count = int(ext["queueOffset"]), int(ext["maxMsgNums"])
        entries = self._queues[int(ext["queueId"])][offset * ENTRY.size : (offset + count) * ENTRY.size]
        number = ENTRY.unpack_from(entries)[0] // len(self._logs[0])
        log, base = self._logs[number], number * len(self._logs[0])
        begin = end = size = 0
        found: list[bytes | memoryview] = []
        for phy, record_bytes, _ in ENTRY.iter_unpack(entries):
            if phy != end:
                if end:
                    found.append(log[begin - base : end - base])
                begin = phy
            end = phy + record_bytes
            size += record_bytes
        found.append(log[begin - base : end - base])
        said = {
            "suggestWhichBrokerId": "0", "nextBeginOffset": str(offset + count), "minOffset": "0", "maxOffset": "0"
        }  # fmt: skip
        reply = orjson.dumps({"code": 0, "extFields": said, "flag": 1, "opaque": fields["opaque"]})
        head = START.pack(4 + len(reply) + size, len(reply)) + reply
        return [head, *found] if size > JOINED_MAX * len(found) else [b"".join([head, *found])]


JOINED_MAX = 512
"""Smaller records (bytes) are cheaper to join than to pass on one by one."""


def mapped(path: Path) -> mmap.mmap:
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)


class Outlet(asyncio.Protocol):
    """A connection to a process that throws its input away."""

    def __init__(self, sink: Popen[bytes], transport: asyncio.WriteTransport | None = None) -> None:
        self.sink = sink
        self.transport = transport

    @classmethod
    async def made(cls) -> Outlet:
        with socket.create_server(("127.0.0.1", 0)) as server:
            sink = Popen([sys.executable, "-c", SINK, str(server.getsockname()[1])], stdin=DEVNULL)  # noqa: ASYNC220 - nothing else runs yet
            connection, _ = server.accept()
        outlet = cls(sink)
        transport, _ = await asyncio.get_running_loop().create_connection(lambda: outlet, sock=connection)
        outlet.transport = transport
        return outlet

    async def drained(self) -> None:
        """Run turns of the loop, at least one, until everything was sent."""
        assert self.transport is not None
        await asyncio.sleep(0)
        while self.transport.get_write_buffer_size():  # noqa: ASYNC110 - it is the loop that is measured
            await asyncio.sleep(0)

    def close(self) -> None:
        assert self.transport is not None
        self.transport.abort()
        self.sink.terminate()
        self.sink.wait()


class Through(Wire):
    """Passes a peer's writes to an outlet."""

    def __init__(self, outlet: Outlet) -> None:
        super().__init__(6000)
        assert outlet.transport is not None
        self.writelines = outlet.transport.writelines  # type: ignore[method-assign]


class Readers:
    """A client of the master and a client of the probe."""

    def __init__(self, master: Master, probe: Probe, outlet: Outlet) -> None:
        self._probe = probe
        self._outlet = outlet
        self._kept = master.replies
        self._requests = master.requests
        self._wanted = 0
        self._peers = {False: master.clients[0], True: master.clients[1]}
        self._peers[True].connection_made(Through(outlet))

    def own(self, shape: Shape, received: bytes) -> float:
        """CPU seconds of one turn."""
        peer = self._peers[shape.sent]
        before = time.thread_time()
        into(peer, received)
        spent = time.thread_time() - before
        self._kept.taken()
        self._wanted += shape.pulls * COUNT
        if self._requests.messages_got != self._wanted:
            raise SystemExit(f"{self._requests.messages_got} messages were found, not {self._wanted}")
        return spent

    def bare(self, shape: Shape, received: bytes) -> float:
        transport = self._outlet.transport
        assert transport is not None
        before = time.thread_time()
        for reply in self._probe.serve(received):
            if shape.sent:
                transport.writelines(reply)
        return time.thread_time() - before

    async def measured(self, shape: Shape, arriving: list[bytes], turns: int) -> tuple[float, float]:
        """CPU seconds of a receive, for the master and for the probe. They take turns, so that both run under the same
        conditions."""
        own: list[float] = []
        bare: list[float] = []
        for turn in range(turns):
            received = arriving[turn % len(arriving)]
            own.append(self.own(shape, received))
            await self._outlet.drained()
            bare.append(self.bare(shape, received))
            await self._outlet.drained()
        return quantiles(own, n=10)[0], quantiles(bare, n=10)[0]


def into(peer: Peer, received: bytes) -> None:
    while received:
        room = peer.get_buffer(-1)
        part = received[: len(room)]
        room[: len(part)] = part
        received = received[len(part) :]
        peer.buffer_updated(len(part))


async def run(root: Path, body: int, shapes: Sequence[Shape], given: Any) -> None:
    master = Master(root, 2, *([SMALL_SEGMENTS] if given.old else []))
    await master.start()
    newest = await fill(master, bytes(body))
    subscription = SubscriptionData(TOPIC, "*")
    consumer = ConsumerData(
        GROUP, "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET", [subscription]
    )
    master.requests.consumers.heartbeat(
        master.clients[0], HeartbeatData("reader", [], [consumer]), "JAVA", 479
    )
    outlet = await Outlet.made()
    readers = Readers(master, Probe(root), outlet)
    for shape in shapes:
        arriving = receives(shape, newest)
        if given.profile:
            profile = cProfile.Profile()
            profile.enable()
            for turn in range(given.pulls // shape.pulls):
                readers.own(shape, arriving[turn % len(arriving)])
            profile.disable()
            print(f"{shape.name}, {given.pulls} pulls")
            pstats.Stats(profile).sort_stats("tottime").print_stats(given.profile)
            continue
        own, bare = await readers.measured(shape, arriving, given.pulls // shape.pulls)
        us, probe_us = own / shape.pulls * 1e6, bare / shape.pulls * 1e6
        print(
            f"{shape.name:49} {us:7.1f} us/pull {us / COUNT:6.2f} us/message   probe {probe_us:6.1f}   "
            f"multiple {us / probe_us:5.2f}",
            flush=True,
        )
    outlet.close()
    for slave, _ in master.slaves:
        slave.connection_lost(None)
    await master.ha.stop()
    await master.store.stop()


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--pulls", type=bounded(100, 1_000_000), default=3_000, help="of each shape")
    parser.add_argument("--bodies", type=numbers, default=[1024, 100], help="bytes of a message")
    parser.add_argument("--groups", type=numbers, default=[1, 8], help="pulls in one receive")
    parser.add_argument("--old", action="store_true", help="with small segments")
    parser.add_argument("--profile", type=int, default=0, metavar="ROWS")
    parser.add_argument("--directory", type=Path, default=None, help="where the temporary store goes")
    given = parser.parse_args()
    print(machine())
    for body in given.bodies:
        many = max(given.groups)
        shapes = [Shape(PULL, SCATTERED, group, body, sent=False) for group in given.groups]
        shapes += [Shape(PULL, layout, many, body, sent=False) for layout in (JOINED, NEWEST)]
        shapes += [Shape(PUSH, SCATTERED, many, body, sent=False)]
        shapes += [Shape(PULL, layout, many, body, sent=True) for layout in (SCATTERED, JOINED)]
        with tempfile.TemporaryDirectory(dir=given.directory) as root:
            uvloop.run(run(Path(root), body, shapes, given))
    print(machine())


if __name__ == "__main__":
    main()
