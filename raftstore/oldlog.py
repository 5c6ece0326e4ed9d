"""The plain commit log from before Raft mode, which a member's DLedger log continues.

Invariant: the files of a complete plain log are never written. Retention deletes whole files, from the first on, before any
file of the DLedger log."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import NamedTuple
from zlib import crc32

from messagestore import record
from messagestore.errors import StoreCorrupted
from messagestore.log.commitlog import FOLDER
from messagestore.record import END_OF_SEGMENT, INCOMPLETE, PREFIX
from messagestore.scrub.walk import SLICE_BYTES
from messagestore.walker import check_names, check_size_set, order_segments, segment_name
from mqruntime.segments import SegmentDirectory, SegmentFile
from raftstore.divide import Divide


class OldLog:
    """The plain log in `directory`. `segment_size` is also the file size of the DLedger log."""

    def __init__(
        self, directory: SegmentDirectory, segment_size: int, *, last_goes: Callable[[], Awaitable[None]]
    ) -> None:
        """`last_goes()` is awaited before the last file is deleted."""
        self._directory = directory
        self._last_goes = last_goes
        self._segment_size = segment_size
        self.files: list[SegmentFile] = []
        self.first = 0
        """Start of the first remaining file."""

    def open(self) -> None:
        """Open the files. Raises BadSegments, OSError."""
        found = self._directory.names()
        check_names(FOLDER, found)
        check_size_set(FOLDER, found, self._segment_size, "mappedFileSizeCommitLog")
        segments = order_segments(FOLDER, found, self._segment_size)
        self.files = [self._directory.open(segment.name) for segment in segments]
        self.first = segments[0].start_offset if segments else 0

    @property
    def end(self) -> int:
        """End of the last remaining file."""
        return self.first + len(self.files) * self._segment_size

    def segment_of(self, offset: int) -> tuple[SegmentFile, int]:
        """Like LogFiles.segment_of, for an offset in this log."""
        number = (offset - self.first) // self._segment_size
        return self.files[number], self.first + number * self._segment_size

    async def divide(self) -> Divide:
        """The log's boundary. Raises OSError, and StoreCorrupted unless the last file consists of records up to a BLANK."""
        start, size = self.end - self._segment_size, self._segment_size
        at, check, wanted = 0, 0, SLICE_BYTES
        while at < size:
            begin = partial(intact_records, start=start + at, segment_end=self.end, check=check)
            walked = await self.files[-1].examine(at, min(at + wanted, size), begin)
            at, check, wanted = at + walked.size, walked.check, max(walked.wanted, SLICE_BYTES)
            if walked.ends:
                break
            if not walked.size and not walked.wanted:
                raise StoreCorrupted(start + at, self.end, "no complete valid record here")
        return Divide(self.end, start + at, check)

    async def wipe(self) -> None:
        """Delete all files. Raises OSError."""
        self.close()
        for name, _ in self._directory.names():
            await self._directory.delete(name)

    def create(self, start: int) -> SegmentFile:
        """Create the next file, for another member's data. Raises OSError."""
        self.files.append(self._directory.create(segment_name(start), self._segment_size))
        self.first = start if len(self.files) == 1 else self.first
        return self.files[-1]

    async def delete_below(self, offset: int) -> list[SegmentFile]:
        """Durably delete the files that end at or below `offset`, and return them; the caller closes them. On OSError the
        remaining files stay."""
        gone: list[SegmentFile] = []
        while self.files and self.first + self._segment_size <= offset:
            if len(self.files) == 1:
                await self._last_goes()
            with suppress(FileNotFoundError):  # another process deleted the file to make room
                await self._directory.delete(self.files[0].name)
            gone.append(self.files.pop(0))
            self.first += self._segment_size
        return gone

    def close(self) -> None:
        for file in self.files:
            file.close()
        self.files.clear()


class OldRecords(NamedTuple):
    """The first `size` bytes that were read are complete records; `check` is the CRC continued over them. `ends` is True if the
    segment has no more records. `wanted` is the number of bytes to read for the next record."""

    size: int
    check: int
    ends: bool
    wanted: int


def intact_records(content: bytes, *, start: int, segment_end: int, check: int) -> OldRecords:
    """The intact records of `content`, which begins at `start`."""
    at, found = 0, 1
    while found > 0:
        found = record.check(content, at, segment_end - start - at, start + at)
        at += max(found, 0)
    wanted = 0
    if found == INCOMPLETE:
        whole = PREFIX.unpack_from(content, at)[0] if len(content) - at >= PREFIX.size else 0
        wanted = max(whole, PREFIX.size)
    return OldRecords(at, crc32(content[:at], check), found == END_OF_SEGMENT, wanted)
