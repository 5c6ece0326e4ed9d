"""Run the layers of tests, and add up their coverage.

Tests marked `long` run only with --long, which runs no other tests; a plain run tests the same on a small scale. With
--seconds no test begins after that time. Tests that were not reached are listed, and are no failures.

A layer is divided into parts. Each part is a separate pytest run, so a part that dies does not affect others. As many parts of
all layers run in parallel as keep the cores busy, because some tests only wait for servers. tests/conftest.py writes a run's
counts (tests, seeds, faults, skips with their reasons) to the file that TALLY_FILE names."""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

import pytest

LAYERS = {
    "unit": ["tests/unit"],
    "cluster": ["tests/cluster"],
    "simulation": ["tests/simulation"],
    "crash": ["tests/crash"],
    "process": ["tests/process"],
    "spark": ["tests/spark"],
    "interop": ["tests/interop"],
}
UNIT = Path("tests/unit")
PACKAGES = sorted({path.parent.name for path in (Path(__file__).parents[1] / UNIT).glob("*/test_*.py")})
LEFT = "deselected"
WORKS = 100
SLOWEST = ("--durations=15", "--durations-min=4")
"""Passed to each run, so that the plugin that measures times is found."""


@dataclass(frozen=True)
class LayerPart:
    """The tests of `layer` that `paths` name or, without paths, all tests that no other part of the layer has. `load` is how
    many percent of a core they keep busy."""

    layer: str
    load: int
    paths: tuple[str, ...] = ()


PARTS = [
    LayerPart("simulation", WORKS),
    LayerPart("interop", 25, ("tests/interop/test_java_pairs.py",)),
    LayerPart("interop", 40),
    LayerPart("process", 35),
    LayerPart("simulation", WORKS, ("tests/simulation/test_cluster.py", "tests/simulation/test_compiled.py")),
    LayerPart("simulation", WORKS, ("tests/simulation/test_groups.py",)),
    LayerPart("unit", WORKS),
    LayerPart("cluster", WORKS),
    LayerPart("crash", WORKS),
    LayerPart("unit", WORKS, ("tests/unit/messagestore", "tests/unit/sparkreplay")),
    LayerPart("crash", WORKS, ("tests/crash/test_ledger_crash_images.py",)),
    LayerPart(
        "process",
        35,
        (
            "tests/process/test_full_disks.py",
            "tests/process/test_live_bound.py",
            "tests/process/test_pair_processes.py",
            "tests/process/test_raft_mode_moves.py",
            "tests/process/test_replay_commands.py",
            "tests/process/test_resend.py",
            "tests/process/test_soak.py",
            "tests/process/test_stream_through_failovers.py",
        ),
    ),
    LayerPart(
        "process",
        40,
        (
            "tests/process/test_documents.py",
            "tests/process/test_linearizable.py",
            "tests/process/test_partitions.py",
            "tests/process/test_raft_mode.py",
            "tests/process/test_retention.py",
            "tests/process/test_wheel.py",
        ),
    ),
    LayerPart(
        "process",
        40,
        (
            "tests/process/test_frozen_hosts.py",
            "tests/process/test_hostile_peers.py",
            "tests/process/test_mixed_stores.py",
            "tests/process/test_power_loss_images.py",
            "tests/process/test_raft_mode_takeover.py",
            "tests/process/test_replaced_controllers.py",
            "tests/process/test_sample_configurations.py",
        ),
    ),
    LayerPart(
        "interop",
        40,
        (
            "tests/interop/test_cpp_client.py",
            "tests/interop/test_first_programs.py",
            "tests/interop/test_java_client_in_raft_mode.py",
            "tests/interop/test_java_dledger_client.py",
            "tests/interop/test_java_filters.py",
            "tests/interop/test_java_transactions.py",
        ),
    ),
    LayerPart(
        "interop",
        50,
        ("tests/interop/test_java_raft_mode.py", "tests/interop/test_java_raft_mode_and_ours.py"),
    ),
    LayerPart(
        "interop", 45, ("tests/interop/test_java_controllers.py", "tests/interop/test_java_raft_stores.py")
    ),
    LayerPart("spark", 90),
    LayerPart(
        "spark",
        80,
        (
            "tests/spark/test_commands.py",
            "tests/spark/test_data_source_speculation.py",
            "tests/spark/test_executor_package.py",
            "tests/spark/test_replicas_read_alike.py",
        ),
    ),
    LayerPart("interop", 45, ("tests/interop/test_java_hand_over.py",)),
    LayerPart("interop", 45, ("tests/interop/test_java_mixed_set.py", "tests/interop/test_java_fleets.py")),
]
"""The parts in the order in which they start if they fit. The longest is first, but parts that keep a core busy are mixed with
parts that wait, because the JVMs of the latter would starve each other if they all began at once. Spark gives a Python worker
10 s to connect, so little else runs at that time. Tests that share a fixture are in one part."""


def room() -> int:
    """How much load the usable cores can take. At least that of two cores, so that no machine runs one part after the other."""
    return 100 * max(2, len(os.sched_getaffinity(0)))


def arguments(part: LayerPart, long: bool) -> list[str]:
    """The arguments for pytest."""
    others = [path for other in PARTS if other.layer == part.layer for path in other.paths]
    which = ["-m", "long" if long else "not long"]
    return [*which, *([*part.paths] or [*LAYERS[part.layer], *(f"--ignore={path}" for path in others)])]


