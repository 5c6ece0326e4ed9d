"""Planted bugs that a unit test finds and seeds hardly find."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
SAYS = "ended:"
UNIT_TESTS = """
import json, os, sys
from importlib import import_module
import hypothesis, pytest
world, tests = import_module(sys.argv[1]), json.loads(sys.argv[2])
for bug, test in tests.items():
    child = os.fork()
    if not child:
        with world.planted(bug):
            code = pytest.main(["-q", "-p", "no:cacheprovider", test])
        sys.stdout.flush()
        os._exit(code)
    _, status = os.waitpid(child, 0)
    print(sys.argv[3], bug, os.waitstatus_to_exitcode(status), flush=True)
"""
"""One process imports all modules, and is forked for each bug, so that bugs do not mix."""


def assert_found(bugs: str, tests: Mapping[str, str], bug: str) -> None:
    """The unit test `tests[bug]`, below tests, fails once `bug` of the module `bugs` is planted in its process."""
    codes, said = _ended(bugs, json.dumps({bug: str(TESTS / test) for bug, test in tests.items()}))
    assert codes.get(bug) == pytest.ExitCode.TESTS_FAILED, said


@cache
def _ended(bugs: str, tests: str) -> tuple[dict[str, int], str]:
    """The outcome of each test, and their common output."""
    run = [sys.executable, "-c", UNIT_TESTS, bugs, tests, SAYS]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    environment.pop("TALLY_FILE", None)  # of this process only
    ended = subprocess.run(run, env=environment, capture_output=True, text=True, check=False)
    lines = [line.split() for line in ended.stdout.splitlines() if line.startswith(SAYS)]
    return {bug: int(code) for _, bug, code in lines}, ended.stdout + ended.stderr
