"""Bodies that say where their entry stands, as the records of a commit log do; and where those of a group stand (R18).

Invariant: a checker only reads; what it knows of one member it compares with what any member had before."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from dledger.node.node import DLedgerNode
from dledger.raft.entries import NO_INDEX
from dledger.raft.errors import LogDamaged
from dledger.raft.membership import is_members
from dledger.storage.entry import ENTRY_HEADER_BYTES

MARK = b"@"
DIGITS = 10
SAYS_BYTES = len(MARK) + DIGITS


def placed_body(position: int, text: bytes) -> bytes:
    return MARK + b"%010d" % position + text


def position_in_body(body: bytes) -> int | None:
    return int(body[len(MARK) : SAYS_BYTES]) if body.startswith(MARK) else None


class Placed(NamedTuple):
    """What a leader has placed: entry `number`, which ends at `end`."""

    number: int
    end: int
    body: bytes


class PositionsCheck:
    """R18: every decided entry stands at one position on all members, the one that its body says; what is readable is decided
    and durable, and does not shrink in a life of a member; its observers hear of all of that."""

    def __init__(self, found: Callable[[str, str], AssertionError]) -> None:
        self.found = found
        self.holds: Callable[[str, bytes], bool] = lambda member, data: True
        """Whether the disk of a member durably has bytes in its data files."""
        self.positions: dict[int, int] = {}
        """Of each entry that was readable somewhere, and of each that a log began with."""
        self.seen: dict[DLedgerNode, tuple[int, int]] = {}
        self.told: dict[DLedgerNode, int] = {}
        """What `on_readable` said last."""
        self.restarted: set[DLedgerNode] = set()
        """Those that were told of it since they were looked at."""
        self.answered: deque[Placed] = deque()
        """What its leader has seen readable, and would answer."""
        self.readable = 0
        """How many entries were seen to be."""

    def opened(self, node: DLedgerNode) -> None:
        index, end = node.readable()
        self.seen[node] = max(NO_INDEX, index - 1), 0  # the last one is looked at, what is before was
        self.told[node] = end

    def on_readable(self, node: DLedgerNode, end: int) -> None:
        if end <= self.told.get(node, NO_INDEX) and node not in self.restarted:
            self.found("R18", f"{node.self_id} is told that {end} is readable after {self.told[node]}")
        self.told[node] = end

    def on_restarted(self, node: DLedgerNode, position: int) -> None:
        self.restarted.add(node)
        if position != node.log_begin() or node.readable()[1] > position:
            self.found("R18", f"{node.self_id} restarts at {position} and begins at {node.log_begin()}")

    def look(self, node: DLedgerNode, decided: int) -> None:
        """`decided` is how many entries are, to the knowledge of all."""
        log, (index, end) = node.store.log, node.readable()
        seen, seen_end = self.seen.get(node, (NO_INDEX, 0))
        if log is None or (index, end) == (seen, seen_end):
            return
        if index < seen or end < seen_end:
            self.found(
                "R18", f"{node.self_id} had {seen} readable, up to {seen_end}, and has {index} up to {end}"
            )
        if index >= decided:
            self.found("R18", f"{node.self_id} has entry {index} readable, which is not decided")
        if self.told.get(node) != end:
            self.found(
                "R18", f"{node.self_id} has {end} readable, and its owner was told {self.told.get(node)}"
            )
        self.seen[node] = index, end
        self.restarted.discard(node)
        try:
            self.look_at_entries(node, max(seen, log.begin.index), index)
        except LogDamaged as error:
            self.found("R18", f"what is readable of {node.self_id} cannot be read: {error}")

    def look_at_entries(self, node: DLedgerNode, seen: int, last: int) -> None:
        name, log = node.self_id, node.store.log
        assert log is not None
        if log.begin.index >= 0:
            self.stands(name, log.begin.index + 1, log.begin.position)
        for index in range(seen + 1, last + 1):
            unit = log.stored_unit(index)
            data = bytes(log.data.rest_of_file(unit.position)[: unit.size])
            body = data[ENTRY_HEADER_BYTES:]
            says = None if is_members(body) else position_in_body(body)
            if says not in (None, unit.position):
                self.found("R18", f"entry {index} says {says} and stands at {unit.position} on {name}")
            if not self.holds(name, data):
                self.found("R18", f"entry {index} is readable on {name}, whose disk may lose it")
            self.stands(name, index, unit.position)
            self.readable += 1
        if log.end_of(last) != node.readable()[1]:
            self.found(
                "R18", f"entry {last} ends at {log.end_of(last)} on {name}, not at {node.readable()[1]}"
            )

    def answers(self, answer: Callable[[bytes, int], None]) -> None:
        """Once all members were looked at: what their owners answered is decided."""
        while self.answered:
            placed = self.answered.popleft()
            answer(placed.body, placed.number)

    def stands(self, name: str, index: int, position: int) -> None:
        known = self.positions.setdefault(index, position)
        if known != position:
            self.found("R18", f"entry {index} stands at {position} on {name}, and at {known} elsewhere")


def telling(texts: Sequence[bytes], positions: Sequence[int]) -> Iterator[bytes]:
    """Bodies of these texts that say where they stand."""
    for text, position in zip(texts, positions, strict=True):
        yield placed_body(position, text)
