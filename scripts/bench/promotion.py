"""How long a store takes until it serves, as a new master that has dispatched nothing of its log, and after a SIGKILL.

    python -m scripts.bench.promotion [--bytes 256m] [--body 1024] [--runs 5] [--directory DIR]

Promotion: a slave holds that many confirmed bytes that no consume queue lists, as at the end of a catch-up. Measured are the
time from the call until sends are accepted, and the longest time for which the event loop did nothing else. Restart: wall
clock and CPU of the start of a store that was killed with one message in its segment of 1 GiB."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import tempfile
import time
from pathlib import Path

from messagestore.messages import MessageToStore
from messagestore.record import pack_host
from messagestore.store.messagestore import MessageStore
from messagestore.store.settings import StoreSettings
from mqruntime.realruntime import real_runtime
from scripts.bench.measured import machine, spread
from scripts.bench.options import options
from scripts.bench.replaylog import size

QUEUES = 32
BATCH = 256
PROPERTIES = b"UNIQ_KEY\x017F00000100002A9F0000000000000001\x02WAIT\x01true\x02TAGS\x01TagA\x02"


async def master(root: Path) -> MessageStore:
    store = MessageStore(real_runtime(root), StoreSettings(), on_fatal=failed)
    await store.start()
    await store.become_master()
    return store


async def longest_stop(stops: list[float]) -> None:
    """Run until cancelled, and measure how late the loop comes back to a task that only lets other tasks run."""
    while True:
        before = time.perf_counter()
        await asyncio.sleep(0)
        stops.append(time.perf_counter() - before)


async def promote(root: Path, log_bytes: int, body_bytes: int) -> tuple[float, float]:
    """Return (seconds until sends are accepted, longest stop of the loop in ms)."""
    store = await master(root)
    host, body = pack_host("10.0.0.9", 5000), bytes(body_bytes)
    sends = [
        MessageToStore(
            "TopicTest", number % QUEUES, body, PROPERTIES, born_timestamp=1_700_000_000_000, born_host=host
        )
        for number in range(BATCH)
    ]
    while store.max_offset() < log_bytes:
        if store.append(sends)[-1].error is not None:
            raise SystemExit("the store takes no messages; has the disk room for them?")
        await asyncio.sleep(0)
    store.become_slave()
    await store.flush()
    stops: list[float] = []
    watcher = asyncio.create_task(longest_stop(stops))
    await asyncio.sleep(0)
    before = time.perf_counter()
    store.set_confirm_offset(store.max_offset())
    await store.truncate(store.max_offset())  # as replication does before a promotion
    await store.become_master()
    took = time.perf_counter() - before
    watcher.cancel()
    (out,) = store.append(sends[:1])
    if out.error is not None or out.queue_offset * QUEUES * (body_bytes + 100) < log_bytes // 2:
        raise SystemExit(f"the queue continues at {out.queue_offset}: {out.error}")
    await store.stop()
    return took, max(stops) * 1000


def write_one_and_die(root: Path) -> None:
    async def write() -> None:
        store = await master(root)
        store.append([MessageToStore("TopicTest", 0, b"one", born_timestamp=1_700_000_000_000)])
        store.set_confirm_offset(store.max_offset())
        await store.flush()
        os.kill(os.getpid(), signal.SIGKILL)

    asyncio.run(write())


async def restart(root: Path) -> tuple[float, float]:
    """Return the (wall clock, CPU) of the start in seconds."""
    store = MessageStore(real_runtime(root), StoreSettings(), on_fatal=failed)
    before, cpu_before = time.perf_counter(), time.process_time()
    await store.start()
    took = time.perf_counter() - before, time.process_time() - cpu_before
    if not store.max_offset():
        raise SystemExit("the message is gone")
    await store.stop()
    return took


def failed(error: BaseException) -> None:
    raise SystemExit(f"the store failed: {error}")


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--bytes", default="256m", help="confirmed and not dispatched")
    parser.add_argument("--body", type=int, default=1024)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--directory", type=Path, default=None, help="where the temporary stores go")
    given = parser.parse_args()
    print(machine())
    promotions: list[tuple[float, float]] = []
    restarts: list[tuple[float, float]] = []
    for _ in range(max(given.runs, 3)):
        with tempfile.TemporaryDirectory(dir=given.directory) as root:
            promotions.append(asyncio.run(promote(Path(root), size(given.bytes), given.body)))
        with tempfile.TemporaryDirectory(dir=given.directory) as root:
            dying = multiprocessing.get_context("spawn").Process(target=write_one_and_die, args=(Path(root),))
            dying.start()
            dying.join()
            restarts.append(asyncio.run(restart(Path(root))))
    print(f"promotion with {given.bytes} not dispatched  {spread([took for took, _ in promotions], 's', 2)}")
    print(f"longest stop of the loop  {spread([stop for _, stop in promotions], 'ms')}")
    print(f"start after SIGKILL, one message in 1 GiB  {spread([took for took, _ in restarts], 's', 2)}")
    print(f"CPU of it  {spread([cpu for _, cpu in restarts], 's', 2)}")


if __name__ == "__main__":
    main()
