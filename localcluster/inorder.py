"""Ordered readers of one group during drills. Each queue is read by the holder of its lock, and readers exchange queues.

Invariant: a message counts as handled only if its reader holds the queue's lock both just before and just after handling it, as
far as the reader knows. So `handled` is what correct programs would have done, in order."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import suppress

from localcluster.order import Handled, OrderVerdict, judge_order
from localcluster.waiting import NotYet, WaitExpired, wait_for
from mqclient.client import Client
from mqclient.consumer import PullConsumer, PullStatus
from mqclient.errors import ClientError
from mqclient.queuelocks import RENEW_MS, QueueLocks
from mqclient.route import MessageQueue
from mqruntime.clock import Clock

GROUP = "drill-in-order"
READERS = 2
SWAP_MS = 4_000
TRY_MS = 100
SUSPEND_MS = 500


class InOrderReaders:
    """`READERS` readers of one topic. Each has its own client id, as if it were in its own process."""

    def __init__(self, client: Client, topic: str, clock: Clock) -> None:
        self.handled: list[Handled] = []
        self._topic = topic
        self._clock = clock
        self._tenures = itertools.count(1)
        self._readers = [
            Reader(self, number, client.consumer(GROUP), client.locks(GROUP, f"{GROUP}-{number}"))
            for number in range(READERS)
        ]
        self._counting = client.consumer(GROUP)
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Raises RouteUnknown."""
        queues = await self._counting.queues(self._topic)
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(reader.run(queues), name=f"drill reader in order {reader.number}")
            for reader in self._readers
        ]

    async def stop(self, timeout_ms: int) -> OrderVerdict:
        """Wait at most `timeout_ms` until all readable messages are handled, and judge. Raises PullFailed, or an error that
        ended a reader."""
        ends = {
            str(queue): await self._counting.max_offset(queue)
            for queue in await self._counting.queues(self._topic)
        }

        async def all_handled() -> None:
            for task in self._tasks:
                if task.done():
                    task.result()
            if never := judge_order(self.handled, ends).never:
                raise NotYet(never[0])

        try:
            with suppress(WaitExpired):
                await wait_for("all to be handled in order", all_handled, timeout_ms)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        return judge_order(self.handled, ends)

    def take(self, queue: MessageQueue, offset: int, tenure: int) -> None:
        self.handled.append(Handled(str(queue), offset, tenure))

    def next_tenure(self) -> int:
        return next(self._tenures)

    def now_ms(self) -> int:
        return self._clock.monotonic_ms()

    @property
    def turn(self) -> int:
        """The assignment of queues to readers changes with each turn."""
        return self.now_ms() // SWAP_MS


class Reader:
    """One reader. It wants every `READERS`-th queue, and other queues with each turn."""

    def __init__(
        self, readers: InOrderReaders, number: int, consumer: PullConsumer, locks: QueueLocks
    ) -> None:
        self.number = number
        self._readers = readers
        self._consumer = consumer
        self._locks = locks
        self._reading: dict[MessageQueue, asyncio.Task[None]] = {}

    async def run(self, queues: list[MessageQueue]) -> None:
        """Run until cancelled."""
        renewed_ms = 0
        try:
            while True:
                turn = self._readers.turn
                wanted = [
                    queue for index, queue in enumerate(queues) if (index + turn) % READERS == self.number
                ]
                await self._give_up([queue for queue in self._reading if queue not in wanted])
                idle = [queue for queue in wanted if queue not in self._reading]
                due = self._readers.now_ms() - renewed_ms >= RENEW_MS
                with suppress(ClientError):
                    held = await self._locks.lock(wanted if due else idle) if due or idle else set()
                    if due:
                        renewed_ms = self._readers.now_ms()
                    for queue in [queue for queue in wanted if queue in held and queue not in self._reading]:
                        self._reading[queue] = asyncio.get_running_loop().create_task(
                            self._read(queue, self._readers.next_tenure()),
                            name=f"drill reads {queue} in order",
                        )
                for queue, task in [*self._reading.items()]:
                    if task.done():
                        del self._reading[queue]
                        task.result()
                await asyncio.sleep(TRY_MS / 1000)
        finally:
            for task in self._reading.values():
                task.cancel()
            await asyncio.gather(*self._reading.values(), return_exceptions=True)

    async def _give_up(self, queues: list[MessageQueue]) -> None:
        """Commit the reader's progress, as far as brokers answer, before another reader may begin."""
        for queue in queues:
            task = self._reading.pop(queue)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if queues:
            with suppress(ClientError):
                await self._locks.unlock(queues)

    async def _read(self, queue: MessageQueue, tenure: int) -> None:
        """Read from the committed offset on, as long as the lock is trusted."""
        position = await self._begin(queue)
        while self._locks.holds(queue):
            try:
                result = await self._consumer.pull(queue, position, suspend_ms=SUSPEND_MS)
            except ClientError:
                await asyncio.sleep(TRY_MS / 1000)
                continue
            if result.status is PullStatus.OFFSET_ILLEGAL:
                await asyncio.sleep(TRY_MS / 1000)
                continue
            for message in result.messages:
                if not self._locks.holds(queue):
                    return
                self._readers.take(queue, message.queue_offset, tenure)
                position = message.queue_offset + 1
            if result.messages:
                with suppress(ClientError):
                    await self._consumer.commit(queue, position)

    async def _begin(self, queue: MessageQueue) -> int:
        while True:
            try:
                return await self._consumer.committed(queue) or 0
            except ClientError:
                await asyncio.sleep(TRY_MS / 1000)
