"""A DLedger group of real processes under a few faults is linearizable. `scripts/linearizable` runs
longer."""

from __future__ import annotations

import re
import subprocess

from tests.process.serverprocess import ENVIRONMENT, ROOT, command


def test_registers_of_real_processes_are_linearizable_under_strikes() -> None:
    line = command("scripts.registers", "--strikes", "6", "--seed", "3")
    done = subprocess.run(line, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    counted = re.search(r"^(\d+) operations on", done.stdout, re.MULTILINE)
    assert counted is not None and int(counted[1]) > 100, done.stdout
    assert "cut=1 cut-one-way=1 kill=1" in done.stdout, "seed 3 draws them"
