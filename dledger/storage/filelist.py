"""A byte stream in files of one size. Each file is named by the position of its first byte (20 digits). Upstream: MmapFileList.

Invariant: the files follow each other without a gap. Written data becomes durable at `sync`, and only then. The stream does not
store its end: a reader finds it from the records."""

from __future__ import annotations

import errno
from collections.abc import Iterator

from dledger.raft.errors import LogDamaged
from mqruntime.diskfull import DISK_FULL
from mqruntime.segments import SegmentDirectory, SegmentFile

RESERVE_STEP_BYTES = 1 << 20
"""Disk blocks are allocated in steps of this size. A file has its full size from the start, but is sparse beyond the allocated
blocks."""


class FileList:
    """The files of `directory`; all have `file_bytes` bytes."""

    def __init__(self, directory: SegmentDirectory, file_bytes: int, where: str) -> None:
        self.directory = directory
        self.file_bytes = file_bytes
        self.where = where
        self.files: list[SegmentFile] = []
        self.first = 0
        """The number of the stream's first file: `begin` divided by the file size."""
        self.dirty: dict[int, tuple[int, int]] = {}

    async def open(self, begin: int) -> None:
        """Opens the files from position `begin` on, where a file must begin, and deletes earlier files. Raises LogDamaged (a
        file is missing or has another size), OSError."""
        await self.directory.sync_directory()  # a process may have been killed while it deleted a file
        self.first = begin // self.file_bytes
        for name, size in self.directory.names():
            if name < self.name_of(self.first):
                await self.directory.delete(name)
                continue
            number = self.first + len(self.files)
            if name != self.name_of(number) or size != self.file_bytes:
                wanted = f"{self.name_of(number)} with {self.file_bytes} bytes"
                raise LogDamaged(f"{self.where}/{name}", f"{wanted} should be here, this file has {size}")
            self.files.append(self.directory.open(name))

    async def open_derived(self, begin: int, unit_bytes: int) -> None:
        """Opens files of a kind that can be rebuilt. Unusable files, and files that end before position `begin`, are deleted.
        Larger files that all have one size keep this size, because a Java controller only accepts files of its own size. Raises
        OSError."""
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
        """The position where the first file begins."""
        return self.first * self.file_bytes

    @property
    def end(self) -> int:
        """The position where the last file ends."""
        return (self.first + len(self.files)) * self.file_bytes

    def file(self, number: int) -> SegmentFile | None:
        """The file that begins at position `number` times the file size; None if it does not exist."""
        at = number - self.first
        return self.files[at] if 0 <= at < len(self.files) else None

    def file_at(self, position: int) -> SegmentFile | None:
        """The file that contains `position`, for readers of its mapping; None if there is none. The offset in the file is
        `position` modulo `file_bytes`."""
        return self.file(position // self.file_bytes)

    def rest_of_file(self, position: int) -> memoryview:
        """The bytes from `position` to the end of the file there; empty if there is no such file."""
        number, offset = divmod(position, self.file_bytes)
        file = self.file(number)
        return file.view()[offset:] if file is not None else memoryview(b"")

    async def read(self, start: int, end: int) -> bytes:
        """Bytes [start, end), which may lie in several files, read outside the event loop; fewer if a file is missing. Raises
        OSError."""
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
        """The parts of [start, end) in the single files: position and size of each part."""
        while start < end:
            size = min(end - start, self.file_bytes - start % self.file_bytes)
            yield start, size
            start += size

    def make_room(self, start: int, end: int) -> None:
        """Creates the files of [start, end) and allocates blocks, in whole steps; disk space of less than one step is left for
        votes and other small files. Raises OSError if the disk is full; written data has then not changed."""
        for position, size in self.parts(start, end):
            number, offset = divmod(position, self.file_bytes)
            assert self.first <= number <= self.first + len(self.files), f"{position}+{size} skips a file"
            if number == self.first + len(self.files):
                self.files.append(self.directory.create(self.name_of(number), self.file_bytes, reserve=0))
            steps = -(-(offset + size) // RESERVE_STEP_BYTES)
            self.files[number - self.first].reserve(min(self.file_bytes, steps * RESERVE_STEP_BYTES))

    def write(self, position: int, data: bytes | memoryview) -> None:
        """Writes `data`, which fits into one file, at `position`. Raises OSError if the disk is full."""
        self.room(position, len(data))[:] = data

    def room(self, position: int, size: int) -> memoryview:
        """A view of one file for `size` bytes that are about to be written. Raises OSError if the disk is full."""
        assert position % self.file_bytes + size <= self.file_bytes, f"{position}+{size} crosses a file"
        self.make_room(position, position + size)
        return self._soiled(position, size)

    def _soiled(self, position: int, size: int) -> memoryview:
        """Like `room`, for bytes that already have blocks; the next sync covers them."""
        number, start = divmod(position, self.file_bytes)
        end = start + size
        known_start, known_end = self.dirty.get(number, (start, end))
        self.dirty[number] = (min(known_start, start), max(known_end, end))
        return self.files[number - self.first].view()[start:end]

    def rewrite(self, position: int, data: bytes) -> None:
        """Like `write`, for bytes that may already be there, but only in the page cache: after a failed sync the kernel takes
        its pages for written."""
        self.write(position, data)
        number, start = divmod(position, self.file_bytes)
        self.files[number - self.first].soil(start, start + len(data))

    async def sync(self) -> None:
        """Makes all writes durable. Raises OSError; then no write may be trusted, and nothing is tried again. A full disk,
        which is a temporary state, is never the error of a sync."""
        for number in sorted(self.dirty):
            try:
                await self.files[number - self.first].sync(*self.dirty.pop(number))
            except OSError as error:
                if error.errno in DISK_FULL:
                    raise OSError(errno.EIO, f"sync failed: {error.strerror}", error.filename) from error
                raise

    async def erase(self, start: int, end: int) -> None:
        """Writes zeros from `start` up to `end`, and deletes all files after the file of `start`. The zeros are durable at the
        next sync."""
        while self.files and self.end - self.file_bytes > start:
            await self._delete(self.files.pop(), self.first + len(self.files))
        there = bytes(self.rest_of_file(start)[: max(0, end - start)]).rstrip(b"\0")
        if there:  # it has blocks, so this works on a full disk too
            self._soiled(start, len(there))[:] = bytes(len(there))

    async def begin_at(self, position: int) -> None:
        """Deletes the files before the file of `position`, in order. If `position` is beyond the end, all files are deleted,
        and the next write creates the file of `position`. Durable on return. Raises OSError."""
        first = position // self.file_bytes
        while self.files and self.first < first:
            self.first += 1
            await self._delete(self.files.pop(0), self.first - 1)
        self.first = first

    async def restart(self, position: int) -> None:
        """Deletes all files; the next write is at `position`. Durable on return. Raises OSError."""
        await self.begin_at(self.end)
        self.first = position // self.file_bytes

    async def wipe(self) -> None:
        """Deletes all files; call it before `open`. Durable on return. Raises OSError."""
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
