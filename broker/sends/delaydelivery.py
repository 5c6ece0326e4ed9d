"""Delivery of delayed messages: puts due messages of the schedule topic into their real queues. Upstream:
ScheduleMessageService.

Invariant: only a master delivers, and it delivers only confirmed messages. A level's offset moves only after the replicas hold
the delivered record. So each message is delivered at least once, by this master or a later one. One task with one timer serves
all levels: within a level messages become due in queue order, so the first message of each level determines the next wake-up.

Due times are wall-clock times of the master that stored the message. This master waits by its monotonic clock, and no longer
than the level's delay after it first saw the message in the queue, however much the clocks of the two masters differ."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from broker.metrics.totals import Totals
from broker.replication.writegate import ReplicationView, RoleView
from broker.sends.scheduling import delivered
from broker.tables.copiedoffsets import CopiedOffsets
from broker.tables.delayoffsets import DelayOffsets
from messagestore.errors import QueueDamaged, RecordDamaged
from messagestore.messages import NEVER_STORED, MessageToStore, PutResult, QueueEntry, QueueGrew
from messagestore.queues.consumequeue import is_filler, listed_start
from messagestore.record import Message, RecordError, decode
from messagestore.systemtopics import SCHEDULE_TOPIC
from mqruntime.clock import Clock
from mqruntime.log import fields
from mqruntime.repeatedfailures import RepeatedFailures
from mqruntime.waking import wait_event

logger = logging.getLogger("broker.delaydelivery")

BATCH_MAX, BATCH_BYTES = 32, 1 << 20
"""Messages that are delivered with one append: at most so many, and no more once they have so many bytes."""
IN_FLIGHT_MAX = 1_024
RETRY_MS = 1_000
PASSED_OVER_TOLD_MAX = 100
SIGHTINGS_PER_DELAY = 100
"""The time at which a message was first seen is accurate to a hundredth of its level's delay."""


class DeliveryLog(Protocol):
    """The part of the message store that delivery uses."""

    def entries(self, topic: str, queue_id: int, queue_offset: int, count_max: int) -> list[QueueEntry]: ...

    def min_queue_offset(self, topic: str, queue_id: int) -> int: ...

    def max_queue_offset(self, topic: str, queue_id: int) -> int: ...

    def next_queue_offset(self, topic: str, queue_id: int) -> int: ...

    def confirm_offset(self) -> int: ...

    def max_offset(self) -> int: ...

    async def message_at(self, physical_offset: int, size: int = 0) -> memoryview | None: ...

    def append(self, messages: Sequence[MessageToStore]) -> list[PutResult]: ...


@dataclass(slots=True)
class Delivery:
    """A delivered message whose record not all replicas hold yet. `end_offset` is 0 for a message that cannot be delivered."""

    end_offset: int
    level: int
    next_offset: int


class Sightings:
    """The times at which the messages of one level were first seen in its queue. It keeps at most about SIGHTINGS_PER_DELAY
    marks for each delay."""

    def __init__(self, delay_ms: int) -> None:
        self._apart_ms = delay_ms // SIGHTINGS_PER_DELAY
        # (queue offset below which all messages were seen, monotonic ms)
        self._marks: deque[tuple[int, int]] = deque()
        self._opened_ms = 0  # when the last mark was made; messages that join the mark move its time

    def seen(self, end: int, now_ms: int) -> None:
        """Record that all messages below queue offset `end` are in the queue. The messages of the last mark then count as seen
        now, so a wait may become longer but never shorter."""
        if self._marks and end <= self._marks[-1][0]:
            return
        if self._marks and now_ms - self._opened_ms < self._apart_ms:
            self._marks[-1] = end, now_ms
        else:
            self._marks.append((end, now_ms))
            self._opened_ms = now_ms

    def when(self, queue_offset: int) -> int:
        """The time at which the message at `queue_offset` was first seen. Drops the marks of earlier messages."""
        while self._marks[0][0] <= queue_offset:
            self._marks.popleft()
        return self._marks[0][1]


