"""How fast a store makes consume queue and index entries of received records, and how soon a slave has caught up.

    python -m scripts.bench.dispatch [--bytes 256m] [--body 1024] [--runs 5] [--directory DIR]

The log is that of scripts.bench.replaylog: 8 topics of 4 queues; each message has UNIQ_KEY, one word of KEYS and a tag.
*slave*: all of the log is received and confirmed, and then dispatched with only `store.dispatch`. *level*: the log is placed
as by a link, 256 KiB at a time, and confirmed at once; measured are the speed, and the time from the last byte until
everything is dispatched. *master*: sends of 32 and of 1 message are appended, confirmed and dispatched in turn; only dispatch
is measured. CPU is that of the one thread, so that other jobs on the machine matter little. The probe is a bare walk over the
same log in the same run, with one call of `struct` for each record's head, one for a queue entry, and one for an index
entry."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from struct import Struct

from messagestore.messages import MessageToStore
from messagestore.record import MAGIC_BLANK, pack_host
from messagestore.store.messagestore import MessageStore
from messagestore.store.settings import StoreSettings
from mqruntime.realruntime import real_runtime
from scripts.bench.measured import machine, spread
from scripts.bench.options import options
from scripts.bench.replaylog import size, usual_spread, write_store

PIECE_BYTES = 256 << 10
MASTER_MESSAGES = 32_000
HEAD, QUEUE_ENTRY, INDEX_ENTRY = Struct(">iI12xqq"), Struct(">qiq"), Struct(">iqii")
PROPERTIES = b"UNIQ_KEY\x010A0102030A5C18B4AAC2%012X\x02WAIT\x01true\x02TAGS\x01TagA\x02"

Figures = dict[str, list[float]]


def failed(error: BaseException) -> None:
    raise SystemExit(f"the store failed: {error}")


def opened(root: Path) -> MessageStore:
    return MessageStore(real_runtime(root), StoreSettings(), on_fatal=failed)


def records_of(content: bytes) -> int:
    """The number of records in a segment, and the probe's time, which is the least that Python needs for their entries."""
    made, at, records = bytearray(64), 0, 0
    while True:
        record_bytes, magic, queue_offset, phy = HEAD.unpack_from(content, at)
        if magic == MAGIC_BLANK or not record_bytes:
            return records
        QUEUE_ENTRY.pack_into(made, 0, phy, record_bytes, queue_offset)
        INDEX_ENTRY.pack_into(made, 20, records, phy, 0, 0)
        at += record_bytes
        records += 1


def received(store: MessageStore, content: bytes, log_end: int) -> Iterator[int]:
    """Place a segment as a link does, and yield the end after each piece."""
    base, end = store.max_offset(), min(store.max_offset() + len(content), log_end)
    while (at := store.max_offset()) < end:
        view = store.write_view(at, min(PIECE_BYTES, end - at))
        view[:] = content[at - base : at - base + len(view)]
        store.advance(at + len(view))
        yield at + len(view)


def rest_of_dispatch(store: MessageStore, log_end: int) -> float:
    """Dispatch the rest, and return the CPU of the longest step in ms."""
    longest = 0.0
    while store.dispatched_offset() < log_end:
        before = time.thread_time()
        store.dispatch()
        longest = max(longest, time.thread_time() - before)
    return longest * 1000


async def slave(root: Path, contents: list[bytes], log_end: int, count: int, figures: Figures) -> None:
    store = opened(root)
    await store.start()
    for content in contents:
        for _ in received(store, content, log_end):
            pass
    store.set_confirm_offset(log_end)
    wall, cpu = time.perf_counter(), time.thread_time()
    longest_ms = rest_of_dispatch(store, log_end)
    cpu, wall = time.thread_time() - cpu, time.perf_counter() - wall
    figures["slave: CPU, us/message"].append(cpu / count * 1e6)
    figures["slave: longest step, CPU, ms"].append(longest_ms)
    figures["slave: MB per CPU second"].append(log_end / cpu / 1e6)
    figures["slave: MB/s"].append(log_end / wall / 1e6)
    await store.stop()


async def level(root: Path, contents: list[bytes], log_end: int, figures: Figures) -> None:
    store = opened(root)
    await store.start()
    wall, cpu = time.perf_counter(), time.thread_time()
    for content in contents:
        for end in received(store, content, log_end):
            store.set_confirm_offset(end)
            await asyncio.sleep(0)
    filled = time.perf_counter()
    rest_of_dispatch(store, log_end)
    done, cpu = time.perf_counter(), time.thread_time() - cpu
    figures["level: received and dispatched, MB per CPU second"].append(log_end / cpu / 1e6)
    figures["level: received and dispatched, MB/s"].append(log_end / (done - wall) / 1e6)
    figures["level: ms after the last byte"].append((done - filled) * 1000)
    await store.stop()


async def master(root: Path, batch: int, figures: Figures) -> None:
    store = opened(root)
    await store.start()
    await store.become_master()
    host, body, cpu = pack_host("10.0.0.9", 5000), bytes(1024), 0.0
    for number in range(0, MASTER_MESSAGES, batch):
        store.append(
            [
                MessageToStore(
                    "TopicTest", each % 8, body, PROPERTIES % each, born_timestamp=1, born_host=host
                )
                for each in range(number, number + batch)
            ]
        )
        store.set_confirm_offset(store.max_offset())
        before = time.thread_time()
        while store.dispatched_offset() < store.confirm_offset():
            store.dispatch()
        cpu += time.thread_time() - before
    figures[f"master: sends of {batch}, CPU, us/message"].append(cpu / MASTER_MESSAGES * 1e6)
    await store.stop()


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--bytes", type=size, default=256 << 20, help="of log")
    parser.add_argument("--body", type=int, default=1024)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--directory", type=Path, default=None, help="where the temporary stores go")
    given = parser.parse_args()
    print(machine())
    figures: Figures = defaultdict(list)
    with tempfile.TemporaryDirectory(dir=given.directory) as source:
        written = write_store(Path(source), given.bytes, given.body, spread_bytes=usual_spread(given.body))
        end, count = written.log_bytes, written.messages
        contents = [path.read_bytes() for path in sorted((Path(source) / "commitlog").iterdir())]
    print(f"{count:,} messages, {end:,} bytes of log")
    for _ in range(max(given.runs, 3)):
        before = time.thread_time()
        assert sum(records_of(content) for content in contents) == count
        figures["probe: CPU, us/message"].append((time.thread_time() - before) / count * 1e6)
        with tempfile.TemporaryDirectory(dir=given.directory) as root:
            asyncio.run(slave(Path(root), contents, end, count, figures))
        figures["slave: multiples of the probe"].append(
            figures["slave: CPU, us/message"][-1] / figures["probe: CPU, us/message"][-1]
        )
        with tempfile.TemporaryDirectory(dir=given.directory) as root:
            asyncio.run(level(Path(root), contents, end, figures))
        for batch in (32, 1):
            with tempfile.TemporaryDirectory(dir=given.directory) as root:
                asyncio.run(master(Path(root), batch, figures))
    for name, values in figures.items():
        print(f"{name:52} {spread(values, '', 2)}")
    print(machine())


if __name__ == "__main__":
    main()
