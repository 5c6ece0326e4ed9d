"""Counts the messages in a deleted part of a log, as far as the consume queues still list them.

Invariant: the count is exact or is marked as a minimum. Retention removes queue files independently of the log."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from sparkreplay.store.files import Files

FOLDER = "consumequeue"
ENTRY = struct.Struct(">qiq")  # physical offset, record size (0: never written), hash of the tag
PRE_BLANK_SIZE = 0x7FFFFFFF  # size of fillers: before the first entry, and for skipped queue offsets


def messages_lost(files: Files, start: int, end: int) -> str:
    """A text such as `123 messages by their queue offsets`, for physical offsets [start, end)."""
    try:
        topics = [entry.name for entry in files.entries(FOLDER) if entry.is_folder]
    except FileNotFoundError:
        return "an unknown number of messages (the store has no consume queues)"
    found, exact = 0, True
    for folder in [queue for topic in topics for queue in folders_of(files, f"{FOLDER}/{topic}")]:
        lost, whole = lost_of_queue(files, folder, start, end)
        found += lost
        exact = exact and whole
    return f"{'' if exact else 'at least '}{found} messages by their queue offsets"


def folders_of(files: Files, folder: str) -> list[str]:
    """The folders of a topic's queues; empty for a topic that is being deleted."""
    try:
        return [f"{folder}/{entry.name}" for entry in files.entries(folder) if entry.is_folder]
    except FileNotFoundError:
        return []


def lost_of_queue(files: Files, folder: str, start: int, end: int) -> tuple[int, bool]:
    """The number of entries of one queue within [start, end), and whether there were certainly no others."""
    found, exact = 0, True
    try:
        for number, part in enumerate(queue_files(files, folder)):
            low, high = part.first_at_or_above(start), part.first_at_or_above(end)
            found += high - low
            if number == 0:
                exact = low > 0 or part.first_index == 0
    except FileNotFoundError:  # retention deletes queue files at the same time
        exact = False
    return found, exact


@dataclass(frozen=True)
class QueueFile:
    """One file of a queue: the queue offset of its first entry, the number of entries, and a function that returns the physical
    offset of an entry."""

    first_index: int
    entries: int
    physical_offset: Callable[[int], int]

    def first_at_or_above(self, offset: int) -> int:
        """The number of entries whose physical offset is below `offset`, which is also the place of the first other entry.
        Physical offsets ascend in a queue, and unwritten entries count as above all others."""
        low, high = 0, self.entries
        while low < high:
            middle = (low + high) // 2
            if self.physical_offset(middle) < offset:
                low = middle + 1
            else:
                high = middle
        return low


def queue_files(files: Files, folder: str) -> list[QueueFile]:
    named = [
        entry
        for entry in files.entries(folder)
        if entry.size_bytes and len(entry.name) == 20 and entry.name.isdecimal()
    ]
    assert all(before.name < after.name for before, after in pairwise(named))
    return [queue_file(files, f"{folder}/{entry.name}", entry.size_bytes) for entry in named]


def queue_file(files: Files, name: str, size_bytes: int) -> QueueFile:
    def physical_offset(place: int) -> int:
        file = files.open(name)
        try:
            data = bytearray(ENTRY.size)
            if file.read_into(memoryview(data), place * ENTRY.size) < ENTRY.size:
                return 1 << 63
        finally:
            file.close()
        offset, size, tags_code = ENTRY.unpack(data)
        if size == PRE_BLANK_SIZE and offset == 0:
            return int(tags_code) or -1  # a skipped queue offset: the next record's offset
        return offset if size else 1 << 63

    return QueueFile(int(name[-20:]) // ENTRY.size, size_bytes // ENTRY.size, physical_offset)
