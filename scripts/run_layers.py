"""Runs the layers of tests one after the other and adds up what they covered.

Each layer is a pytest run of its own, so that a layer that dies takes no other with it; tests/conftest.py writes what it
counted (tests, seeds, faults, skips with their reasons) to the file that TALLY_FILE names."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

LAYERS = {
    "unit": ["tests/test_import_direction.py", "tests/unit"],
    "simulation": ["tests/simulation"],
    "crash": ["tests/crash"],
    "process": ["tests/process"],
    "spark": ["tests/spark"],
    "interop": ["tests/interop"],
}


def run_layer(paths: list[str], tally_file: Path) -> int:
    command = [sys.executable, "-m", "pytest", *paths]
    return subprocess.run(command, env={**os.environ, "TALLY_FILE": str(tally_file)}, check=False).returncode


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
            paths = [path for path in LAYERS[name] if Path(path).exists()]
            if not paths:
                continue
            print(f"== {name}", flush=True)
            tally_file = Path(folder) / name
            started = time.monotonic()
            if run_layer(paths, tally_file) != 0:
                broken.append(name)
            seconds[name] = time.monotonic() - started
            if tally_file.exists():
                tally = json.loads(tally_file.read_text())
                counts.update(tally["counts"])
                skips.update(tally["skips"])
            elif name not in broken:
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
