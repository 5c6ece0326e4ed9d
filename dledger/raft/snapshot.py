"""A snapshot: what the entries up to one made of the state machine, and where on this disk the log behind it begins.

Invariants: `begin.index` <= `last_index`: every entry behind the snapshot is in the log. A follower takes a snapshot whole,
once its check value is right, or not at all. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from zlib import crc32

from dledger.raft.entries import NO_INDEX, NO_TERM
from dledger.raft.membership import Stated
from dledger.raft.messages import InstallRequest


@dataclass(frozen=True, slots=True)
class Begin:
    """Where the log on a disk begins: behind which entry."""

    index: int = NO_INDEX
    term: int = NO_TERM
    position: int = 0
    """The beginning of a data file."""
    check: int = 0
    """Of that entry, if it was written here."""


WHOLE = Begin()


@dataclass(frozen=True, slots=True)
class Snapshot:
    last_index: int
    last_term: int
    state: bytes | bytearray
    """What the state machine made, and can read; nobody changes it."""
    begin: Begin = WHOLE
    stated: tuple[Stated, ...] = ()
    """Who belonged to the group there, where an entry said it; one at most."""
    replaces_files: bool = False
    """What stands in the log's files is of the log that it replaced: nothing of what follows it was written yet."""

    def behind(self, begin: Begin) -> Snapshot:
        """The same, with a log that begins there."""
        assert begin.index <= self.last_index, "entries behind a snapshot stay"
        return replace(self, begin=begin)


class IncomingSnapshot:
    """The part of a snapshot that has come."""

    def __init__(self) -> None:
        self._of: tuple[int, int, int, int] | None = None
        self._data = bytearray()
        self._check = 0

    def take(self, request: InstallRequest) -> int:
        """How many bytes are here now: what follows them is wanted next."""
        snapshot = request.index, request.index_term, request.size, request.check
        if self._of != snapshot:
            self.forget()
            self._of = snapshot
        if request.offset == len(self._data):
            self._data += request.data
            self._check = crc32(request.data, self._check)
        return len(self._data)

    def complete(self) -> bytearray | None:
        """All of it; None where its check value is wrong. Either way it is forgotten."""
        assert self._of is not None
        state = self._data if self._check == self._of[3] else None
        self.forget()
        return state

    def forget(self) -> None:
        self._of, self._check = None, 0
        self._data = bytearray()
