"""Processes that do without pandas: what pyarrow would import costs each of them 40 MiB."""

from __future__ import annotations

import pickle
import subprocess
import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest

from sparkreplay.engine.processes import run_in_processes
from sparkreplay.summary.scan import kind_of

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.skipif(
    find_spec("pandas") is None, reason="pandas is not installed, so it is left out anyway"
)


def in_a_new_process(script: str) -> None:
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True)


def test_pandas_is_not_imported_until_it_is_used() -> None:
    in_a_new_process("""
import sys
from sparkreplay.lean import leave_pandas_out
leave_pandas_out()
import numpy, pyarrow, sparkreplay.export.job, sparkreplay.summary.scan
pyarrow.array(numpy.arange(3)), pyarrow.array(["text"])
assert "pandas" not in sys.modules
assert list(pyarrow.array([1]).to_pandas()) == [1]
assert "pandas" in sys.modules
""")


def test_a_task_of_spark_opens_its_work_without_pandas() -> None:
    work = pickle.dumps(partial(kind_of, "orders"))
    in_a_new_process(f"""
import sys
from sparkreplay.engine.sparkresults import TaskAttempt
class Results:
    def add(self, found):
        assert found == {{0: "message"}}
        assert "sparkreplay.summary.scan" in sys.modules and "pandas" not in sys.modules
assert "pyarrow" not in sys.modules
TaskAttempt({work!r}, Results())(0)
""")


def test_a_command_starts_without_pandas() -> None:
    in_a_new_process("""
import sys
from sparkreplay.__main__ import run
assert run(["scan", "nowhere"]) == 1
assert "sparkreplay.read.reader" in sys.modules and "pandas" not in sys.modules
""")


def test_processes_of_the_local_engine_work_without_pandas() -> None:
    found: dict[int, bool] = {}
    run_in_processes(pandas_is_imported, range(4), found.__setitem__, 2)
    assert found == dict.fromkeys(range(4), False)


def pandas_is_imported(number: int) -> bool:
    import sparkreplay.read.reader  # noqa: F401

    return "pandas" in sys.modules
