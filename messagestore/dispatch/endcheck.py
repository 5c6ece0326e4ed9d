"""The check at a start whether consume queues list every record of the log. Missing entries are rebuilt from the log.

Invariant: after `run` each queue lists every record of the log that ends at or below the offset that `run` returned, or the
start is refused. A queue's expected end is the end in the file of queue ends (messagestore.queues.ends), plus the number of the
queue's later records in the log. The queue's own files are used if they agree with the expected end. Memory is bounded by the
number of queues, and other tasks run between two slices of a walk."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any
from zlib import crc32

from messagestore import record
from messagestore.dispatch.dispatcher import NEVER, Dispatcher
from messagestore.errors import QueueUnmendable, StoreCorrupted
from messagestore.log.files import LogFiles
from messagestore.queues.consumequeue import ConsumeQueue, is_filler, listed_start, place_of
from messagestore.queues.ends import MARK_BYTES, Key, OffsetSpan, QueueEnds
from messagestore.queues.table import QueueTable
from mqruntime.log import fields

logger = logging.getLogger(__name__)

READ_BYTES = 4 << 20
SLICE_RECORDS = 512
PROGRESS_BYTES = 256 << 20
SCANNED_BYTES_MAX = 32 << 20
SCANNED_QUEUES_MAX = 2_000
"""At each start, the entries of this many queues are scanned. Entries of other queues are compared when they are read."""
COLD_RECORDS_MAX = 256
"""At each start, this many records are read from the disk for queues of a single entry: each may cost a seek."""
QUEUES_IN_A_SLICE = 256
RECORD_BYTES_MAX = 16 << 20
"""Longer records are not read to learn their queue: a corrupt entry may have any size."""


async def mark_of(log: LogFiles, position: int) -> int:
    """The mark of QueueEnds. Raises OSError."""
    start = max(log.min_offset, log.segment_start(position - 1), position - MARK_BYTES)
    return crc32(await log.read_file(start, position))


def named(key: Key) -> str:
    """A queue's name in logs and errors."""
    return f"{key[0].decode('utf-8', 'replace')}/{key[1]}"


