"""Scanning many entries of a consume queue at once.

Invariant: an entry is counted only if it is whole, its record lies below the limit, and the records follow each other in the
log. Fillers (entries for queue offsets without a record) and torn or unwritten entries are not counted. Pure."""

from __future__ import annotations

import numpy as np

from messagestore.bulk.layouts import QUEUE_ENTRIES
from messagestore.bulk.records import first_of

FILLER_SIZE = 0x7FFFFFFF


def plain_entries(content: bytes, last_end: int, phy_limit: int) -> tuple[int, int]:
    """Return (count, end). `count` is the number of entries, from the first on, whose records follow each other at or above
    `last_end` and end at or below `phy_limit`. `end` is where the last of these records ends."""
    entries = np.frombuffer(content, QUEUE_ENTRIES)
    starts, sizes = entries["physical_offset"].astype(np.int64), entries["size"].astype(np.int64)
    ends = starts + sizes
    good = (sizes > 0) & (sizes != FILLER_SIZE) & (starts >= 0) & (ends <= phy_limit) & (ends >= 0)
    if len(good):
        good[0] &= starts[0] >= last_end
        good[1:] &= starts[1:] >= ends[:-1]
    count = first_of(~good)
    return count, int(ends[count - 1]) if count else last_end
