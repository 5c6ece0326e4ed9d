"""A damaged stretch of a member's log made whole again of what another member has there.

Invariant: entries that stand at one position are equal on all members, but for their check values, which are each member's own.
So bytes of another count only where they name their own place and pass their CRCs, and where the own check value, which was
written when the entry was, says of them that they are just those. Pure."""

from __future__ import annotations

from dledger.entry import (
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
from dledger.membership import is_members
from messagestore.record import END_OF_SEGMENT, PREFIX, check, encode_blank
from raftstore.framing import facts_of

OWN_END = CHECK_END + 4
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


def mended(own: bytes, theirs: bytes, unit: IndexUnit, checks_around: tuple[int, int]) -> bytes | None:
    """The entry that `unit` tells of as it was written here, of what `own` and `theirs` are now; None where that is not proven.
    `checks_around` are those of the entries before and behind: where one has any, this one had, too."""
    body = theirs[ENTRY_HEADER_BYTES:]
    if len(theirs) != unit.size or len(own) != unit.size:
        return None
    if body and not is_members(body) and facts_of(body, unit.position) is None:
        return None
    made = theirs[:CHECK_START] + own[CHECK_START:OWN_END] + theirs[OWN_END:]
    told = stored_check(own)
    if told != check_of(made, checks_around[0]) and (told or any(checks_around)):
        return None
    return made


def plain_mended(theirs: bytes, left: int, offset: int) -> bytes | None:
    """What stands at `offset` of the log before the divide, `left` bytes before its file ends: a sound record, or the blank
    that ends the file. None where another has neither."""
    found = check(theirs, 0, left, offset, verify_record=True)
    if found == END_OF_SEGMENT:
        blank = encode_blank(left)
        return blank if theirs[: PREFIX.size] == blank else None
    return theirs if found == len(theirs) else None
