"""Words that hide the actor, or that few readers know, stay out of docstrings, comments, log lines and pages.

Data is sent, reported, stored or committed; a log is missing entries; a broker, a leader or a caller does something."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.house import MAY_IMPORT, ROOT

NOT_USED = ("told", "tells", "stands", "lacks", "anew", "lest", "whoever", "of ours", "in the place of")
FORBIDDEN = re.compile(rf"(?<![\w'\"`])({'|'.join(NOT_USED)})(?![\w'\"`])", re.IGNORECASE)
NAMES = (
    "master stands still before", "asked to begin anew",  # counters of the simulation
)  # fmt: skip
"""Texts that others match on."""
PLACES = [
    *sorted(MAY_IMPORT),
    "simulation",
    "scripts",
    "tests",
    "docs",
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
]


def prose_of(path: Path) -> Iterator[tuple[int, str]]:
    """Line number and text of each docstring, string and comment of a module, or of each line of a page."""
    text = path.read_text()
    if path.suffix == ".md":
        yield from enumerate(text.splitlines(), start=1)
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.STRING, tokenize.COMMENT):
            yield from enumerate(token.string.splitlines(), start=token.start[0])


def found_below(place: Path) -> list[str]:
    paths = (
        [place]
        if place.is_file()
        else sorted(path for path in place.rglob("*") if path.suffix in (".py", ".md"))
    )
    return [
        f"{path.relative_to(ROOT)}:{number} {word}: {line.strip()}"
        for path in paths
        for number, line in prose_of(path)
        if path.name != Path(__file__).name and not any(name in line for name in NAMES)
        for word in FORBIDDEN.findall(line)
    ]


@pytest.mark.parametrize("place", PLACES)
def test_prose_is_free_of_words_that_are_not_used(place: str) -> None:
    found = found_below(ROOT / place)
    assert not found, "\n".join(found)


def test_the_rule_sees_what_it_forbids(tmp_path: Path) -> None:
    module = tmp_path / "m.py"
    module.write_text('told = 1\ndef f():\n    """Is told of it."""\n    return "told", f(told)  # anew\n')
    assert [(number, word) for number, line in prose_of(module) for word in FORBIDDEN.findall(line)] == [
        (3, "told"),
        (4, "anew"),
    ]
