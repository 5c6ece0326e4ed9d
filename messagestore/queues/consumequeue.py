"""One consume queue: where the n-th message of a (topic, queue) stands in the commit log.

Invariant: entries are [min_queue_offset, max_queue_offset) without a gap, their physical offsets strictly increase, and
every byte after the last entry is zero. All of it can be rebuilt from the commit log."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from struct import Struct

from messagestore.errors import QueueOffsetGap
from messagestore.log.commitlog import erase_pages
from messagestore.walker import check_size_set, order_segments, segment_name
from mqruntime.segments import SegmentDirectory, SegmentFile

ENTRY = Struct(
    ">"  # offset field
    "q"  #  0 physical_offset
    "i"  #  8 size           of the record; 0 = never written
    "q"  # 12 tags_code      hash of the tag; a scheduled message's delivery time
)
PRE_BLANK = (0, 0x7FFFFFFF, 0)  # fills a first file in front of the queue's first entry
RESERVE_STEP_BYTES = 64 << 10
STEP_PLACES = RESERVE_STEP_BYTES // ENTRY.size


def file_size_for(wanted: int) -> int:
    """`wanted` rounded up to whole entries, as upstream does."""
    return -(-wanted // ENTRY.size) * ENTRY.size


class ConsumeQueue:
    """Queue offsets count entries; `phy` are physical offsets of the commit log."""

    def __init__(self, directory: SegmentDirectory, file_size: int, topic: str, queue_id: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.min_queue_offset = 0
        self.max_queue_offset = 0
        self.phy_end = 0  # end of the last indexed record
        self._directory = directory
        self._file_size = file_size
        self._per_file = file_size // ENTRY.size
        self._first = 0  # queue offset of the first place in the first file
        self._files: list[SegmentFile | None] = []  # opened when first needed
        self._names: list[str] = []
        self._beginning = False  # a full disk broke `_start_at` off
        self._reserved_end = 0  # queue offset up to which the last file has disk blocks
        # the last file; entries [_hot_first, _hot_end) need nothing but writing
        self._hot_view = memoryview(b"")
        self._hot_first = self._hot_end = 0
        self._synced = 0  # queue offset up to which entries are on disk

    # Start-up

    async def load(self, log_min: int, phy_limit: int, *, trusted: bool) -> None:
        """Opens the queue and drops entries of records that end above `phy_limit`.

        A trusted queue was synced at a clean stop: its end is searched for. Otherwise entries up to `phy_limit` are on
        disk but what follows may be torn: the file is read entry by entry up to the first that is not below it."""
        found = [(name, size) for name, size in self._directory.names() if size]
        folder = f"consumequeue/{self.topic}/{self.queue_id}"
        check_size_set(folder, found, self._file_size, "mappedFileSizeConsumeQueue")
        # a power cut may take a new file's name and leave that of the next one
        if found and found[0][0].isdigit() and not trusted:
            names = [name for name, _ in found]
            whole = [
                i for i, name in enumerate(names) if name == segment_name(int(names[0]) + i * self._file_size)
            ]
            for name in reversed(names[len(whole) :]):
                await self._directory.delete(name)
            found = found[: len(whole)]
        segments = order_segments(folder, found, self._file_size)
        self._names = [segment.name for segment in segments]
        self._files = [None] * len(segments)
        self._first = segments[0].start_offset // ENTRY.size if segments else 0
        end = self._find_end(phy_limit, trusted=trusted)
        await self._cut(end, self._written_end(end) if trusted else end + self._per_file)
        if not self._names:  # nothing is left: the queue starts where its next message says
            self._first = self.max_queue_offset = 0
        self._synced = self.max_queue_offset
        self.min_queue_offset = self._first
        self.raise_min(log_min)

    def _find_end(self, phy_limit: int, *, trusted: bool) -> int:
        for index in range(len(self._names) - 1, -1, -1):
            first = self._first + index * self._per_file
            if not self._below(self._stored_entry(first), phy_limit):
                continue
            places = range(first, first + self._per_file)
            if trusted:
                return first + bisect_left(
                    places, True, key=lambda place: not self._below(self._stored_entry(place), phy_limit)
                )
            last_end = 0
            for place, entry in self._stored(first, places.stop):
                if not self._below(entry, phy_limit) or (entry != PRE_BLANK and entry[0] < last_end):
                    return place
                if entry != PRE_BLANK:
                    last_end = entry[0] + entry[1]
            return places.stop
        return self._first

    def _written_end(self, end: int) -> int:
        """The first place from `end` on, in its file, that was never written."""
        if (end - self._first) // self._per_file >= len(self._names):
            return end
        stop = end - (end - self._first) % self._per_file + self._per_file
        return next((place for place, entry in self._stored(end, stop) if entry[1] == 0), stop)

    def _stored(self, first: int, end: int) -> Iterator[tuple[int, tuple[int, int, int]]]:
        """Places [first, end) of one file with what they hold, written or not."""
        for start in range(first, end, STEP_PLACES):
            stop = min(start + STEP_PLACES, end)
            yield from enumerate(ENTRY.iter_unpack(self._stored_bytes(start, stop)), start)

    def _stored_entry(self, place: int) -> tuple[int, int, int]:
        return ENTRY.unpack(self._stored_bytes(place, place + 1))

    def _stored_bytes(self, first: int, end: int) -> bytes:
        """Read around the mapping: through it, a look at a place without a block takes one in a file system in memory, and
        a full one ends the process for it."""
        index, within = divmod(first - self._first, self._per_file)
        at = within * ENTRY.size
        return self._open(index).read_now(at, at + (end - first) * ENTRY.size)

    @staticmethod
    def _below(entry: tuple[int, int, int], phy_limit: int) -> bool:
        phy, size, _ = entry
        return entry == PRE_BLANK or (phy >= 0 and size > 0 and phy + size <= phy_limit)

    def raise_min(self, log_min: int) -> None:
        """The log now starts at `log_min`: the queue starts at its first entry that is not below."""
        places = range(self.min_queue_offset, self.max_queue_offset)
        self.min_queue_offset += bisect_left(places, True, key=lambda place: self._stands_in(place, log_min))

    def _stands_in(self, place: int, log_min: int) -> bool:
        entry = self._entry(place)
        return entry != PRE_BLANK and entry[0] >= log_min

    # Reading

    def entry(self, queue_offset: int) -> tuple[int, int, int]:
        """(physical_offset, size, tags_code) of an existing entry."""
        assert self.min_queue_offset <= queue_offset < self.max_queue_offset
        return self._entry(queue_offset)

    def entries(self, queue_offset: int, count_max: int) -> Iterator[tuple[int, int, int]]:
        """Entries from `queue_offset` on, at most `count_max`, ending with the queue."""
        for place in range(queue_offset, min(queue_offset + count_max, self.max_queue_offset)):
            yield self._entry(place)

    def boundary_at_or_below(self, phy: int) -> int:
        """The greatest end of an indexed record that is not above `phy`, or -1."""
        places = range(self.min_queue_offset, self.max_queue_offset)
        count = bisect_left(places, True, key=lambda place: sum(self._entry(place)[:2]) > phy)
        return sum(self._entry(places[count - 1])[:2]) if count else -1

    def _entry(self, place: int) -> tuple[int, int, int]:
        index, within = divmod(place - self._first, self._per_file)
        phy, size, tags_code = ENTRY.unpack_from(self._open(index).view(), within * ENTRY.size)
        return phy, size, tags_code

    def _open(self, index: int) -> SegmentFile:
        file = self._files[index]
        if file is None:
            file = self._files[index] = self._directory.open(self._names[index])
        return file

    # Writing

    def append(self, queue_offset: int, phy: int, size: int, tags_code: int) -> bool:
        """Adds the entry of the record at `phy`; False when it is there already. An empty queue starts at any offset.

        QueueOffsetGap when entries between are missing; OSError (ENOSPC), with the queue unchanged."""
        if phy < self.phy_end:
            return False
        if queue_offset == self.max_queue_offset and queue_offset < self._hot_end:
            ENTRY.pack_into(
                self._hot_view, (queue_offset - self._hot_first) * ENTRY.size, phy, size, tags_code
            )
            self.max_queue_offset = queue_offset + 1
            self.phy_end = phy + size
            return True
        if queue_offset != self.max_queue_offset:
            if queue_offset < self.max_queue_offset and self.max_queue_offset > self.min_queue_offset:
                return False  # upstream once gave one offset to two messages: readers keep seeing the first
            if self.max_queue_offset > self.min_queue_offset or (self._names and not self._beginning):
                raise QueueOffsetGap(self.topic, self.queue_id, phy, queue_offset, self.max_queue_offset)
            self._start_at(queue_offset)
        file, within = self._writable(queue_offset)
        ENTRY.pack_into(file.view(), within, phy, size, tags_code)
        self._hot_view = file.view()
        self._hot_first = queue_offset - within // ENTRY.size
        self._hot_end = min(self._reserved_end, self._hot_first + self._per_file)
        self.max_queue_offset = queue_offset + 1
        self.phy_end = phy + size
        return True

    def _start_at(self, queue_offset: int) -> None:
        """The first message of this queue that the log still has is not number 0. OSError (ENOSPC): to be done again."""
        self._beginning = True
        self._first = queue_offset - queue_offset % self._per_file
        self._reserved_end = self._synced = self._first
        for place in range(self._first, queue_offset):
            file, within = self._writable(place)
            ENTRY.pack_into(file.view(), within, *PRE_BLANK)
        self.min_queue_offset = self.max_queue_offset = queue_offset
        self._beginning = False

    def _writable(self, place: int) -> tuple[SegmentFile, int]:
        index, within = divmod(place - self._first, self._per_file)
        if index == len(self._files):
            name = segment_name(place * ENTRY.size)
            self._files.append(self._directory.create(name, self._file_size, reserve=False))
            self._names.append(name)
            self._reserved_end = place
        file = self._open(index)
        at = within * ENTRY.size
        if place >= self._reserved_end:
            step = min(self._file_size, at - at % RESERVE_STEP_BYTES + RESERVE_STEP_BYTES)
            if step < at + ENTRY.size:
                step = min(self._file_size, step + RESERVE_STEP_BYTES)
            file.reserve(step)
            self._reserved_end = place - within + step // ENTRY.size
        return file, at

    # Cutting and the disk

    async def truncate(self, phy: int) -> None:
        """Entries of records that end above `phy` are gone. Not durable by itself: a restart cuts again."""
        places = range(self.min_queue_offset, self.max_queue_offset)
        kept = bisect_left(places, True, key=lambda place: sum(self._entry(place)[:2]) > phy)
        if kept < len(places):
            await self._cut(self.min_queue_offset + kept, self.max_queue_offset)

    async def _cut(self, end: int, written_end: int) -> None:
        """Keeps the places below `end` and erases those up to `written_end`; files that start at or above `end` are
        deleted, newest first."""
        while self._names and self._first + (len(self._names) - 1) * self._per_file >= end:
            file = self._files.pop()
            await self._directory.delete(self._names.pop())
            if file is not None:
                file.close()
        if self._names:
            index = len(self._names) - 1
            start = self._first + index * self._per_file
            self._erase(self._open(index), end - start, min(written_end - start, self._per_file))
        self._reserved_end = self._hot_end = 0
        self._hot_view = memoryview(b"")
        self.max_queue_offset = end
        self._synced = min(self._synced, end)
        self.phy_end = 0
        if end > self._first and (last := self._entry(end - 1)) != PRE_BLANK:
            self.phy_end = last[0] + last[1]
        if not self._names or self.max_queue_offset < self.min_queue_offset:
            self.min_queue_offset = self.max_queue_offset

    def _erase(self, file: SegmentFile, first: int, last: int) -> None:
        """Zeroes places [first, last) of one file."""
        for start, end in file.written(first * ENTRY.size, max(first, last) * ENTRY.size):
            for at in range(start, end, RESERVE_STEP_BYTES):
                erase_pages(file.view(), at, file.read_now(at, min(at + RESERVE_STEP_BYTES, end)))

    async def sync(self) -> None:
        """Entries written before the call are on disk on return; OSError when the disk fails."""
        end = self.max_queue_offset
        place = self._synced
        while place < end:
            index, within = divmod(place - self._first, self._per_file)
            stop = min(end, place - within + self._per_file)
            await self._open(index).sync(within * ENTRY.size, (within + stop - place) * ENTRY.size)
            place = stop
        self._synced = min(end, self.max_queue_offset)

    def close(self) -> None:
        for file in self._files:
            if file is not None:
                file.close()
        self._files.clear()
        self._names.clear()
        self._hot_end = 0
        self._hot_view = memoryview(b"")
