"""Reads one queue of a member's share ahead of the application, and commits what the application has finished. Upstream:
PullMessageService, RebalancePushImpl, OffsetStore.

Invariant: an offset is committed only if all messages below it are finished. A queue that is read in order is read only while
its lock is held."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from mqclient.consumer import CALL_TIMEOUT_MS, NEVER_SERVED, RETRY_MS, PullConsumer, PullStatus
from mqclient.errors import PullFailed
from mqclient.queuelocks import QueueLocks
from mqclient.queueprogress import QueueProgress
from mqclient.route import MessageQueue
from mqclient.selectors import RETRY_PREFIX, Selector
from mqruntime.clock import Clock
from mqruntime.log import fields
from remoting.codes import ResponseCode

logger = logging.getLogger("mqclient")

SUSPEND_MS = 15_000
"""Brokers hold a pull that finds nothing for so long, as those of Java's consumers."""
LASTING = NEVER_SERVED | {ResponseCode.NO_PERMISSION}
"""Codes that the application has to know: a retry gets the same answer."""
REFUSED_MS = 1_000
"""Time between two pulls that were refused for a lasting reason, or found no lock."""


@dataclass(frozen=True, slots=True)
class StartPosition:
    """Where a group begins to read a queue for which it has committed nothing: `where` is "first", "last" or a time. Raises
    ValueError."""

    where: str | datetime = "last"

    def __post_init__(self) -> None:
        if self.where not in ("first", "last") and not isinstance(self.where, datetime):
            raise ValueError(f'start is "first", "last" or a datetime, not {self.where!r}')

    @property
    def consume_from_where(self) -> str:
        """As heartbeats say it."""
        if isinstance(self.where, datetime):
            return "CONSUME_FROM_TIMESTAMP"
        return f"CONSUME_FROM_{self.where.upper()}_OFFSET"


class PullerOwner(Protocol):
    """What a puller needs of its consumer."""

    def arrived(self, puller: QueuePuller) -> None:
        """Messages wait to be taken."""
        ...

    async def room(self, puller: QueuePuller) -> None:
        """Returns as soon as the puller may take in more messages."""
        ...

    def trouble(self, puller: QueuePuller, error: PullFailed, *, is_lasting: bool) -> None:
        """A pull failed. It is repeated."""
        ...

    def recovered(self, puller: QueuePuller) -> None:
        """A pull succeeded after others had failed."""
        ...

    def failed(self, task: asyncio.Task[None]) -> None:
        """A task of the puller has ended, perhaps by an error that is a defect of this client."""
        ...


