"""Runs the layers of tests one after the other and adds up what they covered.

Each layer is a pytest run of its own, so that a layer that dies takes no other with it; of a long layer parts run beside
the rest, so that two cores are busy; two parts where tests wait rather than work. tests/conftest.py writes what a run counted
(tests, seeds, faults, skips with their reasons) to the file that TALLY_FILE names."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

LAYERS = {
    "unit": ["tests/architecture", "tests/unit"],
    "simulation": ["tests/simulation"],
    "crash": ["tests/crash"],
    "process": ["tests/process"],
    "spark": ["tests/spark"],
    "interop": ["tests/interop"],
}
BESIDE = {
    "unit": [["tests/unit/messagestore", "tests/unit/sparkreplay"]],
    "simulation": [["tests/simulation/test_cluster.py", "tests/simulation/test_groups.py"]],
    "crash": [["tests/crash/test_ledger_crash_images.py"]],
    "process": [
        [
            "tests/process/test_full_disks.py",
            "tests/process/test_live_bound.py",
            "tests/process/test_pair_processes.py",
            "tests/process/test_raft_mode_moves.py",
            "tests/process/test_replay_commands.py",
            "tests/process/test_resend.py",
            "tests/process/test_soak.py",
            "tests/process/test_stream_through_failovers.py",
        ],
        [
            "tests/process/test_documents.py",
            "tests/process/test_linearizable.py",
            "tests/process/test_partitions.py",
            "tests/process/test_raft_mode.py",
            "tests/process/test_retention.py",
            "tests/process/test_wheel.py",
        ],
    ],
    "spark": [
        [
            "tests/spark/test_commands.py",
            "tests/spark/test_data_source_speculation.py",
            "tests/spark/test_executor_package.py",
            "tests/spark/test_replicas_read_alike.py",
        ]
    ],
    "interop": [
        ["tests/interop/test_java_controllers.py", "tests/interop/test_java_raft_stores.py"],
        ["tests/interop/test_java_pairs.py"],
    ],
}
"""What runs beside the rest of a layer, and no test that shares a fixture with the rest."""


def runs_of(layer: str) -> list[list[str]]:
    """What each pytest run of a layer is told; every test of the layer is in exactly one."""
    beside = BESIDE.get(layer, [])
    rest = [*LAYERS[layer], *(f"--ignore={path}" for paths in beside for path in paths)]
    return [rest, *beside]


def run_layer(layer: str, folder: Path) -> tuple[bool, list[Path]]:
    """Whether every run passed, and where they tally. The first run prints as it goes, the others once they ended."""
    passed, tallies = True, []
    with ExitStack() as opened:
        runs = []
        for number, arguments in enumerate(runs_of(layer)):
            tally = folder / f"{layer}-{number}"
            said = opened.enter_context(tally.with_suffix(".said").open("w+")) if number else None
            command = [sys.executable, "-m", "pytest", *arguments]
            environment = {**os.environ, "TALLY_FILE": str(tally)}
            process = subprocess.Popen(command, env=environment, stdout=said, stderr=said)
            runs.append((opened.enter_context(process), said))
            tallies.append(tally)
        for process, said in runs:
            passed &= process.wait() == 0
            if said:
                said.seek(0)
                print(said.read(), end="", flush=True)
    return passed, tallies


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in LAYERS]
    if unknown:
        print(f"unknown layer {unknown[0]}; one of: {' '.join(LAYERS)}", file=sys.stderr)
        return 2
    counts: Counter[str] = Counter()
    skips: Counter[str] = Counter()
    seconds: dict[str, float] = {}
    broken: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for name in names or LAYERS:
            print(f"== {name}", flush=True)
            started = time.monotonic()
            passed, tallies = run_layer(name, Path(folder))
            seconds[name] = time.monotonic() - started
            for tally_file in tallies:
                if tally_file.exists():
                    tally = json.loads(tally_file.read_text())
                    counts.update(tally["counts"])
                    skips.update(tally["skips"])
                else:
                    passed = False
            if not passed:
                broken.append(name)
    print("== totals")
    print("seconds: " + "  ".join(f"{name} {value:.0f}" for name, value in seconds.items()))
    for what in sorted(set(counts) - {"passed", "failed", "skipped"}):
        print(f"{what}: {counts[what]}")
    for reason, count in sorted(skips.items()):
        print(f"skipped {count}: {reason}")
    if broken:
        print(f"broken layers: {' '.join(broken)}")
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped", flush=True)
    return 1 if broken or counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
