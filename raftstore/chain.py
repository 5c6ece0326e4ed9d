"""Checking a slice of a DLedger log: each entry's header, the message in it, and its check value, which covers all of its bytes
and goes on from the one before.

Invariant: no entry of ours that follows another one of the slice, or stands where an earlier slice ended, passes with a bit
that flipped. Of one that stands first, behind entries that nobody looked at, its own check value is taken as it is; the next
pass of the scrub compares it."""

from __future__ import annotations

from collections import deque

from dledger.storage.entry import ENTRY_HEADER_BYTES, check_of, stored_check
from messagestore import record
from messagestore.scrub.walk import RECORDS_MAX, Walked
from raftstore.entrywalk import CLOSED, entry_at, is_message

Checks = tuple[int, ...]
"""From one of these the check value of the next entry starts: two, behind an entry of which the one or the other may be right;
none is known: empty."""
ENDS_MAX = 16


class Chain:
    """Where the last walks ended, and with which check values. Walks run in threads beside each other; a deque bears that."""

    def __init__(self) -> None:
        self._ends: deque[tuple[int, Checks]] = deque(maxlen=ENDS_MAX)

    def before(self, position: int) -> Checks:
        return next((checks for end, checks in reversed(tuple(self._ends)) if end == position), ())

    def ends(self, position: int, checks: Checks) -> None:
        if checks:
            self._ends.append((position, checks))


def walk_entries(
    buffer: bytes,
    start: int,
    segment_end: int,
    limit: int,
    verify_record: bool = False,
    *,
    before: Checks = (),
) -> tuple[Walked, Checks]:
    """As messagestore.scrub.walk.walk_slice, of a log of entries: what is wrong with one is told with its place and size. And
    the check values behind the last entry, the damaged one if there is one."""
    position = start
    for entries in range(RECORDS_MAX):
        if position >= limit:
            return Walked(position, entries), before
        at = position - start
        size = entry_at(buffer, at, segment_end - position, position)
        if size == CLOSED:
            return Walked(segment_end, entries), before
        held = len(buffer) - at
        if size is None:
            if held < min(ENTRY_HEADER_BYTES, limit - position):
                return Walked(position, entries, wanted=ENTRY_HEADER_BYTES if at == 0 else 0), before
            return Walked(position, entries, "no head of an entry stands here"), ()
        if position + size > limit:
            return Walked(position, entries, f"an entry of {size} bytes goes beyond {limit}"), ()
        if size > held:
            return Walked(position, entries, wanted=size if at == 0 else 0), before
        why, before = judged(memoryview(buffer)[at : at + size], position, before, verify_record)
        if why:
            return Walked(position, entries, why, size), before
        position += size
    return Walked(position, RECORDS_MAX), before


def judged(entry: memoryview, position: int, before: Checks, verify_record: bool) -> tuple[str, Checks]:
    """What is wrong with it, if anything is, and what the next one starts from."""
    told, body = stored_check(entry), len(entry) - ENTRY_HEADER_BYTES
    made = tuple(check_of(entry, check) for check in before) if told else ()
    if is_message(entry, 0, len(entry)):
        offset = position + ENTRY_HEADER_BYTES
        if record.check(entry, ENTRY_HEADER_BYTES, body, offset, verify_record=verify_record) != body:
            return "the message in the entry is damaged", (told, *made)
    if told and before and told not in made:
        return "the entry is not what its check value is of", (told, *made)
    return "", (told,)