class QueuePuller:
    """The puller of `queue`, from `begin` to `end`."""

    def __init__(
        self,
        queue: MessageQueue,
        selector: Selector,
        start: StartPosition,
        owner: PullerOwner,
        *,
        consumer: PullConsumer,
        locks: QueueLocks | None,
        clock: Clock,
        commits: bool,
    ) -> None:
        """`locks` are those of a group that reads in order. Without `commits`, positions are not stored."""
        self.queue = queue
        self.progress: QueueProgress | None = None
        """None until the first offset is known."""
        self.suspended_until_ms = 0
        """A queue that is read in order waits so long after a message was handed back."""
        self.in_hands = 0
        """The number of messages in the application's hands, also of those that it took before the group was moved."""
        self.last_pull_ms = self.last_taken_ms = 0
        self._selector = selector
        self._start = start
        self._owner = owner
        self._consumer = consumer
        self._locks = locks
        self._clock = clock
        self._commits = commits
        self._committed: int | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_ended = False
        self._tenure = 0
        """That of the lock under which `progress` was begun."""

    @property
    def is_ordered(self) -> bool:
        return self._locks is not None

    @property
    def is_locked(self) -> bool:
        """Whether the queue is read in order, and locked for this member."""
        return self._locks is not None and self._locks.holds(self.queue)

    @property
    def _is_current(self) -> bool:
        """Whether nobody else can have read the queue since `progress` was begun."""
        return self._locks is None or (self.is_locked and self._locks.tenure(self.queue) == self._tenure)

    @property
    def may_be_taken(self) -> bool:
        """Whether a message may be taken now."""
        progress = self.progress
        if progress is None or not progress.waits:
            return False
        if not self.is_ordered:
            return True
        free = not self.in_hands and self._clock.monotonic_ms() >= self.suspended_until_ms
        return free and self._is_current

    def begin(self) -> None:
        self._is_ended = False
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"read {self.queue}")
            self._task.add_done_callback(self._owner.failed)

    async def end(self) -> None:
        """Stop reading. Messages in hand are still finished here."""
        self._is_ended = True
        await self._interrupt()

    async def move(self, offset: int) -> None:
        """Read from `offset` on, and commit it: an administrator moved the group. A puller that ends meanwhile stays ended."""
        self.progress, self._committed = QueueProgress(offset), None
        await self._interrupt()
        await self.commit()
        if not self._is_ended:
            self.begin()

    async def _interrupt(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def commit(self) -> None:
        """Commit what is finished, if that is news to the broker. A failure is logged; the next commit includes it. In order,
        nothing is committed once another member may have read on."""
        progress = self.progress
        if not self._commits or progress is None or progress.committed == self._committed:
            return
        if not self._is_current:
            return
        offset = progress.committed
        try:
            await self._consumer.commit(self.queue, offset)
        except PullFailed as error:
            logger.warning("commit failed", extra=fields(queue=self.queue, offset=offset, why=error))
        else:
            self._committed = offset

    async def _run(self) -> None:
        failing = False
        while True:
            if not self._is_current:
                self.progress = None  # another member may have read on, so the committed offset counts
            if self.is_ordered and not self.is_locked:
                await asyncio.sleep(RETRY_MS / 1000)  # the consumer renews the locks
                continue
            if self._locks is not None:
                self._tenure = self._locks.tenure(self.queue)
            try:
                if self.progress is None:
                    self.progress = QueueProgress(await self._first_offset())
                    await self.commit()  # else a member that dies now begins at a later end
                await self._owner.room(self)
                if self.progress is not None:
                    await self._pull(self.progress)
            except PullFailed as error:
                failing, is_lasting = True, error.code in LASTING
                self._owner.trouble(self, error, is_lasting=is_lasting)
                await asyncio.sleep((REFUSED_MS if is_lasting else RETRY_MS) / 1000)
            else:
                if failing:
                    self._owner.recovered(self)
                failing = False

    async def _pull(self, progress: QueueProgress) -> None:
        asked_ms = self.last_pull_ms = self._clock.monotonic_ms()
        tags = self._selector.expression if not self._selector.is_sql else "*"
        committed = progress.committed if self._commits and progress.committed != self._committed else 0
        result = await self._consumer.pull(
            self.queue,
            progress.next_offset,
            tags=tags,
            sql=self._selector.expression if self._selector.is_sql else None,
            suspend_ms=SUSPEND_MS,
            commit=committed,
        )
        if result.status is PullStatus.OFFSET_ILLEGAL and progress.next_offset >= result.min_offset:
            await self._move_to(result.next_offset, progress)
            return
        if result.status is PullStatus.OFFSET_ILLEGAL:
            where = fields(queue=self.queue, offset=progress.next_offset, moved_to=result.next_offset)
            logger.warning(
                "messages were deleted unread", extra=where
            )  # those that wait here are still given
        progress.add(result.messages, result.next_offset)
        if result.messages:
            self._owner.arrived(self)
        elif self._clock.monotonic_ms() - asked_ms < RETRY_MS and result.status is PullStatus.NO_NEW_MESSAGE:
            await asyncio.sleep(RETRY_MS / 1000)  # this broker does not suspend pulls

    async def _move_to(self, offset: int, progress: QueueProgress) -> None:
        """The group was moved, or the broker does not have that much."""
        logger.warning(
            "offset moved", extra=fields(queue=self.queue, offset=progress.next_offset, moved_to=offset)
        )
        if offset == progress.next_offset:
            await asyncio.sleep(RETRY_MS / 1000)
            return
        self.progress, self._committed = QueueProgress(offset), None
        await self.commit()

    async def _first_offset(self) -> int:
        """Where to begin: at the committed offset, else as `StartPosition` says; retries are all read. Raises PullFailed."""
        is_retry = self.queue.topic.startswith(RETRY_PREFIX)
        where = "first" if is_retry else self._start.where
        if self._commits:
            # upstream's brokers return 0 for a new group, while the queue's first message is still in memory
            committed = await self._consumer.committed(self.queue, zero_if_none=where == "last")
            if committed is not None:
                self._committed = committed or None  # 0 may be the broker's choice, which it has not stored
                return committed
        if where == "first":
            return await self._consumer.min_offset(self.queue)
        if isinstance(where, datetime):
            return await self._consumer.offset_at(self.queue, round(where.timestamp() * 1000))
        return await self._consumer.max_offset(self.queue)

    async def commit_in_time(self) -> None:
        """Commit for the last time, before another member reads the queue."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CALL_TIMEOUT_MS / 1000):
                await self.commit()
