"""docs/mqadmin.md has a row for each of upstream's commands, and says of each what is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mqadmin.cli import COMMANDS
from mqadmin.notbuilt import NOT_APPLICABLE, NOT_BUILT

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "mqadmin.md").read_text()
ROWS = {
    name: (state, why)
    for name, state, why in re.findall(r"^\| (\w+) \| ([a-z ]+) \| (.*?) ?\|$", PAGE, re.MULTILINE)
    if name not in ("command", "code")
}
UPSTREAMS, NEWER = list(ROWS)[:89], list(ROWS)[89:]
"""Of 5.3.3, and what 5.5.0 has besides. The interop layer compares them with what upstream's tools list."""


def test_there_is_a_row_for_each_of_upstreams_96() -> None:
    assert len(ROWS) == 96
    assert set(ROWS) == (COMMANDS.keys() & set(ROWS)) | NOT_BUILT.keys() | NOT_APPLICABLE.keys()
    assert set(NEWER) <= NOT_APPLICABLE.keys()


@pytest.mark.parametrize("name", ROWS)
def test_a_row_says_what_the_tool_does(name: str) -> None:
    state, why = ROWS[name]
    if name in COMMANDS:
        assert (state == "works" and not why) or (state == "differs" and why)
    elif name in NOT_BUILT:
        assert (state, why) == ("not built", NOT_BUILT[name])
    else:
        assert (state, why) == ("not applicable", NOT_APPLICABLE[name])


def test_what_is_ours_alone_is_named() -> None:
    besides = PAGE.partition("More commands of our tool:")[2].partition("\n\n")[0]
    assert set(re.findall(r"`(\w+)`", besides)) == COMMANDS.keys() - set(UPSTREAMS)


def test_what_other_pages_count_is_what_this_one_lists() -> None:
    built = sum(name in COMMANDS for name in UPSTREAMS)
    refused = len(re.findall(r"^\| \d+ \| \w+ \|", PAGE, re.MULTILINE))
    readme, differences = ((ROOT / name).read_text() for name in ("README.md", "docs/differences.md"))
    assert {*re.findall(r"(\d+) of the 89 commands", readme)} == {str(built)}
    assert {*re.findall(r"[Oo]f (\d+) commands", differences)} == {str(built)}
    assert re.findall(r"the (\d+) codes\]\(mqadmin", differences) == [str(refused)]
