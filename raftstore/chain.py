"""Check of a slice of a DLedger log. The check covers each entry's header, message and checksum. An entry's checksum covers all
bytes of the entry and is chained to the checksum of the entry before.

Invariant: a flipped bit is found in every entry of this implementation that follows another entry of the slice, or starts where
an earlier slice ended. If the entry before was not walked, the stored checksum of the slice's first entry is accepted without a
comparison; the next pass of the scrub compares it."""

from __future__ import annotations

from collections import deque

from dledger.storage.entry import ENTRY_HEADER_BYTES, check_of, stored_check
from messagestore import record
from messagestore.scrub.walk import RECORDS_MAX, WalkedSlice
from raftstore.entrywalk import CLOSED, entry_at, is_message

Checks = tuple[int, ...]
"""Candidates for the checksum that the next entry continues; empty if none is known. After a damaged entry there are several
candidates: the stored checksum and the computed ones."""
ENDS_MAX = 16


class Chain:
    """Where the last walks ended, and the checksums that the next entry there may continue. Walks run in concurrent threads; a
    deque is safe for this."""

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
) -> tuple[WalkedSlice, Checks]:
    """Like messagestore.scrub.walk.walk_slice, for a log of entries. Damage is reported with its place and size. Also returns
    the checksums after the last walked entry; a walk ends at a damaged entry."""
    position = start
    for entries in range(RECORDS_MAX):
        if position >= limit:
            return WalkedSlice(position, entries), before
        at = position - start
        size = entry_at(buffer, at, segment_end - position, position)
        if size == CLOSED:
            return WalkedSlice(segment_end, entries), before
        held = len(buffer) - at
        if size is None:
            if held < min(ENTRY_HEADER_BYTES, limit - position):
                return WalkedSlice(position, entries, wanted=ENTRY_HEADER_BYTES if at == 0 else 0), before
            return WalkedSlice(position, entries, "no entry header here"), ()
        if position + size > limit:
            return WalkedSlice(position, entries, f"an entry of {size} bytes goes beyond {limit}"), ()
        if size > held:
            return WalkedSlice(position, entries, wanted=size if at == 0 else 0), before
        why, before = judged(memoryview(buffer)[at : at + size], position, before, verify_record)
        if why:
            return WalkedSlice(position, entries, why, size), before
        position += size
    return WalkedSlice(position, RECORDS_MAX), before


def judged(entry: memoryview, position: int, before: Checks, verify_record: bool) -> tuple[str, Checks]:
    """The damage of an entry, empty if there is none, and the checksums that the next entry may continue."""
    stored, body = stored_check(entry), len(entry) - ENTRY_HEADER_BYTES
    made = tuple(check_of(entry, check) for check in before) if stored else ()
    if is_message(entry, 0, len(entry)):
        offset = position + ENTRY_HEADER_BYTES
        if record.check(entry, ENTRY_HEADER_BYTES, body, offset, verify_record=verify_record) != body:
            return "the message in the entry is damaged", (stored, *made)
    if stored and before and stored not in made:
        return "the entry does not match its checksum", (stored, *made)
    return "", (stored,)
