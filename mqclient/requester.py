"""Requests that wait for a reply, and replies to them.

Invariant: a request is sent at most once. Its call returns the reply, or raises an error that says what is known about the
request, at the latest when the client is closed. A reply that comes too late is rejected, so that its sender notices."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from mqclient.errors import NotARequest, ReplyFailed, RequestUnanswered, RouteUnknown, in_short
from mqclient.introductions import Introductions
from mqclient.message import (
    OutgoingMessage,
    PropertiesTooLong,
    StoredMessage,
    check_body,
    decode_properties,
    encode_properties,
)
from mqclient.producer import SEND_TIMEOUT_MS, Producer
from mqclient.route import AUTO_CREATE_QUEUES, AUTO_CREATE_TOPIC, MessageQueue
from mqclient.routetable import CLOSED, TopicRoutes
from mqruntime.clock import Clock
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import RemotingError
from remoting.headers.send import ReplyMessageHeader, SendMessageHeader
from remoting.peer import Peer
from remoting.router import Router

CORRELATION_ID, REPLY_TO_CLIENT, TTL = "CORRELATION_ID", "REPLY_TO_CLIENT", "TTL"
CLUSTER, MESSAGE_TYPE = "CLUSTER", "MSG_TYPE"
HEARTBEAT_MS = 30_000
"""Brokers forget a client without heartbeats after two minutes."""
INTRODUCTION_PART = 4
"""The fraction of a request's time that may be spent on waiting for silent masters."""
NOWHERE = -1


