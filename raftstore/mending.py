"""A damaged stretch of a member's log made whole again of what another member has there.

Invariant: entries that stand at one position are equal on all members, but for their check values, which are each member's own.
So bytes of another count only where they name their own place and pass their CRCs, and where the own check value, which was
written when the entry was, says of them that they are just those; or, where that rotted, the one of the entry behind, which
goes on from it. Pure."""

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
"""Up to there an entry's header has what is each member's own: its check value, and how many came before it in its sync."""


def entry_told(head: bytes, position: int) -> IndexUnit | None:
    """What another's header at `position` says of its entry; None for none of that place."""
    unit = index_header(head)
    return unit if unit is not None and unit.position == position else None


def is_closed(head: bytes, left: int) -> bool:
    """Whether another's file ends there, `left` bytes before its end."""
    return len(head) >= BLANK.size and BLANK.unpack_from(head) == (BLANK_MAGIC, left)


def closed(left: int) -> bytes:
    return BLANK.pack(BLANK_MAGIC, left)


class Around(NamedTuple):
    """What is written here around an entry: of the one before the check value, and how many came before it in its sync, -1 for
    no entry; and the whole one behind, if there is one."""

    check: int
    synced_before: int
    behind: bytes

    @property
    def has_checks(self) -> bool:
        return bool(self.check or (self.behind and stored_check(self.behind)))

    def goes_on_from(self, check: int) -> bool:
        """Whether what stands behind proves that the entry before it has this check value."""
        told = stored_check(self.behind) if self.behind else 0
        return bool(told) and told == check_of(self.behind, check)


def mended(own: bytes, theirs: bytes, unit: IndexUnit, around: Around) -> bytes | None:
    """The entry that `unit` tells of as it was written here, of what `own` and `theirs` are now; None where that is not proven.
    Where an entry around has a check value, this one had, too."""
    body = theirs[ENTRY_HEADER_BYTES:]
    if len(theirs) != unit.size or len(own) != unit.size:
        return None
    if body and not is_members(body) and facts_of(body, unit.position) is None:
        return None
    told = stored_check(own)
    if not told and not around.has_checks:
        return theirs[:CHECK_START] + own[CHECK_START:OWN_END] + theirs[OWN_END:]
    for count in (own[CHECK_END:OWN_END], COUNT.pack(around.synced_before + 1 & COUNT_MAX), COUNT.pack(0)):
        check = check_of(theirs[:CHECK_END] + count + theirs[OWN_END:], around.check)
        if check == told or around.goes_on_from(check):
            return theirs[:CHECK_START] + COUNT.pack(check) + count + theirs[OWN_END:]
    return None


def plain_mended(theirs: bytes, left: int, offset: int) -> bytes | None:
    """What stands at `offset` of the log before the divide, `left` bytes before its file ends: a sound record, or the blank
    that ends the file. None where another has neither."""
    found = check(theirs, 0, left, offset, verify_record=True)
    if found == END_OF_SEGMENT:
        blank = encode_blank(left)
        return blank if theirs[: PREFIX.size] == blank else None
    return theirs if found == len(theirs) else None
