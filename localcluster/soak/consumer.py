"""The consumer of a soak. It reads each queue from its first message on, and reports the messages to the book.

Invariant: each offset of a queue is passed once, in order, whichever broker is master."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from localcluster.soak.book import Book, Fault
from localcluster.soak.message import Messages
from mqclient.consumer import PullConsumer, PullResult, PullStatus
from mqclient.errors import ClientError, PullFailed
from mqclient.message import StoredMessage
from mqclient.route import MessageQueue
from mqruntime.clock import Clock

SUSPEND_MS = 2_000
RETRY_MS = 100
COMMIT_EVERY_MS = 5_000


class QueueReading:
    """The consumer's position in one queue, and the queue's end according to the last reply."""

    def __init__(self, queue: MessageQueue) -> None:
        self.queue = queue
        self.position = 0
        self.end = 0
        self.is_set_back = False

    @property
    def lag(self) -> int:
        return max(self.end - self.position, 0)


class Consumer:
    """Reads both topics. `skipped` counts the delayed messages that retention removed before they were read, because senders
    do not get their offsets."""

    def __init__(self, consumer: PullConsumer, messages: Messages, book: Book, clock: Clock) -> None:
        self.readings: list[QueueReading] = []
        self.skipped = 0
        self._consumer = consumer
        self._book = book
        self._clock = clock
        self._messages = messages
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Raises `RouteUnknown`."""
        for topic in (self._messages.topic, self._messages.delayed_topic):
            self.readings += [QueueReading(queue) for queue in await self._consumer.queues(topic)]
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._read(reading), name=f"soak reads {reading.queue}")
            for reading in self.readings
        ]
        self._tasks.append(loop.create_task(self._commit(), name="soak commits"))

    def check(self) -> None:
        """Raise the error that ended one of the consumer's tasks, which is a bug of the soak."""
        for task in self._tasks:
            if task.done() and not task.cancelled():
                task.result()

    async def stop(self) -> None:
        """Raises what `check` raises."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self.check()

    @property
    def lag(self) -> int:
        return sum(reading.lag for reading in self.readings)

    async def read_retained(self) -> int:
        """Read all remaining messages, except delayed ones, a second time, and compare them with the acknowledged messages.
        Returns how many acknowledged messages are there. Raises `PullFailed`."""
        present = 0
        for reading in self.readings:
            queue, found = reading.queue, dict[int, int]()
            if queue.topic != self._messages.topic:
                continue
            begin, end = await self._consumer.min_offset(queue), await self._consumer.max_offset(queue)
            try:
                async for message in self._consumer.read(queue, begin, end):
                    found[message.queue_offset] = self._number(message)
            except PullFailed as error:
                if error.code != PullStatus.OFFSET_ILLEGAL:
                    raise  # otherwise the missing messages are reported below
            account = self._book.queue(str(queue))
            begin = await self._consumer.min_offset(queue)  # retention may delete meanwhile
            account.begin_at(begin, self._clock.now_ms())
            present += account.judge_retained(begin, end, found)
        return present

    def _number(self, message: StoredMessage) -> int:
        """The number of a message; -1 if this run did not send it in this form."""
        number = self._messages.number(message.properties.get("KEYS", ""))
        return -1 if number is None or message.body != self._messages.body(number) else number

    async def _read(self, reading: QueueReading) -> None:
        while True:
            try:
                result = await self._consumer.pull(reading.queue, reading.position, suspend_ms=SUSPEND_MS)
            except PullFailed:
                await asyncio.sleep(RETRY_MS / 1000)
                continue
            self._take(reading, result)
            if result.status is PullStatus.OFFSET_ILLEGAL:
                await asyncio.sleep(RETRY_MS / 1000)

    def _take(self, reading: QueueReading, result: PullResult) -> None:
        queue, now_ms = str(reading.queue), self._clock.now_ms()
        is_delayed = reading.queue.topic == self._messages.delayed_topic
        reading.end = result.max_offset
        if not is_delayed:
            self._book.queue(queue).begin_at(result.min_offset, now_ms)
        if reading.position < result.min_offset:
            self.skipped += (result.min_offset - reading.position) * is_delayed
            reading.position = result.min_offset
        set_back = result.status is PullStatus.OFFSET_ILLEGAL and reading.position > result.max_offset
        if set_back and not reading.is_set_back:
            self._book.faults.add(
                Fault.TAKEN_BACK, f"{queue} was read up to {reading.position}, ends at {result.max_offset}"
            )
        reading.is_set_back = set_back
        for message in result.messages:
            if message.queue_offset != reading.position:
                self._book.faults.add(
                    Fault.GAP, f"{queue} continues at {message.queue_offset}, not at {reading.position}"
                )
            reading.position = message.queue_offset + 1
            number = self._messages.number(message.properties.get("KEYS", ""))
            whole = number is not None and message.body == self._messages.body(number)
            self._book.read(queue, message.queue_offset, number, whole=whole, now_ms=now_ms)
            if number is not None and not is_delayed:
                self._book.queue(queue).read(message.queue_offset, number)

    async def _commit(self) -> None:
        while True:
            await asyncio.sleep(COMMIT_EVERY_MS / 1000)
            for reading in self.readings:
                with suppress(ClientError):
                    await self._consumer.commit(reading.queue, reading.position)
