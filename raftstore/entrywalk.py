"""Walks the entries of a DLedger log to dispatch the messages in them.

Invariant: a walk begins and ends at the start of an entry or at the end of a file's entries, and never passes its limit. An
entry without a body, or with a list of members, is no message and is skipped."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Self

from dledger.raft.membership import MAGIC as MEMBERS
from dledger.raft.membership import is_members
from dledger.storage.entry import BLANK, BLANK_MAGIC, ENTRY_HEADER, ENTRY_HEADER_BYTES, MAGIC
from messagestore import record
from messagestore.dispatch.dispatcher import NEW_QUEUES_MAX, PLAIN_FACTOR, Dispatcher
from messagestore.errors import StoreCorrupted
from messagestore.index.table import IndexTable
from messagestore.log.commits import HEAD_BYTES, CommitsFound, committed_half
from messagestore.queues.table import QueueTable
from messagestore.record import Buffer

CLOSED = 0
"""Returned instead of an entry's size: the file has no more entries."""


def entry_at(buffer: Buffer, at: int, left: int, position: int) -> int | None:
    """Size of the entry whose header is at `buffer[at]`. This is `position` in the log, `left` bytes before the end of the
    file. CLOSED for a blank (which fills the rest of a file), or if no header fits before the end; None if the bytes are no
    header for this position, or only a part of a header."""
    if left < ENTRY_HEADER_BYTES:
        return CLOSED
    if len(buffer) - at < ENTRY_HEADER_BYTES:
        return _blank_at(buffer, at)
    magic, size, _, _, stored_position, _, _, _, body_size = ENTRY_HEADER.unpack_from(buffer, at)
    if (
        magic == MAGIC
        and stored_position == position
        and size == ENTRY_HEADER_BYTES + body_size
        and body_size >= 0
    ):
        return int(size)
    return _blank_at(buffer, at)


def _blank_at(buffer: Buffer, at: int) -> int | None:
    is_blank = len(buffer) - at >= BLANK.size and BLANK.unpack_from(buffer, at)[0] == BLANK_MAGIC
    return CLOSED if is_blank else None


def is_message(buffer: Buffer, at: int, size: int) -> bool:
    """Whether the entry of `size` bytes at `buffer[at]` is a message; the buffer holds enough of its body."""
    body = at + ENTRY_HEADER_BYTES
    return size > ENTRY_HEADER_BYTES and not is_members(
        bytes(buffer[body : min(body + len(MEMBERS), at + size)])
    )


class EntryDispatcher(Dispatcher):
    """Dispatches messages from entries; below `divided_at` it dispatches bare records. Calls `on_moved()` after each run."""

    divided_at = 0
    on_moved: Callable[[], None] = staticmethod(lambda: None)

    def __init__(self, queues: QueueTable, message_delay_level: str, index: IndexTable | None = None) -> None:
        super().__init__(queues, message_delay_level, index)
        self.known = deque(maxlen=0)  # committed messages are read from the log

    def alone(self, queues: QueueTable, index: IndexTable | None = None) -> Self:
        other = super().alone(queues, index)
        other.divided_at = self.divided_at
        return other

    def run(self, buffer: Buffer, start: int, segment_end: int, limit: int, records_max: int) -> bool:
        try:
            if self.position < self.divided_at:
                self.lead = 0
                return super().run(buffer, start, segment_end, limit, records_max)
            self.lead = ENTRY_HEADER_BYTES
            return self._run(buffer, start, segment_end, limit, records_max)
        finally:
            self.on_moved()

    def _run(self, buffer: Buffer, start: int, segment_end: int, limit: int, records_max: int) -> bool:
        self._new_queues = 0
        end = min(limit, segment_end)
        while records_max > 0:
            if self._new_queues >= NEW_QUEUES_MAX:
                return True
            if self._plain is not None:
                records_max -= self._put_plain(buffer, start, end, PLAIN_FACTOR * records_max)
                if records_max <= 0:
                    return True
            records_max -= 1
            position = self.position
            if position >= limit:
                return False
            at = position - start
            size = entry_at(buffer, at, segment_end - position, position)
            if size == CLOSED:
                self.position = segment_end
                return segment_end < limit
            if size is None:
                if len(buffer) - at < min(ENTRY_HEADER_BYTES, segment_end - position):
                    return False  # the buffer holds only the first part of the entry
                raise StoreCorrupted(position, limit, "no entry here")
            if position + size > limit or at + size > len(buffer):
                return False
            if is_message(buffer, at, size):
                self._put_entry(buffer, at, size, position, limit)
            self.position = position + size
        return True

    def _put_entry(self, buffer: Buffer, at: int, size: int, position: int, limit: int) -> None:
        body, offset = at + ENTRY_HEADER_BYTES, position + ENTRY_HEADER_BYTES
        facts = record.queue_facts(buffer, body, size - ENTRY_HEADER_BYTES, offset)
        if isinstance(facts, int) or facts.size != size - ENTRY_HEADER_BYTES:
            raise StoreCorrupted(offset, limit, "the entry there holds no message for that position")
        self.put(offset, facts)


def commits_in_entries(buffer: bytes, start: int, segment_end: int, limit: int) -> CommitsFound:
    """Like messagestore.log.commits.commits_in, for a log of entries."""
    position = start
    halves: list[int] = []
    while position < limit:
        at = position - start
        size = entry_at(buffer, at, segment_end - position, position)
        if size == CLOSED:
            return CommitsFound(segment_end, halves)
        held = len(buffer) - at
        if size is None and held < ENTRY_HEADER_BYTES:
            break
        if size is None or position + size > limit:
            return CommitsFound(None, halves)
        if held < min(size, ENTRY_HEADER_BYTES + HEAD_BYTES):
            break
        if (
            is_message(buffer, at, size)
            and (half := committed_half(buffer, at + ENTRY_HEADER_BYTES)) is not None
        ):
            halves.append(half)
        position += size
    return CommitsFound(position, halves)
