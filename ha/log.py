"""The commit log as replication uses it.

Invariant: `min_offset() <= confirm_offset() <= max_offset()`, and bytes below `max_offset()` change only through
`truncate`. All offsets are bytes of the log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class ReplicatedLog(Protocol):
    segment_size_bytes: int

    def min_offset(self) -> int:
        """Start of the first segment of the log."""
        ...

    def max_offset(self) -> int:
        """End of the appended data."""
        ...

    def read(self, offset: int, size_max: int) -> memoryview:
        """Bytes of the mapping from `offset` on, within one segment; empty at the end of the log."""
        ...

    async def read_cold(self, offset: int, size_max: int) -> bytes:
        """Like `read`, but outside the mapping. Raises OSError."""
        ...

    def is_cold(self, offset: int) -> bool:
        """Whether reading the mapping at `offset` may wait for the disk."""
        ...

    def at_hand(self, offset: int, size: int) -> memoryview | None:
        """Like `read`, if these bytes are known to be intact and reading them does not wait for the disk; else None."""
        ...

    async def check(self, offset: int, size: int) -> str | None:
        """Read and check the bytes that are not known to be intact. Returns the damage, or None. Raises OSError."""
        ...

    async def is_boundary(self, offset: int) -> bool:
        """Whether a record begins at `offset`, or a segment's records end there. `offset` is within the log. Raises OSError."""
        ...

    async def last_record(self) -> tuple[int, bytes] | None:
        """The offset of the last complete intact record, and the record; None without a record. Raises OSError."""
        ...

    def write_view(self, offset: int, size_max: int) -> memoryview:
        """Buffer for bytes at `offset` of a slave's log: at least one byte, within one segment. `offset` is `max_offset()`; in
        an empty log it may be the start of any segment. Raises OSError if the disk is full."""
        ...

    async def begin_empty_at(self, offset: int) -> None:
        """Prepare an empty log to begin at `offset`, durably on return: after a crash it must not look like a log
        that lost its beginning. Raises OSError."""
        ...

    def advance(self, end: int) -> None:
        """Move the end of the log to `end`. The bytes up to `end` have been filled in."""
        ...

    async def confirm_whole_records(self) -> None:
        """Lower the confirm offset to the end of a record. This is needed before another role or connection confirms data."""
        ...

    async def truncate(self, offset: int) -> int:
        """Cut the log at the last end of a complete record at or below `offset`, and return this end. The bytes that were cut
        cannot come back. With `max_offset` this also erases bytes that a broken connection may have left above the end. Raises
        OSError."""
        ...

    async def reset_beginning(self) -> None:
        """Let a log that ends at 0 begin at any segment again. A segment that was created for bytes that never came is dropped.
        Raises OSError."""
        ...

    def confirm_offset(self) -> int: ...

    def set_confirm_offset(self, offset: int) -> None: ...

    def flushed_offset(self) -> int:
        """End of the data on disk."""
        ...

    async def flush(self) -> int:
        """Bring the present log contents to disk. If the disk fails, raises OSError or the log's own error."""
        ...

    def on_flush(self, callback: Callable[[], None]) -> None:
        """Call `callback` whenever `flushed_offset` may have grown."""
        ...

    def on_append(self, callback: Callable[[], None]) -> None:
        """Call `callback` once for every batch that a master appends."""
        ...
