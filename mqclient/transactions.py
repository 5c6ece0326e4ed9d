"""Messages in transactions. They are first stored as half messages, which no consumer sees, and then committed or rolled back.

Invariant: a transaction is ended once, by `commit`, by `rollback` or by the answer of `check` to a broker. A call returns if
the end was sent, raises `EndRefused` (this end was not applied, and will not be), or raises `EndOutcomeUnknown`, after which
the broker asks. Upstream: TransactionMQProducer."""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
from collections.abc import Awaitable, Callable, Iterable
from enum import IntEnum
from types import TracebackType
from typing import Self

from mqclient.errors import EndOutcomeUnknown, EndRefused, GroupTaken, RouteUnknown, in_short
from mqclient.introductions import Introductions
from mqclient.message import OutgoingMessage, RecordMalformed, StoredMessage, decode_messages
from mqclient.producer import SEND_TIMEOUT_MS, Producer, SendResult
from mqclient.routetable import TopicRoutes
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import HeaderError, RemotingError
from remoting.headers.transactions import CheckTransactionStateHeader, EndTransactionHeader
from remoting.peer import Peer
from remoting.signing import Signer

logger = logging.getLogger("mqclient")

OFFSET_MESSAGE_ID = re.compile("[0-9A-Fa-f]*(?P<offset>[0-7][0-9A-Fa-f]{15})")
HEARTBEAT_MS = 10_000
"""Interval of a producer's heartbeats to masters. A new master can ask a producer only after its first heartbeat."""
CALL_TIMEOUT_MS = 3_000
NOT_TAKEN = (ResponseCode.SYSTEM_BUSY, ResponseCode.SLAVE_NOT_AVAILABLE, ResponseCode.SERVICE_NOT_AVAILABLE)
REFUSED = (ResponseCode.TRANSACTION_SHOULD_COMMIT, ResponseCode.TRANSACTION_SHOULD_ROLLBACK)


class TransactionState(IntEnum):
    """The outcome of a transaction. The value is the number on the wire."""

    UNKNOWN = 0
    COMMIT = 8
    ROLLBACK = 12


Check = Callable[[StoredMessage], TransactionState | Awaitable[TransactionState]]


class Transaction:
    """One half message that waits for its commit or rollback. Its place is an offset in the log, so it is valid at any later
    master of its set."""

    def __init__(self, producer: TransactionProducer, result: SendResult) -> None:
        self.result = result
        self._producer = producer

    async def commit(self, *, timeout_ms: int = CALL_TIMEOUT_MS) -> None:
        """Commit: consumers get the message, once. Raises EndRefused, EndOutcomeUnknown."""
        await self._producer.end(self.result, TransactionState.COMMIT, timeout_ms)

    async def rollback(self, *, timeout_ms: int = CALL_TIMEOUT_MS) -> None:
        """Roll back: no consumer ever gets the message. Raises as `commit`."""
        await self._producer.end(self.result, TransactionState.ROLLBACK, timeout_ms)


