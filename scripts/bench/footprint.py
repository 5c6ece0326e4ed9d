"""The cost of an idle cluster of seven processes: memory before load, and CPU of one core.

    python -m scripts.bench.footprint [--runs 3] [--seconds 30]

Each run starts a new cluster with shipped settings, and waits until the cluster is whole and the work of its start is done. It
reads the resident memory, and then the CPU time of all seven processes together in the following seconds. The exit code is 1
if a median misses its target."""

from __future__ import annotations

import statistics
import time

from scripts.bench.measured import cpu_seconds, machine, own_mib, resident_mib, spread
from scripts.bench.options import options
from scripts.bench.wholecluster import whole_cluster

SETTLE_S = 10  # elections, first registrations and first reports end in this time
RESIDENT_MIB_TARGETS = {"namesrv": 60, "controller": 60, "broker": 90}
IDLE_PERCENT_TARGET = 4


def run_once(seconds: float) -> tuple[dict[str, float], dict[str, float], dict[str, float]]:
    """Process name -> resident MiB, own MiB, and percent of a core used while idle."""
    with whole_cluster() as cluster:
        time.sleep(SETTLE_S)
        pids = {name: state.pid for name, state in cluster.states().items() if state is not None}
        assert list(pids) == cluster.layout.names, "a process ended by itself"
        resident = {name: resident_mib(pid) for name, pid in pids.items()}
        own = {name: own_mib(pid) for name, pid in pids.items()}
        began = time.monotonic()
        before = {name: cpu_seconds(pid) for name, pid in pids.items()}
        time.sleep(seconds)
        took = time.monotonic() - began
        idle = {name: (cpu_seconds(pid) - before[name]) / took * 100 for name, pid in pids.items()}
        return resident, own, idle


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=30, help="how long idle CPU is counted in each run")
    arguments = parser.parse_args()
    print(machine())
    runs = [run_once(arguments.seconds) for _ in range(arguments.runs)]
    missed = 0
    for kind, target in RESIDENT_MIB_TARGETS.items():
        worst = [max(value for name, value in run[0].items() if name.startswith(kind)) for run in runs]
        own = [max(value for name, value in run[1].items() if name.startswith(kind)) for run in runs]
        missed += statistics.median(worst) > target
        print(f"{kind:<10} resident, largest of its kind: {spread(worst, 'MiB')}, target {target}")
        print(f"{'':<10} of which no file backs:        {spread(own, 'MiB')}")
    for name in runs[0][2]:
        print(f"{name:<13} idle CPU: {spread([run[2][name] for run in runs], '%', 2)}")
    together = [sum(run[2].values()) for run in runs]
    missed += statistics.median(together) > IDLE_PERCENT_TARGET
    print(
        f"together      idle CPU: {spread(together, '% of a core', 2)} over {arguments.seconds:g} s, "
        f"target {IDLE_PERCENT_TARGET}"
    )
    print(machine())
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
