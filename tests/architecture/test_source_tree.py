"""The rules on small trees that break them, and on some that only seem to."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.architecture.sourcetree import LINES_MAX, SourceTree

FOR_TYPES = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    "


def tree(folder: Path, **sources: str) -> SourceTree:
    """A package `ours` of modules with these sources."""
    (folder / "ours").mkdir()
    for name, source in {"__init__": "", **sources}.items():
        (folder / "ours" / f"{name}.py").write_text(source)
    return SourceTree(folder, ["ours"])


@pytest.mark.parametrize(
    ("docstring", "pure"),
    [
        ('"""A core. Pure."""', True),
        ('"""A core.\n\nInvariant: a state changes once.\nPure."""', True),
        ('"""A core. Pure. Or is it?"""', False),
        ('"""Impure."""', False),
        ("# Pure.", False),
        ("", False),
    ],
)
def test_the_last_word_of_the_docstring_declares_a_module_pure(
    tmp_path: Path, docstring: str, pure: bool
) -> None:
    assert tree(tmp_path, core=docstring).pure_modules() == (["ours.core"] if pure else [])


@pytest.mark.parametrize(
    "statement",
    [
        "import time",
        "import os.path",
        "from time import monotonic",
        "def f():\n    import time",
        "import json, time",
    ],
)
def test_a_pure_module_imports_the_outside_world(tmp_path: Path, statement: str) -> None:
    way = tree(tmp_path, core=statement).way_out("ours.core")
    assert way in ("ours/core.py -> time", "ours/core.py -> os.path")


@pytest.mark.parametrize("statement", ["import ours.b", "from ours import b", "from ours.b import now"])
def test_a_pure_module_reaches_the_outside_world_through_others(tmp_path: Path, statement: str) -> None:
    made = tree(
        tmp_path, a=statement, b="from ours.c import now", c="import json\nfrom time import time as now"
    )
    assert made.way_out("ours.a") == "ours/a.py -> ours/b.py -> ours/c.py -> time"


def test_an_import_for_type_checking_only_makes_no_module_impure(tmp_path: Path) -> None:
    typed = f"{FOR_TYPES}import time\n    from ours.shell import Shell"
    assert tree(tmp_path, core=typed, shell="import asyncio").way_out("ours.core") is None


def test_an_import_inside_a_function_makes_a_module_impure(tmp_path: Path) -> None:
    assert tree(tmp_path, core=f"{FOR_TYPES}import json\nelse:\n    import time").way_out("ours.core")


def test_a_chain_or_a_diamond_of_imports_is_no_circle(tmp_path: Path) -> None:
    made = tree(tmp_path, a="from ours import b, c", b="import ours.d", c="import ours.d", d="import json")
    assert made.circles() == []


@pytest.mark.parametrize(
    "back", ["import ours.a", "def f():\n    from ours.a import g", f"{FOR_TYPES}from ours.a import A"]
)
def test_an_import_circle_is_named_file_by_file(tmp_path: Path, back: str) -> None:
    made = tree(tmp_path, a="from ours.b import B", b="import ours.c", c=back)
    assert made.circles() == ["ours/a.py -> ours/b.py -> ours/c.py -> ours/a.py"]


def test_each_circle_is_named_with_the_modules_attached_to_it(tmp_path: Path) -> None:
    made = tree(
        tmp_path,
        a="import ours.b",
        b="import ours.a, ours.c",
        c="import ours.d",
        d="import ours.b",
        e="import ours.e, ours.a",
    )
    assert made.circles() == [
        "ours/a.py -> ours/b.py -> ours/a.py (and ours/c.py, ours/d.py)",
        "ours/e.py -> ours/e.py",
    ]


def test_a_relative_import_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="name the package"):
        tree(tmp_path, a="from . import b", b="").circles()


def test_a_file_above_the_limit_is_reported_with_its_length(tmp_path: Path) -> None:
    made = tree(tmp_path, fits="x = 1\n" * LINES_MAX, long="x = 1\n" * (LINES_MAX + 1))
    assert made.too_long() == [f"ours/long.py: {LINES_MAX + 1} lines"]
