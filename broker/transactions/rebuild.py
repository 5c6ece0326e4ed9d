"""Finds the open halves (messages of transactions that have not ended) in the log, before a new master ends a transaction.

Invariant: a half is open unless the log shows that it is done: by an op record that names the half, by the half's commit, or by
a copy of the half that was put back. The log is read up to its end at the change of role, once that end is confirmed, in slices
between which other tasks run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple, Protocol

from broker.transactions.donequeue import DoneQueue
from broker.transactions.openhalves import OpenHalves
from broker.transactions.records import DONE_BYTES_MAX, QUEUE_ID, HalfFacts, done_offsets, facts_of
from messagestore.errors import StoreCorrupted
from messagestore.log.commits import CommitsFound
from messagestore.messages import QueueEntry
from messagestore.queues.consumequeue import is_filler
from messagestore.record import Message, decode
from messagestore.systemtopics import HALF_TOPIC, OP_HALF_TOPIC

ENTRIES_MAX = 256
RECORDS_A_TURN = 64
OP_DELAY_MS = 10_000
"""Upstream writes the op record of a half seconds after its commit, and never if the broker dies in between. So the search for
commits without an op record begins at the last op record that is older than the newest one by this time."""


class RebuildLog(Protocol):
    """The part of the message store that a rebuild reads."""

    def begin_of(self, record_offset: int) -> int: ...

    def entries(self, topic: str, queue_id: int, queue_offset: int, count_max: int) -> list[QueueEntry]: ...

    async def message_at(self, physical_offset: int, size: int = 0) -> memoryview | None: ...

    async def commits_from(self, position: int, limit: int) -> CommitsFound: ...


class RebuildSpan(NamedTuple):
    """The range to read: the queue offsets of halves and of op records, and the end of the log."""

    half_from: int
    half_end: int
    done_from: int
    done_end: int
    log_end: int


class Rebuild:
    """One rebuild, started at `now_ms`. `due_ms` returns the time from which on the producer of a half may be checked.
    `goes_on` returns False to stop the rebuild. `late` has the done halves without an op record; the caller writes one."""

    def __init__(
        self,
        log: RebuildLog,
        span: RebuildSpan,
        done: DoneQueue,
        *,
        due_ms: Callable[[Message, HalfFacts], int],
        now_ms: int,
        goes_on: Callable[[], bool],
    ) -> None:
        self.open = OpenHalves()
        self.late: list[int] = []
        self._log = log
        self._span = span
        self._done = done
        self._due_ms = due_ms
        self._now_ms = now_ms
        self._goes_on = goes_on
        self._done_marks = bytearray(max(span.half_end - span.half_from, 0))
        """For each half: 1 if an op record names the half."""
        self._op_records: list[tuple[int, int]] = []
        """(store time, position) of the newest op record and of an earlier one."""
        self._committed: set[int] = set()
        self._old: dict[tuple[str, str], list[tuple[int, int]]] = {}
        """(group, unique key) -> (queue offset, root) of the open halves that upstream may have put back."""
        self._read = 0

    async def run(self) -> bool:
        """Read the whole range. Returns False if `goes_on` stopped it. Raises StoreError, OSError."""
        return (
            await self._read_op_records()
            and await self._read_commits()
            and await self._read_halves()
            and await self._read_put_back()
        )

    async def _turn(self) -> bool:
        """Let other tasks run at intervals. Returns whether to continue."""
        self._read += 1
        if self._read % RECORDS_A_TURN == 0:
            await asyncio.sleep(0)
        return self._goes_on()

    async def _read_op_records(self) -> bool:
        span = self._span
        at = span.done_from
        while at < span.done_end:
            entries = self._log.entries(OP_HALF_TOPIC, QUEUE_ID, at, min(ENTRIES_MAX, span.done_end - at))
            if not entries:
                break
            for entry in entries:
                record = await self._record(entry)
                if not await self._turn():
                    return False
                if record is not None:
                    self._note_op_record(at, record)
                at += 1
        return True

    def _note_op_record(self, queue_offset: int, record: Message) -> None:
        first = self._span.half_from
        halves = done_offsets(record.body)
        self._done.recorded(queue_offset, halves or [self._span.half_end - 1])
        for half in halves:
            if 0 <= half - first < len(self._done_marks):
                self._done_marks[half - first] = 1
        stored_ms = record.store_timestamp
        if len(record.body) >= DONE_BYTES_MAX:
            # a half whose commit precedes this full record may be in the next record, which may be missing
            return
        self._op_records.append((stored_ms, record.physical_offset))
        while len(self._op_records) > 1 and self._op_records[1][0] <= stored_ms - OP_DELAY_MS:
            del self._op_records[0]

    async def _read_commits(self) -> bool:
        """Find commits without an op record. They follow the last op record, or precede it by a short time. Returns False if
        the rebuild was stopped."""
        entry = self._first_not_done()
        if entry is None:
            return True
        stored_ms = self._op_records[-1][0] if self._op_records else 0
        old = [place for time_ms, place in self._op_records if time_ms <= stored_ms - OP_DELAY_MS]
        position = self._log.begin_of(max(entry.physical_offset, *old, 0))
        while position < self._span.log_end:
            found = await self._log.commits_from(position, self._span.log_end)
            if found.end is None or (found.end <= position and not found.halves):
                raise StoreCorrupted(position, self._span.log_end, "no complete valid record here")
            self._committed.update(found.halves)
            position = found.end
            await asyncio.sleep(0)
            if not self._goes_on():
                return False
        return True

    def _first_not_done(self) -> QueueEntry | None:
        """The first half in the store that no op record names; None if there is none."""
        at = self._done_marks.find(0)
        while at >= 0:
            for entry in self._log.entries(HALF_TOPIC, QUEUE_ID, self._span.half_from + at, 1):
                if not is_filler(entry):
                    return entry
            at = self._done_marks.find(0, at + 1)
        return None

    async def _read_halves(self) -> bool:
        at = self._done_marks.find(0)
        while at >= 0:
            queue_offset = self._span.half_from + at
            for entry in self._log.entries(HALF_TOPIC, QUEUE_ID, queue_offset, 1):
                half = await self._record(entry)
                if half is not None:
                    self._note_half(queue_offset, half)
            if not await self._turn():
                return False
            at = self._done_marks.find(0, at + 1)
        return True

    def _note_half(self, queue_offset: int, half: Message) -> None:
        facts = facts_of(half.properties)
        root = queue_offset if facts.root is None else facts.root
        if (former := self.open.find(root)) is not None:
            self.late.append(former.queue_offset)
        if half.physical_offset in self._committed:
            self.open.close(root)
            self.late.append(queue_offset)
        else:
            due_ms = self._due_ms(half, facts)
            self.open.put(root, queue_offset, half.physical_offset, due_ms, facts.group)
            if due_ms <= self._now_ms:
                self._old.setdefault((facts.group, facts.key), []).append((queue_offset, root))

    async def _read_put_back(self) -> bool:
        """Close halves of which upstream has stored a copy for a check. Upstream's copy names no root, and the replaced half
        has no op record. So a copy replaces the first open half with the same group and unique key. Returns False if the
        rebuild was stopped."""
        at = min((halves[0][0] for halves in self._old.values()), default=self._span.half_end) + 1
        while at < self._span.half_end:
            entries = self._log.entries(HALF_TOPIC, QUEUE_ID, at, min(ENTRIES_MAX, self._span.half_end - at))
            if not entries:
                break
            for entry in entries:
                half = await self._record(entry)
                if not await self._turn():
                    return False
                if half is not None:
                    self._note_put_back(at, half)
                at += 1
        return True

    def _note_put_back(self, queue_offset: int, half: Message) -> None:
        facts = facts_of(half.properties)
        if facts.root is not None or not facts.check_times:
            return
        halves = self._old.get((facts.group, facts.key))
        if halves and halves[0][0] < queue_offset:
            before, root = halves.pop(0)
            self.open.close(root)
            self.late.append(before)

    async def _record(self, entry: QueueEntry) -> Message | None:
        if is_filler(entry):
            return None
        content = await self._log.message_at(entry.physical_offset, entry.size)
        return None if content is None else decode(content, verify_body=False)
