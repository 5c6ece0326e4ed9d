"""Consume queues as files of a store. The n-th entry of a queue has the place in the log of the queue's n-th message.

Invariant: an entry that no file holds is read as zeros, as an unwritten entry is."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sparkreplay.store.files import Files, FolderMember

FOLDER = "consumequeue"
BATCH_FOLDER = "batchconsumequeue"
"""The folder of queues of inner batches, whose records hold many messages. Their entries are of another kind (upstream:
BatchConsumeQueue)."""
ENTRY = np.dtype([("physical_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
PRE_BLANK_SIZE = 0x7FFFFFFF
"""The size field of fillers. Fillers are before a queue's first message (upstream: ConsumeQueue.fillPreBlank), and at queue
offsets that the log skips. At skipped offsets the third field is the physical offset of the next record."""
NAME_DIGITS = 20


@dataclass(frozen=True)
class QueueFiles:
    """One queue's files."""

    files: Files
    topic: str
    queue_id: int

    @property
    def folder(self) -> str:
        return f"{FOLDER}/{self.topic}/{self.queue_id}"

    @property
    def path(self) -> str:
        return self.files.shown(self.folder)

    @cached_property
    def named(self) -> list[FolderMember]:
        """The queue's files by offset; empty if the queue has no folder, or no folder can have the topic's name."""
        if "/" in self.topic or "\0" in self.topic or self.topic in ("", ".", ".."):
            return []
        try:
            found = self.files.entries(self.folder)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [
            entry
            for entry in found
            if entry.size_bytes and len(entry.name) == NAME_DIGITS and entry.name.isascii() and entry.name.isdecimal()
        ]  # fmt: skip

    def entries(self, first: int, count: int) -> NDArray[np.void]:
        """The entries at the queue offsets [first, first + count)."""
        wanted = np.zeros(count, ENTRY)
        view = wanted.view(np.uint8).data
        start, end = first * ENTRY.itemsize, (first + count) * ENTRY.itemsize
        for entry in self.named:
            low, high = max(start, int(entry.name)), min(end, int(entry.name) + entry.size_bytes)
            if low >= high:
                continue
            try:
                file = self.files.open(f"{self.folder}/{entry.name}")
            except FileNotFoundError:  # deleted by retention since the folder was listed
                continue
            with closing(file):
                file.read_into(view[low - start : high - start], low - int(entry.name))
        return wanted

    def extent(self) -> tuple[int, int]:
        """The queue offsets [first, end) for which the files have room."""
        if not self.named:
            return 0, 0
        last = self.named[-1]
        return int(self.named[0].name) // ENTRY.itemsize, (int(last.name) + last.size_bytes) // ENTRY.itemsize


def written(entries: NDArray[np.void], start: int, end: int) -> NDArray[np.bool_]:
    """Which entries name a record of [start, end) of the log."""
    physical, size = entries["physical_offset"].astype(np.int64), entries["size"].astype(np.int64)
    named: NDArray[np.bool_] = (
        (size > 0) & (size != PRE_BLANK_SIZE) & (physical >= start) & (physical + size <= end)
    )
    return named
