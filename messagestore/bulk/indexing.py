"""Many entries of an index file at once, and rebuilding its slots.

Invariant: the file's bytes are those that the same entries leave when `IndexFile` puts them one by one. Pure."""

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
    """Write entries from number `first` on to the start of `entries` and link them into the chains of `slots`; returns how
    many slots were free."""
    heads = np.frombuffer(slots, INDEX_SLOTS)
    numbers = np.arange(first, first + len(hashes))
    places = hashes % len(heads)
    previous = heads[places].astype(np.int64)
    previous[(previous <= 0) | (previous >= numbers)] = 0
    heads[places] = numbers  # of equal places the last stays
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
    """Rebuild the slots from the entries, from number `first` on, up to the first that cannot follow or is not below
    `phy_limit`; returns (the number after the last of them, slots in use)."""
    stored = np.frombuffer(entries, INDEX_ENTRIES)
    at, hashes = stored["phy"].astype(np.int64), stored["key_hash"].astype(np.int64)
    wrong = (at < 0) | (at >= phy_limit) | (hashes < 0)
    wrong[1:] |= at[1:] < at[:-1]
    count = first_of(wrong)
    heads = np.frombuffer(slots, INDEX_SLOTS)
    heads[:] = 0
    heads[hashes[:count] % len(heads)] = np.arange(first, first + count)
    return first + count, int((stored["previous"][:count] == 0).sum())
