"""The open halves: the stored messages of transactions that have not ended, one for each transaction.

Invariant: the halves are in the order of their queue offsets, so the half queue is done up to the first open half. A half that
is put back (stored again for a check) moves to the end. A half takes about 170 bytes. A producer group's name is kept while the
group has one. Pure."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from struct import Struct
from typing import NamedTuple

PACKED = Struct("=qqqq")


class Half(NamedTuple):
    """The newest half of one transaction. Its producer may be checked from `due_ms` (monotonic) on. `group` is a number."""

    root: int
    queue_offset: int
    place: int
    due_ms: int
    group: int


class OpenHalves:
    """The open halves by root (the queue offset of a transaction's first half). Producer groups are stored as numbers, because
    there are few groups."""

    def __init__(self) -> None:
        self._halves: dict[int, bytes] = {}
        self._numbers: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._counts: Counter[int] = Counter()
        """The number of open halves by the group's number."""
        self._last_number = -1

    def __len__(self) -> int:
        return len(self._halves)

    def put(self, root: int, queue_offset: int, place: int, due_ms: int, group: str) -> None:
        """Add the half of a new transaction, or the new copy of a half that was put back. Its queue offset is the highest."""
        self.close(root)
        number = self._numbers.get(group)
        if number is None:
            number = self._last_number = self._last_number + 1
            self._numbers[group], self._names[number] = number, group
        self._counts[number] += 1
        self._halves[root] = PACKED.pack(queue_offset, place, due_ms, number)

    def find(self, root: int) -> Half | None:
        packed = self._halves.get(root)
        return None if packed is None else Half(root, *PACKED.unpack(packed))

    def close(self, root: int) -> None:
        """Remove a transaction that has ended."""
        packed = self._halves.pop(root, None)
        if packed is None:
            return
        number = PACKED.unpack(packed)[-1]
        self._counts[number] -= 1
        if not self._counts[number]:
            del self._counts[number], self._numbers[self._names.pop(number)]

    def first(self) -> Half | None:
        root = next(iter(self._halves), None)
        return None if root is None else self.find(root)

    def roots(self) -> list[int]:
        return list(self._halves)

    def group_name(self, half: Half) -> str:
        return self._names[half.group]

    def take(self, other: OpenHalves, count: int) -> None:
        """Move the first `count` halves of `other` to the end of this table."""
        for root in list(islice(other._halves, count)):
            queue_offset, place, due_ms, number = PACKED.unpack(other._halves[root])
            self.put(root, queue_offset, place, due_ms, other._names[number])
            other.close(root)
