"""Dispatch of entries by the compiled module equals dispatch one by one, also of damaged entries."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dledger.raft.entries import Entry
from dledger.raft.membership import Members, encode_members
from dledger.storage.entry import BLANK, BLANK_MAGIC, ENTRY_HEADER_BYTES, header_of
from messagestore.record import Message, encode
from nativepath import presence
from raftstore.entrywalk import EntryDispatcher
from tests.unit.messagestore.bulkcases import Case, both_ways, dispatch, dispatcher_in

LISTED = encode_members(Members({"n0": "127.0.0.1:1"}))
compiled = pytest.mark.skipif(presence.native is None, reason=f"the compiled module is {presence.why_not}")


class LedgerCase(Case):
    """The same records as bodies of entries; with `others`, no-ops and member lists between them."""

    def __init__(self, seed: int, count: int, *, odd: float, others: bool = True) -> None:
        self.others = others
        self.positions: list[int] = []
        super().__init__(seed, count, odd=odd)

    def store(self, message: Message) -> None:
        if self.others and self.rarely():
            self.put(self.random.choice((b"", LISTED)))
        message.physical_offset = self.place_of(len(encode(message))) + ENTRY_HEADER_BYTES
        self.put(encode(message))

    def place_of(self, body_bytes: int) -> int:
        left = self.segment_size - len(self.log) % self.segment_size
        return len(self.log) + (left if ENTRY_HEADER_BYTES + body_bytes + BLANK.size > left else 0)

    def put(self, body: bytes) -> None:
        position = self.place_of(len(body))
        if left := position - len(self.log):
            self.log += BLANK.pack(BLANK_MAGIC, left)[:left].ljust(left, b"\0")
        self.log += header_of(Entry(len(self.positions), 1, body), position, 0, 0)[0] + body
        self.positions.append(position)


CASES = [LedgerCase(seed, 400, odd=odd) for seed, odd in ((1, 0.0), (2, 0.1), (3, 0.5))]


@pytest.mark.parametrize("number", range(len(CASES)))
def test_compiled_and_python_dispatch_list_the_same_entries(number: int) -> None:
    case = CASES[number]
    limits = sorted(
        {*case.random.sample(case.positions, 9), *case.random.choices(range(case.end), k=9), case.end}
    )
    listed = both_ways(case, limits, EntryDispatcher)
    assert listed[-1][0] == case.end


@compiled
def test_plain_entries_are_listed_by_the_compiled_module(tmp_path: Path) -> None:
    """All of a file except the first message of each queue and those without room in the newest index
    file."""
    case = LedgerCase(4, 400, odd=0.0)
    dispatcher, queues, index = dispatcher_in(
        tmp_path, bulk=False, compiled=True, kind=EntryDispatcher, entries=9_000, file_size=40_000
    )
    ways: list[int] = []
    put = EntryDispatcher.put
    try:
        dispatcher.put = lambda position, facts: [ways.append(position), put(dispatcher, position, facts)][1]  # type: ignore[method-assign, func-returns-value]
        dispatch(dispatcher, case, [case.end])
        assert dispatcher.position == case.end and len(ways) < 20 < len(case.positions)
    finally:
        queues.close()
        index.close()


@settings(max_examples=80)
@given(
    number=st.sampled_from(range(len(CASES))),
    which=st.integers(0, 1 << 20),
    at=st.integers(0, ENTRY_HEADER_BYTES + 40),
    content=st.binary(min_size=1, max_size=9)
    | st.integers(-9, 200).map(lambda value: value.to_bytes(4, "big", signed=True)),
    limits=st.lists(st.floats(0, 1), max_size=3),
)
def test_both_dispatches_stop_at_the_same_damaged_entry(
    number: int, which: int, at: int, content: bytes, limits: list[float]
) -> None:
    case = CASES[number]
    whole = bytes(case.log)
    begin = case.positions[which % len(case.positions)] + at
    case.log[begin : begin + len(content)] = content[: len(whole) - begin]
    try:
        ends = sorted(int(share * case.end) for share in limits)
        both_ways(case, [*ends, case.end], EntryDispatcher, entries=90)
    finally:
        case.log[:] = whole
