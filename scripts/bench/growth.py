"""Whether a reader's speed and memory stay the same while the log grows: rows per second of one process, by the log's size.

    python -m scripts.bench.growth [--bytes 1g --bytes 5g --bytes 20g] [--body 1024] [--runs 3] [--directory DIR]
    python -m scripts.bench.growth --topics 0 --topics 200 --topics 2000 --topics 10000 [--seconds 5] [--written] [--profile]

Each store is written by scripts.bench.replaylog and read completely with default columns. Each run has its own process, and a
first run is not counted. If the log is larger than the page cache, the speed of the disk is measured.

With `--topics` three brokers at contract C are measured with that many topics of 8 queues and as many groups, one number after
the other. Measured are the ms for a change of a topic (17) or group (200); sends per second to another topic on one
connection, without changes and with ten changes a second; the longest turn of the event loop in CPU time; anonymous memory;
and a slave's start after SIGKILL. With `--written` each queue has a message."""

from __future__ import annotations

import multiprocessing
import statistics
import tempfile
import time
from pathlib import Path

from scripts.bench.measured import machine, spread
from scripts.bench.options import options
from scripts.bench.replaylog import size, usual_spread, write_store
from scripts.bench.topicgrowth import measure
from sparkreplay.read.options import read_options
from sparkreplay.read.reader import plan_read, read_all

SHARE_MIN = 0.8


def read_once(store: str) -> tuple[float, float]:
    """Rows per second from the first look at the store to the last row, and the process's peak resident memory in MiB."""
    began = time.perf_counter()
    rows = sum(batch.num_rows for batch in read_all(plan_read(read_options({"path": store}))))
    seconds = time.perf_counter() - began
    lines = Path("/proc/self/status").read_text().splitlines()
    peak = next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))
    return rows / seconds, peak


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--bytes", action="append")
    parser.add_argument("--body", type=int, default=1024)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument(
        "--topics", type=int, action="append", default=[], help="measure brokers with so many"
    )
    parser.add_argument("--seconds", type=float, default=5.0, help="of sends at each number of topics")
    parser.add_argument("--written", action="store_true", help="each queue has a message")
    parser.add_argument("--profile", action="store_true", help="where the master's CPU goes")
    given = parser.parse_args()
    if given.topics:
        measure(given.topics, given.seconds, written=given.written, profile=given.profile)
        return
    print(machine())
    medians = []
    for text in given.bytes or ["1g", "5g", "20g"]:
        with (
            tempfile.TemporaryDirectory(prefix="autoswitch-mq-bench-", dir=given.directory) as folder,
            multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as process,
        ):
            write_store(Path(folder), size(text), given.body, spread_bytes=usual_spread(given.body))
            found = [process.apply(read_once, (folder,)) for _ in range(given.runs + 1)][1:]
        rates = [rate for rate, _ in found]
        medians.append(statistics.median(rates))
        print(
            f"{text:>5}  {spread(rates, 'rows/s', 0)}  peak memory {max(peak for _, peak in found):.0f} MiB",
            flush=True,
        )
    if min(medians) < SHARE_MIN * max(medians):
        raise SystemExit(f"the slowest is below {SHARE_MIN} of the fastest")


if __name__ == "__main__":
    main()
