"""How long `mqadmin` takes from its start to its end: the list of commands, each command's help, and real commands.

    python -m scripts.bench.cli [--runs 5]

The time is wall clock of the whole process. Real commands ask a new local cluster of seven processes. The exit code is 1 if a
median misses its target."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Sequence

from mqadmin.cli import COMMANDS
from scripts.bench.measured import machine, spread
from scripts.bench.options import options
from scripts.bench.wholecluster import whole_cluster

HELP_S_TARGET = 0.25
COMMAND_S_TARGET = 0.5


def timed(arguments: Sequence[str]) -> float:
    """How many seconds `mqadmin` takes with these arguments."""
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "mqadmin", *arguments], capture_output=True, text=True, check=False
    )
    took = time.perf_counter() - began
    if done.returncode != 0:
        raise SystemExit(f"mqadmin {' '.join(arguments)}: exit code {done.returncode}\n{done.stderr}")
    return took


def report(arguments: Sequence[str], runs: int, target_s: float) -> bool:
    """Print the figure, and return whether its median is within the target. A first run fills the caches and is not counted."""
    timed(arguments)
    took = [timed(arguments) for _ in range(runs)]
    within = statistics.median(took) <= target_s
    print(
        f"mqadmin {' '.join(arguments):<40} {spread(took, 's', 3)}{'' if within else f'  MISSES {target_s}'}"
    )
    return within


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    print(machine())
    within = [report(["--help"], runs, HELP_S_TARGET)]
    within += [report([name, "--help"], runs, HELP_S_TARGET) for name in COMMANDS]
    with whole_cluster() as cluster:
        namesrv, controllers = cluster.layout.namesrv, cluster.layout.controller_list
        for arguments in (
            ["clusterList", "-n", namesrv],
            ["topicList", "-n", namesrv],
            ["getSyncStateSet", "-a", controllers, "-b", "broker-a"],
            ["haStatus", "-n", namesrv, "-c", "DefaultCluster"],
            ["watch", "--once", "-n", namesrv],
        ):
            within.append(report(arguments, runs, COMMAND_S_TARGET))
    print(machine())
    return 0 if all(within) else 1


if __name__ == "__main__":
    raise SystemExit(main())
