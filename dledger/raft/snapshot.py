"""A snapshot: the state of the state machine after an entry, and the beginning of the log on this disk.

Invariants: `begin.index` <= `last_index`, so every entry after the snapshot is in the log. A follower uses a snapshot only as a
whole, and only if its check value is right. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from zlib import crc32

from dledger.raft.entries import NO_INDEX, NO_TERM
from dledger.raft.membership import ConfigurationAt
from dledger.raft.messages import InstallRequest


@dataclass(frozen=True, slots=True)
class Begin:
    """The beginning of the log on a disk: the log begins after this entry."""

    index: int = NO_INDEX
    term: int = NO_TERM
    position: int = 0
    """The position of the log's beginning, which is the beginning of a data file."""
    check: int = 0
    """The check value of this entry, if the entry was written here."""


WHOLE = Begin()


@dataclass(frozen=True, slots=True)
class Snapshot:
    last_index: int
    last_term: int
    state: bytes | bytearray
    """The bytes from the state machine; they are never changed."""
    begin: Begin = WHOLE
    configurations: tuple[ConfigurationAt, ...] = ()
    """The configuration at the snapshot's last entry, if an entry has it; at most one."""
    replaces_files: bool = False
    """Whether the log's files are still those of the log that the snapshot replaced. No entry after the snapshot was written
    yet."""

    def behind(self, begin: Begin) -> Snapshot:
        """The same snapshot, with a log that begins at `begin`."""
        assert begin.index <= self.last_index, "entries behind a snapshot stay"
        return replace(self, begin=begin)


class IncomingSnapshot:
    """The part of a snapshot that has arrived."""

    def __init__(self) -> None:
        self._of: tuple[int, int, int, int] | None = None
        self._data = bytearray()
        self._check = 0

    def take(self, request: InstallRequest) -> int:
        """Receives a part. Returns the number of bytes that are here; the next part must follow them."""
        snapshot = request.index, request.index_term, request.size, request.check
        if self._of != snapshot:
            self.forget()
            self._of = snapshot
        if request.offset == len(self._data):
            self._data += request.data
            self._check = crc32(request.data, self._check)
        return len(self._data)

    def complete(self) -> bytearray | None:
        """Returns the whole state, None if its check value is wrong. In both cases this object forgets the state."""
        assert self._of is not None
        state = self._data if self._check == self._of[3] else None
        self.forget()
        return state

    def forget(self) -> None:
        self._of, self._check = None, 0
        self._data = bytearray()
