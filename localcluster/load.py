"""A producer that sends continuously, remembers each attempt, and reads everything back at the end.

Invariant: every message has its own id and body and is sent once. An attempt enters the history when it ends, so the history
holds every attempt after `stop`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import suppress
from hashlib import sha256
from types import MappingProxyType

from localcluster.history import Found, MessagePlace, SendAttempt, SendOutcome
from localcluster.waiting import NotYet, WaitExpired, wait_for
from mqclient.consumer import PullConsumer
from mqclient.errors import SendOutcomeUnknown, SendRefused
from mqclient.message import StoredMessage
from mqclient.producer import Producer
from mqclient.route import MessageQueue
from mqruntime.clock import Clock

BODY_BYTES_MIN, BODY_BYTES_MAX = 16, 2048
IN_FLIGHT_MAX = 2000
READABLE_MS_MAX = 10_000


class SteadyLoad:
    """Sends one message every `interval_ms`, however long replies take, to the queues of one topic in turn."""

    def __init__(
        self,
        producer: Producer,
        topic: str,
        *,
        queues: int,
        clock: Clock,
        random: random.Random,
        interval_ms: int = 5,
        timeout_ms: int = 1000,
    ) -> None:
        self.topic = topic
        self.attempts: list[SendAttempt] = []
        self._producer = producer
        self._queues = queues
        self._clock = clock
        self._random = random
        self._interval_ms = interval_ms
        self._timeout_ms = timeout_ms
        self._run_id = f"{random.getrandbits(32):08x}"
        self._begun = 0
        self._sending: dict[asyncio.Task[None], None] = {}
        self._pacing: asyncio.Task[None] | None = None
        self._ended = asyncio.Event()

    def start(self) -> None:
        """Begin to send, in the background."""
        self._pacing = asyncio.get_running_loop().create_task(self._pace(), name="drill load")

    async def stop(self) -> None:
        """Begin no more sends and wait for pending ones."""
        if self._pacing is not None:
            self._pacing.cancel()
            await asyncio.gather(self._pacing, return_exceptions=True)
        await asyncio.gather(*self._sending)

    async def send_burst(self, count: int, *, in_flight: int, progress: Callable[[int], None]) -> None:
        """Send `count` messages as fast as replies come, `in_flight` at a time. `progress` gets how many sends have ended."""
        left = count
        ended = 0

        async def sender() -> None:
            nonlocal left, ended
            while left > 0:
                left -= 1
                await self._send_one()
                ended += 1
                progress(ended)

        async with asyncio.TaskGroup() as senders:
            for number in range(in_flight):
                senders.create_task(sender(), name=f"burst sender {number}")

    async def acknowledged_after(self, moment_ms: int, timeout_ms: int, count: int = 1) -> bool:
        """Wait until `count` attempts that began at or after `moment_ms` are acknowledged. Returns False if that does not
        happen in time."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while self._count(moment_ms) < count:
                    self._ended.clear()
                    await self._ended.wait()
        except TimeoutError:
            return False
        return True

    def _count(self, moment_ms: int) -> int:
        recent = 0
        for attempt in reversed(self.attempts):
            if attempt.ended_ms < moment_ms:
                break
            recent += attempt.outcome is SendOutcome.ACKNOWLEDGED and attempt.began_ms >= moment_ms
        return recent

    async def _pace(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            if len(self._sending) < IN_FLIGHT_MAX:
                task = loop.create_task(self._send_one(), name="drill send")
                self._sending[task] = None
                task.add_done_callback(lambda ended: self._sending.pop(ended))
            due = max(due + self._interval_ms / 1000, loop.time() - 1)  # no burst after a stall
            await asyncio.sleep(due - loop.time())

    async def _send_one(self) -> None:
        number = self._begun
        self._begun += 1
        message_id = f"{self._run_id}-{number}"
        body = self._random.randbytes(self._random.randint(BODY_BYTES_MIN, BODY_BYTES_MAX))
        began_ms = self._clock.now_ms()
        outcome, place, why = SendOutcome.ACKNOWLEDGED, None, ""
        try:
            result = await self._producer.send(
                self.topic,
                body,
                keys=message_id,
                queue_id=number % self._queues,
                timeout_ms=self._timeout_ms,
            )
        except SendRefused as error:
            outcome, why = SendOutcome.REFUSED, str(error)
        except SendOutcomeUnknown as error:
            outcome, why = SendOutcome.UNKNOWN, str(error)
        else:
            place = MessagePlace(str(result.queue), result.queue_offset)
            if not result.acknowledged:
                outcome, why = SendOutcome.UNKNOWN, result.status.name
        self.attempts.append(
            SendAttempt(message_id, body_hash(body), outcome, began_ms, self._clock.now_ms(), place, why)
        )
        self._ended.set()


def body_hash(body: bytes) -> str:
    """The hash by which bodies are compared: SHA-256 in hexadecimal, as Spark's `sha2(body, 256)`."""
    return sha256(body).hexdigest()


def as_found(queue: MessageQueue, message: StoredMessage) -> Found:
    """A message of a load for the checker."""
    key = message.properties.get("KEYS", message.message_id)
    return Found(key, body_hash(message.plain_body()), MessagePlace(str(queue), message.queue_offset))


async def read_messages(
    consumer: PullConsumer,
    topic: str,
    patience_ms: int = READABLE_MS_MAX,
    shown: Mapping[str, int] = MappingProxyType({}),
) -> AsyncIterator[tuple[MessageQueue, StoredMessage]]:
    """Read every message of the topic, each queue from its first to its last readable message. `shown` are ends that queues had
    earlier. If one is later than the queue's end now, the queue is read up to it, because the broker that answers now may be a
    replica that lags. Raises `PullFailed`, also after `patience_ms` without a message."""
    for queue in await consumer.queues(topic):
        end = max(await consumer.max_offset(queue), shown.get(str(queue), 0))
        async for message in consumer.read(
            queue, await consumer.min_offset(queue), end, patience_ms=patience_ms
        ):
            yield queue, message


async def wait_readable(
    consumer: PullConsumer, topic: str, attempts: Iterable[SendAttempt], timeout_ms: int
) -> dict[str, int]:
    """Wait until every queue shows its acknowledged messages, because a message may become readable later than it is
    acknowledged. The checker reports messages that do not appear in time. Returns the ends that queues have shown, by name.
    Raises `PullFailed`."""
    shown: dict[str, int] = {}
    ends: dict[str, int] = {}
    for attempt in attempts:
        if attempt.outcome is SendOutcome.ACKNOWLEDGED and attempt.place is not None:
            queue, offset = attempt.place
            ends[queue] = max(ends.get(queue, 0), offset + 1)

    async def probe() -> None:
        for queue in await consumer.queues(topic):
            end = await consumer.max_offset(queue)
            shown[str(queue)] = max(end, shown.get(str(queue), 0))
            if end < ends.get(str(queue), 0):
                raise NotYet(f"{queue} ends at {end}, {ends[str(queue)]} are acknowledged")

    with suppress(WaitExpired):
        await wait_for("all that was acknowledged", probe, timeout_ms)
    return shown


async def read_back(
    consumer: PullConsumer,
    topic: str,
    attempts: Iterable[SendAttempt] = (),
    timeout_ms: int = READABLE_MS_MAX,
) -> list[Found]:
    """Wait until the acknowledged `attempts` are readable, and return all messages for the checker. Raises `PullFailed`."""
    shown = await wait_readable(consumer, topic, attempts, timeout_ms)
    read = read_messages(consumer, topic, timeout_ms, shown)
    return [as_found(queue, message) async for queue, message in read]
