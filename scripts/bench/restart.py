"""How long a store takes until it serves after SIGKILL under load, and how much CPU it needs.

    python -m scripts.bench.restart [--bytes 3g] [--load 64m] [--body 1024] [--runs 3] [--directory DIR]

A store of so many bytes (scripts.bench.replaylog) is indexed and stopped cleanly. In each run a process opens it, takes sends
for another `--load` bytes, which are confirmed when they come, and kills itself. The restart is measured in a separate
process: wall clock and CPU of `store.start()`, and of the probe, a bare CRC-32 of as many bytes as the start walked."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from zlib import crc32

from messagestore.messages import MessageToStore
from messagestore.record import pack_host
from messagestore.store.messagestore import MessageStore
from messagestore.store.settings import StoreSettings
from mqruntime.realruntime import real_runtime
from scripts.bench.measured import machine, spread
from scripts.bench.options import options
from scripts.bench.replaylog import TOPICS, size, usual_spread, write_store

BATCH = 64
PROPERTIES = b"UNIQ_KEY\x010A0102030A5C18B4AAC3%012X\x02KEYS\x01l%010d\x02WAIT\x01true\x02TAGS\x01paid\x02"
PROBE_BYTES = 1024


def failed(error: BaseException) -> None:
    raise SystemExit(f"the store failed: {error}")


def opened(root: Path) -> MessageStore:
    return MessageStore(real_runtime(root), StoreSettings(), on_fatal=failed)


def index_and_stop(root: Path) -> None:
    async def run() -> None:
        store = opened(root)
        await store.start()
        await store.stop()

    asyncio.run(run())


def send_and_die(root: Path, load_bytes: int, body_bytes: int) -> None:
    """Send, and then end at once. Data after the last flush and the last checkpoint is only in memory."""

    async def run() -> None:
        store = opened(root)
        await store.start()
        await store.become_master()
        end, host, number = store.max_offset() + load_bytes, pack_host("10.0.0.9", 5000), 0
        while store.max_offset() < end:
            sends = [
                MessageToStore(
                    TOPICS[each % 8],
                    each // 8 % 4,
                    os.urandom(body_bytes),
                    PROPERTIES % (each, each),
                    born_host=host,
                )
                for each in range(number, number + BATCH)
            ]
            number += BATCH
            if store.append(sends)[-1].error is not None:
                raise SystemExit("the store takes no messages; has the disk room for them?")
            store.set_confirm_offset(store.max_offset())
            await asyncio.sleep(0)
        os.kill(os.getpid(), signal.SIGKILL)

    asyncio.run(run())


def restart(root: Path, answer: Connection) -> None:
    async def run() -> None:
        store = opened(root)
        before, cpu_before = time.perf_counter(), time.process_time()
        report = await store.start()
        took, cpu = time.perf_counter() - before, time.process_time() - cpu_before
        body, walked = bytes(PROBE_BYTES), report.max_offset - report.walked_from
        before = time.process_time()
        for _ in range(walked // PROBE_BYTES):
            crc32(body)
        answer.send((took, cpu, time.process_time() - before, walked, report.walked_records))
        await store.stop()

    asyncio.run(run())


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--bytes", type=size, default=3_000_000_000, help="of log before the first run")
    parser.add_argument("--load", type=size, default=64 << 20, help="bytes sent before each SIGKILL")
    parser.add_argument("--body", type=int, default=1024)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--directory", type=Path, default=None, help="where the temporary store goes")
    given = parser.parse_args()
    print(machine())
    spawn = multiprocessing.get_context("spawn")
    walls, cpus, probes = [], [], []
    with tempfile.TemporaryDirectory(dir=given.directory) as folder:
        root = Path(folder) / "store"
        write_store(root, given.bytes, given.body, spread_bytes=usual_spread(given.body))
        index_and_stop(root)
        for _ in range(max(given.runs, 3)):
            dying = spawn.Process(target=send_and_die, args=(root, given.load, given.body))
            dying.start()
            dying.join()
            if dying.exitcode != -signal.SIGKILL:
                raise SystemExit(f"the sending process ended with {dying.exitcode}")
            here, there = spawn.Pipe(duplex=False)
            starting = spawn.Process(target=restart, args=(root, there))
            starting.start()
            there.close()
            wall, cpu, probe, walked, records = here.recv()
            starting.join()
            walls.append(wall)
            cpus.append(cpu)
            probes.append(probe)
            print(
                f"walked {walked:,} bytes, {records:,} records: {wall:.2f} s, CPU {cpu:.2f} s, probe {probe:.2f} s"
            )
    print(f"start after SIGKILL   {spread(walls, 's', 2)}")
    print(f"CPU of it             {spread(cpus, 's', 2)}")
    print(
        f"CPU, multiples of CRC {spread([cpu / probe for cpu, probe in zip(cpus, probes, strict=True)], 'x', 2)}"
    )
    print(machine())


if __name__ == "__main__":
    main()
