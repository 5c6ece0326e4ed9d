"""Write many entries of an index file at once, and rebuild its slots.

Invariant: the file's bytes are the same as if `IndexFile` had put the entries one by one. Pure."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from messagestore.bulk.layouts import INDEX_ENTRIES, INDEX_SLOTS
from messagestore.bulk.records import first_of

SECONDS_MAX = 2**31 - 1


def linked(
    slots: memoryview,
    entries: memoryview,
    first: int,
    hashes: NDArray[np.int64],
    physical_offsets: NDArray[np.int64],
    seconds: NDArray[np.int64],
) -> int:
    """Write entries, numbered from `first` on, to the start of `entries`, and link them into the chains of `slots`. Returns
    how many slots were free."""
    heads = np.frombuffer(slots, INDEX_SLOTS)
    numbers = np.arange(first, first + len(hashes))
    places = hashes % len(heads)
    previous = heads[places].astype(np.int64)
    previous[(previous <= 0) | (previous >= numbers)] = 0
    heads[places] = numbers  # if places are equal, the last number stays
    later = heads[places].astype(np.int64)
    followed = np.flatnonzero(later != numbers)
    if len(followed):
        in_chain = np.zeros(len(hashes), np.bool_)
        in_chain[followed] = in_chain[later[followed] - first] = True
        chained = np.flatnonzero(in_chain)
        chained = chained[np.argsort(places[chained], kind="stable")]
        same = places[chained[1:]] == places[chained[:-1]]
        previous[chained[1:][same]] = numbers[chained[:-1][same]]
    made = np.empty(len(hashes), INDEX_ENTRIES)
    made["key_hash"], made["phy"], made["previous"] = hashes, physical_offsets, previous
    made["seconds"] = np.clip(seconds, 0, SECONDS_MAX)
    entries[: made.nbytes] = made.view(np.uint8).data
    return int((previous == 0).sum())


def relinked(slots: memoryview, entries: memoryview, first: int, phy_limit: int) -> tuple[int, int]:
    """Rebuild the slots from the entries, numbered from `first` on. It stops at the first entry that cannot follow the entries
    before it, or whose record is not below `phy_limit`. Returns (that entry's number, slots in use)."""
    stored = np.frombuffer(entries, INDEX_ENTRIES)
    at, hashes = stored["phy"].astype(np.int64), stored["key_hash"].astype(np.int64)
    wrong = (at < 0) | (at >= phy_limit) | (hashes < 0)
    wrong[1:] |= at[1:] < at[:-1]
    count = first_of(wrong)
    heads = np.frombuffer(slots, INDEX_SLOTS)
    heads[:] = 0
    heads[hashes[:count] % len(heads)] = np.arange(first, first + count)
    return first + count, int((stored["previous"][:count] == 0).sum())
