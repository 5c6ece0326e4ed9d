"""The halves that wait for their end, each transaction once.

Invariant: they stand in the order of their queue offsets, so the first one is as far as the half queue is done with; a half
that is put back stands at the end. About 170 bytes each. Pure."""

from __future__ import annotations

from itertools import islice
from struct import Struct
from typing import NamedTuple

PACKED = Struct("=qqqi")


class Half(NamedTuple):
    """The newest half of one transaction. `due_ms`: from when (monotonic) its producer may be asked; `group`: a number."""

    root: int
    queue_offset: int
    place: int
    due_ms: int
    group: int


class OpenHalves:
    """By root. Groups of producers are numbers here, for there are few of them."""

    def __init__(self) -> None:
        self._halves: dict[int, bytes] = {}
        self._numbers: dict[str, int] = {}
        self._names: list[str] = []

    def __len__(self) -> int:
        return len(self._halves)

    def put(self, root: int, queue_offset: int, place: int, due_ms: int, group: str) -> None:
        """A new half, of a new transaction or, put back, of one that is open. Its queue offset is above all others."""
        number = self._numbers.get(group)
        if number is None:
            number = self._numbers[group] = len(self._names)
            self._names.append(group)
        self._halves.pop(root, None)
        self._halves[root] = PACKED.pack(queue_offset, place, due_ms, number)

    def find(self, root: int) -> Half | None:
        packed = self._halves.get(root)
        return None if packed is None else Half(root, *PACKED.unpack(packed))

    def close(self, root: int) -> None:
        """The transaction is ended."""
        self._halves.pop(root, None)

    def first(self) -> Half | None:
        root = next(iter(self._halves), None)
        return None if root is None else self.find(root)

    def roots(self) -> list[int]:
        return list(self._halves)

    def group_name(self, half: Half) -> str:
        return self._names[half.group]

    def take(self, other: OpenHalves, count: int) -> None:
        """The first `count` of `other` come behind those that are here, and leave it."""
        for root in list(islice(other._halves, count)):
            queue_offset, place, due_ms, number = PACKED.unpack(other._halves.pop(root))
            self.put(root, queue_offset, place, due_ms, other._names[number])
