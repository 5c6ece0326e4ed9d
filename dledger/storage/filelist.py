"""A byte stream cut into files of one size, each named by the position of its first byte (20 digits).

Invariant: files stand side by side from the one that the stream begins with; what is written becomes durable at `sync`, and
only then. The stream has no end of its own: whoever reads it knows by its records where it stops."""

from __future__ import annotations

import errno
from collections.abc import Iterator

from dledger.raft.errors import LogDamaged
from mqruntime.diskfull import DISK_FULL
from mqruntime.segments import SegmentDirectory, SegmentFile

RESERVE_STEP_BYTES = 1 << 20
"""Disk blocks are taken this much at a time: a file is sparse beyond, though it has its full size from the
start."""


class FileList:
    """The files of `directory`; all have `file_bytes` bytes."""

    def __init__(self, directory: SegmentDirectory, file_bytes: int, where: str) -> None:
        self.directory = directory
        self.file_bytes = file_bytes
        self.where = where
        self.files: list[SegmentFile] = []
        self.first = 0
        """Number of the file that the stream begins with, `begin` divided by their size."""
        self.dirty: dict[int, tuple[int, int]] = {}

    async def open(self, begin: int) -> None:
        """Opens what exists from position `begin` on, where a file begins, and deletes what is left of files before it. Raises
        LogDamaged when a file is missing or has another size, OSError."""
        await self.directory.sync_directory()  # a predecessor may have been killed while it deleted one
        self.first = begin // self.file_bytes
        for name, size in self.directory.names():
            if name < self.name_of(self.first):
                await self.directory.delete(name)
                continue
            number = self.first + len(self.files)
            if name != self.name_of(number) or size != self.file_bytes:
                wanted = f"{self.name_of(number)} with {self.file_bytes} bytes"
                raise LogDamaged(f"{self.where}/{name}", f"{wanted} should stand here, this file has {size}")
            self.files.append(self.directory.open(name))

    async def open_derived(self, begin: int, unit_bytes: int) -> None:
        """Opens what can be used of files that their owner can write anew, and deletes the rest, and those that end before
        position `begin`. Files that are larger, all of one size, stay so: a Java controller takes no other than its own back.
        Raises OSError."""
        names = self.directory.names()
        sizes = {size for _, size in names}
        if len(sizes) == 1 and (size := sizes.pop()) > self.file_bytes and not size % unit_bytes:
            self.file_bytes = size
        self.first = begin // self.file_bytes
        for name, size in names:
            if (name, size) == (self.name_of(self.first + len(self.files)), self.file_bytes):
                self.files.append(self.directory.open(name))
            else:
                await self.directory.delete(name)

    def name_of(self, number: int) -> str:
        return f"{number * self.file_bytes:020d}"

    @property
    def begin(self) -> int:
        """Where the first file begins."""
        return self.first * self.file_bytes

    @property
    def end(self) -> int:
        """Where the last file ends."""
        return (self.first + len(self.files)) * self.file_bytes

    def file(self, number: int) -> SegmentFile | None:
        """The one that begins at `number` times their size, if it is there."""
        at = number - self.first
        return self.files[at] if 0 <= at < len(self.files) else None

    def file_at(self, position: int) -> SegmentFile | None:
        """The one that `position` lies in, at the rest of its division by `file_bytes`, for readers of its mapping."""
        return self.file(position // self.file_bytes)

    def rest_of_file(self, position: int) -> memoryview:
        """The bytes from `position` to the end of its file; empty when there is no such file."""
        number, offset = divmod(position, self.file_bytes)
        file = self.file(number)
        return file.view()[offset:] if file is not None else memoryview(b"")

    async def read(self, start: int, end: int) -> bytes:
        """Bytes [start, end), of several files perhaps, read beside the event loop; fewer where a file is not there.
        OSError when the disk fails."""
        parts: list[bytes] = []
        while start < end:
            number, offset = divmod(start, self.file_bytes)
            file = self.file(number)
            if file is None:
                break
            size = min(end - start, self.file_bytes - offset)
            parts.append(await file.read_cold(offset, offset + size))
            start += size
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def parts(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """[start, end) cut where files end: position and size of each part."""
        while start < end:
            size = min(end - start, self.file_bytes - start % self.file_bytes)
            yield start, size
            start += size

    def make_room(self, start: int, end: int) -> None:
        """The files of [start, end) are there and have blocks for it, in whole steps: what is left of the disk below one is for
        votes and other small files. Raises OSError when the disk is full; nothing that was written has changed then."""
        for position, size in self.parts(start, end):
            number, offset = divmod(position, self.file_bytes)
            assert self.first <= number <= self.first + len(self.files), f"{position}+{size} skips a file"
            if number == self.first + len(self.files):
                self.files.append(self.directory.create(self.name_of(number), self.file_bytes, reserve=0))
            steps = -(-(offset + size) // RESERVE_STEP_BYTES)
            self.files[number - self.first].reserve(min(self.file_bytes, steps * RESERVE_STEP_BYTES))

    def write(self, position: int, data: bytes | memoryview) -> None:
        """Puts `data`, which fits into one file, at `position`. Raises OSError when the disk is full."""
        self.room(position, len(data))[:] = data

    def room(self, position: int, size: int) -> memoryview:
        """Bytes of one file that are about to be written through this view. Raises OSError when the disk is full."""
        assert position % self.file_bytes + size <= self.file_bytes, f"{position}+{size} crosses a file"
        self.make_room(position, position + size)
        return self._soiled(position, size)

    def _soiled(self, position: int, size: int) -> memoryview:
        """Those bytes, which the next sync covers; they have blocks."""
        number, start = divmod(position, self.file_bytes)
        end = start + size
        known_start, known_end = self.dirty.get(number, (start, end))
        self.dirty[number] = (min(known_start, start), max(known_end, end))
        return self.files[number - self.first].view()[start:end]

    def rewrite(self, position: int, data: bytes) -> None:
        """As `write`, of what may stand there already: perhaps in the page cache alone, for a failed sync makes the kernel take
        its pages for written."""
        self.write(position, data)
        number, start = divmod(position, self.file_bytes)
        self.files[number - self.first].soil(start, start + len(data))

    async def sync(self) -> None:
        """All that was written is durable on return. Raises OSError; then nothing may be trusted to be, and nothing is tried
        again: no error of a sync is told as one of a full disk, which passes by itself."""
        for number in sorted(self.dirty):
            try:
                await self.files[number - self.first].sync(*self.dirty.pop(number))
            except OSError as error:
                if error.errno in DISK_FULL:
                    raise OSError(errno.EIO, f"sync failed: {error.strerror}", error.filename) from error
                raise

    async def erase(self, start: int, end: int) -> None:
        """Zeros from `start` up to `end`, of whole files beyond start's by deleting them; zeros are durable
        at the next sync."""
        while self.files and self.end - self.file_bytes > start:
            await self._delete(self.files.pop(), self.first + len(self.files))
        there = bytes(self.rest_of_file(start)[: max(0, end - start)]).rstrip(b"\0")
        if there:  # and has blocks, so that a full disk does not keep it
            self._soiled(start, len(there))[:] = bytes(len(there))

    async def begin_at(self, position: int) -> None:
        """Deletes the files that end before `position`, in order; where that is beyond the end, all, and what comes is written
        there. Durable on return. Raises OSError."""
        first = position // self.file_bytes
        while self.files and self.first < first:
            self.first += 1
            await self._delete(self.files.pop(0), self.first - 1)
        self.first = first

    async def restart(self, position: int) -> None:
        """Deletes all files; what comes is written at `position`, wherever they were. Durable on return. Raises OSError."""
        await self.begin_at(self.end)
        self.first = position // self.file_bytes

    async def wipe(self) -> None:
        """Before `open`: deletes whatever is there. Durable on return. Raises OSError."""
        for name, _ in self.directory.names():
            await self.directory.delete(name)
        await self.directory.sync_directory()

    async def _delete(self, file: SegmentFile, number: int) -> None:
        self.dirty.pop(number, None)
        file.close()
        await self.directory.delete(self.name_of(number))

    def close(self) -> None:
        for file in self.files:
            file.close()
