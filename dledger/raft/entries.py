"""Entries of the replicated log: single entries, and blocks of many entries in one piece of bytes. A PUSH and the log in memory
consist of blocks, so that work on a block is not done once for each entry.

Invariants: (index, term) identifies one entry in the whole group. Indexes count from 0, and an empty log ends at index -1, term
-1. The entries of a block follow each other and have one term. A block's bytes do not change once an entry of the block is in a
log. Pure."""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, groupby, pairwise
from operator import attrgetter
from typing import overload

NO_INDEX = -1
NO_TERM = -1
BLOCK_HEAD_BYTES = 12
"""The size of the header before each body, in a block and in a PUSH."""


HEAD = struct.Struct(
    ">"  # offset field
    "q"  # 0 term
    "I"  # 8 body_size   then the body; indexes follow each other
)
assert HEAD.size == BLOCK_HEAD_BYTES


@dataclass(frozen=True, slots=True)
class Entry:
    index: int
    term: int
    body: bytes
    """Empty for the no-op that opens a leader's term."""


class Block:
    """At least one entry; each entry is a HEAD and a body. The first entry begins at `data[begin]`; entry number n, from 0,
    ends at `data[ends[n]]`."""

    __slots__ = ("begin", "data", "ends", "term")

    def __init__(self, term: int, data: bytes | bytearray, ends: tuple[int, ...], begin: int = 0) -> None:
        assert ends, "a block holds entries"
        self.term = term
        self.data = data
        self.ends = ends
        self.begin = begin

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def view(self) -> memoryview:
        """The bytes of all entries, as in a PUSH."""
        return memoryview(self.data)[self.begin : self.ends[-1]]

    @property
    def sizes(self) -> list[int]:
        """The sizes of the bodies."""
        return [end - start - HEAD.size for start, end in pairwise((self.begin, *self.ends))]

    def body_at(self, number: int) -> int:
        """The offset in `data` at which body `number` begins."""
        return (self.ends[number - 1] if number else self.begin) + HEAD.size

    def body(self, number: int) -> bytes:
        return bytes(self.data[self.body_at(number) : self.ends[number]])

    def size(self, count: int, each: int = 0) -> int:
        """The total size of the first `count` bodies, with `each` added for every body."""
        return self.ends[count - 1] - self.begin + count * (each - HEAD.size) if count else 0

    def fitting(self, room: int, each: int = 0) -> int:
        """The largest number of first entries with a `size` of at most `room`."""
        count = len(self.ends)
        if self.size(count, each) <= room:
            return count
        return bisect_right(range(1, count + 1), room, key=lambda first: self.size(first, each))

    def part(self, start: int, stop: int) -> Block:
        """The entries from number `start` up to `stop`, at least one."""
        if not start and stop >= len(self.ends):
            return self
        return Block(self.term, self.data, self.ends[start:stop], self.body_at(start) - HEAD.size)

    def alone(self) -> Block:
        """The same entries. They are copied if most of `data` belongs to other entries, so that a few entries do not keep a
        whole PUSH in memory."""
        if 2 * (self.ends[-1] - self.begin) >= len(self.data):
            return self
        return Block(self.term, bytes(self.view), tuple(end - self.begin for end in self.ends))

    def beginning_with(self, mark: bytes) -> list[int]:
        """The numbers of the entries whose bodies begin with `mark`."""
        begins, starts = self.data.startswith, (self.begin, *self.ends)
        return [
            number
            for number, (start, end) in enumerate(zip(starts, self.ends, strict=False))
            if begins(mark, start + HEAD.size, end)
        ]


def block_of(term: int, bodies: Sequence[bytes]) -> Block:
    """A block of entries with these bodies."""
    parts = ((HEAD.pack(term, len(body)), body) for body in bodies)
    ends = tuple(accumulate(HEAD.size + len(body) for body in bodies))
    return Block(term, b"".join(chain.from_iterable(parts)), ends)