class Awaited:
    """The replies that one client waits for, by correlation id. A reply of None means that the client is closed."""

    def __init__(self) -> None:
        self._futures: dict[str, asyncio.Future[StoredMessage | None]] = {}
        self._closed = False
        self._asked = 0

    def add_to(self, router: Router) -> None:
        router.add(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, self._arrived)

    def new_id(self, client_id: str, group: str) -> str:
        """A correlation id that is unique in this client, for all requesters."""
        self._asked += 1
        return f"{client_id}/{group}/{self._asked}"

    @contextmanager
    def reply_to(self, correlation_id: str) -> Iterator[asyncio.Future[StoredMessage | None]]:
        """The future for a reply, within the context."""
        future: asyncio.Future[StoredMessage | None] = asyncio.get_running_loop().create_future()
        self._futures[correlation_id] = future
        if self._closed:
            future.set_result(None)
        try:
            yield future
        finally:
            del self._futures[correlation_id]

    def close(self) -> None:
        """Stop waiting for replies."""
        self._closed = True
        for future in self._futures.values():
            if not future.done():
                future.set_result(None)

    def _arrived(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        header = ReplyMessageHeader.from_ext(command.ext)
        properties = decode_properties(header.properties or "")
        future = self._futures.get(properties.get(CORRELATION_ID, ""))
        if future is None or future.done():
            return command.reply(ResponseCode.SYSTEM_ERROR, "nobody waits for this reply any more")
        body = bytes(command.body or b"")
        future.set_result(
            StoredMessage(
                topic=header.topic,
                queue_id=header.queue_id,
                queue_offset=NOWHERE,
                physical_offset=NOWHERE,
                body=body,
                properties=properties,
                flag=header.flag,
                sys_flag=header.sys_flag,
                born_timestamp_ms=header.born_timestamp,
                born_host=header.born_host,
                store_timestamp_ms=header.store_timestamp,
                store_host=header.store_host,
                reconsume_times=header.reconsume_times or 0,
                prepared_transaction_offset=0,
                size_bytes=len(body),
            )
        )
        return command.reply()


class Requester:
    """Any number of requests and replies may be in progress at once. Brokers identify the client by `client_id`."""

    def __init__(
        self,
        producer: Producer,
        client_id: str,
        awaited: Awaited,
        introductions: Introductions,
        *,
        routes: TopicRoutes,
        client: RemotingClient,
        clock: Clock,
    ) -> None:
        self._producer = producer
        self._client_id = client_id
        self._awaited = awaited
        self._introductions = introductions
        self._routes = routes
        self._client = client
        self._clock = clock

    async def request(
        self,
        topic: str,
        body: bytes,
        *,
        keys: str = "",
        tags: str = "",
        properties: Mapping[str, str] | None = None,
        timeout_ms: int = SEND_TIMEOUT_MS,
    ) -> StoredMessage:
        """Send one message once, and wait for the reply, `timeout_ms` in all. The reply's offsets are -1, because they are not
        returned.

        Raises `SendRefused`, `SendOutcomeUnknown` and `RequestUnanswered`."""
        correlation_id = self._awaited.new_id(self._client_id, self._producer.group)
        asked = {CORRELATION_ID: correlation_id, REPLY_TO_CLIENT: self._client_id, TTL: str(timeout_ms)}
        own = {name: text for name, text in (("KEYS", keys), ("TAGS", tags)) if text}
        message = OutgoingMessage(body, {**own, **(properties or {}), **asked})
        with self._awaited.reply_to(correlation_id) as reply:
            try:
                async with asyncio.timeout(timeout_ms / 1000):
                    await self._introductions.at(
                        [topic], timeout_ms // INTRODUCTION_PART, fresh_ms=HEARTBEAT_MS
                    )
                    await self._producer.send_message(topic, message, timeout_ms=timeout_ms)
                    message_back = await reply
            except TimeoutError:
                raise RequestUnanswered(topic, f"no reply within {timeout_ms} ms") from None
        if message_back is None:
            raise RequestUnanswered(topic, CLOSED)
        return message_back

    async def reply(
        self,
        request: StoredMessage,
        body: bytes,
        *,
        properties: Mapping[str, str] | None = None,
        timeout_ms: int = SEND_TIMEOUT_MS,
    ) -> None:
        """Reply to a message that was sent as a request. Each broker set is tried once, until one has reached the requesting
        client.

        Raises `NotARequest` and `ReplyFailed`. After `ReplyFailed` the client may have the reply, unless a broker rejected
        it."""
        check_body(body)
        asked = request.properties
        missing = [name for name in (CLUSTER, REPLY_TO_CLIENT, CORRELATION_ID) if name not in asked]
        if missing:
            raise NotARequest(request.message_id, missing)
        topic = f"{asked[CLUSTER]}_REPLY_TOPIC"
        try:
            route = await self._routes.get(topic)
        except RouteUnknown as error:
            self._routes.renew(topic)
            raise ReplyFailed(asked[REPLY_TO_CLIENT], str(error)) from error
        named = {name: asked[name] for name in (CORRELATION_ID, REPLY_TO_CLIENT, TTL) if name in asked}
        try:
            text = encode_properties({**(properties or {}), **named, MESSAGE_TYPE: "reply"})
        except PropertiesTooLong as error:
            raise ReplyFailed(asked[REPLY_TO_CLIENT], str(error)) from error
        failure = ReplyFailed(asked[REPLY_TO_CLIENT], f"topic {topic} has no queue to write at a master")
        queues = {queue.broker_name: queue for queue in route.queues_to_write(None, None)}
        for queue in queues.values():
            address = route.master(queue.broker_name)
            if address is None:
                continue
            try:
                answer = await self._client.call(address, self._command(queue, text, body), timeout_ms)
            except RemotingError as error:
                failure = ReplyFailed(asked[REPLY_TO_CLIENT], f"{address}: {error.why}")
                continue
            if answer.code == ResponseCode.SUCCESS:
                return
            said = f"{address} answered {answer.code} {in_short(answer.remark)}"
            failure = ReplyFailed(asked[REPLY_TO_CLIENT], said, answer.code)
        self._routes.renew(topic)
        raise failure

    def _command(self, queue: MessageQueue, properties: str, body: bytes) -> RemotingCommand:
        header = SendMessageHeader(
            producer_group=self._producer.group,
            topic=queue.topic,
            default_topic=AUTO_CREATE_TOPIC,
            default_topic_queue_nums=AUTO_CREATE_QUEUES,
            queue_id=queue.queue_id,
            sys_flag=0,
            born_timestamp=self._clock.now_ms(),
            flag=0,
            properties=properties,
            reconsume_times=0,
            unit_mode=False,
            batch=False,
            broker_name=queue.broker_name,
        )
        return RemotingCommand.request(RequestCode.SEND_REPLY_MESSAGE_V2, header.to_short_ext(), body)
