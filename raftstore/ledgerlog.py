"""The files of a member's DLedger log, used as the commit log of a broker's store. If the broker had a plain log before Raft
mode, the DLedger log follows it.

Invariant: all of the plain log can be read, and only the committed part of the DLedger log on this disk. The end only grows,
except when another member's log replaces this log; then nothing is read until the process restarts. A record is the body of an
entry whose position is known before the record is built. The plain log holds bare records and is never written."""

from __future__ import annotations

import logging
from collections.abc import Callable

from dledger.node.node import DLedgerNode
from dledger.raft.entries import HEAD, Block, block_to_fill
from dledger.raft.errors import LogDamaged, NotLeader, TooManyProposals
from dledger.storage.entry import BLANK, BLANK_MAGIC, ENTRY_HEADER_BYTES, decode_entry, index_header
from messagestore.errors import LogReplaced, LogTakesNothing, OffsetOutOfRange
from messagestore.log.commitlog import plain_boundary
from messagestore.log.files import LogFiles, RecordPlace, Room
from messagestore.log.retention import RetainedSegment
from messagestore.log.storetimes import first_time
from messagestore.record import FIXED_PARTS, PREFIX, declared_end, store_timestamp
from mqruntime.segments import SegmentFile
from raftstore.entrywalk import CLOSED, entry_at, is_message
from raftstore.framing import physical_offset
from raftstore.oldlog import OldLog

logger = logging.getLogger("raftstore.log")

HEAD_BYTES = ENTRY_HEADER_BYTES + FIXED_PARTS[3].size
"""The size of an entry's header and of the part of the record up to its store time."""


