"""Entries in blocks equal the entries they were made of, however they are cut; both writers write the same
bytes."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.raft.entries import HEAD, Block, Entries, Entry, block_of, block_to_fill, blocks_of
from dledger.raft.membership import MAGIC
from dledger.storage.entry import ENTRY_HEADER_BYTES, decode_entry, encode_index_unit, put_entries
from nativepath import presence

BODIES = [b"", b"a", MAGIC, b"x" + MAGIC, MAGIC[:-1], MAGIC + b"more", b"body" * 50]


def some(first: int, *terms: int) -> list[Entry]:
    return [Entry(index, term, b"%d" % index * (index % 4)) for index, term in enumerate(terms, first)]


@given(
    terms=st.lists(st.integers(0, 3), max_size=12).map(sorted),
    cut=st.tuples(st.integers(-14, 14), st.integers(-14, 14)),
)
def test_entries_in_blocks_behave_like_a_tuple_of_entries(terms: list[int], cut: tuple[int, int]) -> None:
    wanted = tuple(some(5, *terms))
    entries = Entries.of(wanted)
    assert (entries, len(entries), hash(entries)) == (wanted, len(wanted), hash(wanted))
    assert len(entries.blocks) == len({*terms}) and repr(entries) == repr(wanted)
    part = entries[slice(*cut)]
    assert part == wanted[slice(*cut)] and (not part or part.first_index == part[0].index)
    assert part.body_bytes == sum(len(entry.body) for entry in part)
    for at in range(-len(wanted), len(wanted)):
        assert entries[at] == wanted[at]
    for at in (len(wanted), -len(wanted) - 1):
        with pytest.raises(IndexError):
            entries[at]
    halves = entries[:3], entries[3:]
    assert halves[0] + halves[1] == wanted and Entries.of(entries) is entries
    assert entries != (*wanted, Entry(0, 0, b"")) and entries != 7


def test_entries_with_a_gap_are_rejected() -> None:
    with pytest.raises(AssertionError, match="without a gap"):
        Entries.of([Entry(1, 1, b""), Entry(3, 1, b"")])
    with pytest.raises(AssertionError, match="entry 9 follows 2"):
        Entries.of(some(1, 1, 1)) + Entries.of(some(9, 1))


def test_a_part_of_a_block_has_the_bytes_of_its_entries() -> None:
    block = block_of(3, BODIES)
    for start in range(len(BODIES)):
        for stop in range(start + 1, len(BODIES) + 1):
            part, bodies = block.part(start, stop), BODIES[start:stop]
            assert [part.body(number) for number in range(len(part))] == bodies
            assert bytes(part.view) == b"".join(HEAD.pack(3, len(body)) + body for body in bodies)
            assert part.sizes == list(map(len, bodies)) and part.size(len(part), 48) == sum(
                map(len, bodies)
            ) + 48 * len(bodies)
            assert part.beginning_with(MAGIC) == [
                at for at, body in enumerate(bodies) if body.startswith(MAGIC)
            ]


def test_a_part_kept_alone_holds_only_its_own_bytes() -> None:
    block = block_of(3, [b"x" * 100, b"y" * 40, b"", b"z" * 100])
    assert block.alone() is block and block.part(0, 2).alone().data is block.data
    for start, stop in ((1, 3), (2, 3), (3, 4)):
        part = block.part(start, stop).alone()
        assert part.begin == 0 and bytes(part.view) == part.data and part.sizes == block.sizes[start:stop]
        assert [part.body(at) for at in range(len(part))] == [block.body(at) for at in range(start, stop)]
    entries = Entries(5, (block,))[3:].alone()
    assert entries == [Entry(8, 3, b"z" * 100)] and len(entries.blocks[0].data) == HEAD.size + 100


@pytest.mark.parametrize("each", [0, 12, 48])
def test_fitting_counts_the_first_entries_that_fit_into_the_room(each: int) -> None:
    block = block_of(3, BODIES).part(1, 7)
    sizes = [block.size(count, each) for count in range(7)]
    for room in range(-1, sizes[-1] + 2):
        assert block.fitting(room, each) == max(
            (count for count in range(7) if sizes[count] <= room), default=0
        ) * (room >= 0)


def test_a_filled_block_equals_the_block_of_the_bodies() -> None:
    block = block_to_fill(9, [len(body) for body in BODIES])
    for number, body in enumerate(BODIES):
        at = block.body_at(number)
        memoryview(block.data)[at : at + len(body)] = body
    assert block.view == block_of(9, BODIES).view and block.ends == block_of(9, BODIES).ends


def test_bodies_and_blocks_keep_their_order() -> None:
    made = block_of(2, [b"c", b"d"])
    blocks = blocks_of(2, [b"a", b"b", made, made, b"e"])
    assert [len(block) for block in blocks] == [2, 2, 2, 1] and blocks[1] is made
    assert [entry.body for entry in Entries(0, blocks)] == [b"a", b"b", b"c", b"d", b"c", b"d", b"e"]
    with pytest.raises(AssertionError, match="another term"):
        blocks_of(3, [made])


def written(put: object, block: Block, before: int) -> tuple[bytes, bytes, int]:
    room = bytearray(block.size(len(block), ENTRY_HEADER_BYTES))
    units, check = put(memoryview(room), block.data, block.begin, block.ends, 77, block.term, 4096, 3, before)  # type: ignore[operator]
    return bytes(room), units, check


@pytest.mark.parametrize("before", [0, 1, 0xFFFFFFFF, 0x12345678])
def test_written_entries_are_read_back(before: int) -> None:
    block = block_of(5, BODIES).part(1, 6)
    room, units, check = written(put_entries, block, before)
    at, view = 0, memoryview(room)
    for number, body in enumerate(BODIES[1:6]):
        stored = decode_entry(view[at:], 4096 + at, before)
        assert stored is not None and stored.batch_position == 3 + number
        assert stored.entry == Entry(77 + number, 5, body)
        assert units[32 * number : 32 * number + 32] == encode_index_unit(stored.entry, 4096 + at)
        at, before = at + stored.size, stored.check
    assert (at, before, len(units)) == (len(room), check, 160)


@pytest.mark.skipif(presence.native is None, reason=f"the compiled module is {presence.why_not}")
def test_the_compiled_writer_writes_the_same_bytes() -> None:
    assert presence.native is not None
    chance = random.Random(3)
    for _ in range(200):
        bodies = [
            chance.randbytes(chance.choice((0, 1, 15, 56, 63, 64, 65, 80, 1_000)))
            for _ in range(chance.randint(1, 9))
        ]
        block = block_of(chance.choice((0, 7, 2**62)), bodies)
        start = chance.randrange(len(block))
        part = block.part(start, chance.randint(start + 1, len(block)))
        before = chance.choice((0, 1, 2**32 - 1, chance.getrandbits(32)))
        assert written(presence.native.put_entries, part, before) == written(put_entries, part, before)


@pytest.mark.skipif(presence.native is None, reason=f"the compiled module is {presence.why_not}")
@pytest.mark.parametrize(
    ("room", "begin", "ends"),
    [(59, 0, (24,)), (60, 0, (25,)), (60, 13, (24,)), (60, -1, (24,)), (60, 0, (24, 3))],
)
def test_the_compiled_writer_rejects_room_of_another_size(
    room: int, begin: int, ends: tuple[int, ...]
) -> None:
    assert presence.native is not None
    data = bytes(24)
    with pytest.raises(ValueError, match="outside"):
        presence.native.put_entries(memoryview(bytearray(room)), data, begin, ends, 0, 0, 0, 0, 0)
    with pytest.raises(AssertionError, match="all of the room"):
        presence.native.put_entries(memoryview(bytearray(61)), data, 0, (24,), 0, 0, 0, 0, 0)
