"""SQL92 expressions, each case as upstream's parser and evaluator answer it; tests/interop compares many more with them."""

from __future__ import annotations

from functools import _lru_cache_wrapper

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filters.bloomfilter import bit_positions
from filters.compiler import CONDITIONS_MAX
from filters.errors import FilterError, SyntaxFault
from filters.lexer import EXPRESSION_CHARS_MAX, TOKENS_MAX
from filters.sql92 import compiled
from filters.syntax import DEPTH_MAX
from filters.values import _long_double, _long_whole


def stored(**properties: str) -> bytes:
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items()).encode()


@pytest.mark.parametrize(
    ("expression", "matching", "others"),
    [
        ("a = 'x'", [{"a": "x"}], [{"a": "X"}, {"b": "x"}, {"ba": "x"}]),
        ("a <> 'x'", [{"a": "y"}], [{"a": "x"}, {}]),
        ("a > 5", [{"a": "6"}, {"a": "+6"}, {"a": "006"}], [{"a": "5"}, {"a": "x"}, {"a": "6.5"}, {"a": " 6"}, {}]),
        ("a > 5", [], [{"a": "2147483648"}]),  # no Integer
        ("a > 5l", [{"a": "2147483647"}], [{"a": "2147483648"}]),  # a small Long is an Integer
        ("a > 2147483648", [{"a": "2147483649"}], [{"a": "9223372036854775808"}]),
        ("a >= 1.5", [{"a": "1.5"}, {"a": "0x1p3"}, {"a": " 2d "}, {"a": "NaN"}], [{"a": "1"}, {"a": "x"}]),
        ("a > b", [{"a": "10", "b": "9"}, {"a": "0.0", "b": "-0.0"}], [{"a": "x", "b": "9"}, {"a": "1"}]),
        ("5 <= a", [{"a": "5"}], [{"a": "4"}, {}]),
        ("a BETWEEN 1 AND 3", [{"a": "1"}, {"a": "3"}], [{"a": "4"}, {}]),
        ("a NOT BETWEEN 1 AND 3", [{"a": "4"}], [{"a": "1"}, {}]),
        ("a IN ('x', 'it''s')", [{"a": "x"}, {"a": "it's"}], [{"a": "y"}, {}]),
        ("a not in ('1','2','3','4','5')", [{"a": "6"}], [{"a": "5"}, {}]),
        ("a IS NULL", [{}, {"a": ""}], [{"a": "x"}]),
        ("a Is Not nulL", [{"a": "x"}], [{}, {"a": ""}]),
        ("a CONTAINS 'b'", [{"a": "abc"}], [{"a": "ac"}, {}]),
        ("a NOT CONTAINS 'b'", [{"a": "ac"}], [{"a": "abc"}, {}]),
        ("a STARTSWITH 'a' AND a ENDSWITH 'c'", [{"a": "abc"}], [{"a": "abcd"}]),
        ("a NOT CONTAINS ''", [], [{"a": "x"}, {}]),
        ("a = TRUE", [{"a": "TrUe"}], [{"a": "x"}, {}]),
        ("TRUE = a", [], [{"a": "true"}, {}]),
        ("a", [], [{"a": "true"}, {}]),
        ("NOT a", [{"a": "anything"}], [{}]),
        ("NOT a = 'x'", [], [{"a": "y"}, {"a": "x"}]),  # NOT binds more closely
        ("NOT (a = 'x')", [{"a": "y"}], [{"a": "x"}, {}]),
        ("NOT (a = 'x' AND b = 'y')", [{"a": "z"}], [{"a": "x"}, {}]),
        ("a = 'x' OR b = 1", [{"a": "x", "b": "no number"}, {"b": "1"}], [{"b": "no number"}]),
        ("b = 1 OR a = 'x'", [{"b": "1"}, {"a": "x"}], [{"a": "x", "b": "no number"}]),  # nothing else matters then
        ("(c = 'y' AND b = 1) OR a = 'x'", [{"a": "x", "b": "no", "c": "z"}], [{"a": "x", "b": "no"}]),
        ("'x' = a", [{"a": "x"}], [{}]),
        ("NOT ('x' = a)", [{}], [{"a": "x"}]),
        ("NOT (a = 'x')", [], [{}]),
        ("-a IS NULL", [{"a": "5"}, {}], []),
        ("a > -1 AND a < +3", [{"a": "-0"}], [{"a": "-1"}]),
        ("1 < 2.5", [{}], []),
        ("TRUE", [{}], []),
        ("NULL OR FALSE", [], [{}]),
        ("a = 1 and what comes behind it (", [], [{"a": "1", "what": "x"}]),  # a name alone is never true
        ("a = 1 what comes behind it (", [{"a": "1"}], [{"a": "2"}]),  # and is not read here
        ("a LIKE 'x'", [], [{"a": "x"}]),  # nor is this
        ("a = 1 -- to the end of the line\n AND/* and */b = 2", [{"a": "1", "b": "2"}], [{"a": "1"}]),
        ("TAGS = 'TagA' AND $x_1 = 'é'", [{"TAGS": "TagA", "$x_1": "é"}], [{"TAGS": "TagA", "$x_1": "e"}]),
    ],
)  # fmt: skip
def test_an_expression_matches_and_rejects_the_given_properties(
    expression: str, matching: list[dict[str, str]], others: list[dict[str, str]]
) -> None:
    judged = compiled(expression)
    assert [each for each in matching if not judged(stored(**each))] == []
    assert [each for each in others if judged(stored(**each))] == []


