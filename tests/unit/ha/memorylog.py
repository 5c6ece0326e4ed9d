"""A ReplicatedLog in memory. A record is its size in 4 bytes and any content, as in a commit log."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

BLANK_SIZE_MIN = 8


def record(text: str, size: int = 0) -> bytes:
    body = text.encode()
    body += bytes(max(0, size - 4 - len(body)))
    return (4 + len(body)).to_bytes(4, "big") + body


class MemoryLog:
    def __init__(self, segment_size_bytes: int = 16384, data: bytes = b"", begins: int = 0) -> None:
        self.segment_size_bytes = segment_size_bytes
        self._begins = begins
        self._data = bytearray(data)
        self._end = begins + len(data)
        self._confirm = begins
        self._callbacks: list[Callable[[], None]] = []
        self._flush_callbacks: list[Callable[[], None]] = []
        self._flushed = self._end
        self.truncated: list[tuple[int, int]] = []
        self.cold_below = 0
        self.full = False
        self.damaged_at: int | None = None
        self.unreadable: dict[str, int] = {}
        """The offset at which the disk fails, by the name of the failing method."""
        self._blank_at = -1

    def content(self) -> bytes:
        return bytes(self._data[: self._end - self._begins])

    def append(self, *records: bytes) -> int:
        for data in records:
            room = self.segment_size_bytes - self._end % self.segment_size_bytes
            if len(data) + BLANK_SIZE_MIN > room:
                self._put(room.to_bytes(4, "big") + bytes(room - 4))
            self._put(data)
        for callback in self._callbacks:
            callback()
        return self._end

    def append_blank(self) -> None:
        """End the segment here with a blank."""
        room = self.segment_size_bytes - self._end % self.segment_size_bytes
        self._blank_at = self._end
        self._put(room.to_bytes(4, "big") + bytes(room - 4))

    def _put(self, data: bytes) -> None:
        at = self._end - self._begins
        self._data = self._data[:at] + data
        self._end += len(data)

    def min_offset(self) -> int:
        return self._begins

    def max_offset(self) -> int:
        return self._end

    def read(self, offset: int, size_max: int) -> memoryview:
        room = self.segment_size_bytes - offset % self.segment_size_bytes
        end = min(offset + min(size_max, room), self._end)
        return memoryview(bytes(self._data[offset - self._begins : end - self._begins]))

    async def read_cold(self, offset: int, size_max: int) -> bytes:
        assert self.is_cold(offset) or not self.is_checked(offset, size_max)
        self._fails("read_cold", offset, size_max)
        return bytes(self.read(offset, size_max))

    def is_cold(self, offset: int) -> bool:
        return offset < self.cold_below

    def write_view(self, offset: int, size_max: int) -> memoryview:
        if self.full:
            raise OSError(28, "No space left on device")
        if self._begins == self._end and offset != self._end:
            assert offset % self.segment_size_bytes == 0
            self._begins = self._end = self._confirm = offset
        assert offset == self._end, (offset, self._end)
        size = min(size_max, self.segment_size_bytes - offset % self.segment_size_bytes)
        at = offset - self._begins
        self._data = self._data[:at] + bytes(size)
        return memoryview(self._data)[at:]

    async def begin_empty_at(self, offset: int) -> None:
        assert not self.content()
        self._begins = self._end = self._confirm = offset

    def advance(self, end: int) -> None:
        assert self._end < end <= self._begins + len(self._data)
        self._end = end

    async def confirm_whole_records(self) -> None:
        self._confirm = self.boundary_at_or_below(self._confirm)

    async def truncate(self, offset: int) -> int:
        assert self._begins <= offset <= self._end
        offset = self.boundary_at_or_below(offset)
        if offset < self._end:
            self.truncated.append((self._end, offset))
        self._end = offset
        self._confirm = min(self._confirm, offset)
        return offset

    def boundary_at_or_below(self, offset: int) -> int:
        position = self._begins
        while position + 4 <= offset:
            at = position - self._begins
            size = int.from_bytes(self._data[at : at + 4], "big")
            if size < 4 or position + size > offset:
                break
            position += size
        return position

    async def last_record(self) -> tuple[int, bytes] | None:
        if self._end == self._begins:
            return None
        start, end = self.boundary_at_or_below(self._end - 1), self._end
        if start == self._blank_at:
            start, end = self.boundary_at_or_below(start - 1), start
        return start, self.content()[start - self._begins : end - self._begins]

    async def reset_beginning(self) -> None:
        assert self._end == 0

    def is_checked(self, offset: int, size: int) -> bool:
        return self.damaged_at is None

    def at_hand(self, offset: int, size: int) -> memoryview | None:
        if self.is_cold(offset) or not self.is_checked(offset, size):
            return None
        return self.read(offset, size)

    async def check(self, offset: int, size: int) -> str | None:
        self._fails("check", offset, size)
        at = self.damaged_at
        return f"damaged at {at}" if at is not None and offset <= at < offset + size else None

    def _fails(self, method: str, offset: int, size: int) -> None:
        at = self.unreadable.get(method)
        if at is not None and offset <= at < offset + size:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    async def is_boundary(self, offset: int) -> bool:
        return self.boundary_at_or_below(offset) == offset

    def confirm_offset(self) -> int:
        return self._confirm

    def set_confirm_offset(self, offset: int) -> None:
        assert self._begins <= offset <= self._end
        self._confirm = offset

    def flushed_offset(self) -> int:
        return min(self._flushed, self._end)

    async def flush(self) -> int:
        self._flushed = self._end
        for callback in self._flush_callbacks:
            callback()
        return self._end

    def on_flush(self, callback: Callable[[], None]) -> None:
        self._flush_callbacks.append(callback)

    def on_append(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)