class LedgerLog(LogFiles):
    """The log of a store. Offsets are positions in the data files of `node`, which is opened first."""

    def __init__(self, node: DLedgerNode, *, hot_segments: int, queue_ends: Callable[[], bytes]) -> None:
        """`queue_ends()` returns the queues' starts for a member whose log begins later, see raftstore.queueends."""
        super().__init__(node.settings.data_file_bytes, hot_segments)
        self.record_bytes_max = min(
            self.record_bytes_max - ENTRY_HEADER_BYTES, node.settings.proposal_bytes_max
        )
        self._node = node
        self._queue_ends = queue_ends
        self._old: OldLog | None = None
        self._stay_logged: int | None = None  # the start of files whose stay was logged
        self._tail: Block | None = None
        """The entries with reserved positions, whose records are being written."""
        self._replaced = False

    def opened(self, vouched_for: int, old: OldLog | None = None) -> None:
        """Use the opened files of the node, which begin where the files of `old` end. Data below `vouched_for` was dispatched
        before, so it is committed, even if the node's own checkpoint does not show this yet."""
        self._old = old
        self._first = self._node.log_begin() if old is None or not old.files else old.first
        self._end = max(self._node.readable()[1], min(vouched_for, self._node.log_end()))

    def readable_to(self, end: int) -> None:
        """Move the readable end to `end`: the log up to `end` is committed, and on this disk."""
        self._end = max(end, self._end)

    @property
    def divided_at(self) -> int:
        """End of the plain log; 0 if no file of the plain log is left."""
        old = self._old
        return old.end if old is not None and old.files else 0

    def replaced_at(self, position: int) -> None:
        """Handle a replacement: another member's log, which begins at `position`, replaces this log, and this log's files are
        about to be deleted. From now on neither log can be read."""
        self._first = self._end = position
        self._replaced = True

    @property
    def max_offset(self) -> int:
        """End of the log, uncommitted entries included."""
        return self._node.log_end()

    @property
    def has_segments(self) -> bool:
        return bool(self._node.data.files) or self.divided_at > 0

    @property
    def flushed_offset(self) -> int:
        return self._end

    def _file_at(self, offset: int) -> tuple[SegmentFile, int]:
        if self._old is not None and self._first <= offset < self.divided_at:
            return self._old.segment_of(offset)
        number = offset // self.segment_size_bytes
        file = self._node.data.file(number)
        if self._replaced:
            raise LogReplaced(offset, self._first)
        if file is None or offset < self._first:
            raise OffsetOutOfRange(offset, self._first, self._end)
        return file, number * self.segment_size_bytes

    async def rewrite(self, offset: int, content: bytes, wanted: Callable[[], bool]) -> bool:
        """Write `content` again at `offset`, where it was committed, inside one file; durable on return. Returns False if the
        repair is not `wanted` any more, or if a read outside the mapping returns other bytes. Raises OffsetOutOfRange if the
        offset is gone, OSError."""
        file, start = self._file_at(offset)
        if not wanted():
            return False
        at, end = offset - start, offset - start + len(content)
        file.view()[at:end] = content
        await file.sync(at, end)
        return await self.read_file(offset, offset + len(content)) == content

    async def is_boundary(self, offset: int) -> bool:
        head = await self.read_cold(offset, HEAD_BYTES)
        if offset < self.divided_at:
            return plain_boundary(head, self.segment_start(offset) + self.segment_size_bytes, offset)
        closes = len(head) >= BLANK.size and BLANK.unpack_from(head)[0] == BLANK_MAGIC
        return closes or entry_at(head, 0, self.segment_size_bytes, offset) is not None

    def first_record(self) -> int | None:
        position = self._first
        if position < self.divided_at:
            head = self.read(position, PREFIX.size)
            if declared_end(head, 0, position) != position:
                return position
            position = self.divided_at  # the plain log had no record
        while True:
            head = self.read(position, HEAD_BYTES)
            size = self._entry_size(head, position)
            if size is None:
                return None
            if is_message(head, 0, size):
                return physical_offset(position)
            position = self._next(position, size)

    def _entry_size(self, head: bytes | memoryview, position: int) -> int | None:
        """The result of `entry_at` for `head`, which was read from `position` on."""
        return entry_at(head, 0, self.segment_start(position) + self.segment_size_bytes - position, position)

    def _next(self, position: int, size: int) -> int:
        """End of the entry of `size` bytes, or the start of the next file."""
        return self.segment_start(position) + self.segment_size_bytes if size == CLOSED else position + size

    # The leader's appends

    def places(self, sizes: list[int]) -> list[RecordPlace]:
        positions = self._positions(sizes)
        self._tail = tail = block_to_fill(self._node.term, sizes)
        view = memoryview(tail.data)
        return [
            RecordPlace(view, tail.body_at(number), physical_offset(position))
            for number, position in enumerate(positions)
        ]

    def room(self, sizes: list[int]) -> Room | None:
        positions = self._positions(sizes)
        apart = ENTRY_HEADER_BYTES
        if positions[-1] - positions[0] != sum(sizes) - sizes[-1] + (len(sizes) - 1) * apart:
            return None  # a file ends between the entries
        self._tail = tail = block_to_fill(self._node.term, sizes)
        return Room(memoryview(tail.data), tail.body_at(0), physical_offset(positions[0]), HEAD.size, apart)

    def _positions(self, sizes: list[int]) -> list[int]:
        if self._node.waits_for_room:
            raise LogTakesNothing("this member's disk is full")
        try:
            return self._node.reserve(sizes)
        except (NotLeader, TooManyProposals) as error:
            raise LogTakesNothing(str(error)) from error

    def grow(self, end: int) -> None:
        assert self._tail is not None, "positions were reserved"
        self._node.append_reserved(self._tail)
        self._tail = None

    def has_room_for(self, size: int) -> bool:
        return not self._node.waits_for_room

    # Retention

    async def segments_behind_first(self, count_max: int) -> list[RetainedSegment]:
        size, found = self.segment_size_bytes, []
        last = self.segment_start(self._end)
        for start in range(self._first, min(self._first + count_max * size, last), size):
            newest_ms = None
            try:
                newest_ms = await self._first_time(start + size)
            except OSError as error:
                self._log_ageless(start, error)
            found.append(RetainedSegment(start, start + size, newest_ms))
        return found

    async def _first_time(self, position: int) -> int | None:
        """Store time in ms of the first message of a file. None if the file begins with no message, or if the file is gone
        because another member's log is about to replace this log."""
        while position < self._end:
            try:
                if position < self.divided_at:
                    return await first_time(self, position, self.divided_at)
                head = await self.read_cold(position, HEAD_BYTES)
            except OffsetOutOfRange:
                return None
            size = self._entry_size(head, position)
            if size is None:
                return None
            if is_message(head, 0, size):
                return self._proven_time(head, position)
            position = self._next(position, size)
        return None

    def _proven_time(self, head: bytes, position: int) -> int | None:
        """Store time in `head` if the entry is intact, else None: with a corrupt time retention would delete young files, or
        keep old files. The entry is read from the mapping. Few entries are checked this way, and their heads were read a moment
        ago."""
        log, unit = self._node.store.log, index_header(head)
        assert log is not None and unit is not None
        try:
            intact = decode_entry(log.data.rest_of_file(position), position, log.check_of(unit.index - 1))
        except LogDamaged:
            return None
        return None if intact is None else store_timestamp(head, ENTRY_HEADER_BYTES) or None

    def begin_at(self, offset: int) -> None:
        assert self._first <= offset <= self.segment_start(self._end)
        self._first = offset

    async def delete_former(self) -> list[SegmentFile]:
        """Delete the files before the new start. Nothing is deleted until the node itself knows that the new start is
        committed; after a restart it learns this from the next leader. If the entry at the new start is corrupt, the files stay
        until the entry is repaired or a later file is old."""
        gone = [] if self._old is None else await self._old.delete_below(self._first)
        if self._node.log_begin() < self._first <= self._node.readable()[1]:
            try:
                await self._node.advance_log_start(self._first, self._queue_ends())
            except LogDamaged as error:  # the next round tries again; the entry is repaired meanwhile
                if self._stay_logged != self._first:
                    logger.warning("files before %d stay for now: %s", self._first, error)
                self._stay_logged = self._first
        return gone