def test_the_last_property_of_a_name_that_has_a_value_is_used() -> None:
    judged = compiled("a = 'x'")
    assert judged(b"a\x01y\x02a\x01x") and judged(b"a\x01x\x02a\x01\x02")
    assert not judged(b"a\x01x\x02a\x01y\x02") and not judged(b"xa\x01x\x02") and not judged(b"")
    assert compiled("a = 'b\x01c'")(b"a\x01b\x01c\x02"), "a value may contain the separator of name and value"
    assert compiled("a = '\ufffd'")(b"a\x01\xff\x02"), "as upstream reads what is no UTF-8"


@pytest.mark.parametrize(
    ("expression", "line", "column"),
    [
        ("", 0, 0), ("a =", 1, 3), ("a = 'x", 1, 7), ("a ! b", 1, 3), ("a =\n\n= 1", 3, 1), ("(a = 1", 1, 6),
        ("a IN (1)", 1, 7), ("a IS TRUE", 1, 6), ("a NOT = 1", 1, 3), ("+)", 1, 1), ("a BETWEEN 1, 2", 1, 12),
        ("a\t= =", 1, 11),
    ],
)  # fmt: skip
def test_a_syntax_error_is_reported_with_line_and_column(expression: str, line: int, column: int) -> None:
    with pytest.raises(SyntaxFault) as refused:
        compiled(expression)
    assert (refused.value.line, refused.value.column) == (line, column)
    assert f"line {line}, column {column}" in str(refused.value)


@pytest.mark.parametrize(
    "expression",
    [
        "a > 'x'", "a > TRUE", "a = NULL", "TRUE = 5", "'x'", "5", "a > (b = 1)", "a BETWEEN 3 AND 1", "a BETWEEN 'a' AND 'b'",
        "(a = 1) IN ('x')", "a = 9223372036854775808", "a > 0.0", "a > 1e400", "-a", "a = 1 AND 5",
    ],
)  # fmt: skip
def test_operands_that_cannot_be_compared_are_refused(expression: str) -> None:
    with pytest.raises(FilterError) as refused:
        compiled(expression)
    assert not isinstance(refused.value, SyntaxFault)


@pytest.mark.parametrize(
    "expression",
    [
        "a = 1" + " " * EXPRESSION_CHARS_MAX,
        "(" * 10_000 + "a = 1" + ")" * 10_000,
        "NOT " * 10_000 + "a",
        "a = 1" + " = (a = 1)" * 1_000,
        "a IN (" + "'x'," * TOKENS_MAX + "'x')",
        " OR ".join(["a = 1"] * (CONDITIONS_MAX + 1)),
        " OR ".join(f"a{number}" for number in range(CONDITIONS_MAX + 1)),
        " AND ".join(f"NOT (a{number} AND b)" for number in range(CONDITIONS_MAX)),
        "'" * (1 << 20),
        "-" * (1 << 16),
        "+(" * 1_000 + "a",
        "/*" * (1 << 15),
    ],
)  # fmt: skip
def test_a_hostile_expression_raises_a_filter_error(expression: str) -> None:
    with pytest.raises(FilterError):
        compiled(expression)


def test_the_deepest_and_longest_accepted_expressions_work() -> None:
    deep = "(" * DEPTH_MAX + "a = 1" + ")" * DEPTH_MAX
    nested = "NOT (a = 2 AND " * (DEPTH_MAX // 2 - 2) + "a = 1" + ")" * (DEPTH_MAX // 2 - 2)
    chain = " AND ".join(["(a = 1 OR b <> 'x')"] * (CONDITIONS_MAX // 2))
    assert (
        compiled(deep)(stored(a="1")) and compiled(nested)(stored(a="1")) and compiled(chain)(stored(a="1"))
    )
    listed = "a IN (" + ", ".join(f"'{each}'" for each in range(2_000)) + ")"
    assert compiled(listed)(stored(a="1999")) and not compiled(listed)(stored(a="2000"))


PIECES = st.sampled_from(
    [
        "a", "NOT", " AND ", " OR ", "(", ")", "=", "<>", "<", "1", "1.5", "'x'", "'", "-", "+", " IN ", ",", " BETWEEN ",
        " IS NULL", "--",
    ]
)  # fmt: skip
TEXTS = st.one_of(
    st.text(),
    st.lists(PIECES, max_size=30).map("".join),
    st.binary().map(lambda raw: raw.decode("utf-8", "replace")),
)


@given(TEXTS, st.binary())
@settings(deadline=None, max_examples=300, derandomize=True)
def test_any_text_and_properties_raise_only_filter_errors(expression: str, properties: bytes) -> None:
    try:
        judged = compiled(expression)
    except FilterError as refused:
        assert str(refused)
    else:
        assert judged(properties) in (True, False)


def test_positions_in_bit_maps_equal_upstreams() -> None:
    assert bit_positions("GroupA", "TopicA") == [29, 107, 11]
    assert bit_positions("GroupB", "TopicA") == [103, 32, 24]


@pytest.mark.parametrize(
    ("condition", "kept"),
    [("a > {}", _long_whole), ("a > 9876543210{}", _long_whole), ("a > 1.5{}", _long_double)],
)
def test_conditions_on_one_long_value_parse_it_once(
    condition: str, kept: _lru_cache_wrapper[int] | _lru_cache_wrapper[float]
) -> None:
    judged = compiled(" OR ".join(condition.format(number) for number in range(250)))
    kept.cache_clear()
    assert not judged(stored(a="0" * 32_000))
    assert kept.cache_info().misses == 1


def test_a_filter_names_its_conditions() -> None:
    assert [compiled(each).__dict__["conditions"] for each in ("a > 1", "a > 1 AND b = 'x'")] == [1, 2]
