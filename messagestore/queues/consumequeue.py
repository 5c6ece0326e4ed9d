"""One consume queue: the place in the commit log of the n-th message of a (topic, queue). Upstream: ConsumeQueue.

Invariant: entries are [min_queue_offset, max_queue_offset), their physical offsets strictly increase, and every byte after
the last entry is zero. If the log skips queue offsets, the queue has fillers for them, which lead to no record but name the
record that follows. A queue never ends with a filler. The whole queue can be rebuilt from the commit log."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from struct import Struct
from sys import intern

from messagestore.bulk.presence import NUMPY
from messagestore.log.commitlog import ZEROS, erase_pages
from messagestore.queues.openqueues import OpenQueues
from messagestore.walker import NAME_DIGITS, check_names, check_size_set, order_segments, segment_name
from mqruntime.segments import SegmentDirectory, SegmentFile

ENTRY = Struct(
    ">"  # offset field
    "q"  #  0 physical_offset
    "i"  #  8 size           of the record; 0 = never written
    "q"  # 12 tags_code      hash of the tag; a scheduled message's delivery time
)
FILLER_SIZE = 0x7FFFFFFF
PRE_BLANK = (0, FILLER_SIZE, 0)  # fills the first file up to the queue's first entry
GAP_PLACES_MAX = 300_000  # limit of fillers; a larger gap gets none, as in upstream
PHY_MAX = 1 << 62
PLACE_MAX = 1 << 58  # file names are byte offsets of 63 bits
RESERVE_STEP_BYTES = 64 << 10
STEP_PLACES = RESERVE_STEP_BYTES // ENTRY.size
SHORT_PLACES = 64
NO_VIEW = memoryview(b"")


def _steps(first: int, end: int) -> Iterator[tuple[int, int]]:
    """Split [first, end) into pieces. The first piece is short, because most queues end soon."""
    step = SHORT_PLACES
    while first < end:
        stop = min(first + step, end)
        yield first, stop
        first, step = stop, STEP_PLACES


def place_of(queue_offset: int, end: int) -> int | None:
    """The place at which a queue that ends at `end` (0: it never began) lists a record with this queue offset. None if the
    offset is taken."""
    if queue_offset < end:
        return None
    if queue_offset > PLACE_MAX or (end and queue_offset - end > GAP_PLACES_MAX):
        return end
    return queue_offset


def filler(phy: int) -> tuple[int, int, int]:
    """The entry for a skipped queue offset before the entry of the record at `phy`. Java's readers see a PRE_BLANK."""
    return 0, FILLER_SIZE, phy


def is_filler(entry: tuple[int, int, int]) -> bool:
    return entry[1] == FILLER_SIZE


def listed_start(entry: tuple[int, int, int]) -> int:
    """The start of an entry's record, or of the record after a filler; -1 for PRE_BLANK."""
    phy, _, tags_code = entry
    if is_filler(entry):
        return tags_code or -1
    return phy


def listed_end(entry: tuple[int, int, int]) -> int:
    """The end to compare with a cut: entries that end at or below the cut are kept. A filler is kept or cut together with the
    record after it."""
    return listed_start(entry) + (1 if is_filler(entry) else entry[1])


