"""Processes without pandas.

If pandas is installed, pyarrow imports it when it makes its first array. That costs half a second and 40 MiB per process. Only
arrays of pandas' objects need pandas, and this reader makes none."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

PANDAS = "pandas"


class Missing(MetaPathFinder):
    """An import finder. While it is the first finder, pandas is not found."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == PANDAS:
            raise ModuleNotFoundError(f"No module named {PANDAS!r}", name=PANDAS)
        return None


def leave_pandas_out() -> None:
    """Make pyarrow consider pandas not installed, unless pandas was imported before. Only processes that this package starts
    may call this, and only before they import anything that makes arrays. pyarrow looks for pandas once, and once more if
    `to_pandas` is called."""
    if PANDAS in sys.modules or find_spec("pyarrow") is None:
        return
    import pyarrow as pa

    missing = Missing()
    sys.meta_path.insert(0, missing)
    try:
        pa.array([])
    finally:
        sys.meta_path.remove(missing)
