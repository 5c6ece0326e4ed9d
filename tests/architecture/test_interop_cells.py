"""Each cell of `scripts/interop` names tests that exist."""

from __future__ import annotations

import re

from tests.architecture.house import ROOT

INTEROP = ROOT / "tests" / "interop"
NAMED = re.compile(r'"(test_\w+\.py)(?:::(test_\w+))?"')


def test_each_named_test_exists() -> None:
    named = NAMED.findall((ROOT / "scripts" / "interop.py").read_text())
    assert len(named) > 20 and any(function for _, function in named)
    missing = [
        (file, function)
        for file, function in named
        if not (INTEROP / file).is_file()
        or (function and f"def {function}(" not in (INTEROP / file).read_text())
    ]
    assert missing == []
