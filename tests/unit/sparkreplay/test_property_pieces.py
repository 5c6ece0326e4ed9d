"""Properties split a whole column at a time are those that Java's rules give, row by row."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from messagestore.properties import parse_properties
from sparkreplay.records.properties import PIECES_COMPARED_MAX, RowProperties

PARTS = (
    "TAGS", "KEYS", "UNIQ_KEY", "UNIQ_KEYS", "TAGSX", "LONGNAME_A", "LONGNAME_B", "\x01", "\x01", "\x02", "\x02", "a",
    "value", "é", "\0",
)  # fmt: skip
TEXTS = st.lists(st.sampled_from(PARTS), max_size=40).map("".join)
MANY = "".join(f"n{number % 80}\x01v{number}\x02" for number in range(PIECES_COMPARED_MAX * 5))


@settings(max_examples=400)
@given(st.lists(TEXTS, max_size=6))
@example(["", "TAGS\x01a", "", "\x02TAGS\x01b\x02", "TAGS", "\x01x\x02"])
@example(["TAGS\x01a\x02", "TAGS\x01b\x02KEYS\x01k\x02", "KEYS\x01k\x02TAGS\x01c\x02"])
@example([MANY, "TAGS\x01a\x02TAGS\x01b\x02", MANY])
@example(["LONGNAME_A\x011\x02LONGNAME_B\x012\x02LONGNAME_A\x013\x02"])
def test_columns_and_maps_equal_those_of_a_plain_parser(texts: list[str]) -> None:
    found = RowProperties(pa.array(texts, pa.string()))
    expected = [parse_properties(text.encode()) for text in texts]
    rows = found.map().to_pylist()
    assert [dict(row) for row in rows] == expected
    assert all(len(dict(row)) == len(row) for row in rows)  # a Spark map must not hold a name twice
    for name in ("TAGS", "KEYS", "UNIQ_KEY"):
        assert found.column(name).to_pylist() == [row.get(name) for row in expected]
