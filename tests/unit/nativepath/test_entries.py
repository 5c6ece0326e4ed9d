"""Dispatch by the compiled module has the same result as dispatch record by record, also of a damaged log."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from messagestore import record
from nativepath import presence
from tests.unit.messagestore.bulkcases import Case, both_ways

pytestmark = pytest.mark.skipif(presence.native is None, reason=f"the compiled module is {presence.why_not}")


def places_of(case: Case) -> list[int]:
    """The start of each record."""
    places, at = [], 0
    while at < case.end:
        size, magic = record.PREFIX.unpack_from(case.log, at)
        if magic != record.MAGIC_BLANK:
            places.append(at)
        at += size
    return places


CASES = [Case(seed, 60, odd=odd, segment_size=1 << 16) for seed, odd in ((1, 0.0), (2, 0.1), (3, 0.5))]
"""`both_ways` compares all ways of dispatch, the compiled one among them."""
RECORDS = [places_of(case) for case in CASES]


@settings(max_examples=120)
@given(
    number=st.sampled_from(range(len(CASES))),
    damages=st.lists(st.tuples(st.integers(0, 1 << 16), st.binary(min_size=1, max_size=9)), max_size=4),
    limits=st.lists(st.floats(0, 1), max_size=3),
)
def test_a_damaged_log_is_listed_up_to_the_same_record(
    number: int, damages: list[tuple[int, bytes]], limits: list[float]
) -> None:
    case = CASES[number]
    whole = bytes(case.log)
    for at, content in damages:
        begin = at % len(whole)
        case.log[begin : begin + len(content)] = content[: len(whole) - begin]
    try:
        ends = sorted(int(share * case.end) for share in limits)
        both_ways(case, [*ends, case.end], entries=90)
    finally:
        case.log[:] = whole


@pytest.mark.parametrize("number", [0, 3])
@pytest.mark.parametrize("timestamp", [-(2**63), -1, 2**62, 2**63 - 1])
def test_store_times_of_any_size_are_indexed_alike(number: int, timestamp: int) -> None:
    case = Case(1, 60, odd=0.0, segment_size=1 << 16)
    at = places_of(case)[number]
    case.log[at + 56 : at + 64] = timestamp.to_bytes(8, "big", signed=True)
    both_ways(case, [case.end])


FIELDS = {0: 4, 4: 4, 12: 4, 20: 8, 28: 8, 36: 4, 56: 8, 84: 4}
"""Offset and size of the numbers in a record that its reader depends on."""
NUMBERS = [0, 1, -1, 90, 91, 255, 2**31 - 1, -(2**31), 2**58, 2**58 + 1, 2**63 - 1, -(2**63)]
MAGICS = [record.MAGIC_V1, record.MAGIC_V2, record.MAGIC_BLANK]


@settings(max_examples=60)
@given(
    number=st.sampled_from(range(len(CASES))),
    lies=st.lists(
        st.tuples(
            st.integers(0, 59),
            st.sampled_from(list(FIELDS)),
            st.sampled_from(NUMBERS + MAGICS) | st.integers(-9, 64),
            st.booleans(),
        ),
        min_size=1,
        max_size=3,
    ),
    limits=st.lists(st.floats(0, 1), max_size=2),
)
def test_records_with_any_number_in_any_field_are_listed_alike(
    number: int, lies: list[tuple[int, int, int, bool]], limits: list[float]
) -> None:
    """`lies`: (the record, the field, the number, and whether it is added to the stored one)."""
    case, places = CASES[number], RECORDS[number]
    whole = bytes(case.log)
    for which, field, value, adds in lies:
        at, size = places[which] + field, FIELDS[field]
        value += int.from_bytes(case.log[at : at + size], "big") if adds else 0
        case.log[at : at + size] = (value % (1 << 8 * size)).to_bytes(size, "big")
    try:
        ends = sorted(int(share * case.end) for share in limits)
        both_ways(case, [*ends, case.end], entries=90)
    finally:
        case.log[:] = whole


def test_the_module_reads_only_the_given_bytes() -> None:
    assert presence.native is not None
    entries = presence.native.Entries({}, b"SCHEDULE_TOPIC_XXXX")
    log = bytes(CASES[0].log)
    for at, end in ((-1, 5), (5, 4), (0, len(log) + 1)):
        with pytest.raises(ValueError, match="outside"):
            entries.put(log, at, end, 0, 0, 9, None, 0, {})
    with pytest.raises(ValueError, match="heads"):
        entries.put(log, 0, 9, 0, 47, 9, None, 0, {})
    assert entries.put(b"", 0, 0, 0, 0, 9, None, 0, {}) == (0, 0, 0, None)
