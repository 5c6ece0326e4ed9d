"""A snapshot: what the entries up to one made of the state machine, and where on this disk the log behind it begins.

Invariant: `begin.index` <= `last_index`: every entry behind the snapshot is in the log. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dledger.raft.entries import NO_INDEX, NO_TERM
from dledger.raft.membership import Stated


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
