"""What a new master reads of its log before it ends a transaction: which halves are open.

Invariant: a half is open unless the log says that it is done with: by a record of the queue that tells so, by a commit of it,
or by a half of the same transaction that was put back. The log is read up to where it ended when the role was taken, once all
of that is confirmed, in slices that let others run."""

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
TOLD_LATE_MS = 10_000
"""Upstream tells that a half is done with seconds after its commit, and does not when it dies meanwhile: commits without it are
looked for from the last record on that is so much older than the newest one."""


class Log(Protocol):
    """The part of the message store that is read."""

    def begin_of(self, record_offset: int) -> int: ...

    def entries(self, topic: str, queue_id: int, queue_offset: int, count_max: int) -> list[QueueEntry]: ...

    async def message_at(self, physical_offset: int, size: int = 0) -> memoryview | None: ...

    async def commits_from(self, position: int, limit: int) -> CommitsFound: ...


class Span(NamedTuple):
    """What is to be read: queue offsets of halves and of records that tell what is done, and where the log ended."""

    half_from: int
    half_end: int
    done_from: int
    done_end: int
    log_end: int


class Rebuild:
    """One reading, begun at `now_ms`. `due_ms` tells from a half and its facts when its producer may be asked; `goes_on`
    whether anybody still wants to know. `late` are halves that turned out to be done with, and are to be told."""

    def __init__(
        self,
        log: Log,
        span: Span,
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
        self._told = bytearray(max(span.half_end - span.half_from, 0))  # by half: 1 where it is told done
        self._tellers: list[
            tuple[int, int]
        ] = []  # (store time, place) of records that tell; the newest, and one before it
        self._committed: set[int] = set()
        self._old: dict[tuple[str, str], list[tuple[int, int]]] = {}
        """(group, key) -> (queue offset, root) of the open halves that may have been put back."""
        self._read = 0

    async def run(self) -> bool:
        """Whether it came to its end. StoreError, OSError."""
        return (
            await self._read_told()
            and await self._read_commits()
            and await self._read_halves()
            and await self._read_put_back()
        )

    async def _turn(self) -> bool:
        """Lets others run now and then."""
        self._read += 1
        if self._read % RECORDS_A_TURN == 0:
            await asyncio.sleep(0)
        return self._goes_on()

    async def _read_told(self) -> bool:
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
                    self._note_told(at, record)
                at += 1
        return True

    def _note_told(self, queue_offset: int, record: Message) -> None:
        first = self._span.half_from
        halves = done_offsets(record.body)
        self._done.recorded(queue_offset, halves or [self._span.half_end - 1])
        for half in halves:
            if 0 <= half - first < len(self._told):
                self._told[half - first] = 1
        told_ms = record.store_timestamp
        if len(record.body) >= DONE_BYTES_MAX:
            return  # what stands behind it may not have been stored, though it tells of commits before it
        self._tellers.append((told_ms, record.physical_offset))
        while len(self._tellers) > 1 and self._tellers[1][0] <= told_ms - TOLD_LATE_MS:
            del self._tellers[0]

    async def _read_commits(self) -> bool:
        """The commits that no record tells of stand behind the last one that tells, or shortly before it."""
        entry = self._first_untold()
        if entry is None:
            return True
        told_ms = self._tellers[-1][0] if self._tellers else 0
        old = [place for time_ms, place in self._tellers if time_ms <= told_ms - TOLD_LATE_MS]
        position = self._log.begin_of(max(entry.physical_offset, *old, 0))
        while position < self._span.log_end:
            found = await self._log.commits_from(position, self._span.log_end)
            if found.end is None or (found.end <= position and not found.halves):
                raise StoreCorrupted(position, self._span.log_end, "no whole valid record stands here")
            self._committed.update(found.halves)
            position = found.end
            await asyncio.sleep(0)
            if not self._goes_on():
                return False
        return True

    def _first_untold(self) -> QueueEntry | None:
        """Of the halves that are there."""
        at = self._told.find(0)
        while at >= 0:
            for entry in self._log.entries(HALF_TOPIC, QUEUE_ID, self._span.half_from + at, 1):
                if not is_filler(entry):
                    return entry
            at = self._told.find(0, at + 1)
        return None

    async def _read_halves(self) -> bool:
        at = self._told.find(0)
        while at >= 0:
            queue_offset = self._span.half_from + at
            for entry in self._log.entries(HALF_TOPIC, QUEUE_ID, queue_offset, 1):
                half = await self._record(entry)
                if half is not None:
                    self._note_half(queue_offset, half)
            if not await self._turn():
                return False
            at = self._told.find(0, at + 1)
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
        """What upstream puts back does not say whose it is, nor is the half before it told done: of those of one group and key
        it stands for the first."""
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
