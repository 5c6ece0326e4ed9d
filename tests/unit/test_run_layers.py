"""A run of tests that has an end names the tests that it did not reach."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.run_layers import LAYERS, PARTS, parts_of

ROOT = Path(__file__).resolve().parents[2]
TESTS = "tests/architecture/test_dead_names.py"


@pytest.mark.parametrize("until_s, reached", [("0", False), ("inf", True)])
def test_behind_its_end_no_test_begins_and_each_is_named(tmp_path: Path, until_s: str, reached: bool) -> None:
    tally = tmp_path / "tally"
    environment = {**os.environ, "TALLY_FILE": str(tally), "BEGIN_UNTIL_S": until_s}
    command = [sys.executable, "-m", "pytest", f"--basetemp={tmp_path / 'files'}", TESTS]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL)
    found = json.loads(tally.read_text())
    assert bool(found["counts"].get("passed")) is reached
    assert [name.partition("::")[0] for name in found["unreached"]] == (
        [] if reached else [TESTS] * len(found["unreached"])
    )
    assert bool(found["unreached"]) is not reached


def test_names_are_layers_or_packages() -> None:
    assert parts_of([*LAYERS]) == PARTS
    assert [part.layer for part in parts_of(["crash"])] == ["crash"] * len(parts_of(["crash"]))
    assert [part.paths for part in parts_of(["remoting", "ha"])] == [
        ("tests/unit/ha",),
        ("tests/unit/remoting",),
    ]
    assert parts_of(["unit", "ha"]) == parts_of(["unit"])
