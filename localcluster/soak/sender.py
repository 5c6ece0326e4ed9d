"""The sender of a soak. It sends messages at a steady pace, however long replies take. Some messages are delayed, and each is
sent once.

Invariant: the book knows of a message before it is sent, and of its outcome when `stop` returns."""

from __future__ import annotations

import asyncio

from localcluster.history import SendOutcome
from localcluster.soak.book import Book
from localcluster.soak.message import Messages
from mqclient.errors import SendOutcomeUnknown, SendRefused
from mqclient.producer import Producer
from mqruntime.clock import Clock

IN_FLIGHT_MAX = 500
SEND_TIMEOUT_MS = 3000
DELAYED_EVERY = 10
DELAYS_MS = {1: 1_000, 2: 5_000, 3: 10_000}
"""Delay level -> its time if `messageDelayLevel` is not set."""
OUTAGE_MS_MIN = 1_000
OUTAGES_MAX = 1_000


class Sender:
    """Sends `rate` messages a second to the queues of a topic in turn. One in DELAYED_EVERY is delayed and sent to the other
    topic."""

    def __init__(
        self, producer: Producer, messages: Messages, book: Book, clock: Clock, *, queues: int, rate: float
    ) -> None:
        self.acknowledged = 0
        self.outages_ms: list[tuple[int, int]] = []
        """Wall clock times (from, to) without an acknowledgement: the first OUTAGES_MAX that lasted at least OUTAGE_MS_MIN."""
        self._producer = producer
        self._book = book
        self._clock = clock
        self._messages = messages
        self._queues = queues
        self._interval_s = 1 / rate
        self._last_ms = clock.now_ms()
        self._sending: dict[asyncio.Task[None], None] = {}
        self._pacing: asyncio.Task[None] | None = None
        self._defect: BaseException | None = None

    def start(self) -> None:
        self._last_ms = self._clock.now_ms()
        self._pacing = asyncio.get_running_loop().create_task(self._pace(), name="soak pace")

    def check(self) -> None:
        """Raise an error with which no send may end, because it is a bug of the soak."""
        if self._pacing is not None and self._pacing.done() and not self._pacing.cancelled():
            self._pacing.result()
        if self._defect is not None:
            raise self._defect

    async def stop(self) -> None:
        """Begin no more sends and wait for pending ones. Raises what `check` raises."""
        if self._pacing is not None:
            self._pacing.cancel()
            await asyncio.wait([self._pacing, *self._sending])
        self.check()

    def silence_ms(self) -> int:
        """Time since the last acknowledgement."""
        return self._clock.now_ms() - self._last_ms

    async def _pace(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            if len(self._sending) < IN_FLIGHT_MAX:
                number = self._book.begin()
                send = self._send_delayed if number % DELAYED_EVERY == DELAYED_EVERY - 1 else self._send
                task = loop.create_task(send(number), name="soak send")
                self._sending[task] = None
                task.add_done_callback(self._sent)
            due = max(due + self._interval_s, loop.time() - 1)  # no burst after a stall
            await asyncio.sleep(due - loop.time())

    def _sent(self, task: asyncio.Task[None]) -> None:
        del self._sending[task]
        if not task.cancelled():
            self._defect = self._defect or task.exception()

    async def _send(self, number: int) -> None:
        messages, began_ms = self._messages, self._clock.now_ms()
        try:
            result = await self._producer.send(
                messages.topic,
                messages.body(number),
                keys=messages.key(number),
                queue_id=number // DELAYED_EVERY % self._queues,
                timeout_ms=SEND_TIMEOUT_MS,
            )
        except SendRefused:
            self._book.end(number, SendOutcome.REFUSED)
        except SendOutcomeUnknown:
            self._book.end(number, SendOutcome.UNKNOWN)
        else:
            if not result.acknowledged:
                self._book.end(number, SendOutcome.UNKNOWN)
                return
            self._book.queue(str(result.queue)).acknowledge(result.queue_offset, number, began_ms)
            self._book.end(number, SendOutcome.ACKNOWLEDGED)
            self._note_acknowledgement()

    async def _send_delayed(self, number: int) -> None:
        level = 1 + number // DELAYED_EVERY % len(DELAYS_MS)
        messages, outcome = self._messages, SendOutcome.ACKNOWLEDGED
        try:
            result = await self._producer.send(
                messages.delayed_topic,
                messages.body(number),
                keys=messages.key(number),
                properties={"DELAY": str(level)},
                timeout_ms=SEND_TIMEOUT_MS,
            )
        except SendRefused:
            outcome = SendOutcome.REFUSED
        except SendOutcomeUnknown:
            outcome = SendOutcome.UNKNOWN
        else:
            if result.acknowledged:
                self._note_acknowledgement()
            else:
                outcome = SendOutcome.UNKNOWN
        self._book.end_delayed(number, outcome, self._clock.now_ms() + DELAYS_MS[level])

    def _note_acknowledgement(self) -> None:
        now_ms = self._clock.now_ms()
        if now_ms - self._last_ms >= OUTAGE_MS_MIN and len(self.outages_ms) < OUTAGES_MAX:
            self.outages_ms.append((self._last_ms, now_ms))
        self._last_ms = now_ms
        self.acknowledged += 1
