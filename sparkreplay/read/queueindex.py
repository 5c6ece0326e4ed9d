"""Consume queues as an index: which records belong to a queue, in log order.

Invariant: physical offsets of a queue strictly increase, so an entry is found by bisection. A filler is an entry without a
record. Fillers before the queue's first entry sort before all entries, and unwritten entries sort after all. A filler for a
queue offset that the log skips names the next record, and sorts at that record."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from messagestore.record import RECORD_SIZE_MIN
from sparkreplay.errors import IndexUnusable
from sparkreplay.store.files import Files, FolderMember
from sparkreplay.store.framing import RECORD_SIZE_MAX
from sparkreplay.store.queueentries import BATCH_FOLDER, ENTRY, FOLDER, NAME_DIGITS, PRE_BLANK_SIZE

LIGHT_QUEUES = "%LMQ%"
"""Topics of this prefix have additional entries of other topics' records."""
PROBE_ENTRIES = 512
"""At the end of a bisection, the last entries and as many on both sides are examined one by one, so that a damaged entry is
found."""


@dataclass(frozen=True)
class QueueIndexFile:
    """`first` is the queue offset of its first entry."""

    name: str
    first: int
    count: int


@dataclass(frozen=True)
class Queue:
    """The consume queue of one queue. A place is an entry's number, counted from the beginning of the first file; place 0 has
    the queue offset `first_queue_offset`."""

    files: Files
    topic: str
    queue_id: int
    parts: tuple[QueueIndexFile, ...]

    @property
    def first_queue_offset(self) -> int:
        return self.parts[0].first

    def read(self, first: int, last: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Physical offsets and sizes of the entries at places [first, last). A filler has the offset of the record after it."""
        pieces = []
        for part in self.parts:
            begin = max(0, first + self.first_queue_offset - part.first)
            end = min(part.count, last + self.first_queue_offset - part.first)
            if begin < end:
                buffer = bytearray((end - begin) * ENTRY.itemsize)
                with raising_unusable(self.files, part.name):
                    file = self.files.open(part.name)
                try:
                    held = file.read_into(memoryview(buffer), begin * ENTRY.itemsize)
                finally:
                    file.close()
                if held < len(buffer):
                    raise IndexUnusable(self.files.shown(part.name), "became shorter while it was read")
                pieces.append(np.frombuffer(buffer, ENTRY))
        entries = np.concatenate(pieces) if pieces else np.empty(0, ENTRY)
        offsets, sizes = entries["physical_offset"].astype(np.int64), entries["size"].astype(np.int64)
        fills = (offsets == 0) & (sizes == PRE_BLANK_SIZE)
        return np.where(fills, entries["tags_code"].astype(np.int64), offsets), sizes

    def checked(
        self, first: int, last: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Like `read`, but without fillers, and with the queue offsets of the entries as third result. Raises IndexUnusable for
        entries that no broker writes."""
        offsets, sizes = self.read(first, last)
        kept = np.flatnonzero((sizes != PRE_BLANK_SIZE) | (offsets <= 0))
        offsets, sizes, places = offsets[kept], sizes[kept], kept + self.first_queue_offset + first
        good = (sizes >= RECORD_SIZE_MIN) & (sizes <= RECORD_SIZE_MAX) & (offsets >= 0)
        good[1:] &= offsets[1:] >= offsets[:-1] + sizes[:-1]
        if not good.all():
            raise IndexUnusable(self.path, f"entry {places[np.argmin(good)]} is damaged")
        return offsets, sizes, places

    @property
    def path(self) -> str:
        return self.files.shown(f"{FOLDER}/{self.topic}/{self.queue_id}")

    def count_below(self, offset: int) -> int:
        """The number of entries, including fillers, of records that begin below a physical offset.

        Raises IndexUnusable if entries around that place are not in order."""
        low, high = 0, self.parts[-1].first + self.parts[-1].count - self.first_queue_offset
        end = high
        while high - low > PROBE_ENTRIES:
            middle = (low + high) // 2
            if self.below(middle, middle + 1, offset).all():
                low = middle + 1
            else:
                high = middle
        first = max(0, low - PROBE_ENTRIES)
        below = self.below(first, min(high + PROBE_ENTRIES, end), offset)
        count = int(below.sum())
        if not below[:count].all():
            place = self.first_queue_offset + first + int(np.argmin(below))
            raise IndexUnusable(self.path, f"entry {place} is missing or out of order")
        return first + count

    def below(self, first: int, last: int, offset: int) -> NDArray[np.bool_]:
        offsets, sizes = self.read(first, last)
        filler = (offsets == 0) & (sizes == PRE_BLANK_SIZE)
        below: NDArray[np.bool_] = filler | ((sizes != 0) & (offsets < offset))
        return below

    def end_below(self, offset: int) -> int:
        """The highest record boundary at or below `offset` that the last two entries below `offset` show. An entry shows the
        end of its record, and a filler the beginning of the next record. -1 if they show none."""
        count = self.count_below(offset)
        offsets, sizes = self.read(max(0, count - 2), count)
        ends = [
            begin if size == PRE_BLANK_SIZE else begin + size
            for begin, size in zip(offsets.tolist(), sizes.tolist(), strict=True)
        ]
        return max((end for end in ends if 0 < end <= offset), default=-1)


def queues_of(
    files: Files, topics: frozenset[str] | None = None, queue_ids: frozenset[int] | None = None
) -> Iterator[Queue]:
    """All or some of the queues that have files. Raises IndexUnusable for a folder that is not a queue's."""
    try:
        folders = files.entries(FOLDER)
    except FileNotFoundError:
        raise IndexUnusable(files.shown(FOLDER), "is not there") from None
    for topic in folders:
        if topic.name.startswith(LIGHT_QUEUES) or (topics is not None and topic.name not in topics):
            continue
        for queue in folder_entries(files, FOLDER, topic):
            if not queue.name.isdecimal():
                raise IndexUnusable(
                    files.shown(f"{FOLDER}/{topic.name}/{queue.name}"), "is not named as a queue is"
                )
            if queue_ids is None or int(queue.name) in queue_ids:
                parts = queue_files(files, f"{FOLDER}/{topic.name}", queue)
                if parts:
                    yield Queue(files, topic.name, int(queue.name), parts)


def indexed_topics(files: Files) -> frozenset[str]:
    """The topics whose messages all have entries, as far as the queues show. Topics of inner batches and light topics are left
    out."""
    batches: list[FolderMember] = []
    with suppress(FileNotFoundError):
        batches = files.entries(BATCH_FOLDER)
    try:
        topics = files.entries(FOLDER)
    except FileNotFoundError:
        raise IndexUnusable(files.shown(FOLDER), "is not there") from None
    plain = frozenset(topic.name for topic in topics if not topic.name.startswith(LIGHT_QUEUES))
    return plain - {topic.name for topic in batches}


def queue_files(files: Files, folder: str, queue: FolderMember) -> tuple[QueueIndexFile, ...]:
    """The queue's files in order. They must be contiguous."""
    parts: list[QueueIndexFile] = []
    for file in folder_entries(files, folder, queue):
        name = f"{folder}/{queue.name}/{file.name}"
        start = int(file.name) if len(file.name) == NAME_DIGITS and file.name.isdecimal() else -1
        if file.is_folder or file.is_link or start % ENTRY.itemsize:
            raise IndexUnusable(files.shown(name), "is not a file of a consume queue")
        first = start // ENTRY.itemsize
        if parts and parts[-1].first + parts[-1].count != first:
            raise IndexUnusable(files.shown(name), f"does not follow {parts[-1].name}")
        if file.size_bytes >= ENTRY.itemsize:
            parts.append(QueueIndexFile(name, first, file.size_bytes // ENTRY.itemsize))
    return tuple(parts)


def folder_entries(files: Files, parent: str, folder: FolderMember) -> list[FolderMember]:
    if folder.is_link or not folder.is_folder:
        raise IndexUnusable(files.shown(f"{parent}/{folder.name}"), "is not a folder")
    with raising_unusable(files, f"{parent}/{folder.name}"):
        return files.entries(f"{parent}/{folder.name}")


@contextmanager
def raising_unusable(files: Files, name: str) -> Iterator[None]:
    """Raise IndexUnusable if retention, or the deletion of the topic, deletes a part of a queue meanwhile."""
    try:
        yield
    except FileNotFoundError:
        raise IndexUnusable(files.shown(name), "was deleted while the queues were read") from None
