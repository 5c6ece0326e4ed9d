"""Looking through many entries of a consume queue at once.

Invariant: what is counted are entries of records, whole and below the limit, that follow each other in the log: no filler,
nothing torn and nothing that was never written. Pure."""

from __future__ import annotations

import numpy as np

from messagestore.bulk.layouts import QUEUE_ENTRIES
from messagestore.bulk.records import first_of

FILLER_SIZE = 0x7FFFFFFF


def plain_entries(content: bytes, last_end: int, phy_limit: int) -> tuple[int, int]:
    """How many of these entries, from the first on, are of records that begin at or above `last_end`, each at or above the
    end of the one before, and end at or below `phy_limit`; and where the last of them ends."""
    entries = np.frombuffer(content, QUEUE_ENTRIES)
    starts, sizes = entries["physical_offset"].astype(np.int64), entries["size"].astype(np.int64)
    ends = starts + sizes
    good = (sizes > 0) & (sizes != FILLER_SIZE) & (starts >= 0) & (ends <= phy_limit) & (ends >= 0)
    if len(good):
        good[0] &= starts[0] >= last_end
        good[1:] &= starts[1:] >= ends[:-1]
    count = first_of(~good)
    return count, int(ends[count - 1]) if count else last_end
