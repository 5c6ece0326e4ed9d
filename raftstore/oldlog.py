"""The plain commit log from before Raft mode, before a member's DLedger log.

Invariant: its files are never written. They are deleted whole, from the first on, by retention, before any file of
the DLedger log."""

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
    """The files of `directory`; `segment_size` is that of the DLedger log, too."""

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
        """Raises BadSegments, OSError."""
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
        """As LogFiles, for an offset that is here."""
        number = (offset - self.first) // self._segment_size
        return self.files[number], self.first + number * self._segment_size

    async def divide(self) -> Divide:
        """Its boundary. Raises StoreCorrupted if its last file holds anything but records up to a BLANK, OSError."""
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
        """Delete the files that end at or below `offset`, each durably; release them afterwards. Raises OSError: the
        rest stays."""
        gone: list[SegmentFile] = []
        while self.files and self.first + self._segment_size <= offset:
            if len(self.files) == 1:
                await self._last_goes()
            with suppress(FileNotFoundError):  # another process made room
                await self._directory.delete(self.files[0].name)
            gone.append(self.files.pop(0))
            self.first += self._segment_size
        return gone

    def close(self) -> None:
        for file in self.files:
            file.close()
        self.files.clear()


class OldRecords(NamedTuple):
    """`size` bytes of complete records, with the CRC `check` continued over them; `ends`: the segment has no more
    after them. `wanted`: bytes to read for the next one."""

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
