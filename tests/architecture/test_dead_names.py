"""Each unused name that vulture finds needs a line in dead_names.kept, and each line must match one."""

from __future__ import annotations

import pytest

from scripts.dead_names import KEPT, kept_in, reported

DEAD = "ha/link.py:7: unused method 'buffer_updated' (60% confidence)"


def judged(kept: str, *found: str) -> list[str]:
    return reported(found, [*kept_in(kept)])


def test_an_unused_name_without_an_exception_is_reported() -> None:
    assert judged("", DEAD) == [DEAD]


@pytest.mark.parametrize(
    "line",
    ["ha/link.py method buffer_updated", "* method get_buffer buffer_updated", "ha/* method [a-z]*", "* * *"],
)
def test_an_exception_matches_by_place_kind_and_name(line: str) -> None:
    assert DEAD not in judged(f"# asyncio calls it\n\n{line}", DEAD)


@pytest.mark.parametrize(
    "line", ["ha/other.py method buffer_updated", "* variable buffer_updated", "* method Buffer_*"]
)
def test_an_exception_that_matches_nothing_is_reported(line: str) -> None:
    assert judged(line, DEAD) == [DEAD, f"dead_names.kept: {line} keeps nothing"]


def test_each_name_of_an_exception_line_is_checked_separately() -> None:
    assert judged("* method buffer_updated gone", DEAD) == ["dead_names.kept: * method gone keeps nothing"]


def test_only_unused_names_can_be_excepted() -> None:
    unreachable = "ha/link.py:9: unreachable code after 'return' (100% confidence)"
    assert judged("* method *", DEAD, unreachable) == [unreachable]


def test_the_list_in_the_repository_can_be_read() -> None:
    assert [*kept_in(KEPT.read_text())]