@dataclass
class Run:
    """A running part, and the files for its output and counts."""

    part: LayerPart
    process: subprocess.Popen[str]
    said: TextIO
    tally: Path
    began_s: float = field(default_factory=time.monotonic)


@dataclass
class Totals:
    counts: Counter[str] = field(default_factory=Counter)
    skips: Counter[str] = field(default_factory=Counter)
    seconds: Counter[str] = field(default_factory=Counter)
    broken: set[str] = field(default_factory=set)
    unreached: list[str] = field(default_factory=list)
    cpu_s: float = 0

    def add(self, run: Run, cpu_s: float) -> None:
        """Print the output of an ended run, and add its counts. `cpu_s` is the CPU of the run and the processes it waited
        for."""
        layer, seconds = run.part.layer, time.monotonic() - run.began_s
        run.said.seek(0)
        print(
            f"== {layer}, {seconds:.0f} s, {cpu_s:.0f} of CPU: {' '.join(run.part.paths) or 'the rest'}\n{run.said.read()}",
            flush=True,
        )
        self.seconds[layer] += round(seconds)
        self.cpu_s += cpu_s
        if run.tally.exists():
            tally = json.loads(run.tally.read_text())
            self.counts.update(tally["counts"])
            self.skips.update(tally["skips"])
            self.unreached += tally["unreached"]
        if (
            run.process.returncode not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
            or not run.tally.exists()
        ):
            self.broken.add(layer)


def start(part: LayerPart, long: bool, end_s: float, folder: Path, opened: ExitStack) -> Run:
    """Start a part. None of its tests begins after `end_s` of the monotonic clock."""
    own = Path(tempfile.mkdtemp(dir=folder))
    said = opened.enter_context((own / "said").open("w+"))
    tally = own / "tally"
    files = own / "files"  # separate, because parallel runs would delete each other's
    command = [sys.executable, "-m", "pytest", *SLOWEST, f"--basetemp={files}", *arguments(part, long)]
    environment = {**os.environ, "TALLY_FILE": str(tally), "BEGIN_UNTIL_S": str(end_s)}
    process = subprocess.Popen(command, env=environment, stdout=said, stderr=said, text=True)
    return Run(part, opened.enter_context(process), said, tally)


def run_all(parts: list[LayerPart], long: bool, end_s: float, folder: Path) -> Totals:
    """Run all parts. In their order, each starts as soon as there is room for it."""
    totals, left, running = Totals(), list(parts), dict[int, Run]()
    with ExitStack() as opened:
        while left or running:
            free = room() - sum(run.part.load for run in running.values())
            part = next((part for part in left if part.load <= free), None)
            if part is not None:
                left.remove(part)
                run = start(part, long, end_s, folder, opened)
                running[run.process.pid] = run
                continue
            pid, status, used = os.wait4(-1, 0)
            ended = running.pop(pid)
            ended.process.returncode = os.waitstatus_to_exitcode(status)
            totals.add(ended, used.ru_utime + used.ru_stime)
    return totals


def parts_of(names: list[str]) -> list[LayerPart]:
    """The parts of the named layers, and then the unit tests of each package whose layer was not named."""
    packages = [] if "unit" in names else [name for name in PACKAGES if name in names]
    return [
        *(part for part in PARTS if part.layer in names),
        *(LayerPart("unit", WORKS, (str(UNIT / name),)) for name in packages),
    ]


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="scripts/test", description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"layers: {' '.join(LAYERS)}; unit tests of packages: {' '.join(PACKAGES)}; default: all layers",
    )
    parser.add_argument("--long", action="store_true", help="those that a plain run leaves out")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no test behind so many")
    parser.add_argument("--unreached", type=Path, help="a file for the names of those that did not begin")
    asked = parser.parse_args(words)
    if unknown := [name for name in asked.names if name not in {*LAYERS, *PACKAGES}]:
        parser.error(f"unknown name {unknown[0]}; one of: {' '.join([*LAYERS, *PACKAGES])}")
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        parts = parts_of(asked.names or [*LAYERS])
        totals = run_all(parts, asked.long, began_s + asked.seconds, Path(folder))
    report(totals, asked.long, time.monotonic() - began_s)
    if asked.unreached is not None:
        asked.unreached.write_text("".join(f"{name}\n" for name in sorted(totals.unreached)))
    return 1 if totals.broken or totals.counts["failed"] else 0


def report(totals: Totals, long: bool, seconds: float) -> None:
    """Print the report. The last line has the counts of tests."""
    counts = totals.counts
    print("== totals")
    layers = "  ".join(f"{name} {value}" for name, value in sorted(totals.seconds.items()))
    print(f"seconds: {seconds:.0f}, {totals.cpu_s:.0f} of CPU; of parts, side by side: {layers}")
    for what in sorted(set(counts) - {"passed", "failed", "skipped", LEFT}):
        print(f"{what}: {counts[what]}")
    if not long:
        print(f"{counts[LEFT]} left to scripts/test --long")
    for reason, count in sorted(totals.skips.items()):
        print(f"skipped {count}: {reason}")
    if totals.unreached:
        print(f"{len(totals.unreached)} not reached in time")
    if totals.broken:
        print(f"broken layers: {' '.join(sorted(totals.broken))}")
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
