"""Processes that do without pandas.

Where pandas is installed, pyarrow imports it with the first array that it makes: half a second and 40 MiB of each process, for
arrays of pandas' objects, which no work of ours makes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

PANDAS = "pandas"


class Missing(MetaPathFinder):
    """While this stands first, pandas is not found."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == PANDAS:
            raise ModuleNotFoundError(f"No module named {PANDAS!r}", name=PANDAS)
        return None


def leave_pandas_out() -> None:
    """From now on pyarrow takes pandas for not installed, unless it was imported before: for processes of ours alone, before
    they import what makes arrays. pyarrow looks once, and again when it is asked for an object of pandas (`to_pandas`)."""
    if PANDAS in sys.modules or find_spec("pyarrow") is None:
        return
    import pyarrow as pa

    missing = Missing()
    sys.meta_path.insert(0, missing)
    try:
        pa.array([])
    finally:
        sys.meta_path.remove(missing)