class TransactionProducer:
    """A producer of transactions, the only one of its group in its client. `check` returns the outcome of a transaction of any
    producer of the group. Within `async with`, brokers can ask it about messages in `topics` and in topics to which it
    sends."""

    def __init__(
        self,
        group: str,
        check: Check,
        *,
        producer: Producer,
        introductions: Introductions,
        topics: Iterable[str],
        routes: TopicRoutes,
        client: RemotingClient,
        checks: CheckRequests,
    ) -> None:
        """Raises GroupTaken."""
        self.group = group
        self._check = check
        self._producer = producer
        self._introductions = introductions
        self._topics = dict.fromkeys(topics)
        self._routes = routes
        self._client = client
        self._checks = checks
        self._beating: asyncio.Task[None] | None = None
        self._introducing: dict[asyncio.Task[None], None] = {}
        checks.add(self)

    async def send(
        self,
        topic: str,
        body: bytes,
        *,
        keys: str = "",
        tags: str = "",
        properties: dict[str, str] | None = None,
        timeout_ms: int = SEND_TIMEOUT_MS,
    ) -> Transaction:
        """Store one message that no consumer sees yet. Raises `SendRefused`, or `SendOutcomeUnknown`, after which the broker
        asks `check` if the message was stored. Meanwhile a heartbeat is sent to the masters of a topic that is new to this
        producer."""
        if topic not in self._topics:
            self._topics[topic] = None
            self._introduce(topic)
        own = {name: text for name, text in (("KEYS", keys), ("TAGS", tags)) if text}
        marks = {"TRAN_MSG": "true", "PGROUP": self.group}
        message = OutgoingMessage(body, {**own, **(properties or {}), **marks})
        return Transaction(self, await self._producer.send_message(topic, message, timeout_ms=timeout_ms))

    async def end(self, result: SendResult, state: TransactionState, timeout_ms: int) -> None:
        """End the transaction of `result`; see Transaction."""
        topic, name = result.queue.topic, result.queue.broker_name
        (message_id,) = result.message_ids
        place = OFFSET_MESSAGE_ID.fullmatch(result.offset_message_id)
        if place is None:
            raise EndOutcomeUnknown(topic, f"its broker gave it the id {result.offset_message_id[:64]!r}")
        header = EndTransactionHeader(
            self.group,
            result.queue_offset,
            int(place["offset"], 16),
            state,
            msg_id=message_id,
            transaction_id=message_id,
            topic=topic,
            broker_name=name,
        )
        try:
            address = (await self._routes.to_send(topic)).master(name)
            if address is None:
                self._routes.renew(topic)
                raise EndOutcomeUnknown(topic, f"broker set {name} has no master at the moment")
            request = RemotingCommand.request(RequestCode.END_TRANSACTION, header)
            reply = await self._client.call(address, request, timeout_ms)
        except (RouteUnknown, RemotingError) as error:
            self._routes.renew(topic)
            raise EndOutcomeUnknown(topic, str(error)) from error
        if reply.code == ResponseCode.SUCCESS:
            return
        said = f"{address} answered {reply.code} {in_short(reply.remark)}"
        if reply.code in REFUSED:
            raise EndRefused(topic, said, reply.code)
        if reply.code in NOT_TAKEN:
            self._routes.renew(topic)
        raise EndOutcomeUnknown(topic, said)

    async def asked(self, message: StoredMessage) -> TransactionState:
        """The result of `check`. An error, or a result of another type, is logged; the broker then asks again."""
        try:
            state = self._check(message)
            said = await state if inspect.isawaitable(state) else state
        except Exception as error:
            logger.error("the check of a transaction failed: %r", error, exc_info=error)
            return TransactionState.UNKNOWN
        if not isinstance(said, TransactionState):
            logger.error("the check of a transaction answered %r, which is no TransactionState", said)
            return TransactionState.UNKNOWN
        return said

    async def close(self) -> None:
        """Stop answering checks."""
        self._checks.remove(self)
        tasks = [*self._introducing]
        if self._beating is not None:
            tasks.append(self._beating)
            self._beating = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def __aenter__(self) -> Self:
        """Raises GroupTaken if this producer was closed, and another producer of its group was created."""
        self._checks.add(self)
        self._beating = asyncio.create_task(self._beat(), name=f"heartbeats of {self.group}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _beat(self) -> None:
        while not self._routes.closed:
            topics = list(self._topics)
            for topic in topics:
                self._routes.renew(topic)
            await self._introductions.at(topics, CALL_TIMEOUT_MS)
            await asyncio.sleep(HEARTBEAT_MS / 1000)

    def _introduce(self, topic: str) -> None:
        """Send heartbeats in a separate task, so that a silent master of `topic` does not delay messages of other topics."""
        task = asyncio.create_task(
            self._introductions.at([topic], CALL_TIMEOUT_MS), name=f"{self.group} to the masters of {topic}"
        )
        self._introducing[task] = None
        task.add_done_callback(self._introducing.pop)


class CheckRequests:
    """Answers CHECK_TRANSACTION_STATE (39) for this client's producers of transactions. A group has at most one of them. An
    answer is a request, too, which `signer` signs."""

    def __init__(self, signer: Signer | None = None) -> None:
        self._producers: dict[str, TransactionProducer] = {}
        self._signer = signer

    def add(self, producer: TransactionProducer) -> None:
        """Pass checks to `producer` from now on. Raises GroupTaken."""
        if self._producers.setdefault(producer.group, producer) is not producer:
            raise GroupTaken(producer.group)

    def remove(self, producer: TransactionProducer) -> None:
        if self._producers.get(producer.group) is producer:
            del self._producers[producer.group]

    def producers(self) -> list[TransactionProducer]:
        return list(self._producers.values())

    async def handle(self, peer: Peer, command: RemotingCommand) -> None:
        """Answer over the connection of the request. If the outcome is unknown, nothing is sent, and the broker asks again."""
        try:
            header = CheckTransactionStateHeader.from_ext(command.ext)
            (message,) = decode_messages(command.body or b"")
        except (HeaderError, RecordMalformed, ValueError) as error:
            logger.error("%s asks for a transaction that cannot be read: %s", peer.remote_address, error)
            return
        producer = self._producers.get(message.properties.get("PGROUP", ""))
        if producer is None:
            return
        state = await producer.asked(message)
        if state is TransactionState.UNKNOWN:
            return
        answer = EndTransactionHeader(
            producer.group,
            header.tran_state_table_offset,
            header.commit_log_offset,
            state,
            from_transaction_check=True,
            msg_id=header.msg_id,
            transaction_id=header.transaction_id,
            topic=message.topic,
            broker_name=header.broker_name,
        )
        ending = RemotingCommand.request(RequestCode.END_TRANSACTION, answer)
        if self._signer is not None:
            self._signer.sign(ending)
        peer.one_way(ending)