class QueueCheck:
    """`remembered` is None if there is no file of queue ends. `dispatcher` knows the log's record framing. With `mends`, the
    check adds missing entries. Without `mends`, as in Raft mode, dispatch adds them once the store runs. That dispatch compares
    records with their checksums, and waits for a repair if a record is corrupt. This check compares no checksum, so a record
    with a corrupt topic could make it add entries for a topic that does not exist."""

    def __init__(
        self,
        log: LogFiles,
        queues: QueueTable,
        dispatcher: Dispatcher,
        remembered: QueueEnds | None,
        *,
        mends: bool = True,
    ) -> None:
        self._log = log
        self._queues = queues
        self._dispatcher = dispatcher
        self._remembered = remembered
        self._mends = mends
        self._spans: dict[Key, OffsetSpan] = {}
        self._firsts: dict[Key, int] = {}  # the walk's position at each queue's first record
        self._foreign: set[Key] = set()  # queues whose files are other queues'
        self._cold_left = COLD_RECORDS_MAX

    async def run(self, listed_end: int, loaded_limit: int, *, believes: bool) -> int:
        """Ensure that every record that ends at or below `listed_end` is listed. The queues were loaded up to `loaded_limit`.
        Without remembered ends all of the log is walked, unless the caller `believes` the queues' files, as for a store of
        upstream. Returns the offset up to which records are listed: `listed_end`, or less if this check does not mend. Raises
        QueueUnmendable or OSError."""
        known = self._remembered if await self._is_of_this_log() else None
        spans: dict[Key, OffsetSpan] = {}
        walk_from = listed_end if believes else self._log.min_offset
        if known is not None and known.position <= loaded_limit:
            spans, walk_from = dict(known.spans), known.position
        counted = Counted(self._queues, spans)
        walk = self._dispatcher.alone(counted)
        counted.walked_to = lambda: walk.position
        await self._walk(walk, walk_from, listed_end, mends=False)
        self._spans, self._firsts = counted.spans(), counted.firsts
        doubtful = dict.fromkeys(self._queues.broken)
        for number, (key, span) in enumerate(self._spans.items()):
            if self._is_short(key, span):
                doubtful[key] = None
            if number % QUEUES_IN_A_SLICE == 0:
                await asyncio.sleep(0)
        doubtful |= dict.fromkeys(await self._corrupt_queues())
        whole_to = listed_end
        if doubtful and self._mends:
            await self._mend(list(doubtful), listed_end)
        elif doubtful:
            whole_to = await self._cut_back(list(doubtful), listed_end)
        self._queues.broken.clear()
        if known is not None:
            await self._keep(known, listed_end)
        return whole_to

    async def _keep(self, known: QueueEnds, listed_end: int) -> None:
        """Keep the ends of queues without messages, so that no offset is assigned twice. A queue with messages that are not
        dispatched yet needs none, because its entries will show its end."""
        later = Counted(self._queues, {})
        if await self._walk(self._dispatcher.alone(later), listed_end, known.position, mends=False):
            self._queues.keep_ends(known, but=later.spans().keys())

    async def _is_of_this_log(self) -> bool:
        ends, log = self._remembered, self._log
        if ends is None or ends.position <= log.min_offset:
            return False
        try:
            return await mark_of(log, ends.position) == ends.mark
        except (OSError, IndexError):  # the log ends before the position
            return False

    def _is_short(self, key: Key, span: OffsetSpan) -> bool:
        queue = self._queues.by_key.get(key)
        if queue is None:
            return span.begin < span.end and self._queues.can_have(*key)
        if queue.max_queue_offset < span.end:
            return True
        return queue.lost_beginning(span.begin, self._log.min_offset)

    async def _corrupt_queues(self) -> list[Key]:
        """Queues whose files do not hold consecutive entries of the queue, as far as they are scanned."""
        found, scanned = [], 0
        for key, queue in list(self._queues.by_key.items())[:SCANNED_QUEUES_MAX]:
            if scanned > SCANNED_BYTES_MAX:
                break
            scanned += queue.stored_bytes
            if await queue.intact_end() < queue.max_queue_offset:
                found.append(key)
            elif not await self._ends_at_home(key, queue):
                self._foreign.add(key)
                found.append(key)
        return found

    async def _ends_at_home(self, key: Key, queue: ConsumeQueue) -> bool:
        """False if the file is another queue's: the records of its last two entries name the same other queue, or the record
        of its only entry does and that queue's entry confirms it. One record alone proves nothing, because it may be corrupt.
        True if the records are not in memory and may not be read; readers compare them later."""
        ends = range(max(queue.min_queue_offset, queue.max_queue_offset - 2), queue.max_queue_offset)
        if len(ends) == 1:
            return not await self._is_only_entry_foreign(key, queue.entry(ends[0]))
        owners = [self._owner(queue.entry(place)) for place in ends]
        return len(owners) < 2 or owners[0] != owners[1] or owners[0] in (None, key)

    async def _is_only_entry_foreign(self, key: Key, entry: tuple[int, int, int]) -> bool:
        """Whether the record names another queue that has this very entry too (the file is a copy), or has an entry of a
        third queue in its place (files were exchanged). If the record itself is corrupt, that queue has its own record."""
        found = await self._named_by(entry)
        if found is None or found[0] == key:
            return False
        owner, place = found
        other = self._queues.by_key.get(owner)
        if other is None or not other.min_queue_offset <= place < other.max_queue_offset:
            return False
        there = other.entry(place)
        if there[0] == entry[0]:
            return True
        found = await self._named_by(there)
        return found is not None and found[0] != owner

    async def _named_by(self, entry: tuple[int, int, int]) -> tuple[Key, int] | None:
        """The queue and the queue offset that the entry's record names, read from the disk too while that is allowed."""
        phy, size, _ = entry
        if not self._may_lead(phy, size):
            return None
        if not self._log.in_memory([(phy, size)]):
            if not self._cold_left:
                return None
            self._cold_left -= 1
        return await self._names(phy, size)

    async def _names(self, phy: int, size: int) -> tuple[Key, int] | None:
        """The queue and the queue offset that the record there names: the topic follows the body, so all of it is read."""
        if size > RECORD_BYTES_MAX:
            return None
        try:
            content = await self._log.read_file(phy, phy + size)
        except (OSError, IndexError):
            return None
        found = record.queue_head(content, 0, size, phy)
        return None if isinstance(found, int) else ((found[1], found[2]), found[3])

    def _owner(self, entry: tuple[int, int, int]) -> Key | None:
        """The queue that the entry's record names; None if the record is not in memory, or no record is there."""
        phy, size, _ = entry
        if not self._may_lead(phy, size) or not self._log.in_memory([(phy, size)]):
            return None
        found = record.queue_head(self._log.read(phy, size), 0, size, phy)
        return None if isinstance(found, int) else (found[1], found[2])

    def _may_lead(self, phy: int, size: int) -> bool:
        """Whether a record of the log can be there."""
        log = self._log
        return (
            size >= record.RECORD_SIZE_MIN
            and log.min_offset <= phy <= log.max_offset - size
            and phy % log.segment_size_bytes + size <= log.segment_size_bytes
        )

    async def _cut_back(self, keys: list[Key], listed_end: int) -> int:
        """Cut unreliable entries of these queues, and return the offset up to which all queues list every record."""
        logger.warning(
            "consume queues list less than the log holds, or other records: they are rebuilt from the log",
            extra=fields(
                queues=len(keys), first=named(keys[0]), log_begins=self._log.min_offset, up_to=listed_end
            ),
        )
        whole_to = listed_end
        for key in keys:
            whole_to = min(whole_to, await self._kept(key))
        return max(whole_to, self._log.min_offset)

    async def _mend(self, keys: list[Key], listed_end: int) -> None:
        start, first = await self._cut_back(keys, listed_end), named(keys[0])
        chosen = ChosenQueues(self._queues, keys)
        try:
            await self._walk(self._dispatcher.alone(chosen), start, listed_end, mends=True)
        except StoreCorrupted as damage:
            raise QueueUnmendable(first, len(keys), str(damage)) from damage
        self._queues.drop_empty(keys)
        logger.warning("consume queues are rebuilt", extra=fields(queues=len(keys), first=first))

    async def _kept(self, key: Key) -> int:
        """Cut unreliable entries of the queue, and return the offset up to which it lists every record."""
        queue = self._queues.by_key.get(key)
        if queue is None:
            return 0 if self._mends else self._firsts.get(key, 0)
        span = self._spans.get(key, OffsetSpan(0, 0))
        is_useless = key in self._queues.broken or key in self._foreign
        if is_useless or queue.lost_beginning(span.begin, self._log.min_offset):
            await self._queues.discard(key)
            return 0
        await queue.cut_places(await self._reliable_end(queue))
        if await self._is_its_own(key, queue):
            return queue.phy_end
        await self._queues.discard(key)
        return 0

    async def _reliable_end(self, queue: ConsumeQueue) -> int:
        """The place of the entry before the first corrupt entry. The queue is cut at this place, so this entry is removed too:
        the corruption may begin in its tags code, which can have any value."""
        return await queue.intact_end() - 1

    async def _is_its_own(self, key: Key, queue: ConsumeQueue) -> bool:
        """Whether the queue's last entry, if any is left, leads to a record of the log that names this queue."""
        if queue.min_queue_offset >= queue.max_queue_offset:
            return True
        place = queue.max_queue_offset - 1
        entry = queue.entry(place)
        phy, log = listed_start(entry), self._log
        segment_end = log.segment_start(phy) + log.segment_size_bytes
        if is_filler(entry) or phy < log.min_offset or phy + entry[1] > segment_end:
            return False
        found = await self._names(phy, entry[1])
        return found is not None and found[0] == key

    async def _walk(self, dispatcher: Dispatcher, start: int, end: int, *, mends: bool) -> bool:
        """Give `dispatcher` the records from `start` to `end`. Unless the walk `mends`, damaged parts are skipped up to the
        next segment. Returns whether there were no damaged parts. Raises StoreCorrupted or OSError."""
        log, wanted, logged, whole = self._log, READ_BYTES, start, True
        dispatcher.position = start
        while dispatcher.position < end:
            position = dispatcher.position
            segment_end = log.segment_start(position) + log.segment_size_bytes
            try:
                content = await log.read_file(position, min(position + wanted, segment_end))
            except IndexError:  # the log's files end below the confirm offset, which its recovery reports
                return False
            try:
                more = dispatcher.run(content, position, segment_end, end, SLICE_RECORDS)
                while more and log.segment_start(dispatcher.position) + log.segment_size_bytes == segment_end:
                    await asyncio.sleep(0)
                    more = dispatcher.run(content, position, segment_end, end, SLICE_RECORDS)
            except StoreCorrupted:
                if mends:
                    raise
                dispatcher.position, whole = segment_end, False
            if dispatcher.position != position:
                wanted = READ_BYTES
            elif position + wanted < segment_end:
                wanted *= 2  # a longer record
            else:
                dispatcher.position = segment_end
            if mends and dispatcher.position - logged >= PROGRESS_BYTES:
                logged = dispatcher.position
                logger.info("consume queues are being rebuilt", extra=fields(at=logged, up_to=end))
            await asyncio.sleep(0)
        return whole


