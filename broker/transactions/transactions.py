"""The open transactions of a master. A half is the stored message of a transaction; an op record is a stored message that names
halves that are done. Upstream: TransactionalMessageServiceImpl.

Invariant: a transaction ends once, with the first outcome. A half that is not open has ended. An outcome survives a change of
master only once it is confirmed. Only then the progress offsets advance, and never beyond a half whose op record is not written
yet: a later master may have an older table, and then only the op record shows that the half is done. Slaves of a pair get these
offsets later (broker.tables.copiedoffsets). In the log an op record follows the commits of all halves that it or an earlier op
record names. While a half is open, an op record is written every MARK_BYTES, because a new master looks for commits from the
last op record on."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from broker.metrics.transactiontotals import TransactionTotals
from broker.replication.writegate import ReplicationView, RoleView
from broker.settings.transactions import TransactionSettings
from broker.tables.consumeroffsets import TRANSACTIONS_GROUP, ConsumerOffsets
from broker.tables.copiedoffsets import CopiedOffsets
from broker.transactions.donequeue import DoneQueue
from broker.transactions.openhalves import Half, OpenHalves
from broker.transactions.outcomes import Outcomes, TransactionOutcome
from broker.transactions.rebuild import Rebuild, RebuildLog, RebuildSpan
from broker.transactions.records import QUEUE_ID, HalfFacts, done_offsets, done_records, facts_of
from messagestore.errors import StoreError
from messagestore.messages import MessageToStore, PutResult, QueueGrew
from messagestore.queues.consumequeue import listed_start
from messagestore.record import Message
from messagestore.systemtopics import HALF_TOPIC, OP_HALF_TOPIC
from mqruntime.clock import Clock
from mqruntime.log import fields
from mqruntime.repeatedfailure import RepeatedFailure
from mqruntime.waking import wait_event

logger = logging.getLogger("broker.transactions")

RETRY_MS = 1_000
MARK_BYTES = 64 << 20
NOBODY = -1  # written instead of a half in an op record that names none
WAITING_MAX = 4_096
MOVED_A_TURN = 1_000


class TransactionLog(RebuildLog, Protocol):
    """The part of the message store that transactions read and write."""

    store_host: bytes

    def min_queue_offset(self, topic: str, queue_id: int) -> int: ...

    def max_queue_offset(self, topic: str, queue_id: int) -> int: ...

    def next_queue_offset(self, topic: str, queue_id: int) -> int: ...

    def confirm_offset(self) -> int: ...

    def max_offset(self) -> int: ...

    async def listed_at(self, physical_offset: int) -> memoryview | None: ...

    def append(self, messages: Sequence[MessageToStore]) -> list[PutResult]: ...


class HalfQueueReached(NamedTuple):
    """Progress of the half queue. It is valid once the log up to `log_end` is confirmed."""

    half_offset: int
    log_end: int


class Transactions:
    """The transactions of one broker; only a master has any. `begin` starts the tasks, including `run`, at the first
    transaction. `followed` is the argument of CopiedOffsets, in a pair only."""

    def __init__(
        self,
        *,
        store: TransactionLog,
        role: RoleView,
        replication: ReplicationView,
        followed: Callable[[], int] | None = None,
        offsets: ConsumerOffsets,
        clock: Clock,
        settings: TransactionSettings,
        totals: TransactionTotals,
        begin: Callable[[], None],
    ) -> None:
        self.term = 0
        """Increases with each role. Work that began before an await is dropped if the term has changed."""
        self.open: OpenHalves | None = None
        """None until the open halves were read."""
        self.outcomes = Outcomes()
        self.totals = totals
        self._store = store
        self._role = role
        self._replication = replication
        self._offsets = offsets
        self._copied = None if followed is None else CopiedOffsets(offsets, followed)
        self._clock = clock
        self._settings = settings
        self._fresh = OpenHalves()  # halves that were stored in this role before `open` was read
        self._span: RebuildSpan | None = None
        self._done = DoneQueue(settings.transaction_op_batch_interval)
        self._ops_end = 0  # end of the last op record
        self._stored_end = 0  # end of the last record stored here
        self._reached: HalfQueueReached | None = None
        self._waiting: deque[tuple[int | None, asyncio.Future[None]]] = deque()
        self._wake = asyncio.Event()
        self._failure = RepeatedFailure()
        self._begin: Callable[[], None] | None = begin

    # -- events

    def role_taken(self, *, leads: bool) -> None:
        self.term += 1
        self.open, self._fresh, self.outcomes = None, OpenHalves(), Outcomes()
        self._stored_end = 0
        self._done = DoneQueue(self._settings.transaction_op_batch_interval)
        self._reached = None
        self._span = self._span_to_read() if leads else None
        if leads:
            self._offsets.rests_on = self._store.max_offset() if self._has_kept() else 0
        if self._copied is not None:
            self._copied.role_taken(self._store.max_offset() if leads else None)
        self._release(None)
        if self._span is not None and self._span.half_from == self._span.half_end:
            self.open, self._ops_end = OpenHalves(), self._span.log_end
            self._reached = HalfQueueReached(self._span.half_end, self._span.log_end)
        elif self._span is not None:
            self._needed()
        self._wake.set()

    def half_stored(self, message: MessageToStore, appended: PutResult, due_ms: int | None = None) -> None:
        """Called when a half was appended. A half that was put back has `due_ms`, from which on its producer may be checked."""
        self._needed()
        self._stored_end = appended.end_offset
        facts = facts_of(message.properties)
        table = self._fresh if self.open is None else self.open
        root = appended.queue_offset if facts.root is None else facts.root
        if due_ms is None:
            due_ms = self._clock.monotonic_ms() + self._spared_ms(facts)
        table.put(root, appended.queue_offset, appended.physical_offset, due_ms, facts.group)

    def acknowledged(self) -> None:
        """Called when more of the log may be confirmed: advance progress, and wake waiting requests."""
        if self._span is None:
            return
        end = self.confirmed_end()
        if self._reached is not None and self._reached.log_end <= end:
            self._advance(self._reached)
            self._reached = None
        if self._copied is not None:
            self._copied.acknowledged()
        if self._waiting:
            self._release(end)
        if self.open is None or (len(self.open) and self._store.max_offset() - self._ops_end > MARK_BYTES):
            self._wake.set()

    def arrived(self, grown: list[QueueGrew]) -> None:
        """Continue a rebuild that waited for the queues to grow."""
        if self.open is None and any(queue.topic in (HALF_TOPIC, OP_HALF_TOPIC) for queue in grown):
            self._wake.set()

    # -- ends and checks

    @property
    def stored_end(self) -> int:
        """The end of the records stored here, or above it. In Raft mode this may be above the log's end for a moment."""
        return max(self._store.max_offset(), self._stored_end)

    def confirmed_end(self) -> int:
        return min(self._replication.acked_end(), self._store.confirm_offset())

    async def known(self, end: int, wait_ms: int) -> bool:
        """Wait until the open halves are known and the log up to `end` is confirmed. Returns False after `wait_ms`."""
        deadline_ms, term = self._clock.monotonic_ms() + wait_ms, self.term
        while self._span is not None and self.term == term:
            if self.open is not None and end <= self._store.confirm_offset():
                return True
            left_ms = deadline_ms - self._clock.monotonic_ms()
            if left_ms <= 0 or len(self._waiting) >= WAITING_MAX:
                return False
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((None if self.open is None else end, turn))
            await asyncio.wait({turn}, timeout=left_ms / 1000)
            turn.cancel()
        return False

    def ended(self, half: Half, outcome: TransactionOutcome | None, end: int = 0) -> None:
        """Close a half. The record of its end is stored up to `end`, or `write_ops` stores it next. Outcome None: abandoned."""
        assert self.open is not None
        self._stored_end = max(end, self._stored_end)
        if outcome is not None:
            self.outcomes.note(half.root, outcome)
        self.open.close(half.root)
        self.mark_done(half.queue_offset, at_once=outcome is not TransactionOutcome.COMMIT)

    def mark_done(self, queue_offset: int, *, at_once: bool = False) -> None:
        """Queue the op record of a half that is done. `at_once`: no other record in the log shows that it is done."""
        before = self._done.due_ms
        self._done.add(queue_offset, self._clock.monotonic_ms(), at_once=at_once)
        if self._done.due_ms != before:
            self._wake.set()

    def write_ops(self) -> int | None:
        """Write the pending op records now. Returns their end in the log; None if there were none or a write failed."""
        return self._write_ops(self._done.waiting)

    def note_progress(self) -> None:
        """Advance the progress offsets to the present state, once the log up to here is confirmed."""
        if self.open is None or self._reached is not None:
            return
        end = self._store.next_queue_offset(HALF_TOPIC, QUEUE_ID)
        first, waiting = self.open.first(), self._done.first_waiting()
        first_open = end if first is None else first.queue_offset
        self._reached = HalfQueueReached(
            first_open if waiting is None else min(waiting, first_open), self.stored_end
        )
        self.acknowledged()

    # -- status

    @property
    def open_count(self) -> int:
        """The number of known open halves."""
        return len(self._fresh) + (0 if self.open is None else len(self.open))

    def first_open(self) -> int | None:
        """The position in the log of the oldest half that is not known to have ended, in any role; None if there is none."""
        end = self._store.max_queue_offset(HALF_TOPIC, QUEUE_ID)
        entries = self._store.entries(HALF_TOPIC, QUEUE_ID, self._kept(HALF_TOPIC, end), 1)
        return listed_start(entries[0]) if entries else None

    # -- life

    async def run(self) -> None:
        while True:
            self._wake.clear()
            await wait_event(self._wake, await self._step())

    async def _step(self) -> int | None:
        """Do the next work. Returns the ms until more is due; None to wait for an event."""
        if self._span is None:
            return None
        if self.open is None:
            return await self._rebuild(self._span)
        now_ms, due_ms = self._clock.monotonic_ms(), self._done.due_ms
        if not self._role.accepts_sends:
            return RETRY_MS if due_ms is not None else None
        if due_ms is not None:
            if due_ms > now_ms:
                return due_ms - now_ms
            return None if self.write_ops() is not None else RETRY_MS
        if len(self.open) and self._store.max_offset() - self._ops_end > MARK_BYTES:
            self._write_ops([NOBODY])
        return None

    async def _rebuild(self, span: RebuildSpan) -> int | None:
        store, term = self._store, self.term
        if (
            store.confirm_offset() < span.log_end
            or store.max_queue_offset(HALF_TOPIC, QUEUE_ID) < span.half_end
            or store.max_queue_offset(OP_HALF_TOPIC, QUEUE_ID) < span.done_end
        ):
            return None  # `acknowledged` or `arrived` wakes this task
        begun_ms = self._clock.monotonic_ms()
        done = DoneQueue(self._settings.transaction_op_batch_interval)
        reading = Rebuild(
            store, span, done, due_ms=self._due_ms, now_ms=begun_ms, goes_on=lambda: self.term == term
        )
        try:
            if not await reading.run() or self.term != term:
                return 0
        except (StoreError, OSError) as error:
            if self._failure.failed(str(error), self._clock.monotonic_ms()):
                logger.error(
                    "open transactions cannot be read, none is ended meanwhile, retrying",
                    extra=fields(why=error),
                )
            return RETRY_MS
        self._failure.recovered(self._clock.monotonic_ms())
        while len(self._fresh) > MOVED_A_TURN:
            reading.open.take(self._fresh, MOVED_A_TURN)
            await asyncio.sleep(0)
            if self.term != term:
                return 0
        reading.open.take(self._fresh, MOVED_A_TURN)
        self.open, self._fresh, self._done = reading.open, OpenHalves(), done
        self._ops_end = span.log_end
        for half in reading.late:
            done.add(half, begun_ms)
        if span.half_end > span.half_from:
            took_ms = self._clock.monotonic_ms() - begun_ms
            about = fields(open=len(self.open), read=span.half_end - span.half_from, ms=took_ms)
            logger.info("open transactions read", extra=about)
        self._release(self.confirmed_end())
        self.note_progress()
        return 0

    # -- parts

    def _needed(self) -> None:
        if self._begin is not None:
            begin, self._begin = self._begin, None
            begin()

    def _span_to_read(self) -> RebuildSpan:
        store = self._store
        half_end = store.next_queue_offset(HALF_TOPIC, QUEUE_ID)
        done_end = store.next_queue_offset(OP_HALF_TOPIC, QUEUE_ID)
        half_from, done_from = self._kept(HALF_TOPIC, half_end + 1), self._kept(OP_HALF_TOPIC, done_end + 1)
        if half_from > half_end or done_from > done_end:  # the table of offsets is ahead of this log
            half_from = store.min_queue_offset(HALF_TOPIC, QUEUE_ID)
            done_from = store.min_queue_offset(OP_HALF_TOPIC, QUEUE_ID)
        return RebuildSpan(half_from, half_end, done_from, done_end, store.max_offset())

    def _kept(self, topic: str, end: int) -> int:
        """The stored progress, at most `end`, because the table of a new master with a shorter log may be ahead."""
        kept = self._offsets.find(TRANSACTIONS_GROUP, topic, QUEUE_ID) or 0
        return max(min(kept, end), self._store.min_queue_offset(topic, QUEUE_ID))

    def _write_ops(self, halves: list[int]) -> int | None:
        if not halves or not self._role.accepts_sends:
            return None
        for record in done_records(halves, self._store.store_host, self._clock.now_ms()):
            (stored,) = self._store.append([record])
            if stored.error is not None:
                return None  # written records are not written again: they would fill a full disk
            named = done_offsets(bytes(record.body))
            if halves != [NOBODY]:
                self._done.written(len(named))
            self._done.recorded(stored.queue_offset, self._mark() if halves == [NOBODY] else named)
            self._ops_end = self._stored_end = stored.end_offset
        self.note_progress()
        return self._ops_end

    def _mark(self) -> list[int]:
        """The newest half, for an op record without halves: a new master needs the record while a half up to this one is
        open."""
        return [self._store.next_queue_offset(HALF_TOPIC, QUEUE_ID) - 1]

    def _advance(self, reached: HalfQueueReached) -> None:
        end = self._store.next_queue_offset(OP_HALF_TOPIC, QUEUE_ID)
        needed_from = self._done.needed_from(reached.half_offset, end)
        rests_on = max(reached.log_end, self._ops_end)
        moved = [
            self._keep(HALF_TOPIC, reached.half_offset, rests_on),
            self._keep(OP_HALF_TOPIC, needed_from, rests_on),
        ]
        if self._copied is not None and any(moved):
            self._copied.moved(rests_on)

    def _keep(self, topic: str, offset: int, rests_on: int) -> bool:
        """Store the progress of a queue. Returns whether the progress changed."""
        if (self._offsets.find(TRANSACTIONS_GROUP, topic, QUEUE_ID) or 0) == offset:
            return False
        self._offsets.keep(topic, QUEUE_ID, offset)
        self._offsets.rests_on = max(self._offsets.rests_on, rests_on)
        return True

    def _has_kept(self) -> bool:
        topics = HALF_TOPIC, OP_HALF_TOPIC
        return any(self._offsets.find(TRANSACTIONS_GROUP, topic, QUEUE_ID) for topic in topics)

    def _release(self, end: int | None) -> None:
        """Wake the requests that wait for `end` or a lower offset; None: all."""
        kept: deque[tuple[int | None, asyncio.Future[None]]] = deque()
        for wanted, turn in self._waiting:
            if end is not None and wanted is not None and wanted > end and not turn.done():
                kept.append((wanted, turn))
            elif not turn.done():
                turn.set_result(None)
        self._waiting = kept

    def _spared_ms(self, facts: HalfFacts) -> int:
        if facts.root is not None:
            return 0
        return self._settings.transaction_time_out if facts.immune_ms is None else facts.immune_ms

    def _due_ms(self, half: Message, facts: HalfFacts) -> int:
        """The time from which on the producer may be checked: by the clock of the master that stored the half, but not later
        than for a half that is stored now."""
        spared_ms = self._spared_ms(facts)
        left_ms = half.store_timestamp + spared_ms - self._clock.now_ms()
        return self._clock.monotonic_ms() + min(left_ms, spared_ms)
