"""docs/mqadmin.md has a correct row for each of upstream's commands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mqadmin.cli import COMMANDS
from mqadmin.notbuilt import NOT_APPLICABLE, NOT_BUILT
from tests.unit.mqadmin.adminpage import NEWER, PAGE, ROWS, UPSTREAMS

ROOT = Path(__file__).parents[3]


def test_there_is_a_row_for_each_of_upstreams_96() -> None:
    assert len(ROWS) == 96
    assert set(ROWS) == (COMMANDS.keys() & set(ROWS)) | NOT_BUILT.keys() | NOT_APPLICABLE.keys()
    assert set(NEWER) <= NOT_APPLICABLE.keys()


@pytest.mark.parametrize("name", ROWS)
def test_each_row_of_the_page_matches_the_tool(name: str) -> None:
    state, why = ROWS[name]
    if name in COMMANDS:
        assert (state == "works" and not why) or (state == "differs" and why)
    elif name in NOT_BUILT:
        assert (state, why) == ("not built", NOT_BUILT[name])
    else:
        assert (state, why) == ("not applicable", NOT_APPLICABLE[name])


def test_commands_that_upstream_does_not_have_are_listed() -> None:
    besides = PAGE.partition("More commands of our tool:")[2].partition("\n\n")[0]
    assert set(re.findall(r"`(\w+)`", besides)) == COMMANDS.keys() - set(UPSTREAMS)


def test_counts_on_other_pages_equal_the_rows_of_this_page() -> None:
    built = sum(name in COMMANDS for name in UPSTREAMS)
    refused = len(re.findall(r"^\| \d+ \| \w+ \|", PAGE, re.MULTILINE))
    readme, differences = ((ROOT / name).read_text() for name in ("README.md", "docs/differences.md"))
    assert {*re.findall(r"(\d+) of the 89 commands", readme)} == {str(built)}
    assert {*re.findall(r"[Oo]f (\d+) commands", differences)} == {str(built)}
    assert re.findall(r"the (\d+) codes\]\(mqadmin", differences) == [str(refused)]
