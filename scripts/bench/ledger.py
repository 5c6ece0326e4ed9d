"""The cost of many entries for a member of a Raft group: the time of its start, and its memory while it is open.

    python -m scripts.bench.ledger [--entries 10000000] [--body 32] [--behind 50000] [--runs 3] [--directory DIR]

A ledger of that many entries, with a new term each hundred thousand, is written directly. Its checkpoint is `--behind` entries
before its end, as when a member is killed. A member of a group of three opens it in a separate process. Measured are wall
clock and CPU of its start, after which it takes part; the same for applying everything, which a member without snapshots must
do; the longest turn of the event loop meanwhile, in CPU; and memory that no file backs. The probes of the same run are the
same with an empty ledger, and a CRC-32 of as many bytes."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from zlib import crc32

from dledger.node.listener import NodeListener
from dledger.node.node import DLedgerNode
from dledger.raft.entries import Entry
from dledger.raft.settings import DLedgerSettings
from dledger.storage.entry import BLANK, BLANK_MAGIC, ENTRY_HEADER_BYTES, encode_index_unit, header_of
from mqruntime.collector import GcTuner
from mqruntime.realruntime import real_runtime
from remoting.client import RemotingClient
from scripts.bench.measured import machine, own_mib, spread
from scripts.bench.options import bounded, options

PEERS = {f"n{number}": f"127.0.0.1:{9 + number}" for number in range(3)}
"""Addresses at which no server listens."""
TERM_ENTRIES = 100_000
PROBE_BYTES = 1 << 20
ROWS = {
    "start": "s", "CPU of the start": "s", "memory after the start": "MiB", "CPU to apply all": "s",
    "longest turn meanwhile": "ms", "memory after that": "MiB", "CRC-32 of the data": "s",
}  # fmt: skip


class Files:
    """The files of one folder, filled from the first byte on."""

    def __init__(self, folder: Path, file_bytes: int) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.file_bytes = file_bytes
        self.end = 0
        self.waiting = bytearray()

    def add(self, data: bytes) -> None:
        self.waiting += data
        if len(self.waiting) >= PROBE_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write buffered data, which may continue in another file."""
        while self.waiting:
            number, offset = divmod(self.end, self.file_bytes)
            path = self.folder / f"{number * self.file_bytes:020d}"
            with path.open("r+b" if path.exists() else "w+b") as file:
                file.truncate(self.file_bytes)
                file.seek(offset)
                written = file.write(self.waiting[: self.file_bytes - offset])
            del self.waiting[:written]
            self.end += written


def write_ledger(root: Path, entries: int, body_bytes: int) -> None:
    settings = DLedgerSettings()
    folder = root / "dledger-n0"
    data, index = (
        Files(folder / "data", settings.data_file_bytes),
        Files(folder / "index", settings.index_file_bytes),
    )
    position = check = 0
    for number in range(entries):
        entry = Entry(number, 1 + number // TERM_ENTRIES, number.to_bytes(body_bytes, "big"))
        left = settings.data_file_bytes - position % settings.data_file_bytes
        if ENTRY_HEADER_BYTES + body_bytes + BLANK.size > left:
            data.add(BLANK.pack(BLANK_MAGIC, left).ljust(left, b"\0"))
            position += left
        header, check = header_of(entry, position, 0, check)
        data.add(header + entry.body)
        index.add(encode_index_unit(entry, position))
        position += ENTRY_HEADER_BYTES + body_bytes
    data.flush()
    index.flush()
    (folder / "currterm").write_text(
        f"voteLeader=\ncurrTerm={1 + entries // TERM_ENTRIES}\nmembers=n0,n1,n2\n"
    )


def write_checkpoint(root: Path, entries: int, behind: int) -> None:
    synced = max(entries - 1 - behind, -1)
    text = f"endIndex={entries - 1}\ncommittedIndex={synced}\nsyncedIndex={synced}\n"
    (root / "dledger-n0/checkpoint").write_text(text)


class Counter:
    """A state machine of one number."""

    def __init__(self) -> None:
        self.applied = 0

    def apply(self, index: int, body: bytes) -> object:
        self.applied += 1
        return None


async def longest_turn(ended: asyncio.Event) -> float:
    """The longest CPU time of this thread, in ms, between two turns of this task."""
    longest, before = 0.0, time.thread_time()
    while not ended.is_set():
        await asyncio.sleep(0)
        now = time.thread_time()
        longest, before = max(longest, now - before), now
    return longest * 1000


class Quiet(NodeListener):
    def failed(self, error: BaseException) -> None:
        raise SystemExit(f"the member failed: {error}")


def measure(root: Path, answer: Connection) -> None:
    async def run() -> None:
        GcTuner().start()  # as in a controller
        runtime = real_runtime(root)
        client = RemotingClient(clock=runtime.clock)
        counter = Counter()
        node = DLedgerNode(
            self_id="n0", peers=PEERS, group="bench", runtime=runtime, state_machine=counter, client=client,
            settings=DLedgerSettings(), listener=Quiet(),
        )  # fmt: skip
        wall, cpu = time.perf_counter(), time.process_time()
        await node.start()
        started = [time.perf_counter() - wall, time.process_time() - cpu, own_mib(os.getpid())]
        ended, cpu = asyncio.Event(), time.process_time()
        watched = asyncio.create_task(longest_turn(ended))
        await node.replayed()
        cpu = time.process_time() - cpu
        ended.set()
        answer.send([*started, cpu, await watched, own_mib(os.getpid()), crc_seconds(root)])
        await node.stop()
        await client.close()

    asyncio.run(run())


def crc_seconds(root: Path) -> float:
    """The CPU to read the content of the data files, without holes, and to compute a CRC of it."""
    began = time.process_time()
    for path in sorted((root / "dledger-n0/data").glob("*")):
        with path.open("rb") as file:
            for _ in range(path.stat().st_blocks * 512 // PROBE_BYTES):
                crc32(file.read(PROBE_BYTES))
    return time.process_time() - began


def measured(root: Path) -> list[float]:
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe(duplex=False)
    process = spawn.Process(target=measure, args=(root, there))
    process.start()
    there.close()
    values: list[float] = here.recv()
    process.join()
    return values


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--entries", type=bounded(1, 100_000_000), default=10_000_000)
    parser.add_argument("--body", type=bounded(8, 65536), default=32, help="bytes of each entry")
    parser.add_argument(
        "--behind", type=bounded(0, 10_000_000), default=50_000, help="entries after the checkpoint"
    )
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--directory", type=Path, default=None, help="where the temporary ledger goes")
    given = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory(dir=given.directory) as folder:
        full, empty = Path(folder) / "full", Path(folder) / "empty"
        write_ledger(full, given.entries, given.body)
        found: dict[str, list[list[float]]] = {f"{given.entries:,} entries": [], "empty": []}
        for _ in range(given.runs):
            write_checkpoint(full, given.entries, given.behind)
            for runs, root in zip(found.values(), (full, empty), strict=True):
                runs.append(measured(root))
    for name, runs in found.items():
        for number, (row, unit) in enumerate(ROWS.items()):
            print(f"{name:<20} {row:<24} {spread([run[number] for run in runs], unit, 3)}")
    print(machine())


if __name__ == "__main__":
    main()
