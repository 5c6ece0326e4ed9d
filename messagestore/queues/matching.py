"""Read queues with filters on message properties.

Invariant: a message is skipped only if its properties do not match, and only if this process wrote or checked the record with
these properties. An entry that leads outside the log is an error. The event loop does not wait for the disk: the scan ends
before properties that are not in memory. If the scan has found nothing by then, a thread reads about a MiB of properties for
one reply."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, pairwise

from messagestore.errors import OffsetOutOfRange, RecordDamaged
from messagestore.log.files import PIECE_BYTES, LogFiles
from messagestore.messages import GetResult, GetStatus, PropertyFilter
from messagestore.queues.consumequeue import FILLER_SIZE
from messagestore.queues.reading import QueueReader, scan_max
from messagestore.record import Buffer, stored_properties
from messagestore.scrub.soundness import Integrity

Entry = tuple[int, int, int]

JUDGED_BYTES_MAX = 256 << 10
"""Limit of bytes of properties for one reply. 800 messages usually have less, but a client may send 32 KiB of them in one
message."""
CONDITIONS = 8
"""A condition may read all of a message's properties, 32 KiB of them in 0.1 ms."""
LOOKED_AT_ONCE = 32
"""One check whether messages are in memory covers this many messages."""
WRONG_SIZE = -1


@dataclass(slots=True)
class Judge:
    """The filter of one reply, and how many bytes of properties it may still read. Each `CONDITIONS` of the filter read them
    once more."""

    wanted: PropertyFilter
    left: int
    times: int

    @staticmethod
    def of(wanted: PropertyFilter) -> Judge:
        return Judge(wanted, JUDGED_BYTES_MAX, 1 + getattr(wanted, "conditions", 0) // CONDITIONS)


class MatchingReader:
    """Uses `reader` to collect the messages that match a filter."""

    def __init__(self, log: LogFiles, integrity: Integrity, reader: QueueReader) -> None:
        self._log = log
        self._integrity = integrity
        self._reader = reader

    def get(
        self, topic: str, queue_id: int, queue_offset: int, max_count: int, max_bytes: int, wanted: PropertyFilter
    ) -> GetResult:  # fmt: skip
        """QueueReader.get with a filter. If the result is cold and not FOUND, nothing was examined, and `read` must be
        called."""
        queue = self._reader.queue_at(topic, queue_id, queue_offset)
        if isinstance(queue, GetResult):
            return queue
        count = max(max_count, 1)
        judged = self._judged_in_memory(queue.entries(queue_offset, scan_max(count)), Judge.of(wanted))
        result = self._reader.collect(queue, judged, queue_offset, count, max_bytes, bool)
        if result.status is GetStatus.NO_MATCHED_MESSAGE and result.next_begin_offset == queue_offset:
            result.cold = True
        return result

    async def read(
        self, topic: str, queue_id: int, queue_offset: int, max_count: int, max_bytes: int, wanted: PropertyFilter
    ) -> GetResult:  # fmt: skip
        """The result of `get` after reading from the disk. Raises RecordDamaged if the first message is damaged, or OSError."""
        queue = self._reader.queue_at(topic, queue_id, queue_offset)
        if isinstance(queue, GetResult):
            return queue
        count = max(max_count, 1)
        entries = self._a_piece_of(queue.entries(queue_offset, scan_max(count)))
        try:
            entries = await self._intact(entries)
            ranges = self._ranges(entries)
            contents = await self._log.read_cold_each(ranges) if ranges else []
        except OffsetOutOfRange:
            contents = None
        found = self._reader.queue_at(topic, queue_id, queue_offset)
        if contents is None or found is not queue or [*queue.entries(queue_offset, len(entries))] != entries:
            result = self.get(topic, queue_id, queue_offset, max_count, max_bytes, wanted)
            result.cold = result.cold and result.status is GetStatus.FOUND  # else: pull again
            return result
        records = {phy: content for (phy, _), content in zip(ranges, contents, strict=True)}
        judged = self._judged(entries, records, Judge.of(wanted))
        return self._reader.collect(queue, judged, queue_offset, count, max_bytes, bool)

    def _judged_in_memory(self, entries: Iterator[Entry], judge: Judge) -> Iterator[Entry]:
        """Entries with the filter's decision in place of the tags' code, up to the first entry whose record is not in
        memory."""
        while judge.left > 0 and (some := [*islice(entries, LOOKED_AT_ONCE)]):
            ranges = self._ranges(some)
            if ranges and not self._in_memory(ranges):
                return
            views = self._log.views(ranges) if ranges else []
            records = {phy: view for (phy, _), view in zip(ranges, views, strict=True)}
            yield from self._judged(some, records, judge)

    def _judged(self, entries: list[Entry], records: Mapping[int, Buffer], judge: Judge) -> Iterator[Entry]:
        """Entries with the filter's decision. `records` are the records of the entries, by physical offset."""
        wanted = judge.wanted
        for phy, size, _ in entries:
            if judge.left <= 0:
                return
            if (record := records.get(phy)) is None:
                yield phy, size, True  # reading the record raises, unless it was deleted
            elif (properties := stored_properties(record, phy)) is None:
                yield phy, WRONG_SIZE, True
            else:
                judge.left -= len(properties) * judge.times
                yield phy, size, wanted(properties)

    def _ranges(self, entries: list[Entry]) -> list[tuple[int, int]]:
        return [(phy, size) for phy, size, _ in entries if self._lies_in_log(phy, size)]

    def _lies_in_log(self, phy: int, size: int) -> bool:
        log = self._log
        return (
            size > 0
            and size != FILLER_SIZE
            and log.min_offset <= phy
            and phy + size <= log.max_offset
            and phy % log.segment_size_bytes + size <= log.segment_size_bytes
        )

    def _in_memory(self, ranges: list[tuple[int, int]]) -> bool:
        """Whether these ranges are in memory and intact."""
        start, (last, last_size) = ranges[0][0], ranges[-1]
        checked, in_memory = self._integrity.is_checked, self._log.in_memory
        in_order = all(phy + size <= after for (phy, size), (after, _) in pairwise(ranges))
        if in_order and checked(start, last + last_size - start):
            return in_memory(ranges)
        return all(checked(*each) and in_memory([each]) for each in ranges)

    def _a_piece_of(self, entries: Iterable[Entry]) -> list[Entry]:
        piece: list[Entry] = []
        left = PIECE_BYTES
        for entry in entries:
            if self._lies_in_log(*entry[:2]):
                left -= entry[1]
                if left < 0 and piece:
                    break
            piece.append(entry)
        return piece

    async def _intact(self, entries: list[Entry]) -> list[Entry]:
        """The entries before the first damaged record."""
        for number, (phy, size, _) in enumerate(entries):
            try:
                if self._lies_in_log(phy, size):
                    await self._integrity.check(phy, size)
            except RecordDamaged:
                if not number:
                    raise
                return entries[:number]
        return entries
