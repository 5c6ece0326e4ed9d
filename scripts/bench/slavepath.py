"""The slave's cost of a received message (frame, log, report, dispatch), and how fast a slave takes in a whole log.

    python -m scripts.bench.slavepath [--bytes 512m] [--body 1024] [--messages 30000] [--runs 3] [--directory DIR]

The slave's connection, link and store are those of a broker, on uvloop, at one end of a socketpair. At the other end a process
does a master's handshake and sends the log of scripts.bench.replaylog. *1 of 1* is one frame of one message, and the next one
when it is acknowledged; *8 of 1* is eight such frames at once; *1 of 8* is one frame of eight messages; *32 of 1* is 32 frames
of one message. *whole log* is frames of 256 KiB, as fast as possible, until everything is received and dispatched. CPU is that
of the slave's event loop, including dispatch, after the first tenth. The probe of the same run takes the same bytes in with
the least work: a blocking recv of each turn into a mapping, and an acknowledgement."""

from __future__ import annotations

import asyncio
import mmap
import multiprocessing
import socket
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from struct import Struct

import uvloop

from epochfile.history import EpochHistory
from ha.counters import HACounters
from ha.frames import ACK, HANDSHAKE, Handshake, HandshakeReply, TransferHeader
from ha.slave.connection import SlaveConnection
from ha.slave.link import PersistEpochs, SlaveLink
from messagestore.record import MAGIC_BLANK
from messagestore.store.messagestore import MessageStore
from messagestore.store.settings import StoreSettings
from mqruntime.realruntime import real_runtime
from mqruntime.tasks import Tasks
from scripts.bench.measured import machine, spread
from scripts.bench.options import options
from scripts.bench.replaylog import size, usual_spread, write_store

FRAME_BYTES = 256 << 10
PREFIX = Struct(">iI")
EPOCH = (1, 0)
SHAPES = ((1, 1), (8, 1), (1, 8), (32, 1))
WARM_MESSAGES = 2_000

Figures = dict[str, list[float]]


@dataclass(frozen=True)
class Turn:
    """Frames that are sent at once. Their bodies are `log[begin:end]`, cut at `cuts`."""

    begin: int
    end: int
    data: bytes


def boundaries(content: bytes, count_max: int) -> list[int]:
    """Where the first records of a segment begin, and where the last of them ends."""
    found, at = [0], 0
    while len(found) <= count_max and at + PREFIX.size <= len(content):
        record_bytes, magic = PREFIX.unpack_from(content, at)
        if magic == MAGIC_BLANK or not record_bytes:
            break
        at += record_bytes
        found.append(at)
    return found


def frame(content: bytes, begin: int, end: int) -> bytes:
    """A frame. Its confirm offset is the frame's beginning, as from a master that waits for acknowledgements."""
    return TransferHeader(end - begin, begin, *EPOCH, begin).encode() + content[begin:end]


def turns(content: bytes, bounds: list[int], frames: int, records: int) -> list[Turn]:
    made = []
    for first in range(0, len(bounds) - frames * records, frames * records):
        ends = [bounds[first + records * number] for number in range(frames + 1)]
        data = b"".join(frame(content, begin, end) for begin, end in zip(ends, ends[1:], strict=False))
        made.append(Turn(ends[0], ends[-1], data))
    return made


def whole(content: bytes, end: int) -> list[Turn]:
    return [
        Turn(at, min(at + FRAME_BYTES, end), frame(content, at, min(at + FRAME_BYTES, end)))
        for at in range(0, end, FRAME_BYTES)
    ]


def received(sock: socket.socket, wanted: int) -> bytes:
    data = b""
    while len(data) < wanted:
        part = sock.recv(wanted - len(data))
        if not part:
            raise SystemExit("the slave has gone")
        data += part
    return data


def send(sock: socket.socket, sent: list[Turn], *, waits: bool, greets: bool) -> None:
    """The master's side, in a separate process. The last frame confirms everything."""
    sock.setblocking(True)
    if greets:
        received(sock, HANDSHAKE.size)
        sock.sendall(HandshakeReply(sent[-1].end, EpochHistory([EPOCH])).encode())
        received(sock, ACK.size)
    acked = 0
    for turn in sent:
        sock.sendall(turn.data)
        while waits and acked < turn.end:
            acked = ACK.unpack(received(sock, ACK.size))[1]
    end = sent[-1].end
    while acked < end:
        acked = ACK.unpack(received(sock, ACK.size))[1]
    if greets:
        sock.sendall(TransferHeader(0, end, *EPOCH, end).encode())
    sock.recv(1)


def failed(error: BaseException) -> None:
    raise SystemExit(f"the slave failed: {error}")


@dataclass
class TakenBytes:
    """The bytes taken in after the first tenth (in which folders and files are made), and their cost until everything was
    dispatched."""

    bytes: int = 0
    cpu: float = 0.0
    wall: float = 0.0
    behind: float = 0.0  # the part of the cost after the last byte


