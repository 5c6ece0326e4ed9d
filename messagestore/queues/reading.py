"""Read queues: from a queue offset to ranges of the log.

Invariant: only listed records are returned, so nothing above the confirm offset. Bytes in memory are returned as views of the
mapping for the newest segments, and as copies for older segments. Bytes that are not in memory are read without the mapping.
Every returned body was written or checked by this process."""

from __future__ import annotations

from collections.abc import Iterator

from messagestore import record
from messagestore.errors import OffsetOutOfRange, QueueDamaged
from messagestore.log.files import LogFiles
from messagestore.messages import GetResult, GetStatus, QueueEntry, TagFilter
from messagestore.queues.consumequeue import ENTRY, FILLER_SIZE, ConsumeQueue, is_filler, listed_start
from messagestore.queues.ends import Key
from messagestore.queues.table import QueueTable
from messagestore.scrub.soundness import Integrity
from mqruntime.turnbudget import TurnBudget

COPIED_BYTES_MAX = 4 << 20
"""Limit of bytes of old messages that are copied in one turn of the event loop: 1 ms at 4 GB/s."""
FILTERED_SCAN_BYTES_MIN = 16_000  # maxFilterMessageSize: one read scans this much of a queue


Listed = tuple[int, int, int]
"""The queue offset of an entry, and the physical offset and size of its record."""


def _strangers(
    queue: ConsumeQueue, listed: list[Listed], buffers: list[memoryview]
) -> list[tuple[Listed, int, Key | None]]:
    """The records in `buffers` that name another queue than `queue`, each with its queue offset and the queue that it names;
    None if no record of the entry's size is there. The records are consecutive. Files that are wholly another queue's are found
    by the start."""
    key = queue.topic.encode(), queue.queue_id
    found: list[tuple[Listed, int, Key | None]] = []
    rest, at, buffer = iter(buffers), 0, memoryview(b"")
    for each in listed:
        _, phy, size = each
        if at == len(buffer):
            buffer, at = next(rest), 0
        head = record.queue_head(buffer, at, size, phy)
        if isinstance(head, int) or head[0] != size:
            found.append((each, -1, None))
        elif head[1:3] != key:
            found.append((each, head[3], (head[1], head[2])))
        at += size
    return found


