"""Planted bugs that seeds hardly find, and a unit test does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

UNIT_TEST = """
import sys, pytest
from importlib import import_module
with import_module(sys.argv[1]).planted(sys.argv[2]):
    sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", sys.argv[3]]))
"""


def assert_found(bugs: str, bug: str, test: str) -> None:
    """The unit test `test`, below tests/unit, fails once `bug` of the module `bugs` is planted in its process."""
    run = [sys.executable, "-c", UNIT_TEST, bugs, bug, str(Path(__file__).parents[1] / "unit" / test)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(run, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == pytest.ExitCode.TESTS_FAILED, ended.stdout
