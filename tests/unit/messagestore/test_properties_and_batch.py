"""Properties and batch bodies, as clients write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from messagestore.batch import BatchError, parse_batch
from messagestore.properties import (
    dispatched_values,
    format_properties,
    join_properties,
    last_value,
    parse_properties,
    tag_hash,
)
from mqruntime.javahash import java_string_hash
from tests.unit.messagestore.storehelp import encode_batch

WORKED_BATCH = bytes.fromhex(
    "00000029000000000000000000000000000000026869001157414954017472756502544147530141" + "02"
)


def test_properties_are_parsed_as_in_java() -> None:
    assert parse_properties(b"A\x011\x02BB\x012\x02") == {"A": "1", "BB": "2"}
    assert parse_properties(b"A\x011\x02BB\x012") == {"A": "1", "BB": "2"}
    assert parse_properties(b"A\x01\x02\x011\x02\x02ab\x02A\x01x\x01y") == {"A": "x\x01y"}
    assert parse_properties(b"") == {}


def test_the_last_of_two_values_counts() -> None:
    raw = b"UNIQ_KEY\x01own\x02UNIQ_KEY\x01batch\x02"
    assert parse_properties(raw) == {"UNIQ_KEY": "batch"}
    assert last_value(raw, b"UNIQ_KEY") == b"batch"


def test_one_property_is_found_without_parsing_the_others() -> None:
    assert last_value(b"XTAGS\x01no\x02TAGS\x01a b\x02K\x01v", b"TAGS") == b"a b"
    assert last_value(b"K\x01TAGS\x02TAGS\x01\x02", b"TAGS") == b""
    assert last_value(b"TAGS\x01first\x02TAGS\x01\x02", b"TAGS") == b"first"
    assert last_value(b"", b"TAGS") == b""


@given(
    st.lists(
        st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "XTAGS", "KEY", "\x01", "\x02", "a b", ""]), max_size=12
    ).map("".join)
)
def test_dispatched_values_equal_single_property_lookups(text: str) -> None:
    raw = text.encode()
    assert dispatched_values(raw) == tuple(last_value(raw, name) for name in (b"TAGS", b"UNIQ_KEY", b"KEYS"))


names = st.text("abcdeXYZ_0123", min_size=1, max_size=8)


@given(st.dictionaries(names, names, max_size=6))
def test_formatted_properties_are_parsed_back(pairs: dict[str, str]) -> None:
    raw = format_properties(pairs)
    assert parse_properties(raw) == pairs
    for key, value in pairs.items():
        assert last_value(raw, key.encode()) == value.encode()


def test_hashes_equal_those_of_java() -> None:
    assert tag_hash("TagA") == 2598919
    assert tag_hash("") == 0
    assert java_string_hash("TopicTest#k1") == 2746024
    assert java_string_hash("polygenelubricants") == -(1 << 31)
    assert java_string_hash("\U0001f600") == 31 * 0xD83D + 0xDE00
    assert java_string_hash("ä") == 228


def test_batch_properties_follow_a_members_own_after_one_separator() -> None:
    assert join_properties(b"A\x011", b"B\x012") == b"A\x011\x02B\x012"
    assert join_properties(b"A\x011\x02", b"B\x012") == b"A\x011\x02B\x012"
    assert join_properties(b"", b"B\x012") == b"B\x012"
    assert join_properties(b"A\x011", b"") == b"A\x011"


def test_the_worked_batch_member_is_read_and_written() -> None:
    (member,) = parse_batch(WORKED_BATCH)
    assert (member.flag, bytes(member.body), member.properties) == (
        0,
        b"hi",
        b"WAIT\x01true\x02TAGS\x01A\x02",
    )
    assert encode_batch([(0, b"hi", member.properties)]) == WORKED_BATCH


@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.binary(max_size=30), st.binary(max_size=30)), min_size=1, max_size=5
    )
)
def test_any_batch_is_read_back(members: list[tuple[int, bytes, bytes]]) -> None:
    parsed = parse_batch(encode_batch(members))
    assert [(member.flag, bytes(member.body), member.properties) for member in parsed] == members


@given(st.binary(max_size=80))
def test_random_bytes_are_a_whole_batch_or_rejected_with_a_position(body: bytes) -> None:
    try:
        parsed = parse_batch(body)
    except BatchError as error:
        assert 0 <= error.at <= len(body)
    else:
        members = [(member.flag, bytes(member.body), member.properties) for member in parsed]
        assert len(encode_batch(members)) == len(body)


@pytest.mark.parametrize("cut", range(1, len(WORKED_BATCH)))
def test_a_truncated_batch_is_rejected(cut: int) -> None:
    with pytest.raises(BatchError):
        parse_batch(WORKED_BATCH[:cut])
    with pytest.raises(BatchError):
        parse_batch(WORKED_BATCH + WORKED_BATCH[:cut])