def block_to_fill(term: int, sizes: Sequence[int]) -> Block:
    """A block of entries whose bodies have these sizes. The bodies are zero until the caller fills them."""
    ends = tuple(accumulate(map(HEAD.size.__add__, sizes)))
    data = bytearray(ends[-1])
    for end, size in zip(ends, sizes, strict=True):
        HEAD.pack_into(data, end - size - HEAD.size, term, size)
    return Block(term, data, ends)


def blocks_of(term: int, bodies: Iterable[bytes | Block]) -> tuple[Block, ...]:
    """Blocks of entries with these bodies, in order. Given blocks must already have this term."""
    made: list[Block] = []
    loose: list[bytes] = []
    for body in bodies:
        if not isinstance(body, Block):
            loose.append(body)
            continue
        if loose:
            made.append(block_of(term, loose))
            loose = []
        made.append(body)
    if loose:
        made.append(block_of(term, loose))
    assert all(block.term == term for block in made), f"entries of another term than {term}"
    return tuple(made)


class Entries(Sequence[Entry]):
    """The entries of `blocks`, in order, from `first_index` on."""

    __slots__ = ("_length", "blocks", "first_index")

    def __init__(self, first_index: int = NO_INDEX + 1, blocks: tuple[Block, ...] = ()) -> None:
        self.first_index = first_index
        self.blocks = blocks
        self._length = sum(map(len, blocks))

    @staticmethod
    def of(entries: Sequence[Entry]) -> Entries:
        """The same entries as Entries; their indexes must follow each other."""
        if isinstance(entries, Entries):
            return entries
        first = entries[0].index if entries else NO_INDEX + 1
        assert all(entry.index == index for index, entry in enumerate(entries, first)), (
            "entries follow each other without a gap"
        )
        terms = groupby(entries, key=attrgetter("term"))
        return Entries(first, tuple(block_of(term, [entry.body for entry in some]) for term, some in terms))

    @property
    def last_index(self) -> int:
        return self.first_index + self._length - 1

    @property
    def body_bytes(self) -> int:
        """The number of bytes in all bodies."""
        return sum(block.size(len(block)) for block in self.blocks)

    def numbered(self) -> Iterator[tuple[int, Block]]:
        """The blocks, each with the index of its first entry."""
        index = self.first_index
        for block in self.blocks:
            yield index, block
            index += len(block)

    def part(self, start: int, stop: int) -> Entries:
        """The entries from number `start` up to `stop`."""
        found: list[Block] = []
        before = 0
        for block in self.blocks:
            low, high = max(0, start - before), min(len(block), stop - before)
            if low < high:
                found.append(block.part(low, high))
            before += len(block)
        return Entries(self.first_index + start, tuple(found))

    def alone(self) -> Entries:
        """The same entries, copied like `Block.alone`."""
        return Entries(self.first_index, tuple(block.alone() for block in self.blocks))

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, at: int) -> Entry: ...

    @overload
    def __getitem__(self, at: slice) -> Entries: ...

    def __getitem__(self, at: int | slice) -> Entry | Entries:
        if isinstance(at, slice):
            start, stop, step = at.indices(self._length)
            assert step == 1, "entries follow each other"
            return self.part(start, max(start, stop))
        number = at + self._length if at < 0 else at
        if not 0 <= number < self._length:
            raise IndexError(at)
        (entry,) = self.part(number, number + 1)
        return entry

    def __iter__(self) -> Iterator[Entry]:
        for first, block in self.numbered():
            for number in range(len(block)):
                yield Entry(first + number, block.term, block.body(number))

    def __add__(self, more: Entries) -> Entries:
        """These entries, followed by `more`."""
        if not self._length or not more._length:
            return self if self._length else more
        assert more.first_index == self.last_index + 1, f"entry {more.first_index} follows {self.last_index}"
        return Entries(self.first_index, self.blocks + more.blocks)

    def __eq__(self, other: object) -> bool:
        """Equal to any sequence of the same entries."""
        if not isinstance(other, Sequence) or len(other) != self._length:
            return False
        return all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))
