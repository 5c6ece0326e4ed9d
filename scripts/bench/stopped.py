"""How long sends get no acknowledgement when the master is stopped (SIGSTOP), which does not end its connections.

    python -m scripts.bench.stopped [--count 3] [--settings conf/low-latency.conf] [--seed 1]

There are two new clusters of seven processes: one with shipped settings, and one whose brokers also have `--settings`. Each
gets drills as by `scripts/drill pause`, in which the master is stopped until another master acknowledges. The client asks for
routes as soon as a send fails. An outage lasts from the last acknowledgement before the stop to the first one after it. The
exit code is 1 if a median misses its target, or anything acknowledged is lost."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
from pathlib import Path

from localcluster.cluster import Cluster
from localcluster.drill import DrillKind, run_drills
from localcluster.processes import SOURCE_ROOT
from mqruntime.properties import parse
from scripts.bench.measured import machine, spread
from scripts.bench.options import bounded, options

TOPIC = "stopped"
DEFAULT_S_MAX, LOW_LATENCY_S_MAX = 11, 3


def outages_s(settings: dict[str, str], count: int, seed: int) -> list[float]:
    """The outages of `count` drills in a cluster whose brokers have `settings`."""
    with tempfile.TemporaryDirectory(prefix="autoswitch-mq-bench-") as folder:
        with Cluster.create(Path(folder) / "cluster", broker_settings=settings) as cluster:
            cluster.start()
            drills = run_drills(cluster, DrillKind.PAUSE, count, seed=seed, topic=TOPIC, say=print)
            report = asyncio.run(drills)
    if not report.passed:
        raise SystemExit(report.failure or f"the drills did not pass: {report.verdict}")
    return [(drill.outage_ms or 0) / 1000 for drill in report.drills]


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("--count", type=bounded(1, 100), default=3, help="of stops with either settings")
    parser.add_argument("--settings", type=Path, default=SOURCE_ROOT / "conf" / "low-latency.conf")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    quick = {entry.key: entry.value for entry in parse(given.settings.read_bytes()).entries}
    print(machine(), flush=True)
    missed = 0
    for name, settings, most in (
        ("default timers", {}, DEFAULT_S_MAX),
        (given.settings.name, quick, LOW_LATENCY_S_MAX),
    ):
        took = outages_s(settings, given.count, given.seed)
        met = statistics.median(took) <= most
        missed += not met
        print(f"{name}: {spread(took, 's')}, reach {most} s: {'met' if met else 'missed'}", flush=True)
    print(machine())
    return int(missed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
