"""Whether the bytes of an index file agree with each other.

Invariant: a file that `IndexFile` or upstream wrote and synced has no fault here. In such a file the entries are in log order,
each entry points to the newest earlier entry of its slot, and each slot points to its newest entry. The check needs four bytes
of memory for each slot of one file. Pure."""

from __future__ import annotations

from messagestore.checkpoint import TIMESTAMP_END
from messagestore.index.file import ENTRY, FIRST_ENTRY, HEADER, I32_MAX, ROUNDING_MS, SLOT, SLOT_SIZE


def header_fault(header: bytes, entries_max: int) -> str | None:
    """The fault of the header of a file with entries; None if there is none."""
    begin_ms, end_ms, begin_phy, end_phy, used_slots, count = HEADER.unpack(header)
    if count > entries_max:
        return f"its header counts {count - FIRST_ENTRY} entries, and it has room for {entries_max - FIRST_ENTRY}"
    if not 0 <= used_slots < count:
        return f"its header counts {used_slots} slots in use for {count - FIRST_ENTRY} entries"
    if not 0 <= begin_phy <= end_phy:
        return f"its header begins at {begin_phy} and ends at {end_phy}"
    if not (0 <= begin_ms < TIMESTAMP_END and 0 <= end_ms < TIMESTAMP_END):
        return f"the times {begin_ms} and {end_ms} of its header cannot be"
    return None


def ends_fault(header: bytes, first: bytes, last: bytes) -> str | None:
    """The fault that the first or last entry shows if compared with the header; None if there is none."""
    begin_ms, end_ms, begin_phy, end_phy, _, count = HEADER.unpack(header)
    _, first_phy, first_seconds, first_previous = ENTRY.unpack(first)
    _, last_phy, last_seconds, _ = ENTRY.unpack(last)
    if (first_phy, first_seconds, first_previous) != (begin_phy, 0, 0):
        return f"its first entry leads to {first_phy}, and its header says {begin_phy}"
    if last_phy != end_phy:
        return f"its entry {count - FIRST_ENTRY} leads to {last_phy}, and its header says {end_phy}"
    if last_seconds < I32_MAX and end_ms >= begin_ms + last_seconds * 1000 + ROUNDING_MS:
        return f"its last entry was stored {last_seconds} s after {begin_ms}, and its header ends at {end_ms}"
    return None


class Chains:
    """Takes the entries of one file in order, then its slots. `limit` is the number after its last entry."""

    def __init__(self, slots: int, begin_phy: int, limit: int) -> None:
        self._newest = memoryview(bytearray(SLOT_SIZE * slots)).cast("i")  # zeroed without a loop
        self._phy = begin_phy
        self._number = FIRST_ENTRY
        self._limit = limit

    def entries_fault(self, content: bytes, end_phy: int) -> str | None:
        """The fault of the next entries; None if there is none. No entry may lead beyond `end_phy`."""
        newest, slots, before, number = self._newest, len(self._newest), self._phy, self._number
        for value, phy, seconds, previous in ENTRY.iter_unpack(content):
            if value < 0 or seconds < 0 or not before <= phy <= end_phy:
                return f"entry {number} cannot follow the one before it"
            slot = value % slots
            if previous != newest[slot]:
                return f"entry {number} points to entry {previous}, and the one before it in its slot is {newest[slot]}"
            newest[slot], before, number = number, phy, number + 1
        self._phy, self._number = before, number
        return None

    def slots_ahead(self, content: bytes, first: int) -> list[tuple[int, int, int]]:
        """Compare slots, from number `first` on, with the newest entry of each slot that this check has seen. Returns (slot,
        entry that it points to, newest seen entry) for each slot where the two differ. That is no fault if the slot's entry
        was put since; then the chain leads back to the newest seen entry."""
        newest = self._newest
        return [
            (slot, number, newest[slot])
            for slot, (number,) in enumerate(SLOT.iter_unpack(content), first)
            if number != newest[slot]
        ]
