"""Repair of a damaged range of a member's log from another member's copy.

Invariant: entries at one position are equal on all members except for their checksums, which each member computes itself. So
another member's bytes are used only if they contain this position, pass their CRCs, and match the checksum that this member
wrote with the entry. If that checksum is corrupt, the bytes must match the checksum of the next entry, which continues it.
Pure."""

from __future__ import annotations

import struct
from typing import NamedTuple

from dledger.raft.membership import is_members
from dledger.storage.entry import (
    BLANK,
    BLANK_MAGIC,
    CHECK_END,
    CHECK_START,
    ENTRY_HEADER_BYTES,
    IndexUnit,
    check_of,
    index_header,
    stored_check,
)
from messagestore.record import END_OF_SEGMENT, PREFIX, check, encode_blank
from raftstore.framing import facts_of

COUNT = struct.Struct(">I")
COUNT_MAX = 0xFFFFFFFF
OWN_END = CHECK_END + COUNT.size
"""End of the header part that differs between members: the checksum, and the number of earlier entries in the same sync."""


def entry_in_header(head: bytes, position: int) -> IndexUnit | None:
    """The entry in `head`, another member's header; None if the header is not for `position`."""
    unit = index_header(head)
    return unit if unit is not None and unit.position == position else None


def is_closed(head: bytes, left: int) -> bool:
    """Whether `head` is the blank that ends another member's file, with `left` bytes of the file left."""
    return len(head) >= BLANK.size and BLANK.unpack_from(head) == (BLANK_MAGIC, left)


def closed(left: int) -> bytes:
    return BLANK.pack(BLANK_MAGIC, left)


class Around(NamedTuple):
    """This member's data around an entry. `check` is the checksum of the previous entry. `synced_before` is the number of
    entries that precede the previous entry in the same sync, -1 if there is no previous entry. `behind` is the complete next
    entry, empty if there is none."""

    check: int
    synced_before: int
    behind: bytes

    @property
    def has_checks(self) -> bool:
        return bool(self.check or (self.behind and stored_check(self.behind)))

    def goes_on_from(self, check: int) -> bool:
        """Whether the next entry proves that `check` is the checksum of the entry between."""
        stored = stored_check(self.behind) if self.behind else 0
        return bool(stored) and stored == check_of(self.behind, check)


def mended(own: bytes, theirs: bytes, unit: IndexUnit, around: Around) -> bytes | None:
    """The entry of `unit` as this member wrote it, rebuilt from `own` and `theirs`; None if this is not proven. If the entry
    before or after it has a checksum, this entry had a checksum too."""
    body = theirs[ENTRY_HEADER_BYTES:]
    if len(theirs) != unit.size or len(own) != unit.size:
        return None
    if body and not is_members(body) and facts_of(body, unit.position) is None:
        return None
    stored = stored_check(own)
    if not stored and not around.has_checks:
        return theirs[:CHECK_START] + own[CHECK_START:OWN_END] + theirs[OWN_END:]
    for count in (own[CHECK_END:OWN_END], COUNT.pack(around.synced_before + 1 & COUNT_MAX), COUNT.pack(0)):
        check = check_of(theirs[:CHECK_END] + count + theirs[OWN_END:], around.check)
        if check == stored or around.goes_on_from(check):
            return theirs[:CHECK_START] + COUNT.pack(check) + count + theirs[OWN_END:]
    return None


def plain_mended(theirs: bytes, left: int, offset: int) -> bytes | None:
    """The record at `offset` of the plain log, `left` bytes before the end of the file: an intact record, or the blank that
    ends the file. None if `theirs` is neither of them."""
    found = check(theirs, 0, left, offset, verify_record=True)
    if found == END_OF_SEGMENT:
        blank = encode_blank(left)
        return blank if theirs[: PREFIX.size] == blank else None
    return theirs if found == len(theirs) else None
