"""The master's cost of a send, from the bytes of the frame to the bytes of the reply: CPU for each message, and a bare probe.

    python -m scripts.bench.sendpath [--messages 51200] [--groups 1,16,64] [--clients 16] [--batches 32] [--profile ROWS]

The master consists of a real store in a temporary folder with shipped settings, replication with two slaves in the set, and
the broker's handlers, all in this process and without a socket. Frames as from a Java client, so many in one receive, go into
the connection's buffer. Each slave acknowledges its frames, and the replies are counted. With `--clients`, each client sends
one message in the same turn of the event loop. `--batches` are sends with that many messages, one per receive. CPU is that of
the one thread, in the cheapest tenth of turns, because the machine does other things, too.

With the same bytes, the probe does the least that a master must do, in plain Python: `orjson` for headers of requests and
replies, a CRC, `struct` for the record's head, a queue entry and two index entries, one copy into a mapped file, and two
frames to slaves and two acknowledgements per receive. Instead, `--profile` prints that many rows of the profile of each
shape."""

from __future__ import annotations

import asyncio
import cProfile
import mmap
import pstats
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import quantiles
from struct import Struct
from typing import Any
from zlib import crc32

import orjson
import uvloop

from broker.modes import acknowledgements
from broker.parts import Parts
from broker.requests import Requests
from broker.role.contractmark import KeptContractMark
from broker.role.events import BrokerEvents
from broker.role.membership import Membership, ReplicaRole
from broker.settings.broker import BrokerSettings
from broker.tables.tables import Tables
from epochfile.file import EpochFile
from ha.frames import TRANSFER, Handshake, TransferHeader, encode_ack
from ha.master.admittance import RegisteredReplica, Table
from ha.service.haservice import HAService
from ha.syncstateset import Alter, Applied
from messagestore.batch import MEMBER_HEADER, PROPERTIES_LENGTH
from messagestore.store.messagestore import MessageStore
from mqruntime.network import PLAIN
from mqruntime.realruntime import real_runtime
from mqruntime.tasks import Tasks
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.connections import Connections
from remoting.frame import encode
from remoting.limits import Limits
from remoting.peer import Peer
from scripts.bench.measured import machine
from scripts.bench.options import options

CONFIGURATION = Path(__file__).parents[2] / "conf" / "cluster-3n" / "broker-n0.conf"
HOST = "127.0.0.1"
OWN_ID, SLAVES = 1, (2, 3)
TOPIC, QUEUES, BODY = "TopicTest", 8, bytes(range(256)) * 4
RECEIVES_KEPT = 64

Receives = list[list[bytes]]
"""The frames of one turn of the event loop, by connection. Each value consists of whole frames."""


def properties(number: int) -> str:
    return f"KEYS\x01order{number}\x02UNIQ_KEY\x010A0102030A5C18B4AAC2{number:012X}\x02WAIT\x01true\x02TAGS\x01TagA\x02"


def request(code: int, opaque: int, own: str, body: bytes, batch: str) -> bytes:
    """The frame of a send as a Java producer of 5.3 writes it."""
    ext = {
        "a": "PG", "b": TOPIC, "c": "TBW102", "d": "8", "e": str(opaque % QUEUES), "f": "0", "g": "1795256518702",
        "h": "0", "i": own, "j": "0", "k": "false", "m": batch, "n": "broker-a",
    }  # fmt: skip
    command = RemotingCommand(code, opaque, ext=ext, body=body, language="JAVA")
    return b"".join(map(bytes, encode(command)))


def singles(group: int) -> Receives:
    numbers = range(RECEIVES_KEPT * group)
    frames = [request(RequestCode.SEND_MESSAGE_V2, n, properties(n), BODY, "false") for n in numbers]
    return [[b"".join(frames[at : at + group])] for at in range(0, len(frames), group)]


def of_each(clients: int) -> Receives:
    apart = [receive for (receive,) in singles(1) * clients]
    return [apart[at : at + clients] for at in range(0, len(apart), clients)]


