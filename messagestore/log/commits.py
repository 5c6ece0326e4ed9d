"""Finds the half messages (messages of open transactions) that records in a part of the log commit.

Invariant: a scan goes from one record boundary to another, and needs only the records' heads. Pure."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import NamedTuple

from messagestore.record import (
    FIXED_PARTS,
    MAGIC_BLANK,
    PREFIX,
    SYS_FLAG,
    SYS_FLAG_AT,
    TOPIC_LENGTHS,
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
    Buffer,
)

SLICE_BYTES = 256 << 10
END_OF_FIXED = Struct(">iqi")  # reconsume_times, prepared_transaction_offset, body_length
HEAD_BYTES = FIXED_PARTS[3].size


class CommitsFound(NamedTuple):
    """`end` is the boundary that the scan reached, or None if it met something that is no record's head. `halves` are the
    offsets of the half messages that the scanned records commit."""

    end: int | None
    halves: list[int]


CommitsIn = Callable[..., CommitsFound]
"""The type of `commits_in`, for a log with any framing of records."""


def committed_half(buffer: Buffer, at: int) -> int | None:
    """The offset of the half message that the record at `buffer[at]` commits; None if it commits none. A retried copy of a
    committed message keeps the commit flag, but has the offset 0. The half message may really be at offset 0, so 0 counts only
    in a record that was never retried."""
    (sys_flag,) = SYS_FLAG.unpack_from(buffer, at + SYS_FLAG_AT)
    if sys_flag & TRANSACTION_MASK != TRANSACTION_COMMIT:
        return None
    end = at + FIXED_PARTS[sys_flag >> 4 & 3].size
    times, half, _ = END_OF_FIXED.unpack_from(buffer, end - END_OF_FIXED.size)
    return None if half == 0 and times else int(half)


def commits_in(buffer: Buffer, start: int, segment_end: int, limit: int) -> CommitsFound:
    """Scan `buffer`, which holds bytes of one segment from the record boundary `start` on, up to `limit` at most."""
    position = start
    halves: list[int] = []
    while position < limit:
        at = position - start
        if segment_end - position < PREFIX.size:
            return CommitsFound(segment_end, halves)
        if len(buffer) - at < PREFIX.size:
            break
        size, magic = PREFIX.unpack_from(buffer, at)
        if magic == MAGIC_BLANK:
            return CommitsFound(segment_end, halves)
        if magic not in TOPIC_LENGTHS or size <= 0 or position + size > limit:
            return CommitsFound(None, halves)
        if len(buffer) - at < min(HEAD_BYTES, size):
            break
        if (half := committed_half(buffer, at)) is not None:
            halves.append(half)
        position += size
    return CommitsFound(position, halves)
