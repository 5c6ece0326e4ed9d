"""Log lines, error texts and column values that pages for operators quote are in the sources, word for word.

An operator searches the pages for words of a line, so a text that changed must change here, too. A quote is inline code with a
blank in it that is no command. Its variable parts are an ellipsis, a capital letter alone, a number or `<...>`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.documentedcommands import BLOCK, INLINE, PROGRAM

ROOT = Path(__file__).parents[2]
PAGES = [
    page
    for page in (ROOT / "docs" / "operations.md", *sorted((ROOT / "docs" / "operations").glob("*.md")))
    if "Written by `scripts/pages`" not in page.read_text()
]
PACKAGES = (
    "mqruntime", "epochfile", "remoting", "messagestore", "ha", "dledger", "raftstore", "controller", "broker", "namesrv",
    "mqadmin", "sparkreplay", "localcluster", "accesscontrol",
)  # fmt: skip
VARIABLE = re.compile(r"…|\.\.\.|[:\"]|<[^>]*>|\bSIG\w+|\b[A-Z]\b|\b\d+\b|\w+=")
COMMAND = re.compile(r"(?:kill|pip|cp|systemctl)\b|(?:.* )?--?\w")
"""Commands of the system, ours without the program's name, and options."""


@pytest.fixture(scope="module")
def texts() -> str:
    files = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    return "\n".join(text for path in files for text in strings(path))


def strings(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_each_line_quoted_by_a_page_is_in_the_sources(page: Path, texts: str) -> None:
    quotes = [quote for quote in INLINE.findall(BLOCK.sub("", page.read_text())) if " " in quote]
    lines = [quote for quote in quotes if not PROGRAM.match(quote) and not COMMAND.match(quote)]
    assert not [
        line for line in lines if not all(part.strip(" ,;()") in texts for part in VARIABLE.split(line))
    ]
