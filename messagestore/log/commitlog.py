"""The commit log: one byte sequence over segment files of equal size. Upstream: CommitLog.

Invariant: the log is [min_offset, max_offset), and files cover it without a gap. Every byte at or above `written_end` is zero.
So truncated bytes are never read as a record again, and an unfinished record is read as the end of the log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise

from messagestore.errors import OffsetOutOfRange
from messagestore.log.files import LogFiles, RecordPlace, Room
from messagestore.log.retention import RetainedSegment
from messagestore.log.storetimes import first_time
from messagestore.record import (
    END_OF_SEGMENT,
    FIXED_PARTS,
    INCOMPLETE,
    PHYSICAL_OFFSET,
    PHYSICAL_OFFSET_AT,
    PREFIX,
    check,
    declared_end,
    encode_blank,
)
from messagestore.walker import check_names, check_size_set, order_segments, segment_name
from mqruntime.diskfull import RetriedWrite
from mqruntime.segments import RESERVE_STEP_BYTES, SegmentDirectory, SegmentFile

logger = logging.getLogger(__name__)

FOLDER = "commitlog"
ERASE_STEP_BYTES = 4 << 20
PAGE_BYTES = 4096
ZEROS = bytes(ERASE_STEP_BYTES)


class CommitLog(LogFiles):
    """Offsets are physical. Only one of appending (master), filling (slave) and truncating happens at a time."""

    def __init__(self, directory: SegmentDirectory, segment_size: int, *, hot_segments: int) -> None:
        super().__init__(segment_size, hot_segments)
        self._directory = directory
        self._segment_write = RetriedWrite(
            logger,
            "no segment of the log can be written, retrying",
            again="segment of the log can be written again",
            any_error=True,
        )
        self._files: list[SegmentFile] = []
        self._leaving: list[SegmentFile] = []  # no longer part of the log, perhaps on disk; oldest first
        self._written_end = 0  # a slave's connection may have filled bytes above the end
        self._flushed = 0
        self._blocks_end = 0  # [end, here) is known to have disk blocks
        self._disk = asyncio.Lock()  # a flush and a truncation exclude each other
        self._cutting = False
        self._cuts = 0
        self.sync_failed = False  # lost pages may look synced until they are written again

    async def load(self, confirm_offset: int, *, never_saved: bool, begins: int = 0) -> None:
        """Open the segments found on disk. The end stays unknown until `found_end`.

        A power cut may lose a new file's name and keep the name of the next file. So segments after a gap that starts at or
        above the confirm offset are deleted. If the store never saved a checkpoint and the first segment begins above `begins`,
        all segments are deleted. Raises BadSegments for a gap below the confirm offset, OtherSegmentSize, or OSError."""
        found = self._directory.names()
        check_names(FOLDER, found)
        if found:  # else a power cut could undo a deletion of the last process
            await self._directory.sync_directory()
        if found and found[-1][1] == 0:  # upstream creates a file before it gives it a size
            await self._directory.delete(found.pop()[0])
        check_size_set(FOLDER, found, self.segment_size_bytes, "mappedFileSizeCommitLog")
        names = [name for name, _ in found]
        kept = 0 if never_saved and names and names[0] > segment_name(begins) else 1
        while 0 < kept < len(names):
            expected = segment_name(int(names[kept - 1]) + self.segment_size_bytes)
            if names[kept] > expected >= segment_name(confirm_offset):
                break
            kept += 1
        for name in reversed(names[kept:]):
            await self._directory.delete(name)
        segments = order_segments(FOLDER, found[:kept], self.segment_size_bytes)
        self._files = [self._directory.open(segment.name) for segment in segments]
        self._first = segments[0].start_offset if segments else 0
        self._end = self._written_end = self.loaded_end

    async def found_end(self, end: int) -> tuple[int, int]:
        """Set the end found by recovery. Bytes above it are durably erased, and later segments are durably removed.

        Returns (non-zero bytes erased, segments removed)."""
        assert self._first <= end <= self._end
        removed = await self._remove_segments_from(end)
        erased = await self._erase_rest(end) if self._files and end < self.loaded_end else 0
        self._end = self._written_end = self._blocks_end = end
        for file in self._files:  # a killed process leaves whole records unsynced
            await self._sync(file, 0, self.segment_size_bytes)
        self._flushed = end
        return erased, removed

    def close(self) -> None:
        for file in (*self._files, *self._leaving):
            file.close()
        self._files.clear()
        self._leaving.clear()

    @property
    def has_segments(self) -> bool:
        return bool(self._files)

    @property
    def flushed_offset(self) -> int:
        return self._flushed

    @property
    def loaded_end(self) -> int:
        """The end of the last segment file."""
        return self._first + len(self._files) * self.segment_size_bytes

    def _file_at(self, offset: int) -> tuple[SegmentFile, int]:
        index = (offset - self._first) // self.segment_size_bytes
        if index < 0:  # deleted by retention, perhaps after the caller looked
            raise OffsetOutOfRange(offset, self._first, self._end)
        return self._files[index], self._first + index * self.segment_size_bytes

    # Single records

    async def rewrite(self, offset: int, content: bytes, wanted: Callable[[], bool]) -> bool:
        """Write the record at `offset` again, durably. Returns False if the record is no longer `wanted` when the write's turn
        comes. Raises OSError."""
        async with self._disk:
            if not wanted():
                return False
            assert self._first <= offset < offset + len(content) <= self._end
            file, start = self._file_at(offset)
            at = offset - start
            file.view()[at : at + len(content)] = content
            await self._sync(file, at, at + len(content))
        return True

    async def is_boundary(self, offset: int) -> bool:
        """Whether a record's head, or a BLANK (the record that ends a segment), begins at `offset`. Raises OSError."""
        head = await self.read_cold(offset, FIXED_PARTS[0].size)
        return plain_boundary(head, self.segment_start(offset) + self.segment_size_bytes, offset)

    def first_record(self) -> int | None:
        head = self.read(self._first, PREFIX.size)
        whole = len(head) == PREFIX.size and declared_end(head, 0, self._first) != self._first
        return self._first if whole else None

    # Writing

    def places(self, sizes: list[int]) -> list[RecordPlace]:
        view, at = self.tail(sum(sizes))
        places, offset = [], self._end
        for size in sizes:
            places.append(RecordPlace(view, at, offset))
            at += size
            offset += size
        return places

    def room(self, sizes: list[int]) -> Room | None:
        size = sum(sizes)
        left = self.segment_size_bytes - self._end % self.segment_size_bytes
        return Room(*self.tail(size), self._end) if size + PREFIX.size <= left else None

    def tail(self, bytes_needed: int) -> tuple[memoryview, int]:
        """The (mapped segment, position in it) for `bytes_needed` bytes of records. If the last segment is too full, a BLANK
        ends it, and the records go into the next segment. Raises OSError, with the log unchanged, if the disk refuses the
        segment or blocks."""
        assert not self._cutting and bytes_needed + PREFIX.size <= self.segment_size_bytes
        start = self.segment_start(self._end)
        left = start + self.segment_size_bytes - self._end
        rolls = bytes_needed + PREFIX.size > left
        present = self._with_blocks(
            self._end, min(PREFIX.size, left) if rolls else bytes_needed + PREFIX.size
        )
        if rolls:
            following = self._with_blocks(start + self.segment_size_bytes, bytes_needed + PREFIX.size)
            if left >= PREFIX.size:
                at = self._end - start
                present.view()[at : at + PREFIX.size] = encode_blank(left)
            self._end = self._written_end = start + self.segment_size_bytes
            return following.view(), 0
        return present.view(), self._end - start

    def end_segment(self) -> None:
        """End the log's last segment with a BLANK, so that the log ends at the segment's end. If it ends there already,
        nothing is done. Raises OSError (ENOSPC), with the log unchanged."""
        left = self.loaded_end - self._end
        assert left < self.segment_size_bytes or self._end == self._first, (
            "the log's end is in its last segment"
        )
        if left:
            view = self._with_blocks(self._end, min(PREFIX.size, left)).view()
            at = self._end % self.segment_size_bytes
            if left >= PREFIX.size:
                view[at : at + PREFIX.size] = encode_blank(left)
            self._end = self._written_end = self.loaded_end

    def grow(self, end: int) -> None:
        """Note that the records up to `end` are complete in the tail."""
        self._end = end
        if end > self._written_end:
            self._written_end = end

    def write_view(self, offset: int, size_max: int) -> memoryview:
        """The buffer for a slave's log bytes from `offset` on. It has at most `size_max` bytes of one segment, which is made
        if needed. An empty log starts at the first requested offset, which must be a multiple of the segment size. Raises
        OSError, with the log unchanged."""
        assert not self._cutting, "the log is being truncated"
        if not self._files:
            if offset % self.segment_size_bytes:
                raise OffsetOutOfRange(offset, self._first, self._end)
            self._begin_empty(offset, size_max)
        if not self._end <= offset <= self._written_end:
            raise OffsetOutOfRange(offset, self._first, self._end)
        at = offset - self.segment_start(offset)
        size = min(size_max, self.segment_size_bytes - at)
        view = self._with_blocks(offset, size).view()[at : at + size]
        self._written_end = max(self._written_end, offset + len(view))
        return view

    def _begin_empty(self, offset: int, size: int) -> None:
        """Begin the empty log at `offset`, with disk blocks for `size` bytes. After OSError the log may still begin at any
        offset."""
        reserved = min(max(size, RESERVE_STEP_BYTES), self.segment_size_bytes)
        self._files.append(self._created(offset, reserved))
        self._first = self._end = self._written_end = self._flushed = offset
        self._blocks_end = offset + reserved

    def advance(self, end: int) -> None:
        """Move the log's end to `end`: bytes [max_offset, end) have been filled through `write_view`."""
        assert self._end <= end <= self._written_end, f"{end} is outside [{self._end}, {self._written_end}]"
        self._end = end

    def has_room_for(self, size: int) -> bool:
        """Whether `size` bytes (less than half a segment) can be appended. False while the disk refuses the needed blocks."""
        return not self._segment_write.refused or self._blocks_end - self._end >= size

    def wants_next(self) -> bool:
        """Whether the last segment has too few disk blocks, or is half full and the next segment has too few. False during a
        cut, because the cut's files are not deleted yet."""
        half = self.segment_size_bytes // 2
        wanted = self.segment_start(self._end + half - 1) + self.segment_size_bytes
        return bool(self._files) and not self._cutting and self._blocks_end < wanted

    async def prepare_next(self) -> None:
        """Allocate disk blocks for the last segment and, once it is half full, for the next segment, so that no write waits
        for blocks. Raises OSError."""
        while self.wants_next():
            offset = max(self._blocks_end, self._end)
            start, cuts = self.segment_start(offset), self._cuts
            file = self._segment_at(start)
            await self._reserve_ahead(file, self.segment_size_bytes, offset - start)
            if cuts == self._cuts:
                self._blocks_end = max(self._blocks_end, start + self.segment_size_bytes)

    async def _reserve_ahead(self, file: SegmentFile, end: int, start: int) -> None:
        try:
            await file.reserve_ahead(end, start)
        except OSError as error:
            self._segment_write.failed(error)
            raise
        self._segment_write.done()

    def _segment_at(self, start: int) -> SegmentFile:
        """The segment at `start`, which is made if it is the next one. Raises OSError."""
        index = (start - self._first) // self.segment_size_bytes
        if index == len(self._files):
            self._files.append(self._created(start, 0))
        return self._files[index]

    def _created(self, start: int, reserve: int) -> SegmentFile:
        name, size = segment_name(start), self.segment_size_bytes
        return self._segment_write.make(lambda: self._directory.create(name, size, reserve=reserve))

    def _with_blocks(self, offset: int, size: int) -> SegmentFile:
        """The segment at `offset`, with disk blocks for `size` bytes from there on. `offset` is at or below the end of the
        known blocks. A file found at the start may be sparse, because upstream makes sparse files and some tools copy files
        sparsely. Raises OSError (ENOSPC)."""
        start = self.segment_start(offset)
        file = self._segment_at(start)
        if offset + size > self._blocks_end:
            at = offset - start
            end = min(at + max(size, RESERVE_STEP_BYTES), self.segment_size_bytes)
            self._segment_write.make(lambda: file.reserve(end, at))
            self._blocks_end = start + end
        return file

    # The disk

    async def _sync(self, file: SegmentFile, start: int, end: int) -> None:
        try:
            await file.sync(start, end)
        except OSError:
            self.sync_failed = True
            raise

    async def flush(self) -> int:
        """Sync what the log held at the call, and return flushed_offset. Raises OSError if the disk fails."""
        target = self._end
        while self._flushed < min(target, self._end):
            async with self._disk:
                await self._sync_to(self._end)  # may be synced already
        return self._flushed

    async def sync_again(self, offset: int) -> None:
        """Sync the log from `offset` on, also pages whose sync failed before: the kernel drops pages that it could not write,
        and reports that only once. Raises OSError."""
        async with self._disk:
            for index, file in enumerate(self._files):
                segment = self._first + index * self.segment_size_bytes
                start, end = max(0, offset - segment), min(self.segment_size_bytes, self._end - segment)
                if start < end:
                    for begin, stop in file.written(start, end):
                        file.soil(begin, stop)
                    await self._sync(file, start, end)

    async def _sync_to(self, end: int) -> None:
        bounds = [self._flushed]
        while bounds[-1] < end:
            bounds.append(min(end, self.segment_start(bounds[-1]) + self.segment_size_bytes))
        for start, stop in pairwise(bounds):
            index = (start - self._first) // self.segment_size_bytes
            segment = self._first + index * self.segment_size_bytes
            await self._sync(self._files[index], start - segment, stop - segment)
            self._flushed = stop

    async def prepare_cut(self, offset: int) -> None:
        """Reserve disk blocks for the bytes that `truncate` will erase; call it before `truncate`. Raises OSError (ENOSPC)."""
        if self._first <= offset < self._written_end and offset < self.loaded_end:
            file, start = self._file_at(offset)
            end = min(self._written_end - start, self.segment_size_bytes)
            await self._reserve_ahead(file, end, offset - start)

    async def truncate(self, offset: int) -> None:
        """End the log durably at `offset`: the bytes above are erased and cannot come back. If `offset` is the log's end, this
        erases bytes that a broken connection left above the end."""
        if not self._first <= offset <= self._end:
            raise OffsetOutOfRange(offset, self._first, self._end)
        if offset == self._written_end:
            return
        self._cutting = True
        self._cuts += 1
        try:
            written_end, self._end = self._written_end, offset
            self._blocks_end = min(self._blocks_end, offset)
            async with self._disk:
                if offset % self.segment_size_bytes or offset == self._first:
                    view, start = self.segment_view(offset)
                    erase_end = min(written_end - start, self.segment_size_bytes)
                    for at in range(offset - start, erase_end, ERASE_STEP_BYTES):
                        erase(view, at, min(at + ERASE_STEP_BYTES, erase_end))
                        await asyncio.sleep(0)  # a cut may be as long as a segment
                    index = (offset - self._first) // self.segment_size_bytes
                    await self._sync(self._files[index], offset - start, erase_end)
                await self._remove_segments_from(offset)
                self._flushed = min(self._flushed, offset)
                self._written_end = offset
        finally:
            self._cutting = False

    # The beginning

    async def segments_behind_first(self, count_max: int) -> list[RetainedSegment]:
        size, found = self.segment_size_bytes, []
        for start in range(
            self._first, min(self._first + count_max * size, self.segment_start(self._end - 1)), size
        ):
            newest_ms = None
            try:
                newest_ms = await first_time(self, start + size, self._end)
            except OffsetOutOfRange:  # the log was cut or replaced meanwhile
                break
            except OSError as error:
                self._log_ageless(start, error)
            found.append(RetainedSegment(start, start + size, newest_ms))
        return [segment for segment in found if self._first <= segment.start and segment.end < self._end]

    async def drop_empty(self, *, but_at: int | None = None) -> None:
        """Delete the first segment of an empty log, unless it starts at `but_at`, so that the log may begin at any offset.
        Raises OSError."""
        assert self._first == self._end, "the log holds something"
        if self._first == but_at:
            return
        async with self._disk:
            await self._remove_segments_from(self._first)
            if self._files:
                await self._directory.delete(self._files[0].name)
                self._files.pop().close()
            self._cuts += 1
            self._blocks_end = self._end

    def begin_at(self, offset: int) -> None:
        assert self._first <= offset <= self.segment_start(self._flushed) and offset < self.loaded_end
        while self._first < offset:
            self._leaving.append(self._files.pop(0))
            self._first += self.segment_size_bytes

    async def delete_former(self) -> list[SegmentFile]:
        gone: list[SegmentFile] = []
        while self._leaving:
            with suppress(FileNotFoundError):  # already deleted by somebody else
                await self._directory.delete(self._leaving[0].name)
            gone.append(self._leaving.pop(0))
        return gone

    async def _remove_segments_from(self, offset: int) -> int:
        """Delete the segments that start at or above `offset`, newest first, so that no gap can arise. The oldest segment
        stays, because its name is the log's first offset."""
        removed = 0
        while len(self._files) > 1 and self.loaded_end - self.segment_size_bytes >= offset:
            file = self._files.pop()
            await self._directory.delete(file.name)
            file.close()
            removed += 1
        return removed

    async def _erase_rest(self, offset: int) -> int:
        """Zero the non-zero bytes between `offset` and the end of its segment, and return how many there were."""
        view, start = self.segment_view(offset)
        file = self._files[(start - self._first) // self.segment_size_bytes]
        # some file systems report unwritten dirty pages as a hole
        await self._sync(file, offset - start, self.segment_size_bytes)
        erased = 0
        for begin, end in file.written(offset - start, self.segment_size_bytes):
            for at in range(begin, end, ERASE_STEP_BYTES):
                content = await file.read_cold(at, min(at + ERASE_STEP_BYTES, end))
                if content != ZEROS[: len(content)]:
                    erase_pages(view, at, content)
                    erased += len(content) - content.count(0)
        return erased


def plain_boundary(head: bytes, segment_end: int, offset: int) -> bool:
    """Whether `head`, read at `offset`, begins as a record of that offset, or is a BLANK."""
    found = check(head, 0, segment_end - offset, offset)
    if found == INCOMPLETE and len(head) >= FIXED_PARTS[0].size:
        return bool(PHYSICAL_OFFSET.unpack_from(head, PHYSICAL_OFFSET_AT)[0] == offset)
    return found == END_OF_SEGMENT


def erase_pages(view: memoryview, start: int, content: bytes) -> None:
    """Zero view[start:], whose bytes are `content`, but skip pages that are zero, because they may have no blocks on disk."""
    at = 0
    while at < len(content):
        stop = min(at + PAGE_BYTES - (start + at) % PAGE_BYTES, len(content))
        if content[at:stop] != ZEROS[: stop - at]:
            erase(view, start + at, start + stop)
        at = stop


def erase(view: memoryview, start: int, end: int) -> None:
    """Zero view[start:end] in steps, to need no buffer of the whole size."""
    while start < end:
        step = min(end - start, ERASE_STEP_BYTES)
        view[start : start + step] = ZEROS[:step]
        start += step