def batches(members: int) -> Receives:
    return [
        [
            request(
                RequestCode.SEND_BATCH_MESSAGE, number, properties(number),
                b"".join(member(number * members + each) for each in range(members)), "true",
            )
        ]
        for number in range(RECEIVES_KEPT)
    ]  # fmt: skip


def member(number: int) -> bytes:
    own = properties(number).encode()
    size = MEMBER_HEADER.size + len(BODY) + PROPERTIES_LENGTH.size + len(own)
    return MEMBER_HEADER.pack(size, 0, 0, 0, len(BODY)) + BODY + PROPERTIES_LENGTH.pack(len(own)) + own


class Wire(asyncio.Transport):
    """The other end of a connection. It keeps written data until the data is taken."""

    def __init__(self, port: int) -> None:
        super().__init__({"peername": (HOST, port), "sockname": (HOST, 1)})
        self.written: list[bytes] = []

    def writelines(self, list_of_data: Any) -> None:
        self.written += list_of_data

    def taken(self) -> list[bytes]:
        written, self.written = self.written, []
        return written

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def abort(self) -> None:
        raise SystemExit("the master ended a connection")


class Leading(Membership):
    """A broker that leads without asking controllers."""

    @property
    def role(self) -> ReplicaRole:
        return ReplicaRole.MASTER

    @property
    def accepts_sends(self) -> bool:
        return True


class Controllers:
    """Controllers that apply every requested set."""

    def __init__(self) -> None:
        self.ha: HAService | None = None

    def alter_sync_state_set(self, alter: Alter) -> None:
        asyncio.get_running_loop().call_soon(self._applied, alter)

    def _applied(self, alter: Alter) -> None:
        assert self.ha is not None and self.ha.mastership is not None
        self.ha.mastership.alter_ended(alter, Applied(alter.members, alter.set_epoch + 1))

    def read_sync_state_set(self) -> None: ...
    async def read(self) -> Table:
        return {broker_id: RegisteredReplica(frozenset({HOST})) for broker_id in (OWN_ID, *SLAVES)}


class Master:
    """A master with its store in `root`, `SLAVES` and clients. `chosen` are settings as `key=value`."""

    def __init__(self, root: Path, clients: int, *chosen: str) -> None:
        settings = BrokerSettings.load(CONFIGURATION, [f"storePathRootDir={root}", *chosen])
        runtime, tasks, controllers = real_runtime(root), Tasks(failed), Controllers()
        clock = runtime.clock
        leading = Leading(cluster_name="DefaultCluster", broker_name="broker-a", poll_ms=5_000, nonce="")
        self.store = store = MessageStore(runtime, settings, on_fatal=failed)
        self.tables = tables = Tables(settings, runtime.files, clock, store)
        self.ha = controllers.ha = HAService(
            store, EpochFile(runtime.files),
            settings=settings.replication, clock=clock, host=HOST, port=0, advertised_host=HOST,
            members_min=lambda: settings.min_in_sync_replicas, truncation_allowed=lambda: None,
            catch_up_limit=lambda: settings.catch_up_limit, on_fatal=failed,
        )  # fmt: skip
        self.ha.speaks_through(controllers, controllers)
        acknowledgement, delivered = acknowledgements(leading, settings, store, self.ha)
        events = BrokerEvents()
        self.requests = requests = Requests(Parts(
            settings=settings, membership=leading, store=store, ha=self.ha, tables=tables, events=events,
            acknowledgement=acknowledgement, delivered=delivered, contract_mark=KeptContractMark(runtime.files),
            clock=clock, network=PLAIN, random=random.Random(1), tasks=tasks, memory_bytes=runtime.memory_bytes,
            follows=lambda _: False,
        ))  # fmt: skip
        self.ha.on_confirm(events.confirmed)
        connections = Connections(requests.router, clock, Limits())
        self.clients: list[Peer] = [connections.protocol() for _ in range(clients)]
        self.replies = Wire(5000)
        self.slaves: list[tuple[Any, Wire]] = []

    async def start(self) -> None:
        await self.store.start()
        await self.tables.load()
        await self.ha.start()
        await self.ha.become_master(1, OWN_ID, frozenset({OWN_ID, *SLAVES}), 1)
        await self.store.become_master()
        self.tables.topics.ensure(TOPIC, QUEUES)
        assert self.ha.mastership is not None
        for broker_id in SLAVES:
            wire, slave = Wire(broker_id), self.ha.mastership.accept()
            slave.connection_made(wire)
            slave.data_received(Handshake(broker_id).encode())
            while not wire.taken():  # noqa: ASYNC110 - the gate asks who it is; nothing is measured yet
                await asyncio.sleep(0.001)
            slave.data_received(encode_ack(0))
            self.slaves.append((slave, wire))
        while not self.ha.may_confirm():  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.001)
        for client in self.clients:
            client.connection_made(self.replies)

    async def serve(self, receives: Sequence[bytes]) -> int:
        """Serve until everything is answered. Returns how many buffers the answers had."""
        for client, received in zip(self.clients, receives, strict=False):
            while received:
                room = client.get_buffer(-1)
                part = received[: len(room)]
                room[: len(part)] = part
                received = received[len(part) :]
                client.buffer_updated(len(part))
        await asyncio.sleep(0)
        for slave, wire in self.slaves:
            while frames := wire.taken():
                *_, (offset, size) = ends_of(frames)
                slave.data_received(encode_ack(offset + size))
        await asyncio.sleep(0)  # dispatch
        return len(self.replies.taken())