async def slave(root: Path, sock: socket.socket, end: int, taken: TakenBytes) -> None:
    runtime = real_runtime(root)
    store, tasks = MessageStore(runtime, StoreSettings(), on_fatal=failed), Tasks(failed)
    await store.start()
    link = SlaveLink(
        handshake=Handshake(2), history=EpochHistory(), epoch=0, log_min=0, log_end=0, confirm_offset=0,
        truncation_allowed=None, flushed_end=None, segment_size_bytes=store.segment_size_bytes, heartbeat_interval_ms=5_000,
        housekeeping_interval_ms=20_000, handshake_timeout_ms=5_000, now_ms=runtime.clock.monotonic_ms(),
    )  # fmt: skip
    moved = asyncio.Event()
    store.on_arrival(lambda grown: moved.set())
    connection = SlaveConnection(link, store, runtime.clock, tasks, HACounters(), moved.set, lambda: None)

    async def until(reached: Callable[[], bool]) -> None:
        while not reached():
            moved.clear()
            await moved.wait()

    await asyncio.get_running_loop().create_connection(lambda: connection, sock=sock)
    step = await connection.next_durable_step()
    assert isinstance(step, PersistEpochs)
    connection.step_done(link.persisted(runtime.clock.monotonic_ms()))
    await until(lambda: store.dispatched_offset() >= end // 10)
    cpu, wall, begin = time.thread_time(), time.perf_counter(), store.max_offset()
    await until(lambda: store.confirm_offset() >= end)
    held = time.perf_counter()
    await until(lambda: store.dispatched_offset() >= end)
    now = time.perf_counter()
    taken.bytes, taken.cpu, taken.wall = end - begin, time.thread_time() - cpu, now - wall
    taken.behind = now - held
    connection.close("all is there")
    await connection.wait_closed()
    await store.stop()
    await tasks.stop()


def probe(sock: socket.socket, path: Path, sent: list[Turn], *, waits: bool) -> float:
    with open(path, "w+b") as file:
        file.truncate(sum(len(turn.data) for turn in sent))
        view = memoryview(mmap.mmap(file.fileno(), 0))
        before, at = time.thread_time(), 0
        for turn in sent:
            end = at + len(turn.data)
            while at < end:
                at += sock.recv_into(view[at:end])
            if waits or turn is sent[-1]:
                sock.sendall(ACK.pack(2, turn.end))
        return time.thread_time() - before


def one(directory: Path | None, sent: list[Turn], *, waits: bool) -> tuple[TakenBytes, float]:
    spawn = multiprocessing.get_context("spawn")
    taken = TakenBytes()
    for greets in (True, False):
        here, there = socket.socketpair()
        with tempfile.TemporaryDirectory(dir=directory) as root:
            sending = spawn.Process(
                target=send, args=(there, sent), kwargs={"waits": waits, "greets": greets}
            )
            sending.start()
            there.close()
            if greets:
                uvloop.run(slave(Path(root), here, sent[-1].end, taken))
            else:
                least = probe(here, Path(root) / "probe", sent, waits=waits)
            here.close()
            sending.join()
    return taken, least


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--bytes", type=size, default=512 << 20, help="of log")
    parser.add_argument("--body", type=int, default=1024)
    parser.add_argument("--messages", type=int, default=30_000, help="in small frames")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--directory", type=Path, default=None, help="where the temporary stores go")
    given = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory(dir=given.directory) as source:
        written = write_store(Path(source), given.bytes, given.body, spread_bytes=usual_spread(given.body))
        with open(min((Path(source) / "commitlog").iterdir()), "rb") as segment:
            content = segment.read(written.log_bytes)
    bounds = boundaries(content, len(content))
    figures: Figures = defaultdict(list)
    one(given.directory, turns(content, bounds[:WARM_MESSAGES], 8, 8), waits=True)
    for _ in range(given.runs):
        for frames, records in SHAPES:
            sent = turns(content, bounds[: given.messages + 1], frames, records)
            count, name = len(sent) * frames * records, f"{frames} of {records}"
            taken, least = one(given.directory, sent, waits=True)
            us_a_message = taken.cpu / (count * taken.bytes / sent[-1].end) * 1e6
            figures[f"{name}: CPU, us/message"].append(us_a_message)
            figures[f"{name}: probe, us/message"].append(least / count * 1e6)
        end = bounds[-1]
        taken, least = one(given.directory, whole(content, end), waits=False)
        figures["whole log: MB per CPU second"].append(taken.bytes / taken.cpu / 1e6)
        figures["whole log: probe, MB per CPU second"].append(end / least / 1e6)
        figures["whole log: MB/s, level and dispatched"].append(taken.bytes / taken.wall / 1e6)
        figures["whole log: ms of dispatch after the last byte"].append(taken.behind * 1e3)
    for name, values in figures.items():
        print(f"{name:48} {spread(values, '', 2)}")
    print(machine())


if __name__ == "__main__":
    main()
