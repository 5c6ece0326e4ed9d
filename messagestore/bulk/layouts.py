"""Entries of consume queues and index files as NumPy reads them: `queues.consumequeue.ENTRY` and `index.file.ENTRY`.

Invariant: names, order and sizes are those of the two structs; a test compares them. Pure."""

from __future__ import annotations

import numpy as np

QUEUE_ENTRIES = np.dtype([("physical_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
INDEX_ENTRIES = np.dtype([("key_hash", ">i4"), ("phy", ">i8"), ("seconds", ">i4"), ("previous", ">i4")])
INDEX_SLOTS = np.dtype(">i4")