def ends_of(frames: Sequence[bytes]) -> Iterator[tuple[int, int]]:
    for buffer in frames:
        if len(buffer) == TRANSFER.size:
            header = TransferHeader.decode(buffer)
            yield header.offset, header.body_size


def failed(error: BaseException) -> None:
    raise SystemExit(f"the broker failed: {error!r}")


HEAD, RECORD = Struct(">II"), Struct(">iIIiiqqiq8sq8siqi")
QUEUE_ENTRY, INDEX_ENTRY = Struct(">qiq"), Struct(">iqii")
FRAME, ACK, HOST_BYTES = Struct(">iiqiqq"), Struct(">iq"), b"\x7f\0\0\1\0\0\0\0"


class Probe:
    """The probe, which writes into its own mapped file."""

    def __init__(self, path: Path, size: int) -> None:
        path.write_bytes(b"")
        with path.open("r+b") as file:
            file.truncate(size)
            self._log = mmap.mmap(file.fileno(), size)
        self._view = memoryview(self._log)
        self._queue, self._index, self._end = bytearray(64), bytearray(64), 0

    def serve(self, receives: Sequence[bytes]) -> int:
        begin = self._end
        answered = sum(map(self._answer, receives))
        for _ in SLAVES:
            sent = [FRAME.pack(2, self._end - begin, begin, 1, 0, begin), self._view[begin : self._end]]
            ACK.unpack(ACK.pack(2, begin + len(sent[1])))
        return answered

    def _answer(self, received: bytes) -> int:
        view, at, replies = memoryview(received), 0, []
        while at < len(view):
            length, word = HEAD.unpack_from(view, at)
            body_at, end = at + 8 + (word & 0xFFFFFF), at + 4 + length
            fields = orjson.loads(view[at + 8 : body_at])
            ext = fields["extFields"]
            rest = b"\x09" + ext["b"].encode() + ext["i"].encode()
            offset = self._end
            if ext["m"] == "true":
                while body_at < end:
                    size, _, _, _, body_bytes = MEMBER_HEADER.unpack_from(view, body_at)
                    tail_at = body_at + MEMBER_HEADER.size + body_bytes
                    own = bytes(view[tail_at : body_at + size])
                    self._store(view[body_at + MEMBER_HEADER.size : tail_at], rest[:10] + own)
                    body_at += size
            else:
                self._store(view[body_at:end], rest)
            answer = {
                "queueId": ext["e"],
                "queueOffset": str(offset),
                "msgId": hex(offset),
                "transactionId": "",
            }
            reply = orjson.dumps({"code": 0, "extFields": answer, "flag": 1, "opaque": fields["opaque"]})
            replies += [HEAD.pack(4 + len(reply), len(reply)), reply]
            at = end
        return len(b"".join(replies))

    def _store(self, body: memoryview, rest: bytes) -> None:
        log, at = self._view, self._end
        size = RECORD.size + len(body) + len(rest)
        RECORD.pack_into(
            log, at, size, 0, crc32(body), 0, 0, at, at, 0, 0, HOST_BYTES, 0, HOST_BYTES, 0, 0, len(body)
        )  # fmt: skip
        log[at + RECORD.size : at + RECORD.size + len(body)] = body
        log[at + RECORD.size + len(body) : at + size] = rest
        QUEUE_ENTRY.pack_into(self._queue, 0, at, size, 0)
        INDEX_ENTRY.pack_into(self._index, 0, hash(rest) & 0xFFFF, at, 0, 0)
        INDEX_ENTRY.pack_into(self._index, 20, hash(rest) & 0xFFFF, at, 0, 0)
        self._end = at + size