def scan_max(max_count: int) -> int:
    """The number of entries that a read of `max_count` messages may scan."""
    return max(FILTERED_SCAN_BYTES_MIN // ENTRY.size, max_count)


class QueueReader:
    def __init__(self, log: LogFiles, queues: QueueTable, integrity: Integrity) -> None:
        self._log = log
        self._queues = queues
        self._integrity = integrity
        self._copying = TurnBudget(COPIED_BYTES_MAX)

    def get(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_count: int,
        max_bytes: int,
        tag_filter: TagFilter | None,
    ) -> GetResult:
        """At most `max_count` messages from `queue_offset` on, with at most `max_bytes` unless the first message alone is
        larger."""
        queue = self.queue_at(topic, queue_id, queue_offset)
        if isinstance(queue, GetResult):
            return queue
        count = max(max_count, 1)
        entries = queue.entries(queue_offset, scan_max(count))
        return self.collect(queue, entries, queue_offset, count, max_bytes, tag_filter)

    def queue_at(self, topic: str, queue_id: int, queue_offset: int) -> ConsumeQueue | GetResult:
        """The queue, if it has a message at `queue_offset`; else the result that explains why not."""
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return GetResult(GetStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)
        first, end = self._queues.first_of(queue), queue.max_queue_offset
        if end == 0:
            return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0, first, end)
        if queue_offset < first:
            return GetResult(GetStatus.OFFSET_TOO_SMALL, first, first, end)
        if queue_offset == end:
            return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, end, first, end)
        if queue_offset > end:
            return GetResult(GetStatus.OFFSET_OVERFLOW_BADLY, end, first, end)
        return queue

    def is_at_hand(self, topic: str, queue_id: int, queue_offset: int, max_count: int) -> bool:
        """Whether `get` reads no entry from the disk."""
        queue = self._queues.find(topic, queue_id)
        return queue is None or queue.is_at_hand(queue_offset, scan_max(max_count))

    async def bring(self, topic: str, queue_id: int, queue_offset: int, max_count: int) -> None:
        """Read the entries for `get` in a thread. Raises OSError."""
        queue = self._queues.find(topic, queue_id)
        if queue is not None:
            await queue.bring(queue_offset, scan_max(max_count))

    def collect(
        self,
        queue: ConsumeQueue,
        entries: Iterator[tuple[int, int, int]],
        queue_offset: int,
        max_count: int,
        max_bytes: int,
        tag_filter: TagFilter | None,
    ) -> GetResult:
        """The result of `get` for `entries` of `queue` from `queue_offset` on."""
        log_min, segment_size = self._log.min_offset, self._log.segment_size_bytes
        found: list[tuple[int, int]] = []
        phy = begin = end = -1  # `begin` and `end` of the last run of adjacent records
        bytes_found = count = 0
        removed, in_order = False, True
        next_offset, wrong = queue_offset, None
        doubtful = queue.is_doubtful(queue_offset, queue_offset + max_count)
        listed: list[Listed] = []
        for phy, size, tags_code in entries:
            if size == FILLER_SIZE or phy < log_min:
                removed = True
            elif size <= 0:
                wrong = phy, size
                break
            elif tag_filter is None or tag_filter(tags_code):
                if bytes_found + size > max_bytes and count:
                    break
                bytes_found += size
                if phy != end or phy % segment_size == 0:
                    if count:
                        found.append((begin, end - begin))
                    if phy < end:
                        in_order = False  # the queue's file is damaged: every range must be checked
                    begin = phy
                end = phy + size
                count += 1
                if doubtful:
                    listed.append((next_offset, phy, size))
            next_offset += 1
            if count == max_count:
                break
        bounds = self._queues.first_of(queue), queue.max_queue_offset
        if count:
            found.append((begin, end - begin))
        if wrong := wrong or self.outside(found, in_order=in_order):
            damage = QueueDamaged(queue.topic, queue.queue_id, *wrong)
            return GetResult(GetStatus.FOUND, next_offset, *bounds, cold=True, damage=damage)
        if not count:
            nothing = GetStatus.MESSAGE_WAS_REMOVING if removed else GetStatus.NO_MATCHED_MESSAGE
            return GetResult(nothing, next_offset, *bounds, looked_at=phy)
        buffers = self._buffers(found, bytes_found) if in_order else self._buffers_apart(found)
        cold = buffers is None
        result = GetResult(
            GetStatus.FOUND, next_offset, *bounds, count, bytes_found, found, buffers or [], cold
        )
        if listed:
            self._compare(result, queue, listed)
        return result

    def _compare(self, result: GetResult, queue: ConsumeQueue, listed: list[Listed]) -> None:
        """Check once that entries of earlier processes lead to records of this queue. An entry is corrupt if no record of its
        size is where it leads, because the bytes there were checked. A record that names another queue belongs to it if that
        queue lists the record, if that queue's entry leads to a record of a third queue (files of one entry were exchanged),
        or if two records name the same queue. One record alone proves nothing, because it may be corrupt. The result becomes
        cold if it needs such a proof, because the proof may be on the disk."""

        async def why_not(buffers: list[memoryview]) -> QueueDamaged | None:
            strangers = _strangers(queue, listed, buffers)
            for number, ((_, phy, size), place, key) in enumerate(strangers):
                named = key in [other[2] for other in strangers[:number]]
                if key is None or named or await self._is_elsewhere(key, place, phy):
                    return QueueDamaged(queue.topic, queue.queue_id, phy, size)
            self._compared(queue, listed)
            return None

        if not result.cold and not _strangers(queue, listed, result.buffers):
            self._compared(queue, listed)
            return
        if not result.cold:
            result.cold, result.buffers = True, []
        result.why_not = why_not

    @staticmethod
    def _compared(queue: ConsumeQueue, listed: list[Listed]) -> None:
        if listed[-1][0] - listed[0][0] == len(listed) - 1:
            queue.compared(listed[0][0], listed[-1][0] + 1)

    async def _is_elsewhere(self, key: Key, queue_offset: int, phy: int) -> bool:
        """Whether that queue's entry leads to this record, or to one of another queue. Raises OSError."""
        queue = self._queues.by_key.get(key)
        if queue is None or not queue.min_queue_offset <= queue_offset < queue.max_queue_offset:
            return False
        await queue.bring(queue_offset, 1)
        if not queue.min_queue_offset <= queue_offset < queue.max_queue_offset:
            return False
        entry = queue.entry(queue_offset)
        if entry[0] == phy:
            return True
        if is_filler(entry) or entry[0] < self._log.min_offset or self.outside([entry[:2]], in_order=True):
            return False
        head = record.queue_head(await self._bytes(*entry[:2]), 0, entry[1], entry[0])
        return not isinstance(head, int) and head[1:3] != key

    def outside(self, found: list[tuple[int, int]], *, in_order: bool) -> tuple[int, int] | None:
        """The first of the ranges that leaves its segment or the log."""
        segment_size, log_end = self._log.segment_size_bytes, self._log.max_offset
        if in_order and found:  # all ranges lie between the first and the last
            start, (last, last_size) = found[0][0], found[-1]
            if (
                start % segment_size + last - start + last_size <= segment_size
                and last + last_size <= log_end
            ):
                return None
        for phy, size in found:
            if phy % segment_size + size > segment_size or phy + size > log_end:
                return phy, size
        return None

    def _buffers(self, found: list[tuple[int, int]], size_bytes: int) -> list[memoryview] | None:
        """The bytes of the ranges, in order, if they are in memory and checked; else None. Usually the bytes between the
        ranges are checked too, so they are tried first. Old bytes are copied, because retention would have to wait until slow
        readers have released views. Copying blocks the event loop, so bytes beyond the limit of one turn are read in a thread
        (None)."""
        start, (last, last_size) = found[0][0], found[-1]
        end, checked = last + last_size, self._integrity.is_checked
        if not checked(start, end - start) and not all(checked(phy, size) for phy, size in found):
            return None
        if not self._log.in_memory(found):
            return None
        if start >= self._log.cold_end:
            return self._log.views(found)
        if not self._copying.takes(size_bytes):
            return None
        return [memoryview(b"".join(self._log.views(found)))]

    def _buffers_apart(self, found: list[tuple[int, int]]) -> list[memoryview] | None:
        """The result of `_buffers` for ranges that are not in order."""
        buffers: list[memoryview] = []
        for each in found:
            part = self._buffers([each], each[1])
            if part is None:
                return None
            buffers += part
        return buffers

    def entries(self, topic: str, queue_id: int, queue_offset: int, count_max: int) -> list[QueueEntry]:
        """At most `count_max` entries from `queue_offset` on, if the queue has that offset. Fillers (`is_filler`) among them
        lead to no message."""
        queue = self._queues.find(topic, queue_id)
        if queue is None or queue_offset < self._queues.first_of(queue):
            return []
        return [QueueEntry(*entry) for entry in queue.entries(queue_offset, count_max)]

    async def load(self, result: GetResult) -> None:
        """Fill the buffers of a cold result with checked bytes. Raises RecordDamaged or QueueDamaged, OffsetOutOfRange if
        retention or a cut has deleted some of the bytes since, or OSError if the disk fails."""
        if result.damage is not None:
            raise result.damage
        if result.cold:
            for phy, size in result.ranges:
                await self._integrity.check(phy, size)
            buffers = [memoryview(content) for content in await self._log.read_cold_each(result.ranges)]
            for (phy, size), content in zip(result.ranges, buffers, strict=True):
                # a cut moves the log's end before it erases
                if len(content) != size or phy + size > self._log.max_offset:
                    raise OffsetOutOfRange(phy, self._log.min_offset, self._log.max_offset)
            if result.why_not is not None and (damage := await result.why_not(buffers)) is not None:
                raise damage
            result.buffers, result.cold = buffers, False

    def holds(self, physical_offset: int) -> bool:
        return self._log.min_offset <= physical_offset < self._log.max_offset

    async def record_at(self, physical_offset: int, limit: int) -> memoryview | None:
        """The whole record that starts exactly at this offset and ends at or below `limit`. None if there is no such record,
        or it was deleted. Raises RecordDamaged."""
        if not self._log.min_offset <= physical_offset <= limit - record.RECORD_SIZE_MIN:
            return None
        try:
            return await self._record_at(physical_offset, limit)
        except OffsetOutOfRange:  # deleted meanwhile
            return None

    async def _record_at(self, physical_offset: int, limit: int) -> memoryview | None:
        await self._integrity.check(physical_offset, record.RECORD_SIZE_MIN)
        head = await self._bytes(physical_offset, record.PREFIX.size)
        size = record.declared_end(head, 0, physical_offset) - physical_offset
        if size <= 0 or physical_offset + size > limit:
            return None
        content = await self._bytes(physical_offset, size)
        whole = record.check(content, 0, len(content), physical_offset, verify_body=False) == size
        return content if whole else None

    async def _bytes(self, offset: int, size: int) -> memoryview:
        if self._log.is_cold(offset):
            return memoryview(await self._log.read_cold(offset, size))
        return self._log.read(offset, size)

    async def store_time_at(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """The store timestamp of one message, ms; -1 if the queue does not hold the message."""
        queue = self._queues.find(topic, queue_id)
        if queue is None or not self._queues.first_of(queue) <= queue_offset < queue.max_queue_offset:
            return -1
        if not queue.is_at_hand(queue_offset, 1):
            await queue.bring(queue_offset, 1)
            if not queue.min_queue_offset <= queue_offset < queue.max_queue_offset:
                return -1
        entry = queue.entry(queue_offset)
        return -1 if is_filler(entry) else await self._store_time(entry)

    async def _store_time(self, entry: tuple[int, int, int]) -> int:
        """The store time of an entry's record, or of the record after a filler; -1 if the log no longer has the record."""
        phy = listed_start(entry)
        # the read below runs without yielding in between
        if (
            phy < self._log.min_offset
            or entry[1] <= 0
            or self.outside([(phy, record.RECORD_SIZE_MIN)], in_order=True)
        ):
            return -1
        return record.store_timestamp(await self._bytes(phy, min(entry[1], record.FIXED_PARTS[3].size)), 0)

    async def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """The queue offset of the first message stored at or after `timestamp_ms`; the end of the queue if all messages are
        older, or 0 for an unknown queue."""
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return 0
        low, high = 0, queue.max_queue_offset
        # both ends may move while the disk is read
        while (low := max(low, self._queues.first_of(queue))) < (high := min(high, queue.max_queue_offset)):
            middle = (low + high) // 2
            if not queue.is_at_hand(middle, 1):
                await queue.bring(middle, 1)
                if not queue.min_queue_offset <= middle < queue.max_queue_offset:
                    continue
            if await self._store_time(queue.entry(middle)) < timestamp_ms:
                low = middle + 1
            else:
                high = middle
        return low
