"""A byte stream cut into files of one size, each named by the position of its first byte (20 digits).

Invariant: files stand side by side from position 0; what is written becomes durable at `sync`, and only
then. The stream has no end of its own: whoever reads it knows by its records where it stops."""

from __future__ import annotations

from dledger.errors import LogDamaged
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
        self.dirty: dict[int, tuple[int, int]] = {}

    def open(self) -> None:
        """Opens what exists. Raises LogDamaged when a file is missing or has another size."""
        for position, (name, size) in enumerate(self.directory.names()):
            if name != self.name_of(position) or size != self.file_bytes:
                wanted = f"{self.name_of(position)} with {self.file_bytes} bytes"
                raise LogDamaged(f"{self.where}/{name}", f"{wanted} should stand here, this file has {size}")
            self.files.append(self.directory.open(name))

    async def open_derived(self) -> None:
        """Opens what can be used of files that their owner can write anew, and deletes the rest. Raises
        OSError."""
        usable = True
        for position, (name, size) in enumerate(self.directory.names()):
            usable = usable and (name, size) == (self.name_of(position), self.file_bytes)
            if usable:
                self.files.append(self.directory.open(name))
            else:
                await self.directory.delete(name)

    def name_of(self, number: int) -> str:
        return f"{number * self.file_bytes:020d}"

    @property
    def end(self) -> int:
        """Where the last file ends."""
        return len(self.files) * self.file_bytes

    def rest_of_file(self, position: int) -> memoryview:
        """The bytes from `position` to the end of its file; empty when there is no such file."""
        number, offset = divmod(position, self.file_bytes)
        return self.files[number].view()[offset:] if number < len(self.files) else memoryview(b"")

    async def read(self, start: int, end: int) -> bytes:
        """Bytes [start, end), of several files perhaps, read beside the event loop; fewer where the last file ends before.
        OSError when the disk fails."""
        parts: list[bytes] = []
        while start < end:
            number, offset = divmod(start, self.file_bytes)
            if number >= len(self.files):
                break
            size = min(end - start, self.file_bytes - offset)
            parts.append(await self.files[number].read_cold(offset, offset + size))
            start += size
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def write(self, position: int, data: bytes) -> None:
        """Puts `data`, which fits into one file, at `position`. Raises OSError when the disk is full."""
        number, start = divmod(position, self.file_bytes)
        end = start + len(data)
        assert end <= self.file_bytes and number <= len(self.files), (
            f"{position}+{len(data)} crosses or skips a file"
        )
        if number == len(self.files):
            self.files.append(self.directory.create(self.name_of(number), self.file_bytes, reserve=0))
        file = self.files[number]
        file.reserve(min(self.file_bytes, -(-end // RESERVE_STEP_BYTES) * RESERVE_STEP_BYTES))
        file.view()[start:end] = data
        known_start, known_end = self.dirty.get(number, (start, end))
        self.dirty[number] = (min(known_start, start), max(known_end, end))

    def rewrite(self, position: int, data: bytes) -> None:
        """As `write`, of what may stand there already: perhaps in the page cache alone, for a failed sync makes the kernel take
        its pages for written."""
        self.write(position, data)
        number, start = divmod(position, self.file_bytes)
        self.files[number].soil(start, start + len(data))

    async def sync(self) -> None:
        """All that was written is durable on return. Raises OSError; then nothing may be trusted to be."""
        for number in sorted(self.dirty):
            await self.files[number].sync(*self.dirty.pop(number))

    async def erase(self, start: int, end: int) -> None:
        """Zeros from `start` up to `end`, of whole files beyond start's by deleting them; zeros are durable
        at the next sync."""
        while self.files and (len(self.files) - 1) * self.file_bytes > start:
            number = len(self.files) - 1
            self.dirty.pop(number, None)
            self.files.pop().close()
            await self.directory.delete(self.name_of(number))
        end = min(end, self.end)
        if start < end and any(self.rest_of_file(start)[: end - start]):
            self.write(start, bytes(end - start))

    def close(self) -> None:
        for file in self.files:
            file.close()
