"""Repair of the index: damaged files are found and deleted, and records that no file lists are indexed again from the log. In
files of other versions, the repair finds the first record from which on tags are indexed.

Invariant: a gap is a part of the log whose records no file lists. It is filled at most up to the log offset up to which records
were indexed when the gap was found. No record gets an entry twice. Before the store runs, only the file for new records and
some MiB of log are examined. Everything else is checked and rebuilt while the store runs, in slices of some milliseconds with
pauses between them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from messagestore import record
from messagestore.dispatch.dispatcher import Dispatcher
from messagestore.dispatch.endcheck import ChosenQueues
from messagestore.errors import LogReplaced, OffsetOutOfRange, RecordDamaged, StoreCorrupted
from messagestore.index.file import ENTRY, FIRST_ENTRY, I32_MAX, IndexFile
from messagestore.index.soundness import Chains, ends_fault, header_fault
from messagestore.index.table import ALL_TAGS, Doubt, Gap, IndexTable, TagsSince, log_damage
from messagestore.log.files import LogFiles
from messagestore.properties import dispatched_values
from messagestore.queues.table import QueueTable
from messagestore.record import TRANSACTION_MASK, TRANSACTION_ROLLBACK, QueueFacts
from mqruntime.diskfull import DISK_FULL
from mqruntime.log import fields

logger = logging.getLogger(__name__)

NEAR_BYTES = 4 << 20
"""At most this much log is scanned before the store runs."""
FIRST_READ_BYTES = 64 << 10
READ_BYTES = 1 << 20
SLICE_RECORDS = 256
SLICE_ENTRIES = 4_096
SLICE_SLOTS = 16_384
SAMPLES = 32
"""To find whether a file has tags, this many entries, and some at its beginning, are compared with their records."""
PAUSE_S = 0.01
RETRY_S = 10.0
UNREADABLE = OSError, IndexError, OffsetOutOfRange
Fault = Callable[[IndexFile], Awaitable[str | None]]


class GapWriter(IndexTable):
    """An index for the records of one gap, and for records around the gap that are listed only in part. It ignores earlier
    records."""

    def __init__(self, index: IndexTable, gap: Gap) -> None:
        self._index = index
        self._file = gap.before
        self._in_part = index.listed_in_part(gap)
        self.phy_end = 0 if gap.before is None else gap.before.end_phy
        if gap.before is not None and self.phy_end not in self._in_part:
            self.phy_end += 1
        self.splits = False
        """Set if one of the records that it took was listed in part."""
        self.records = 0

    def put(self, phy: int, facts: QueueFacts, tag: bytes, unique: bytes, keys: bytes) -> None:
        if phy < self.phy_end or facts.sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK:
            return
        hashes = self._index.hashes_of(facts.topic, tag, unique, keys)
        if (listed := self._in_part.get(phy)) is not None:
            if phy < self._index.tags_since.phy:  # the record may be listed without its tag
                hashes = self._index.hashes_of(facts.topic, b"", unique, keys)
            hashes = [value for value in hashes if value not in listed]
            self.splits |= bool(hashes)
        if hashes:
            self.take(phy, hashes, facts.store_timestamp)
            self.records += 1

    def take(self, phy: int, hashes: list[int], store_timestamp: int) -> None:
        self._file = self._index.put_into_gap(self._file, hashes, phy, store_timestamp)


class GapProbe(GapWriter):
    """Counts the records that GapWriter would index, and indexes none."""

    def take(self, phy: int, hashes: list[int], store_timestamp: int) -> None:
        pass


class TaggedSample(NamedTuple):
    """A record with a tag, and whether the index has an entry of it."""

    phy: int
    store_ms: int
    has_tag: bool


class FilesChanged(Exception):
    """Index files were cut or deleted while they were examined."""


class IndexMending:
    """`begin_of(phy)` is where the framing of the record at `phy` begins, and `record_at(phy)` is the confirmed record there.
    `on_progress()` is called after new entries. All entries of all files are checked once, at `bytes_per_second`. If that is
    0, only the entries of a file that a query finds damaged are checked."""

    def __init__(
        self,
        log: LogFiles,
        queues: QueueTable,
        dispatcher: Dispatcher,
        index: IndexTable,
        *,
        begin_of: Callable[[int], int],
        record_at: Callable[[int], Awaitable[memoryview | None]],
        on_progress: Callable[[], None],
        bytes_per_second: int,
    ) -> None:
        self.index = index
        self._bytes_per_second = bytes_per_second
        self.fills = False
        """Whether records of lost files are being indexed again."""
        self.own_tags = ALL_TAGS
        """From where on this process indexes the records, all with their tags."""
        self._log = log
        self._queues = queues
        self._dispatcher = dispatcher
        self._begin_of = begin_of
        self._record_at = record_at
        self._on_progress = on_progress

    # At a start

    async def joins(self, dispatched: int) -> int:
        """The log offset from which the caller gives records to the loaded index: `dispatched`, or some MiB before. `run` adds
        other missing records later. Raises OSError."""
        index = self.index
        while index.files and (why := await self._outline_fault(index.files[-1])) is not None:
            await self._drop(index.files[-1], why)
        gap = Gap(index.files[-1] if index.files else None, None)
        start = self._start_of(gap)
        probe = GapProbe(index, gap)
        end = min(dispatched, start + NEAR_BYTES)
        reached = await self._walk(start, end, probe, lambda: not probe.records, pause_s=0)
        if not probe.records and reached >= dispatched:
            index.resume()
            return dispatched
        if dispatched - start <= NEAR_BYTES and not probe.splits:
            index.resume()
            return start
        index.seal(dispatched)
        self.fills = True
        return dispatched

    # While the store runs

    async def run(self) -> None:
        """Run until cancelled. Raises OSError if the disk takes no index files although it has room."""
        # keep names, not files: a reference to a deleted file would keep the file's disk blocks
        names = [file.file.name for file in self.index.files]
        for name in reversed(names):
            await self._look_at(name, self._outline_fault)
        if self.index.asks_files:
            await self._ask_files()
        await self._fill()
        while True:
            if (doubt := self.index.take_doubt()) is not None:
                await self._look_again(doubt)
            elif not names or not self._bytes_per_second:
                await self.index.doubted.wait()
            elif await self._look_at(names.pop(), self._content_fault):
                await self._fill()

    async def _look_at(self, name: str, fault: Fault) -> bool:
        file = self.index.named(name)
        return file is not None and await self._look(file, fault)

    async def _look_again(self, doubt: Doubt) -> None:
        file, phy = doubt
        if phy is not None and await self._leads_nowhere(phy) and phy <= file.end_phy:
            await self._drop(file, f"an entry leads to {phy}, where the log has no record")
        elif not await self._look(file, self._content_fault):
            return
        await self._fill()

    async def _look(self, file: IndexFile, fault: Fault) -> bool:
        """Look for a fault, and delete the file if it has one. Returns whether the file was deleted."""
        while file in self.index.files:
            cuts = file.cuts
            try:
                why = await fault(file)
            except FilesChanged:
                continue
            except OSError as error:
                why = f"it cannot be read: {error}"
            if file.cuts != cuts:
                continue
            if why is None or file not in self.index.files:
                return False
            await self._drop(file, why)
            return True
        return False

    async def _drop(self, file: IndexFile, why: str) -> None:
        log_damage(file.file.name, why)
        self.fills = True
        await self.index.drop(file, lambda: self._dispatcher.position)

    # Faults of a file

    async def _outline_fault(self, file: IndexFile) -> str | None:
        """Compare the header, the first and the last entry with each other and with the entries' records. Returns the fault, if
        any. An unreadable record proves nothing. Raises OSError."""
        begin_ms, end_ms, last = file.begin_timestamp, file.end_timestamp, file.index_count - 1
        numbers = (FIRST_ENTRY, last)
        header = file.header()
        entries = [await self._entries(file, number, number + 1) for number in numbers]
        if (why := header_fault(header, file.entries_max) or ends_fault(header, *entries)) is not None:
            return why
        for number, entry in zip(numbers, entries, strict=True):
            value, phy, seconds, _ = ENTRY.unpack(entry)
            facts = await self._facts_at(phy)
            if facts is None:
                continue
            hashes = self.index.hashes_of(facts.topic, *dispatched_values(facts.properties))
            if value not in hashes:
                return f"its entry {number} leads to {phy}, and the record there has no such key"
            if number == last and value != hashes[-1] and phy >= self.index.tags_since.phy:
                # another version put this entry, and was killed before it saved a checkpoint
                self.index.tags_since, self.index.asks_files = self.own_tags, True
            stored_ms = facts.store_timestamp
            if seconds != min(max((stored_ms - begin_ms) // 1000, 0), I32_MAX):
                return f"its entry {number} says {seconds} s after {begin_ms}, and the record was stored at {stored_ms}"
            if (number == FIRST_ENTRY and stored_ms != begin_ms) or (number == last and stored_ms > end_ms):
                return f"its header says {begin_ms} to {end_ms}, and the record at {phy} was stored at {stored_ms}"
        return None

    async def _entries(self, file: IndexFile, first: int, end: int) -> bytes:
        if not self.index.holds(file):
            raise FilesChanged
        return await file.read_entries(first, end)

    async def _facts_at(self, phy: int) -> QueueFacts | None:
        log = self._log
        segment_end = log.segment_start(phy) + log.segment_size_bytes
        if phy < log.min_offset or phy + record.PREFIX.size > segment_end:
            return None
        try:
            head = await log.read_file(phy, phy + record.PREFIX.size)
            end = record.declared_end(head, 0, phy)
            if not phy < end <= segment_end:
                return None
            content = await log.read_file(phy, end)
        except LogReplaced:
            raise
        except UNREADABLE:
            return None
        facts = record.queue_facts(content, 0, len(content), phy)
        return None if isinstance(facts, int) else facts

    async def _content_fault(self, file: IndexFile) -> str | None:
        """The fault of the file, all of which is read; None if there is none. Raises OSError, FilesChanged."""
        if (why := await self._outline_fault(file)) is not None:
            return why
        limit, end_phy = file.index_count, file.end_phy
        chains = Chains(file.slots, file.begin_phy, limit)
        for first in range(FIRST_ENTRY, limit, SLICE_ENTRIES):
            content = await self._entries(file, first, min(first + SLICE_ENTRIES, limit))
            if (why := chains.entries_fault(content, end_phy)) is not None:
                return why
            await self._pause(content)
        for first in range(0, file.slots, SLICE_SLOTS):
            if not self.index.holds(file):
                raise FilesChanged
            content = await file.read_slots(first, min(first + SLICE_SLOTS, file.slots))
            if (why := await self._ahead_fault(file, chains.slots_ahead(content, first), limit)) is not None:
                return why
            await self._pause(content)
        return None

    async def _ahead_fault(
        self, file: IndexFile, ahead: list[tuple[int, int, int]], limit: int
    ) -> str | None:
        """The fault in the result of Chains.slots_ahead; None if there is none. All messages with a tag are in one chain, which
        may have grown long meanwhile. Raises FilesChanged."""
        left = SLICE_ENTRIES
        for slot, number, newest in ahead:
            at = number
            while at >= limit:
                at, left = file.back_from(at, limit, left)
                if not left:
                    await asyncio.sleep(0)
                    left = SLICE_ENTRIES
                    if not self.index.holds(file):
                        raise FilesChanged
            if at != newest:
                return f"slot {slot} points to entry {number}, and its newest one is {newest}"
        return None

    async def _pause(self, content: bytes) -> None:
        rate = self._bytes_per_second
        await asyncio.sleep(max(PAUSE_S, len(content) / rate) if rate else PAUSE_S)

    async def _leads_nowhere(self, phy: int) -> bool:
        try:
            return await self._record_at(phy) is None and self._log.min_offset <= phy
        except (RecordDamaged, OSError):
            return False

    # Tags

    async def _ask_files(self) -> None:
        """Find from which record on tags are indexed. Samples of the files are read, newest first, until one has no tag.
        Upstream writes tags since 5.4, and continues files of older versions."""
        while True:
            changes, since = self.index.changes, self.own_tags
            try:
                for name, number in self._samples():
                    sample = await self._sample(name, number)
                    if sample is not None and not sample.has_tag:
                        return self._tags_found(since)
                    if sample is not None and sample.phy < since.phy:
                        since = TagsSince(sample.phy, sample.store_ms)
                    await asyncio.sleep(PAUSE_S)
                if self.index.changes == changes:
                    return self._tags_found(since)
            except FilesChanged:
                pass
            except LogReplaced:
                raise
            except OSError as error:
                logger.warning("an index file cannot be asked for tags", extra=fields(why=error))
                return self._tags_found(since)
            await asyncio.sleep(PAUSE_S)

    def _tags_found(self, since: TagsSince) -> None:
        index = self.index
        if since.phy < index.tags_since.phy:  # no cut went below that meanwhile
            index.tags_since = since
        index.asks_files = False
        self._on_progress()
        if index.tags_since.phy > self._log.min_offset:
            logger.info(
                "index files of another version have no tags of records stored before",
                extra=fields(log_from=index.tags_since.phy, store_ms=index.tags_since.store_ms),
            )

    def _samples(self) -> list[tuple[str, int]]:
        """Names of files and numbers of entries in them, newest first."""
        found: list[tuple[str, int]] = []
        for file in reversed(self.index.files):
            span = file.index_count - FIRST_ENTRY - 1
            numbers = {span * each // (SAMPLES - 1) for each in range(SAMPLES)}
            numbers |= {span >> halved for halved in range(span.bit_length())}  # denser at the beginning
            found += [(file.file.name, FIRST_ENTRY + number) for number in sorted(numbers, reverse=True)]
        return found

    async def _sample(self, name: str, number: int) -> TaggedSample | None:
        """Return None if the record proves nothing: it has no tag, it cannot be read, or another file may hold its last
        entries. Raises OSError, FilesChanged."""
        file = self.index.named(name)
        if file is None or number >= file.index_count:
            raise FilesChanged
        phy = ENTRY.unpack(await self._entries(file, number, number + 1))[1]
        facts = await self._facts_at(phy)
        tag = b"" if facts is None else dispatched_values(facts.properties)[0]
        if facts is None or not tag or facts.sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK:
            return None
        hashes = self.index.hashes_of(facts.topic, *dispatched_values(facts.properties))
        wanted = self.index.tag_hash_of(facts.topic, tag)
        first, end = max(number - len(hashes), FIRST_ENTRY), min(number + len(hashes), file.index_count)
        entries = ENTRY.iter_unpack(await self._entries(file, first, end))
        has_tag = wanted in {value for value, at, _, _ in entries if at == phy}
        goes_on = phy == file.end_phy and self.index.files[-1] is not file
        if not has_tag and (goes_on or wanted not in hashes):
            return None
        return TaggedSample(phy, facts.store_timestamp, has_tag)

    # Records that no file lists

    async def _fill(self) -> None:
        """Fill gaps until no gap has unlisted records. Raises OSError."""
        while True:
            changes = self.index.changes
            try:
                # the last gap keeps the end at which it was found, because new records go into a new file meanwhile
                gaps, phy_end = self.index.gaps(), self.index.phy_end
                for gap in gaps:
                    end = phy_end if gap.behind is None else await self._end_of_first(gap.behind)
                    await self._fill_gap(gap, end, changes)
            except FilesChanged:
                await asyncio.sleep(PAUSE_S)
            except LogReplaced:
                raise
            except OffsetOutOfRange:  # deleted by retention
                await asyncio.sleep(RETRY_S)
            except OSError as error:
                if error.errno not in DISK_FULL:
                    raise
                logger.warning("the disk has no room for index files, retrying", extra=fields(why=error))
                await asyncio.sleep(RETRY_S)
            else:
                if self.index.changes == changes:
                    break
        self.index.filled()
        self.fills = False

    def _start_of(self, gap: Gap) -> int:
        """Where the record before the gap begins, or the log, if it holds no such record."""
        log_min = self._log.min_offset
        return log_min if gap.before is None else max(self._begin_of(gap.before.end_phy), log_min)

    async def _end_of_first(self, file: IndexFile) -> int:
        """The end of a file's first record, because the file may list this record only in part."""
        facts = await self._facts_at(file.begin_phy)
        return self._begin_of(file.begin_phy) if facts is None else file.begin_phy + facts.size

    async def _fill_gap(self, gap: Gap, end: int, changes: int) -> None:
        writer = GapWriter(self.index, gap)
        start, reported = self._start_of(gap), False

        def goes_on() -> bool:
            nonlocal reported
            if self.index.changes != changes:
                raise FilesChanged
            if writer.records:
                self._on_progress()
            if writer.records and not reported:
                self.fills = reported = True
                logger.warning(
                    "records are in no index file, they are indexed again from the log",
                    extra=fields(log_from=start, up_to=end),
                )
            return True

        await self._walk(start, end, writer, goes_on, pause_s=PAUSE_S)
        if writer.records:
            logger.warning("index is rebuilt", extra=fields(up_to=end, records=writer.records))

    async def _walk(
        self, start: int, end: int, writer: GapWriter, goes_on: Callable[[], bool], *, pause_s: float
    ) -> int:
        """Give `writer` the records from `start` to `end` while `goes_on()` is true. Returns the position reached. Unreadable
        or damaged parts are skipped up to the next segment. Raises OffsetOutOfRange, and OSError of the writer."""
        log, wanted = self._log, FIRST_READ_BYTES
        dispatcher = self._dispatcher.alone(ChosenQueues(self._queues, []), writer)
        dispatcher.position = start
        while dispatcher.position < end and goes_on():
            position = dispatcher.position
            segment_end = log.segment_start(position) + log.segment_size_bytes
            why: Exception | None = None
            try:
                content = await log.read_file(position, min(position + wanted, segment_end))
            except (OSError, IndexError) as error:
                content, why = b"", error
            more = why is None
            while more and goes_on() and dispatcher.position < segment_end:
                try:
                    more = dispatcher.run(content, position, segment_end, end, SLICE_RECORDS)
                except StoreCorrupted as damage:
                    more, why = False, damage
                await asyncio.sleep(pause_s)
            if why is None and dispatcher.position != position:
                wanted = READ_BYTES
            elif why is None and position + wanted < segment_end:
                wanted *= 2  # a longer record
            else:
                if why is not None:
                    logger.warning(
                        "the index misses what cannot be read in the log",
                        extra=fields(log_from=dispatcher.position, up_to=segment_end, why=why),
                    )
                dispatcher.position = segment_end
        return dispatcher.position