class Counting:
    """Replaces a consume queue: entries are counted, but not made."""

    max_queue_offset = NEVER
    phy_end = 0

    def __init__(self, span: OffsetSpan | None) -> None:
        self.begin, self.end = span or (-1, 0)

    def append(self, queue_offset: int, phy: int, size: int, tags_code: int) -> bool:
        place = place_of(queue_offset, self.end)
        if place is not None:
            self.end = place + 1
            if self.begin < 0:
                self.begin = place
        return False


class Counted(QueueTable):
    """The expected offsets of each queue: the known spans, extended by the dispatched records."""

    def __init__(self, queues: QueueTable, spans: dict[Key, OffsetSpan]) -> None:
        super().__init__(queues.directory, queues.file_size)
        self._known = spans
        self._counting: dict[Key, Counting] = {}
        self.firsts: dict[Key, int] = {}
        self.walked_to: Callable[[], int] = lambda: 0

    def get(self, topic: bytes, queue_id: int) -> Any:
        counting = self._counting.get((topic, queue_id))
        if counting is None:
            counting = Counting(self._known.get((topic, queue_id)))
            self.firsts[topic, queue_id] = self.walked_to()
            self._counting[topic, queue_id] = counting
        return counting

    def spans(self) -> dict[Key, OffsetSpan]:
        return self._known | {key: OffsetSpan(each.begin, each.end) for key, each in self._counting.items()}


class ChosenQueues(QueueTable):
    """A table of queues in which only the chosen queues get entries."""

    def __init__(self, queues: QueueTable, keys: list[Key]) -> None:
        super().__init__(queues.directory, queues.file_size)
        self._of = queues
        self._keys = frozenset(keys)
        self._other = Other()

    def get(self, topic: bytes, queue_id: int) -> Any:
        if (topic, queue_id) in self._keys:
            return self._of.get(topic, queue_id)
        return self._other


class Other:
    """Replaces a queue that has all its entries."""

    max_queue_offset = NEVER
    phy_end = 0

    def append(self, queue_offset: int, phy: int, size: int, tags_code: int) -> bool:
        return False
