"""Sends a client's delayed messages, and hands back messages that were read (CONSUMER_SEND_MSG_BACK).

Invariant: every message has its own key in its topic, and is delayed or handed back once."""

from __future__ import annotations

import asyncio
import random

from broker.sends.retries import retry_topic
from localcluster.history import SendAttempt, SendOutcome
from localcluster.load import body_hash
from mqclient.client import Client
from mqclient.consumer import PullConsumer
from mqclient.errors import PullFailed, RouteUnknown, SendOutcomeUnknown, SendRefused
from mqclient.message import StoredMessage
from mqclient.producer import NEVER_STORED
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import NotSent, RemotingError
from remoting.headers.messages import ConsumerSendMsgBackHeader

LATER = "later"
GROUP = "reader"
RETRY = retry_topic(GROUP)
LEVELS = (1, 2)
INTERVAL_MS = (2_500, 5_500)
BODY_BYTES = (16, 512)
ROUTE_RETRY_MS = 500
UNREADABLE = "unreadable answer"  # the client's text


class DelayedWork:
    """Now and then sends a delayed message, or hands back the message that the reader read last."""

    def __init__(
        self,
        client: Client,
        chance: random.Random,
        timeout_ms: int,
        interval_ms: tuple[int, int] = INTERVAL_MS,
    ) -> None:
        self.attempts: dict[str, list[SendAttempt]] = {LATER: [], RETRY: []}
        """Topic of the delivery -> the attempts to send."""
        self.newest: StoredMessage | None = None
        """The message that the reader read last. It is handed back at most once."""
        self._client = client
        self._producer = client.producer("delayer")
        self._random = chance
        self._timeout_ms = timeout_ms
        self._interval_ms = interval_ms
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._work(), name="delayed work")

    async def stop(self) -> None:
        """Returns when the attempt under way has ended."""
        self._stopping.set()
        if self._task is not None:
            await self._task

    def acknowledged(self) -> int:
        return sum(
            attempt.outcome is SendOutcome.ACKNOWLEDGED
            for attempts in self.attempts.values()
            for attempt in attempts
        )

    async def _work(self) -> None:
        while not self._stopping.is_set():
            await self._delay()
            if self.newest is not None:
                message, self.newest = self.newest, None
                await self._hand_back(message)
            try:
                async with asyncio.timeout(self._random.randint(*self._interval_ms) / 1000):
                    await self._stopping.wait()
            except TimeoutError:
                continue

    async def _delay(self) -> None:
        key = f"later-{len(self.attempts[LATER])}"
        body = self._random.randbytes(self._random.randint(*BODY_BYTES))
        level = self._random.choice(LEVELS)
        began_ms, outcome, why = self._client.clock.now_ms(), SendOutcome.ACKNOWLEDGED, ""
        try:
            result = await self._producer.send(
                LATER, body, keys=key, properties={"DELAY": str(level)}, timeout_ms=self._timeout_ms
            )
            if not result.acknowledged:
                outcome, why = SendOutcome.UNKNOWN, result.status.name
        except SendRefused as error:
            outcome, why = SendOutcome.REFUSED, str(error)
        except SendOutcomeUnknown as error:
            outcome, why = SendOutcome.UNKNOWN, str(error)
        self._note(LATER, key, body, outcome, began_ms, why)

    async def _hand_back(self, message: StoredMessage) -> None:
        header = ConsumerSendMsgBackHeader(
            message.physical_offset,
            GROUP,
            self._random.choice(LEVELS),
            origin_msg_id=message.message_id,
            origin_topic=message.topic,
        )
        began_ms, outcome, why = self._client.clock.now_ms(), SendOutcome.ACKNOWLEDGED, ""
        try:
            (queue, *_) = (await self._client.routes.get(message.topic)).write_queues
            address = (await self._client.routes.get(message.topic)).master(queue.broker_name)
            if address is None:
                self._client.routes.renew(message.topic)
                return
            request = RemotingCommand.request(RequestCode.CONSUMER_SEND_MSG_BACK, header)
            reply = await self._client.remoting.call(address, request, self._timeout_ms)
            if reply.code in NEVER_STORED:
                outcome, why = SendOutcome.REFUSED, str(reply.remark)
            elif reply.code != ResponseCode.SUCCESS:
                outcome, why = SendOutcome.UNKNOWN, str(reply.remark)
        except (NotSent, RouteUnknown) as error:
            outcome, why = SendOutcome.REFUSED, str(error)
        except RemotingError as error:
            outcome, why = SendOutcome.UNKNOWN, str(error)
        if outcome is not SendOutcome.ACKNOWLEDGED:
            self._client.routes.renew(message.topic)
        self._note(RETRY, message.properties["KEYS"], message.plain_body(), outcome, began_ms, why)

    def _note(self, topic: str, key: str, body: bytes, outcome: SendOutcome, began_ms: int, why: str) -> None:
        ended_ms = self._client.clock.now_ms()
        self.attempts[topic].append(SendAttempt(key, body_hash(body), outcome, began_ms, ended_ms, why=why))

    async def delivered(self, promised: dict[str, list[SendAttempt]]) -> list[StoredMessage]:
        """All messages in the topics to which delayed messages are delivered. A topic may be gone if all its messages may be
        gone. Raises PullFailed for an answer that cannot be read."""
        consumer = self._client.consumer(GROUP)
        messages: list[StoredMessage] = []
        for topic, attempts in promised.items():
            if all(attempt.outcome is SendOutcome.REFUSED for attempt in attempts):
                continue
            while True:
                try:
                    messages += await _all_of(consumer, topic)
                    break
                except RouteUnknown:
                    if all(attempt.outcome is not SendOutcome.ACKNOWLEDGED for attempt in attempts):
                        break
                except PullFailed as failure:  # the broker mends an entry that leads to no record
                    if UNREADABLE in str(failure):
                        raise
                await asyncio.sleep(ROUTE_RETRY_MS / 1000)
        return messages


async def _all_of(consumer: PullConsumer, topic: str) -> list[StoredMessage]:
    """All messages of the topic. Raises RouteUnknown, PullFailed."""
    found: list[StoredMessage] = []
    for queue in await consumer.queues(topic):
        end, first = await consumer.max_offset(queue), await consumer.min_offset(queue)
        found += [message async for message in consumer.read(queue, first, end)]
    return found
