"""The cache of compiled expressions is bounded."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest

from filters import kept as kept_module
from filters.errors import FilterError, SyntaxFault
from filters.kept import KeptFilters
from filters.syntax import Node


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The parsed expressions, in order."""
    parsed: list[str] = []
    parse = kept_module.parse

    def noted(expression: str) -> Node:
        parsed.append(expression)
        return parse(expression)

    monkeypatch.setattr(kept_module, "parse", noted)
    return parsed


def test_hundreds_of_groups_that_pull_in_turn_compile_their_expressions_once(made: list[str]) -> None:
    """A former master forwards pulls with the expressions of all groups."""
    kept = KeptFilters()
    wanted = [f"a = 'x{number}' AND b > {number}" for number in range(1_000)]
    for _ in range(3):
        for number, expression in enumerate(wanted):
            judged = kept.compiled(expression)
            assert judged(f"a\x01x{number}\x02b\x01{number + 1}\x02".encode())
            assert not judged(f"a\x01x{number}\x02b\x01{number}\x02".encode())
    assert made == wanted


def test_an_invalid_expression_is_parsed_once_and_refused_each_time(made: list[str]) -> None:
    kept = KeptFilters()
    for _ in range(3):
        with pytest.raises(SyntaxFault) as refused:
            kept.compiled("a = 1 AND (")
        assert refused.value.line == 1 and "Encountered" in str(refused.value)
        assert refused.value.__context__ is None
        with pytest.raises(FilterError, match="cannot be compared"):
            kept.compiled("a > TRUE")
    assert made == ["a = 1 AND (", "a > TRUE"]


def test_the_most_recently_used_expressions_are_kept(made: list[str]) -> None:
    kept = KeptFilters(count_max=3)
    for expression in ("a = 1", "b = 1", "c = 1", "a = 1", "d = 1", "a = 1", "b = 1"):
        kept.compiled(expression)
    assert len(kept) == 3
    assert made == ["a = 1", "b = 1", "c = 1", "d = 1", "b = 1"]


def test_fewer_large_expressions_are_kept() -> None:
    kept = KeptFilters(bytes_max=1 << 20)
    for number in range(60):
        kept.compiled(" AND ".join(f"a{each} = {number}" for each in range(100)))
        assert kept.bytes <= 1 << 20
    assert 4 < len(kept) < 50
    alone = KeptFilters(bytes_max=1_000)
    for _ in range(2):
        assert alone.compiled("a = 1")(b"a\x011\x02")
        assert not len(alone) and not alone.bytes


@pytest.mark.parametrize(
    "expression",
    [
        lambda number: f"a = 'x{number}'",
        lambda number: " AND ".join(f"a{each} = 'x{number}'" for each in range(256)),
        lambda number: " OR ".join(f"a{each} > {number}" for each in range(256)),
        lambda number: " OR ".join(f"NOT (a{each} > b{each + number})" for each in range(64)),
        lambda number: "a IN (" + ", ".join(f"'{each}.{number}'" for each in range(3_000)) + ")",
    ],
)
def test_the_estimated_memory_of_expressions_is_about_right(expression: Callable[[int], str]) -> None:
    kept, texts = KeptFilters(), [expression(number) for number in range(3)]
    tracemalloc.start()
    for text in texts:
        kept.compiled(text)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(kept) == 3
    assert taken / 2 < kept.bytes < taken * 2