async def measured(master: Master, probe: Probe, receives: Receives, turns: int) -> tuple[float, float]:
    """CPU seconds of a receive, for the master and for the probe. They take turns, so that both run under the same
    conditions."""
    own: list[float] = []
    bare: list[float] = []
    for turn in range(turns):
        received = receives[turn % len(receives)]
        before = time.thread_time()
        written = await master.serve(received)
        between = time.thread_time()
        probe.serve(received)
        bare.append(time.thread_time() - between)
        own.append(between - before)
        if not written:
            raise SystemExit("not answered")
    return quantiles(own, n=10)[0], quantiles(bare, n=10)[0]


async def run(root: Path, shapes: dict[str, tuple[int, Receives]], given: Any) -> None:
    master = Master(root, max([1, *given.clients]))
    await master.start()
    probe = Probe(root / "probe", given.messages * len(shapes) * 2 * len(BODY))
    for name, (count, receives) in shapes.items():
        turns = max(given.messages // count, 1)
        if given.profile:
            profile = cProfile.Profile()
            profile.enable()
            for turn in range(turns):
                await master.serve(receives[turn % len(receives)])
            profile.disable()
            print(f"{name}, {turns * count} messages")
            pstats.Stats(profile).sort_stats("tottime").print_stats(given.profile)
            continue
        own, bare = await measured(master, probe, receives, turns)
        us, probe_us = own / count * 1e6, bare / count * 1e6
        print(f"{name:20} {us:7.2f} us/message   probe {probe_us:6.2f}   multiple {us / probe_us:5.2f}")
    for slave, _ in master.slaves:
        slave.connection_lost(None)
    await master.ha.stop()
    await master.store.stop()


def numbers(text: str) -> list[int]:
    return [int(each) for each in text.split(",") if each]


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--messages", type=int, default=51_200, help="of each shape")
    parser.add_argument("--groups", type=numbers, default=[1, 16, 64], help="sends in one receive")
    parser.add_argument("--clients", type=numbers, default=[16], help="that send one each in a turn")
    parser.add_argument("--batches", type=numbers, default=[32], help="members of a batch")
    parser.add_argument("--profile", type=int, default=0, metavar="ROWS")
    parser.add_argument("--directory", type=Path, default=None, help="where the temporary store goes")
    given = parser.parse_args()
    shapes = {f"{group} in a receive": (group, singles(group)) for group in given.groups}
    shapes |= {f"one of {count} clients": (count, of_each(count)) for count in given.clients}
    shapes |= {f"batch of {count}": (count, batches(count)) for count in given.batches}
    print(machine())
    with tempfile.TemporaryDirectory(dir=given.directory) as root:
        uvloop.run(run(Path(root), shapes, given))
    print(machine())


if __name__ == "__main__":
    main()
