"""Decoding a committed log to Arrow in one process: bytes and messages a second, by columns; one topic of eight; memory.

    python -m scripts.bench.decode [--bytes 1g] [--runs 5] [--directory DIR] [--columns NAMES ...]
    python -m scripts.bench.decode --store DIR [--store DIR ...]      stores that scripts.bench.replaylog wrote before

Data set A has bodies of 1024 ± 128 bytes, and B of 100 ± 30 bytes. Bytes are those of the log, which is in the page cache (a
first run is not counted). The column sets `meta`, `default` and `full` are the presets (full has all columns but
properties_raw); `raw` is meta with body and properties_raw. Figures are min, median and max over the runs. Each run reads the
whole log with `sparkreplay.read.reader.read_stretch`. `one topic` compares a read of one of the eight topics, by a walk and
through the consume queues, with a read of all topics, with the same columns. Memory is the growth of the process since the
first read of `full`."""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from scripts.bench.measured import machine, resident_mib, spread
from scripts.bench.options import options
from scripts.bench.replaylog import TOPICS, size, usual_spread, write_store
from sparkreplay.read.options import read_options
from sparkreplay.read.reader import ReadPlan, plan_read, read_stretch
from sparkreplay.records.schema import PRESETS

BODIES = {"A": 1024, "B": 100}
COLUMN_SETS = {
    "meta": "meta",
    "raw": ",".join((*PRESETS["meta"], "body", "properties_raw")),
    "default": "default",
    "full": "full",
}


def planned(store: Path, columns: str, **options: str) -> ReadPlan:
    return plan_read(read_options({"path": str(store), "columns": columns, **options}))


def log_bytes(read: ReadPlan) -> int:
    return sum(source.end - source.start for source in read.sources)


def seconds(read: ReadPlan) -> tuple[float, int]:
    """The time to read everything, with batches dropped when they come, and the number of rows."""
    before = time.perf_counter()
    rows = sum(batch.num_rows for stretch in read.stretches for batch in read_stretch(read, stretch))
    return time.perf_counter() - before, rows


def many(read: ReadPlan, runs: int) -> tuple[list[float], int]:
    _, rows = seconds(read)
    return [seconds(read)[0] for _ in range(runs)], rows


def memory(store: Path) -> None:
    """The growth of the process during the read of all stretches of the store."""
    read = planned(store, "full")
    base = resident_mib(os.getpid())
    held = []
    for stretch in read.stretches:
        for _ in read_stretch(read, stretch):
            held.append(resident_mib(os.getpid()) - base)
    tenth = max(1, len(held) // 10)
    print(
        f"memory above the base: {max(held[:tenth]):.0f} MiB in the first tenth, {max(held[-tenth:]):.0f} in the last, "
        f"peak {max(held):.0f} MiB over {log_bytes(read) / 2**30:.1f} GiB"
    )


def throughput(store: Path, names: Sequence[str], runs: int) -> None:
    for name in names:
        read = planned(store, COLUMN_SETS.get(name, name))
        times, rows = many(read, runs)
        print(f"{name:8} {spread([log_bytes(read) / took / 1e9 for took in times], 'GB/s', 2)}")
        print(f"{'':8} {spread([rows / took / 1e6 for took in times], 'million messages/s', 2)}")


def one_topic(store: Path, names: Sequence[str], runs: int) -> None:
    for name in names:
        columns = COLUMN_SETS.get(name, name)
        every, _ = many(planned(store, columns), runs)
        middle = statistics.median(every)
        for way in ("walk", "consumequeue"):
            times, rows = many(planned(store, columns, topic=TOPICS[4], index=way), runs)
            faster = [middle / took for took in times]
            print(
                f"{name:8} one topic of {len(TOPICS)}, {rows:,} rows, index={way}: {spread(faster, 'x all', 1)}"
            )


def measure(store: Path, given: argparse.Namespace) -> None:
    rows = seconds(planned(store, "queue_id"))[1]
    total = log_bytes(planned(store, "queue_id"))
    print(f"{store.name}: {rows:,} messages, {total:,} bytes, {total / rows:.0f} a record; {machine()}")
    memory(store)
    throughput(store, given.columns, given.runs)
    one_topic(store, [name for name in given.columns if name != "meta"], given.runs)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--store", type=Path, action="append", help="instead of the two data sets")
    parser.add_argument("--bytes", type=size, default=1 << 30, help="of each data set's log")
    parser.add_argument("--columns", nargs="+", default=list(COLUMN_SETS), help="of these sets, or names")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--directory", type=Path, default=None, help="where the temporary stores go")
    given = parser.parse_args()
    given.runs = max(given.runs, 3)
    if given.store:
        for store in given.store:
            measure(store, given)
        return
    with tempfile.TemporaryDirectory(dir=given.directory) as root:
        for name, body in BODIES.items():
            store = Path(root) / name
            write_store(store, given.bytes, body, spread_bytes=usual_spread(body))
            measure(store, given)


if __name__ == "__main__":
    main()
