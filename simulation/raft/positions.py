"""Test entries whose body contains the entry's position, as a commit log record does. `PositionsCheck` checks that a committed
entry has the same position on all members (rule R18).

Invariant: a checker only reads. It compares an entry's position on one member with the positions that it had before on any
member."""

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
    """The entry `number`, which a leader has placed and which ends at `end`."""

    number: int
    end: int
    body: bytes


class PositionsCheck:
    """R18: every committed entry is at the same position on all members, and that is the position in its body. Readable
    entries are committed and durable, and stay readable while a member lives. Observers are notified of all readable
    entries."""

    def __init__(self, found: Callable[[str, str], AssertionError]) -> None:
        self.found = found
        self.holds: Callable[[str, bytes], bool] = lambda member, data: True
        """Whether a member's disk durably has these bytes in its data files."""
        self.positions: dict[int, int] = {}
        """The position of each entry that was readable on some member, and of the first entry of each log."""
        self.seen: dict[DLedgerNode, tuple[int, int]] = {}
        self.notified_end: dict[DLedgerNode, int] = {}
        """The end that `on_readable` reported last."""
        self.restarted: set[DLedgerNode] = set()
        """Members that were notified of a restart since the last look at them."""
        self.answered: deque[Placed] = deque()
        """Entries that their leader has seen as readable, and would answer."""
        self.readable = 0
        """How many readable entries were checked."""

    def opened(self, node: DLedgerNode) -> None:
        index, end = node.readable()
        self.seen[node] = (
            max(NO_INDEX, index - 1),
            0,
        )  # the last entry is checked again; earlier ones were checked
        self.notified_end[node] = end

    def on_readable(self, node: DLedgerNode, end: int) -> None:
        if end <= self.notified_end.get(node, NO_INDEX) and node not in self.restarted:
            self.found(
                "R18", f"{node.self_id} is notified that {end} is readable, after {self.notified_end[node]}"
            )
        self.notified_end[node] = end

    def on_restarted(self, node: DLedgerNode, position: int) -> None:
        self.restarted.add(node)
        if position != node.log_begin() or node.readable()[1] > position:
            seen = f"begins at {node.log_begin()}, has {node.readable()[1]} readable"
            self.found("R18", f"{node.self_id} restarts at {position}, {seen}")

    def look(self, node: DLedgerNode, committed: int) -> None:
        """Check a member. `committed` is how many entries any member has committed."""
        log, (index, end) = node.store.log, node.readable()
        seen, seen_end = self.seen.get(node, (NO_INDEX, 0))
        if log is None or (index, end) == (seen, seen_end):
            return
        if index < seen or end < seen_end:
            self.found(
                "R18", f"{node.self_id} had {seen} readable, up to {seen_end}, and has {index} up to {end}"
            )
        if index >= committed:
            self.found(
                "R18", f"{node.self_id} has entry {index} readable, and {committed} entries are committed"
            )
        if self.notified_end.get(node) != end:
            self.found(
                "R18",
                f"{node.self_id} has {end} readable, and its owner was notified of {self.notified_end.get(node)}",
            )
        self.seen[node] = index, end
        self.restarted.discard(node)
        try:
            self.look_at_entries(node, max(seen, log.begin.index), index)
        except LogDamaged as error:
            self.found("R18", f"{node.self_id} cannot read a readable entry: {error}")

    def look_at_entries(self, node: DLedgerNode, seen: int, last: int) -> None:
        name, log = node.self_id, node.store.log
        assert log is not None
        if log.begin.index >= 0:
            self.expect_position(name, log.begin.index + 1, log.begin.position)
        for index in range(seen + 1, last + 1):
            unit = log.stored_unit(index)
            data = bytes(log.data.rest_of_file(unit.position)[: unit.size])
            body = data[ENTRY_HEADER_BYTES:]
            says = None if is_members(body) else position_in_body(body)
            if says not in (None, unit.position):
                self.found("R18", f"entry {index} names position {says} and is at {unit.position} on {name}")
            if not self.holds(name, data):
                self.found("R18", f"entry {index} is readable on {name}, whose disk may lose it")
            self.expect_position(name, index, unit.position)
            self.readable += 1
        if log.end_of(last) != node.readable()[1]:
            self.found(
                "R18", f"entry {last} ends at {log.end_of(last)} on {name}, not at {node.readable()[1]}"
            )

    def answers(self, answer: Callable[[bytes, int], None]) -> None:
        """Called after all members were looked at: check that answered entries are committed."""
        while self.answered:
            placed = self.answered.popleft()
            answer(placed.body, placed.number)

    def expect_position(self, name: str, index: int, position: int) -> None:
        known = self.positions.setdefault(index, position)
        if known != position:
            self.found("R18", f"entry {index} is at {position} on {name}, and at {known} on another member")


def bodies_naming(texts: Sequence[bytes], positions: Sequence[int]) -> Iterator[bytes]:
    """These texts as bodies that contain their positions."""
    for text, position in zip(texts, positions, strict=True):
        yield placed_body(position, text)