def file_size_for(wanted: int) -> int:
    """`wanted` rounded up to whole entries, as upstream does."""
    return -(-wanted // ENTRY.size) * ENTRY.size


class ConsumeQueue:
    """Queue offsets count entries; `phy` are physical offsets of the commit log. A store may have a hundred thousand queues."""

    __slots__ = (
        "_compared", "_deletions_synced", "_directory", "_erased_end", "_file_size", "_files", "_first", "_former", "_names",
        "_opened", "_per_file", "_reserved_end", "_seen_end", "_synced", "_used", "hot_end", "hot_first", "hot_view",
        "inherited_end", "max_queue_offset", "min_queue_offset", "phy_end", "queue_id", "topic",
    )  # fmt: skip

    def __init__(
        self,
        directory: SegmentDirectory,
        file_size: int,
        topic: str,
        queue_id: int,
        opened: OpenQueues | None = None,
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.min_queue_offset = 0
        self.max_queue_offset = 0
        self.phy_end = 0  # end of the last listed record
        self._directory = directory
        self._file_size = file_size
        self._per_file = file_size // ENTRY.size
        self._first = 0  # queue offset of the first place in the first file
        self._files: list[SegmentFile | None] = []  # opened when first needed
        self._names: list[str] = []
        self._reserved_end = 0  # queue offset up to which the last file has disk blocks
        self.hot_view = NO_VIEW
        """The last file, which begins with entry `hot_first`. Entries up to `hot_end` can be written at once: they have disk
        blocks."""
        self.hot_first = self.hot_end = 0
        self._synced = 0  # queue offset up to which entries are on disk
        self._erased_end = 0  # zeros from the last entry up to here are not on disk
        self._deletions_synced = False  # whether deletions by an earlier process are synced
        self._former = (0, 0)  # see first_from
        self._opened = opened or OpenQueues(directory.open_max)
        self._used = False
        self._seen_end = 0  # see was_used
        self.inherited_end = 0
        """Entries below this queue offset were written by an earlier process."""
        self._compared = (0, 0)  # inherited entries whose records are known to name this queue

    # Start-up

    async def load(self, log_min: int, phy_limit: int, *, trusted: bool) -> None:
        """Open the queue and drop entries of records that end above `phy_limit`.

        A trusted queue was synced at a clean stop, so its end is found by binary search. Otherwise entries up to `phy_limit`
        are on disk, but later entries may be torn. So the file is read entry by entry up to the first entry that is not below
        `phy_limit`."""
        if self._is_plain(log_min, phy_limit, trusted=trusted):
            return
        folder, listed = self._folder, self._directory.names()
        for name, size in listed:
            if not size:  # upstream creates a file before it sets its size; an empty one would be in the way
                await self._directory.delete(name)
        found = [(name, size) for name, size in listed if size]
        if all(size % ENTRY.size == 0 for _, size in found):  # else no setting explains them
            check_size_set(folder, found, self._file_size, "mappedFileSizeConsumeQueue")
        # a power cut may lose a new file's name and keep the name of the next file
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
        self._synced = self.max_queue_offset
        self.min_queue_offset = self._first
        self.inherited_end = self.max_queue_offset
        self.raise_min(log_min)

    def _is_plain(self, log_min: int, phy_limit: int, *, trusted: bool) -> bool:
        """Whether the queue's only file begins with entries of the log and holds nothing else, as for most queues. If so, the
        queue is loaded without opening the file."""
        found = self._directory.sole_file()
        if found is None or found.head is None or found.size_bytes != self._file_size:
            return False
        name, head, end, last_end = found.name, found.head, 0, 0
        if len(name) != NAME_DIGITS or not name.isdecimal() or int(name) % self._file_size:
            return False
        for phy, size, _ in ENTRY.iter_unpack(head[: len(head) - len(head) % ENTRY.size]):
            if not size:
                break
            if not last_end <= phy <= phy + size <= phy_limit or not 0 < size < FILLER_SIZE:
                return False
            end, last_end = end + 1, phy + size
        behind = head[end * ENTRY.size :]  # if this is zero, later entries may have reached the disk
        if not end or len(behind) < ENTRY.size or behind != ZEROS[: len(behind)]:
            return False
        self._names, self._files, self._first = [intern(name)], [None], int(name) // ENTRY.size
        self.min_queue_offset = self._first
        self.max_queue_offset = self.inherited_end = self._synced = self._first + end
        self.phy_end = last_end
        self._erased_end = self.max_queue_offset if trusted else self._first + self._per_file
        if int.from_bytes(head[:8]) < log_min:
            self.raise_min(log_min)
        return True

    def is_doubtful(self, queue_offset: int, end: int) -> bool:
        """Whether an entry of [queue_offset, end) may lead to another queue's record, because its file may be corrupt."""
        begin, compared = self._compared
        end = min(end, self.inherited_end)
        return queue_offset < end and not (begin <= queue_offset and end <= compared)

    def compared(self, queue_offset: int, end: int) -> None:
        """Note that the entries of [queue_offset, end) lead to records of this queue."""
        begin, compared = self._compared
        if queue_offset > compared or end < begin:
            begin, compared = queue_offset, end
        self._compared = min(begin, queue_offset), max(compared, end)

    @property
    def _folder(self) -> str:
        return f"consumequeue/{self.topic}/{self.queue_id}"

    def leave_unopened(self) -> None:
        """Mark the queue's files as inconsistent, so that they can be deleted. Raises BadSegments for a file that is no
        queue's."""
        names = self._directory.names()
        check_names(self._folder, names)
        self._names = [name for name, _ in names]
        self._files = [None] * len(names)

    @property
    def stored_bytes(self) -> int:
        return (self.max_queue_offset - self._first) * ENTRY.size

    def lost_beginning(self, begin: int, log_min: int) -> bool:
        """Whether a queue that began at `begin` is missing its first files. Retention deletes only files whose records are
        below `log_min`, and keeps the last entry below `log_min`."""
        if not self.max_queue_offset or self._first <= begin:
            return False
        return listed_start(self._stored_entry(self._first)) >= log_min

    async def intact_end(self) -> int:
        """The first place that holds no entry, or an entry that cannot follow the entries before it. Yields to other tasks."""
        place, last_end, may_begin = self._first, 0, True
        while place < self.max_queue_offset:
            left = self._per_file - (place - self._first) % self._per_file
            stop = min(place + STEP_PLACES, place + left, self.max_queue_offset)
            content, plain = self._stored_bytes(place, stop), 0
            if NUMPY:
                from messagestore.bulk.scan import plain_entries

                plain, last_end = plain_entries(content, last_end, PHY_MAX)
                may_begin &= not plain
            for at, entry in enumerate(ENTRY.iter_unpack(content[plain * ENTRY.size :]), place + plain):
                if (
                    not self._below(entry, PHY_MAX, may_begin=may_begin)
                    or 0 <= listed_start(entry) < last_end
                ):
                    return at
                if entry != PRE_BLANK:
                    may_begin = False
                    if not is_filler(entry):
                        last_end = listed_end(entry)
            place = stop
            await asyncio.sleep(0)
        return self.max_queue_offset

    async def cut_places(self, end: int) -> None:
        """End the queue at place `end`, or before the fillers that would then be its last entries."""
        if self._first < end < self.max_queue_offset:
            await self._cut(self._without_fillers(end), self.max_queue_offset)
        elif end <= self._first:
            await self._cut(self._first, self.max_queue_offset)

    def end_at(self, phy: int) -> int:
        """The queue offset after the last record that ends at or below `phy`. Without such a record it is the queue's first
        offset."""
        if self.phy_end <= phy:
            return self.max_queue_offset
        places = range(self.min_queue_offset, self.max_queue_offset)
        count = bisect_left(places, True, key=lambda place: listed_end(self._entry(place)) > phy)
        return self.min_queue_offset + count

    def _find_end(self, phy_limit: int, *, trusted: bool) -> int:
        for index in range(len(self._names) - 1, -1, -1):
            first = self._first + index * self._per_file
            if not self._below(self._stored_entry(first), phy_limit, may_begin=index == 0):
                continue
            places = range(first, first + self._per_file)
            if trusted:
                end = first + bisect_left(
                    places, True,
                    key=lambda place: not self._below(self._stored_entry(place), phy_limit, may_begin=True),
                )  # fmt: skip
            else:
                end = self._untorn_end(places, phy_limit)
            return self._without_fillers(end)
        return self._first

    def _untorn_end(self, places: range, phy_limit: int) -> int:
        """The first of a file's places that holds no entry below `phy_limit`, or an entry that cannot follow the entries
        before it."""
        first, last_end, may_begin = places.start, 0, places.start == self._first
        if NUMPY and len(places) > SHORT_PLACES and self._stored_entry(first + SHORT_PLACES)[1]:
            first, last_end = self._plain_end(places, phy_limit)
            may_begin &= first == places.start
        for place, entry in self._stored(first, places.stop):
            if not self._below(entry, phy_limit, may_begin=may_begin) or 0 <= listed_start(entry) < last_end:
                return place
            if entry != PRE_BLANK:
                may_begin = False
                if not is_filler(entry):
                    last_end = listed_end(entry)
        return places.stop

    def _plain_end(self, places: range, phy_limit: int) -> tuple[int, int]:
        """The first place whose entry is not plain, so that it must be examined by itself, and the end of the record before
        it."""
        from messagestore.bulk.scan import plain_entries

        last_end = 0
        for start, stop in _steps(places.start, places.stop):
            count, last_end = plain_entries(self._stored_bytes(start, stop), last_end, phy_limit)
            if count < stop - start:
                return start + count, last_end
        return places.stop, last_end

    def _without_fillers(self, end: int) -> int:
        """The end of the queue without the fillers at its end, whose record is cut off."""
        if end == self._first or not is_filler(last := self._stored_entry(end - 1)) or last == PRE_BLANK:
            return end
        return self._first + bisect_left(
            range(self._first, end), listed_end(last), key=lambda place: listed_end(self._stored_entry(place))
        )

    def _written_end(self, end: int) -> int:
        """The first place from `end` on, in the same file, that was never written."""
        if (end - self._first) // self._per_file >= len(self._names):
            return end
        stop = end - (end - self._first) % self._per_file + self._per_file
        return next((place for place, entry in self._stored(end, stop) if entry[1] == 0), stop)

    def _stored(self, first: int, end: int) -> Iterator[tuple[int, tuple[int, int, int]]]:
        """Places [first, end) of one file with their entries, written or not."""
        for start, stop in _steps(first, end):
            yield from enumerate(ENTRY.iter_unpack(self._stored_bytes(start, stop)), start)

    def _stored_entry(self, place: int) -> tuple[int, int, int]:
        return ENTRY.unpack(self._stored_bytes(place, place + 1))

    def _stored_bytes(self, first: int, end: int) -> bytes:
        """Read places without the mapping. On a file system in memory, a read through the mapping allocates a missing block,
        which kills the process if the file system is full."""
        index, within = divmod(first - self._first, self._per_file)
        at = within * ENTRY.size
        return self._open(index).read_now(at, at + (end - first) * ENTRY.size)

    @staticmethod
    def _below(entry: tuple[int, int, int], phy_limit: int, *, may_begin: bool) -> bool:
        """Whether this is an entry of a record below the limit. PRE_BLANK counts as one before a queue's first entry
        (`may_begin`)."""
        phy, size, _ = entry
        if entry == PRE_BLANK:
            return may_begin
        return phy >= 0 and size > 0 and listed_end(entry) <= phy_limit

    def raise_min(self, log_min: int) -> None:
        """Start the queue at its first entry that is not below `log_min`, where the log starts now."""
        if self.phy_end <= log_min:  # then no file need be opened
            self.min_queue_offset = self.max_queue_offset
        places = range(self.min_queue_offset, self.max_queue_offset)
        if not places or listed_start(self._entry(places.start)) >= log_min:
            return
        self.min_queue_offset += bisect_left(
            places, True, key=lambda place: listed_start(self._entry(place)) >= log_min
        )

    def lower_min(self, log_min: int) -> None:
        """Undo a `raise_min` to a greater offset. Entries whose files are deleted do not come back."""
        if self._names:
            self.min_queue_offset = self._first
            self.raise_min(log_min)

    # Reading

    def first_from(self, phy: int) -> int:
        """The first queue offset whose record does not start below `phy`, or the queue's end if all records do. Most calls
        pass the same `phy`; then the search continues from the last result."""
        known_phy, low = self._former
        if known_phy != phy:
            low = 0
        low, end = max(low, self.min_queue_offset), self.max_queue_offset
        if self.phy_end <= phy:
            low = end
        elif low < end and listed_start(self._entry(low)) < phy:
            low += bisect_left(
                range(low, end), True, key=lambda place: listed_start(self._entry(place)) >= phy
            )
        self._former = phy, low
        return low

    def entry(self, queue_offset: int) -> tuple[int, int, int]:
        """(physical_offset, size, tags_code) of an existing entry."""
        assert self.min_queue_offset <= queue_offset < self.max_queue_offset
        return self._entry(queue_offset)

    def entries(self, queue_offset: int, count_max: int) -> Iterator[tuple[int, int, int]]:
        """At most `count_max` entries from `queue_offset` on. Each entry is read when the iterator reaches it."""
        end = min(queue_offset + count_max, self.max_queue_offset)
        left = self._per_file - (queue_offset - self._first) % self._per_file
        if end - queue_offset <= left:
            return self._of_one_file(queue_offset, end)
        firsts = [queue_offset, *range(queue_offset + left, end, self._per_file)]
        pieces = zip(firsts, [*firsts[1:], end], strict=True)
        return chain.from_iterable(self._of_one_file(first, stop) for first, stop in pieces)

    def _of_one_file(self, first: int, stop: int) -> Iterator[tuple[int, int, int]]:
        if first >= stop:
            return iter(())
        index, within = divmod(first - self._first, self._per_file)
        at = within * ENTRY.size
        return ENTRY.iter_unpack(self._open(index).view()[at : at + (stop - first) * ENTRY.size])

    def is_at_hand(self, queue_offset: int, count_max: int) -> bool:
        """Whether these entries can be read without the disk. The newest entries are assumed to be in memory. Raises
        OSError."""
        if queue_offset >= self.max_queue_offset - STEP_PLACES:
            return True
        parts = self._parts(queue_offset, count_max)
        return all(self._open(index).is_cached(start, stop) for index, start, stop in parts)

    async def bring(self, queue_offset: int, count_max: int) -> None:
        """Read these entries in a thread, so that they are in memory. Raises OSError."""
        for index, start, stop in self._parts(queue_offset, count_max):
            if index < len(self._files):  # a cut may happen in between
                await self._open(index).read_cold(start, stop)

    def _parts(self, queue_offset: int, count_max: int) -> list[tuple[int, int, int]]:
        """The parts (index of the file, first byte, end) that hold these entries, as far as they exist."""
        parts = []
        at, end = (
            max(queue_offset, self.min_queue_offset),
            min(queue_offset + count_max, self.max_queue_offset),
        )
        while at < end:
            index, within = divmod(at - self._first, self._per_file)
            count = min(end - at, self._per_file - within)
            parts.append((index, within * ENTRY.size, (within + count) * ENTRY.size))
            at += count
        return parts

    def boundary_at_or_below(self, phy: int) -> int:
        """The greatest end of a listed record that is not above `phy`, or -1. The search begins at the queue's end, because
        older entries may have to be read from the disk, which would block every other request."""
        places = range(self.min_queue_offset, self.max_queue_offset)
        if not places:
            return -1
        if self.phy_end <= phy:
            return self.phy_end

        def is_above(place: int) -> bool:
            return listed_end(self._entry(place)) > phy

        high, step = len(places) - 1, 1
        while (low := high - step) >= 0 and is_above(places[low]):
            high, step = low, 2 * step
        count = bisect_left(places, True, max(low, 0), high, key=is_above)
        if not count:
            return -1
        last = self._entry(places[count - 1])
        return listed_start(last) if is_filler(last) else listed_end(last)

    def _entry(self, place: int) -> tuple[int, int, int]:
        index, within = divmod(place - self._first, self._per_file)
        phy, size, tags_code = ENTRY.unpack_from(self._open(index).view(), within * ENTRY.size)
        return phy, size, tags_code

    def _open(self, index: int) -> SegmentFile:
        self._used = True
        file = self._files[index]
        if file is None:
            file = self._files[index] = self._directory.open(self._names[index])
            self._opened.opened(self)
        return file

    def was_used(self) -> bool:
        """Whether the queue was read or written since the last call."""
        used = self._used or self.max_queue_offset != self._seen_end
        self._used, self._seen_end = False, self.max_queue_offset
        return used

    def shut(self) -> None:
        """Close the queue's files until the next use. They may hold unsynced entries: `sync` opens the files again."""
        for index, file in enumerate(self._files):
            if file is not None:
                file.close()
                self._files[index] = None
        self.hot_end = 0
        self.hot_view = NO_VIEW

    # Writing

    def append(self, queue_offset: int, phy: int, size: int, tags_code: int) -> bool:
        """Add the entry of the record at `phy`, see `place_of`. Returns False if the offset is taken: upstream once assigned
        one offset to two messages, and readers keep seeing the first. Raises OSError (ENOSPC), with the queue unchanged."""
        if phy < self.phy_end:
            return False
        if queue_offset == self.max_queue_offset and queue_offset < self.hot_end:
            ENTRY.pack_into(self.hot_view, (queue_offset - self.hot_first) * ENTRY.size, phy, size, tags_code)
            self.max_queue_offset = queue_offset + 1
            self.phy_end = phy + size
            return True
        place = place_of(queue_offset, self.max_queue_offset)
        if place is None:
            return False
        if not self.max_queue_offset:
            self._begin_at(place)
        file, within = self._fill(place, filler(phy))
        ENTRY.pack_into(file.view(), within, phy, size, tags_code)
        self.hot_view = file.view()
        self.hot_first = place - within // ENTRY.size
        self.hot_end = min(self._reserved_end, self.hot_first + self._per_file)
        self.max_queue_offset = place + 1
        self.phy_end = phy + size
        return True

    def mend(self, queue_offset: int, size: int, tags_code: int) -> None:
        """Replace the corrupt size or tags code of an entry. Not durable by itself: after a power cut the entry is repaired
        again."""
        phy, _, _ = self.entry(queue_offset)
        index, within = divmod(queue_offset - self._first, self._per_file)
        ENTRY.pack_into(self._open(index).view(), within * ENTRY.size, phy, size, tags_code)

    def make_room(self, count: int) -> None:
        """Reserve disk blocks for `count` more entries. Raises OSError (ENOSPC), with the queue unchanged."""
        place, end = self.max_queue_offset, self.max_queue_offset + count
        if end <= self.hot_end:
            return
        while place < end:
            stop = min(end, place + self._per_file - (place - self._first) % self._per_file)
            self._writable(place)
            self._writable(stop - 1)
            place = stop

    def extend(self, entries: memoryview, phy_end: int) -> None:
        """Add the entries of records that have the queue's next offsets and end at `phy_end`. Room must be reserved for the
        entries."""
        at = 0
        while at < len(entries):
            file, within = self._writable(self.max_queue_offset)
            part = entries[at : at + self._file_size - within]
            file.view()[within : within + len(part)] = part
            at += len(part)
            self.max_queue_offset += len(part) // ENTRY.size
        self.phy_end = phy_end

    def _begin_at(self, place: int) -> None:
        """Begin the queue at `place`, because the log may have deleted the queue's earlier messages. Raises OSError
        (ENOSPC)."""
        if not self._names:
            self._first = place - place % self._per_file
            self._reserved_end = self._synced = self._first
        self.max_queue_offset = self._first
        try:
            self._fill(place, PRE_BLANK)
        finally:
            self.max_queue_offset = 0
        self.min_queue_offset = self.max_queue_offset = place

    def _fill(self, end: int, entry: tuple[int, int, int]) -> tuple[SegmentFile, int]:
        """Put `entry` at all places from the queue's end to `end`, and return `_writable(end)`. Raises OSError (ENOSPC) before
        any entry is put."""
        pieces: list[tuple[SegmentFile, int, int]] = []
        place = self.max_queue_offset
        while place < end:
            stop = min(end, place + self._per_file - (place - self._first) % self._per_file)
            file, within = self._writable(place)
            self._writable(stop - 1)
            pieces.append((file, within, within + (stop - place) * ENTRY.size))
            place = stop
        behind = self._writable(end)
        packed = ENTRY.pack(*entry)
        for file, start, stop in pieces:
            file.view()[start:stop] = packed * ((stop - start) // ENTRY.size)
        return behind

    def _writable(self, place: int) -> tuple[SegmentFile, int]:
        index, within = divmod(place - self._first, self._per_file)
        if index == len(self._files):
            name = segment_name(place * ENTRY.size)
            self._files.append(self._directory.create(name, self._file_size, reserve=0))
            self._names.append(name)
            self._reserved_end = place
            self._opened.opened(self)
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
        """Remove entries of records that end above `phy`. The removal is not durable by itself; a restart cuts again."""
        places = range(self.min_queue_offset, self.max_queue_offset)
        kept = bisect_left(places, True, key=lambda place: listed_end(self._entry(place)) > phy)
        if kept < len(places):
            await self._cut(self.min_queue_offset + kept, self.max_queue_offset)

    async def _cut(self, end: int, written_end: int) -> None:
        """Keep the places below `end`, and erase the places up to `written_end`. Files that start at or above `end` are
        deleted, newest first. If no entry is left, the queue starts at the offset of its next message."""
        if self._names and end > self._first and self._stored_entry(end - 1) == PRE_BLANK:
            end = self._first
        self.max_queue_offset = min(self.max_queue_offset, end)  # others read while files are being deleted
        while self._names and self._first + (len(self._names) - 1) * self._per_file >= end:
            file = self._files.pop()
            await self._directory.delete(self._names.pop())
            if file is not None:
                file.close()
        if self._names:
            index = len(self._names) - 1
            start = self._first + index * self._per_file
            erased = min(written_end - start, self._per_file)
            self._erase(self._open(index), end - start, erased)
            self._erased_end = min(max(self._erased_end, start + erased), start + self._per_file)
        else:
            end = self._first = self._erased_end = 0
        self._reserved_end = self.hot_end = 0
        self.hot_view = NO_VIEW
        self._former = (0, 0)
        self.max_queue_offset = end
        self._synced = min(self._synced, end)
        self.phy_end = 0
        if end > self._first:
            self.phy_end = listed_end(self._entry(end - 1))
        if not self._names or self.max_queue_offset < self.min_queue_offset:
            self.min_queue_offset = self.max_queue_offset

    def _erase(self, file: SegmentFile, first: int, last: int) -> None:
        """Zero places [first, last) of one file."""
        for start, end in file.written(first * ENTRY.size, max(first, last) * ENTRY.size):
            for at in range(start, end, RESERVE_STEP_BYTES):
                erase_pages(file.view(), at, file.read_now(at, min(at + RESERVE_STEP_BYTES, end)))

    async def delete_former(self) -> int:
        """Delete the files before the one with the last entry below the queue's first, oldest first and each durably. Returns
        how many files were deleted. That last entry stays, so that the queue's next offset is known even if all later entries
        are cut. Do not call this during a cut or a sync. Raises OSError."""
        deleted = 0
        while self._first + self._per_file < self.min_queue_offset:
            if not self._deletions_synced:  # no gap: a power cut must not undo a killed process's deletion
                await self._directory.sync_directory()
                self._deletions_synced = True
            with suppress(FileNotFoundError):  # already deleted by somebody else
                await self._directory.delete(self._names[0])
            file = self._files.pop(0)
            del self._names[0]
            self._first += self._per_file
            deleted += 1
            if file is not None:
                file.close()
        return deleted

    async def delete(self) -> None:
        """Delete all files of the queue, oldest first. The queue is unusable afterwards. Raises OSError."""
        for name in self._names:
            with suppress(FileNotFoundError):
                await self._directory.delete(name)
        self.close()

    async def sync(self) -> None:
        """Sync the entries written before the call, and the zeros of removed entries. A removed entry could otherwise reappear
        after a power cut, and be taken for an entry of the current log. Raises OSError if the disk fails."""
        end = self.max_queue_offset
        place, unsynced_end = max(self._synced, self._first), max(end, self._erased_end)
        while place < unsynced_end:
            index, within = divmod(place - self._first, self._per_file)
            stop = min(unsynced_end, place - within + self._per_file)
            await self._open(index).sync(within * ENTRY.size, (within + stop - place) * ENTRY.size)
            place = stop
        self.synced(end)

    def synced(self, end: int) -> None:
        """Record that the queue was synced up to `end`."""
        self._synced, self._erased_end = min(end, self.max_queue_offset), 0

    def close(self) -> None:
        self.shut()
        self._opened.gone(self)
        self._files.clear()
        self._names.clear()
