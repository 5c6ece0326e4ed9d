"""The commit log as replication sees it.

Invariant: `min_offset() <= confirm_offset() <= max_offset()`, and bytes below `max_offset()` change only through
`truncate`. All offsets are bytes of the log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class ReplicatedLog(Protocol):
    segment_size_bytes: int

    def min_offset(self) -> int:
        """Start of the first segment that is kept."""
        ...

    def max_offset(self) -> int:
        """End of the appended data."""
        ...

    def read(self, offset: int, size_max: int) -> memoryview:
        """Bytes of the mapping, within one segment; empty at the end of the log."""
        ...

    async def read_cold(self, offset: int, size_max: int) -> bytes:
        """The same, read outside the mapping. OSError."""
        ...

    def is_cold(self, offset: int) -> bool:
        """Reading the mapping at `offset` may wait for the disk."""
        ...

    def at_hand(self, offset: int, size: int) -> memoryview | None:
        """`read`, where these bytes are known to be as they were written and no disk is waited for; else None."""
        ...

    async def check(self, offset: int, size: int) -> str | None:
        """Reads and checks what of them is not; what is damaged there, None for nothing. OSError."""
        ...

    async def is_boundary(self, offset: int) -> bool:
        """Whether a record, or the end of a segment's records, begins at `offset`, which is within the log. OSError."""
        ...

    async def last_record(self) -> tuple[int, bytes] | None:
        """The last whole record that is sound, and where it begins; None without any. OSError."""
        ...

    def write_view(self, offset: int, size_max: int) -> memoryview:
        """Where the bytes at `offset` of a slave's log go, at least one and within one segment. `offset` is
        `max_offset()`; in an empty log it may be the start of any segment. OSError when the disk is full."""
        ...

    async def begin_empty_at(self, offset: int) -> None:
        """The log, which holds nothing, is about to begin at `offset`, durably on return: a crash must not take it for one
        that lost its beginning. OSError."""
        ...

    def advance(self, end: int) -> None:
        """The bytes up to `end` have been filled in; the log ends there now."""
        ...

    async def confirm_whole_records(self) -> None:
        """Lowers the confirm offset to the end of a record, before anything of another role or connection is confirmed."""
        ...

    async def truncate(self, offset: int) -> int:
        """The log ends at the greatest end of a whole record that is not above `offset`, which is returned, and its old
        tail cannot come back. At `max_offset` it also erases what a broken connection may have left above. OSError."""
        ...

    async def begin_anew(self) -> None:
        """A log that ends at 0 may begin at any segment again: one made for bytes that never came is gone. OSError."""
        ...

    def confirm_offset(self) -> int: ...

    def set_confirm_offset(self, offset: int) -> None: ...

    def flushed_offset(self) -> int:
        """What ends at or below this is on disk."""
        ...

    async def flush(self) -> int:
        """What the log holds at the call is on disk on return. OSError, or the log's own error, when the disk fails."""
        ...

    def on_flush(self, callback: Callable[[], None]) -> None:
        """`callback` whenever `flushed_offset` may have grown."""
        ...

    def on_append(self, callback: Callable[[], None]) -> None:
        """`callback` is called once for every batch appended on a master."""
        ...