class DelayDelivery:
    """The delivery of one broker. `levels_ms` has the delay of each level, level 1 first. `followed` is the argument of
    CopiedOffsets, in a pair only."""

    def __init__(
        self,
        *,
        store: DeliveryLog,
        role: RoleView,
        replication: ReplicationView,
        offsets: DelayOffsets,
        clock: Clock,
        levels_ms: list[int],
        totals: Totals | None = None,
        followed: Callable[[], int] | None = None,
    ) -> None:
        self._totals = totals
        self._store = store
        self._role = role
        self._replication = replication
        self._offsets = offsets
        self._clock = clock
        self._levels_ms = levels_ms
        self._cursors: dict[int, int] = {}  # level -> next offset to deliver; ahead of the table
        self._heads: dict[int, tuple[int, int]] = {}  # level -> (queue offset, when it is due, monotonic ms)
        self._sightings: dict[int, Sightings] = {}
        self._in_flight: deque[Delivery] = deque()
        self._copied = None if followed is None else CopiedOffsets(offsets, followed)
        self._term = 0
        self._wake = asyncio.Event()
        self._damages = RepeatedFailures()
        self._passing = RepeatedFailures()
        self._passed_over = 0

    def role_taken(self, *, leads: bool) -> None:
        """Restart at the table's offsets, because deliveries of an earlier mastership may be incomplete. If a new master is
        missing confirmed messages, its offsets may be ahead of the queues; they are set back, so that no later message is
        skipped (upstream: ScheduleMessageService.correctDelayOffset). In a pair, or if the table was read from this disk,
        offsets ahead of the queues show that the table may belong to another log. Then all messages in the queues are delivered
        again."""
        if leads:
            self._correct_offsets()
            self._offsets.rests_on = self._store.max_offset()
        self._term += 1
        self._cursors.clear()
        self._heads.clear()
        self._sightings.clear()
        self._in_flight.clear()
        if self._copied is not None:
            self._copied.role_taken(self._store.max_offset() if leads else None)
        self._wake.set()

    def _correct_offsets(self) -> None:
        levels, is_ahead = range(1, len(self._levels_ms) + 1), False
        believed, self._offsets.from_file = self._copied is None and not self._offsets.from_file, False
        for level in levels:
            end, offset = (
                self._store.next_queue_offset(SCHEDULE_TOPIC, level - 1),
                self._offsets.next_offset(level),
            )
            if offset > end:
                logger.warning(
                    "delay offset beyond the queue", extra=fields(level=level, offset=offset, queue_end=end)
                )
                self._offsets.advance(level, end)
                is_ahead = True
        if not is_ahead or believed:
            return
        logger.warning(
            "delay offsets are not of this log: all messages in the queues of the levels are delivered again"
        )
        for level in levels:
            self._offsets.advance(level, self._store.min_queue_offset(SCHEDULE_TOPIC, level - 1))

    def soon(self) -> None:
        """Wake up: delivery may be possible again."""
        self._wake.set()

    def arrived(self, grown: list[QueueGrew]) -> None:
        """Wake up if a level's queue grew."""
        if any(queue.topic == SCHEDULE_TOPIC for queue in grown):
            self._wake.set()

    def acknowledged(self) -> None:
        """Advance offsets, because the replicas hold more of the log."""
        if self._in_flight:
            self._count_delivered()
        if self._copied is not None:
            self._copied.acknowledged()

    def _count_delivered(self) -> None:
        full = len(self._in_flight) >= IN_FLIGHT_MAX
        end = min(self._replication.acked_end(), self._store.confirm_offset())
        while self._in_flight and self._in_flight[0].end_offset <= end:
            delivery = self._in_flight.popleft()
            self._offsets.advance(delivery.level, delivery.next_offset)
            self._offsets.rests_on = max(self._offsets.rests_on, delivery.end_offset)
            if self._copied is not None:
                self._copied.moved(delivery.end_offset)
        if full and len(self._in_flight) < IN_FLIGHT_MAX:
            self._wake.set()

    def first_undelivered(self) -> int | None:
        """The log position of the oldest message that is not known to be delivered, in any role; None if there is none."""
        heads = (
            self._store.entries(
                SCHEDULE_TOPIC, level - 1, self._from(level, self._offsets.next_offset(level)), 1
            )
            for level in range(1, len(self._levels_ms) + 1)
        )
        return min((listed_start(head[0]) for head in heads if head), default=None)

    def _from(self, level: int, queue_offset: int) -> int:
        return max(queue_offset, self._store.min_queue_offset(SCHEDULE_TOPIC, level - 1))

    async def run(self) -> None:
        while True:
            self._wake.clear()
            wait_ms = await self.deliver_due()
            if wait_ms == 0:
                await asyncio.sleep(0)  # other tasks run between two batches
                continue
            await wait_event(self._wake, wait_ms)

    async def deliver_due(self) -> int | None:
        """Deliver due messages. Returns the ms until the next message is due, None if no message waits."""
        waits = []
        for level in range(1, len(self._levels_ms) + 1):
            if not self._role.accepts_sends or len(self._in_flight) >= IN_FLIGHT_MAX:
                return None  # a new role, or an acknowledgement, wakes this task
            wait_ms = await self._deliver_level(level)
            if wait_ms is not None:
                waits.append(wait_ms)
        return min(waits, default=None)

    async def _deliver_level(self, level: int) -> int | None:
        store, queue_id, term = self._store, level - 1, self._term
        cursor = self._from(level, self._cursors.get(level, self._offsets.next_offset(level)))
        sightings = self._sightings.setdefault(level, Sightings(self._levels_ms[level - 1]))
        sightings.seen(store.max_queue_offset(SCHEDULE_TOPIC, queue_id), self._clock.monotonic_ms())
        due: list[QueueEntry] = []
        wait_ms: int | None = None
        for entry in store.entries(SCHEDULE_TOPIC, queue_id, cursor, BATCH_MAX):
            wait_ms = self._wait_ms(level, cursor + len(due), entry.tags_code)
            if wait_ms > 0:
                break
            due.append(entry)
        if not due:
            return wait_ms
        if not self._replication.enough_in_sync():
            return RETRY_MS
        found: list[MessageToStore | None] = []
        retry_ms, size = RETRY_MS, 0
        try:
            for queue_offset, entry in enumerate(due, cursor):
                waiting = await self._record_of(entry, queue_id)
                if waiting is not None and self._is_early(level, queue_offset, entry, waiting):
                    retry_ms = 0
                    break
                found.append(None if waiting is None else delivered(waiting))
                size += entry.size
                if size >= BATCH_BYTES:
                    break
        except (RecordDamaged, QueueDamaged) as damage:
            if self._damages.failed(damage.offset, self._clock.monotonic_ms()):
                logger.error("delayed messages wait", extra=fields(level=level, why=damage))
        if self._term != term or not self._role.accepts_sends:
            return None
        return self._put(level, cursor, due, found) if found else retry_ms

    def _wait_ms(self, level: int, queue_offset: int, due_ms: int) -> int:
        now_ms, head = self._clock.monotonic_ms(), self._heads.get(level)
        if head is None or head[0] != queue_offset:
            head = self._heads[level] = (queue_offset, self._at_ms(level, queue_offset, due_ms))
        return max(head[1] - now_ms, 0)

    def _at_ms(self, level: int, queue_offset: int, due_ms: int) -> int:
        """Converts `due_ms` from the wall clock to the monotonic clock. The result is no later than the level allows, even if
        the wall clock jumps."""
        latest_ms = self._sightings[level].when(queue_offset) + self._levels_ms[level - 1]
        return min(self._clock.monotonic_ms() + max(due_ms - self._clock.now_ms(), 0), latest_ms)

    def _is_early(self, level: int, queue_offset: int, entry: QueueEntry, waiting: Message) -> bool:
        """Whether the record has a later due time than its queue entry, and the message has to wait for that. The time in the
        entry is corrupt then."""
        due_ms = waiting.store_timestamp + self._levels_ms[level - 1]
        if due_ms <= entry.tags_code:
            return False
        at_ms = self._at_ms(level, queue_offset, due_ms)
        self._heads[level] = queue_offset, at_ms
        return at_ms > self._clock.monotonic_ms()

    async def _record_of(self, entry: QueueEntry, queue_id: int) -> Message | None:
        """The record of `entry`; None if no record is found. Raises RecordDamaged, and QueueDamaged if the record belongs to
        another queue."""
        if is_filler(entry):
            return None
        content = await self._store.message_at(entry.physical_offset, entry.size)
        try:
            waiting = None if content is None else decode(content, verify_body=False)
        except RecordError:
            return None
        if waiting is None:
            return None
        if (waiting.topic, waiting.queue_id) != (SCHEDULE_TOPIC, queue_id) and self._lists(waiting, entry):
            raise QueueDamaged(SCHEDULE_TOPIC, queue_id, entry.physical_offset, entry.size)
        return waiting

    def _lists(self, message: Message, entry: QueueEntry) -> bool:
        """Whether the queue that the message names has an entry for it. If not, the queue fields of the message are corrupt."""
        listed = self._store.entries(message.topic, message.queue_id, message.queue_offset, 1)
        return bool(listed) and listed[0].physical_offset == entry.physical_offset

    def _put(self, level: int, cursor: int, due: list[QueueEntry], found: list[MessageToStore | None]) -> int:
        """Append the messages `found` for the entries `due`, which begin at queue offset `cursor`. Returns the ms until the
        next look at the level."""
        messages = [message for message in found if message is not None]
        results = self._store.append(messages)
        if self._totals is not None and messages:
            stored = [each for each in results if each.error is None]
            count, size = sum(each.count for each in stored), sum(each.record_bytes for each in stored)
            self._totals.sends_stored(messages, results, count, size)
        outcomes = iter(results)
        for entry, message in zip(due, found, strict=False):
            end_offset = 0
            if message is None:
                if not is_filler(entry):
                    self._note_passed_over(level, cursor, entry, "no delayed message found", None)
            else:
                appended = next(outcomes)
                if appended.error is None:
                    end_offset = appended.end_offset
                elif appended.error in NEVER_STORED:
                    self._note_passed_over(level, cursor, entry, appended.error.name, message.topic)
                else:
                    # disk full, or no longer master: records stored after this one are delivered once more
                    return RETRY_MS
            cursor += 1
            self._cursors[level] = cursor
            self._in_flight.append(Delivery(end_offset, level, cursor))
        self.acknowledged()
        return 0

    def _note_passed_over(
        self, level: int, queue_offset: int, entry: QueueEntry, why: str, topic: str | None
    ) -> None:
        """Log each skipped message. If a level has many, log only some of them, with the number of all."""
        self._passed_over += 1
        if self._passed_over > PASSED_OVER_TOLD_MAX and not self._passing.failed(
            level, self._clock.monotonic_ms()
        ):
            return
        logger.error(
            "delayed message can never be delivered and is skipped; kept until retention deletes it, "
            "read it and send it again",
            extra=fields(
                topic=SCHEDULE_TOPIC, queue=level - 1, queue_offset=queue_offset, offset=entry.physical_offset, why=why,
                passed_over=self._passed_over, **({} if topic is None else {"meant_for": topic}),
            ),
        )  # fmt: skip
