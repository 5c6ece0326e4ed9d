"""Sends messages to the masters of a topic, each at most once.

Invariant: a call makes at most one attempt that can store its message, so a message is never stored twice. Only a message that
was rejected is sent again. A call ends with a `SendResult`, `SendRefused` (the message is certainly not stored) or
`SendOutcomeUnknown`."""

from __future__ import annotations

import asyncio
import random
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from zlib import crc32

from mqclient.errors import MessageTooLong, RouteUnknown, SendOutcomeUnknown, SendRefused, in_short
from mqclient.message import (
    SYS_FLAG_COMPRESSED,
    OutgoingMessage,
    PropertiesTooLong,
    encode_batch,
    encode_properties,
)
from mqclient.route import AUTO_CREATE_QUEUES, AUTO_CREATE_TOPIC, MessageQueue, TopicRoute
from mqclient.routetable import TopicRoutes
from mqruntime.clock import Clock
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import FrameTooLong, HeaderError, NotSent, RemotingError
from remoting.headers.send import SendMessageHeader, SendMessageResponseHeader

SEND_TIMEOUT_MS = 3000
RETRY_MS = 50
IN_SYNC_REPLICAS_NOT_ENOUGH = "in-sync replicas not enough"


class SendStatus(IntEnum):
    """The broker's status for a message that it stored. Only SEND_OK promises that the message stays."""

    SEND_OK = ResponseCode.SUCCESS
    FLUSH_DISK_TIMEOUT = ResponseCode.FLUSH_DISK_TIMEOUT
    SLAVE_NOT_AVAILABLE = ResponseCode.SLAVE_NOT_AVAILABLE
    FLUSH_SLAVE_TIMEOUT = ResponseCode.FLUSH_SLAVE_TIMEOUT


STORED = frozenset(SendStatus)
NEVER_STORED = frozenset(
    {
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        ResponseCode.MESSAGE_ILLEGAL,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.NO_PERMISSION,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        ResponseCode.INVALID_PARAMETER,
        ResponseCode.FLOW_CONTROL,
        ResponseCode.GO_AWAY,
    }
)
"""Codes that a broker sends before it writes anything. Any other failure may come after the write."""
LASTING = NEVER_STORED - {
    ResponseCode.SYSTEM_BUSY,
    ResponseCode.SERVICE_NOT_AVAILABLE,
    ResponseCode.FLOW_CONTROL,
    ResponseCode.GO_AWAY,
}
"""Codes that the next master would send, too."""


@dataclass(frozen=True, slots=True)
class SendResult:
    """The place of a stored message. For a batch, `queue_offset` is that of its first message, and the ids are those of all
    messages."""

    status: SendStatus
    queue: MessageQueue
    queue_offset: int
    message_ids: tuple[str, ...]  # the client's ids (UNIQ_KEY), in order
    offset_message_id: str  # the broker's id, of host and physical offset

    @property
    def acknowledged(self) -> bool:
        return self.status is SendStatus.SEND_OK


@dataclass(frozen=True, slots=True)
class _Sending:
    """The message of one call, and its possible targets. The ids are those of all messages in a batch."""

    code: RequestCode
    topic: str
    envelope: OutgoingMessage
    properties: str
    message_ids: tuple[str, ...]
    broker_name: str | None
    queue_id: int | None
    timeout_ms: int
    key: str | None


ZLIB_TYPE, ZLIB_LEVEL = 0x300, 5
"""As Java's producers compress."""
MESSAGE_BYTES_MAX = 4 << 20
"""Limit of a body. It is the default of upstream's DefaultMQProducer.maxMessageSize and of brokers' maxMessageSize."""


class Producer:
    """Any number of sends may be in progress at once, over one connection per broker. A body of a message or batch above
    `message_bytes_max` is not sent. If that is None, only brokers check the size."""

    def __init__(
        self,
        group: str,
        *,
        routes: TopicRoutes,
        client: RemotingClient,
        clock: Clock,
        random: random.Random,
        message_bytes_max: int | None = MESSAGE_BYTES_MAX,
        compress_from: int | None = None,
    ) -> None:
        self.group = group
        self._compress_from = compress_from
        self._message_bytes_max = message_bytes_max
        self._routes = routes
        self._client = client
        self._clock = clock
        self._id_prefix = f"{random.getrandbits(64):016X}"
        self._ids = 0
        self._turn = random.randrange(1 << 16)

    async def send(
        self,
        topic: str,
        body: bytes,
        *,
        keys: str = "",
        tags: str = "",
        properties: Mapping[str, str] | None = None,
        delay_level: int | None = None,
        deliver_at: datetime | None = None,
        key: str | None = None,
        broker_name: str | None = None,
        queue_id: int | None = None,
        timeout_ms: int = SEND_TIMEOUT_MS,
        patience_ms: int = 0,
    ) -> SendResult:
        """Send one message to `queue_id`, or to the next queue in turn, of one broker set or of any. An attempt takes at most
        `timeout_ms` after connecting. If the broker reads too slowly, a part of that time passes before the message is sent.

        Messages with one `key` go to one queue, in the order in which their sends return: the same one as long as the topic has
        the same queues. While that queue's set has no master, they wait for it or fail. Consumers get a message with a
        `delay_level` (1 for a second, ... by the brokers' `messageDelayLevel`) or with `deliver_at` later; brokers without
        timers refuse `deliver_at`.

        For `patience_ms`, a message that is rejected for a temporary reason is sent again, by the newest routes. A message
        that may be stored is never sent again. A topic that does not exist is created by its first message, if brokers allow
        that (`autoCreateTopicEnable`). `keys` are index keys separated by blanks. With `tags` "" the message has no tag, as in
        Java, and only readers of all messages get it. Raises `SendRefused` (also as `MessageTooLong`) and
        `SendOutcomeUnknown`."""
        own = {name: text for name, text in (("KEYS", keys), ("TAGS", tags)) if text}
        message = OutgoingMessage(body, {**own, **_when(delay_level, deliver_at), **(properties or {})})
        return await self.send_message(
            topic,
            message,
            key=key,
            broker_name=broker_name,
            queue_id=queue_id,
            timeout_ms=timeout_ms,
            patience_ms=patience_ms,
        )

    async def send_message(
        self,
        topic: str,
        message: OutgoingMessage,
        *,
        key: str | None = None,
        broker_name: str | None = None,
        queue_id: int | None = None,
        timeout_ms: int = SEND_TIMEOUT_MS,
        patience_ms: int = 0,
    ) -> SendResult:
        """Do as `send`, for a message with its own flag, time of birth and compression."""
        named = self._compressed(topic, self._identified(message))
        _check_target(key, queue_id)
        sending = _Sending(
            RequestCode.SEND_MESSAGE_V2,
            topic,
            named,
            _properties(topic, named),
            (named.properties["UNIQ_KEY"],),
            broker_name,
            queue_id,
            timeout_ms,
            key,
        )
        return await self._send(sending, patience_ms)

    async def send_batch(
        self,
        topic: str,
        messages: Sequence[OutgoingMessage],
        *,
        key: str | None = None,
        broker_name: str | None = None,
        queue_id: int | None = None,
        born_timestamp_ms: int | None = None,
        timeout_ms: int = SEND_TIMEOUT_MS,
        patience_ms: int = 0,
    ) -> SendResult:
        """Send several messages as one. All are stored in one queue at consecutive offsets, or none is stored.

        The messages share one time of birth. The batch has no id, because a broker would give that id to all messages."""
        if not messages:
            raise ValueError("a batch holds at least one message")
        _check_target(key, queue_id)
        named = [self._identified(message) for message in messages]
        try:
            body = encode_batch(named)
        except PropertiesTooLong as error:
            raise MessageTooLong(topic, str(error)) from error
        envelope = OutgoingMessage(body, {"WAIT": "true"}, born_timestamp_ms=born_timestamp_ms)
        sending = _Sending(
            RequestCode.SEND_BATCH_MESSAGE,
            topic,
            envelope,
            _properties(topic, envelope),
            tuple(message.properties["UNIQ_KEY"] for message in named),
            broker_name,
            queue_id,
            timeout_ms,
            key,
        )
        return await self._send(sending, patience_ms)

    async def _send(self, sending: _Sending, patience_ms: int) -> SendResult:
        self._check_size(sending.topic, len(sending.envelope.body))
        until_ms = self._clock.monotonic_ms() + patience_ms
        avoided: str | None = None
        while True:
            try:
                return await self._attempt(sending, avoided)
            except MessageTooLong:
                raise
            except SendRefused as refused:
                over = self._clock.monotonic_ms() >= until_ms or self._routes.closed
                if over or refused.code in LASTING:
                    raise
                avoided = refused.broker_name
            await asyncio.sleep(RETRY_MS / 1000)

    async def _attempt(self, sending: _Sending, avoided: str | None) -> SendResult:
        topic, envelope = sending.topic, sending.envelope
        try:
            route = await self._routes.to_send(topic)
        except RouteUnknown as error:
            self._routes.renew(topic)
            raise SendRefused(topic, str(error)) from error
        queue, address = self._target(route, sending, avoided)
        header = SendMessageHeader(
            producer_group=self.group,
            topic=topic,
            default_topic=AUTO_CREATE_TOPIC,
            default_topic_queue_nums=AUTO_CREATE_QUEUES,
            queue_id=queue.queue_id,
            sys_flag=envelope.sys_flag,
            born_timestamp=self._clock.now_ms()
            if envelope.born_timestamp_ms is None
            else envelope.born_timestamp_ms,
            flag=envelope.flag,
            properties=sending.properties,
            reconsume_times=0,
            unit_mode=False,
            batch=sending.code == RequestCode.SEND_BATCH_MESSAGE,
            broker_name=queue.broker_name,
        )
        request = RemotingCommand.request(sending.code, header.to_short_ext(), envelope.body)
        try:
            reply = await self._client.call(address, request, sending.timeout_ms)
        except FrameTooLong as error:
            raise MessageTooLong(topic, error.why) from error
        except NotSent as error:
            self._routes.renew(topic)
            raise SendRefused(topic, str(error), broker_name=queue.broker_name) from error
        except RemotingError as error:
            self._routes.renew(topic)
            raise SendOutcomeUnknown(topic, address, error.why) from error
        return self._result(queue, address, sending.message_ids, reply)

    def _target(self, route: TopicRoute, sending: _Sending, avoided: str | None) -> tuple[MessageQueue, str]:
        """The next (or requested) queue and its master's address. Queues of the set `avoided` are chosen only if there are no
        others. Raises `SendRefused`. Upstream: TopicPublishInfo.selectOneMessageQueue."""
        broker_name, queue_id = sending.broker_name, sending.queue_id
        queues = route.queues_to_write(broker_name, queue_id)
        if sending.key is not None:
            queues = _queue_of_key(route, sending)
        if not queues:
            what = "it has no queue to write" if queue_id is None else f"it has no queue {queue_id} to write"
            what += f" on {broker_name}" if broker_name else ""
            self._routes.renew(route.topic)
            raise SendRefused(route.topic, what)
        if avoided is not None:
            queues = tuple(queue for queue in queues if queue.broker_name != avoided) or queues
        self._turn += 1
        queue = queues[self._turn % len(queues)]
        address = route.master(queue.broker_name)
        if address is None:
            self._routes.renew(route.topic)
            why = f"broker set {queue.broker_name} has no master at the moment"
            raise SendRefused(route.topic, why, broker_name=queue.broker_name)
        return queue, address

    def _result(
        self, queue: MessageQueue, address: str, message_ids: tuple[str, ...], reply: RemotingCommand
    ) -> SendResult:
        topic = queue.topic
        if reply.code not in STORED:
            self._routes.renew(topic)
            said = in_short(reply.remark)
            refused = reply.code in NEVER_STORED or said.startswith(IN_SYNC_REPLICAS_NOT_ENOUGH)
            if refused:
                why = f"{address} answered {reply.code} {said}"
                raise SendRefused(topic, why, reply.code, queue.broker_name)
            raise SendOutcomeUnknown(topic, address, f"it answered {reply.code} {said}")
        try:
            header = SendMessageResponseHeader.from_ext(reply.ext)
        except HeaderError as error:
            raise SendOutcomeUnknown(topic, address, f"its answer is incomplete: {error}") from error
        return SendResult(
            SendStatus(reply.code),
            MessageQueue(topic, queue.broker_name, header.queue_id),
            header.queue_offset,
            message_ids,
            header.msg_id,
        )

    def _compressed(self, topic: str, message: OutgoingMessage) -> OutgoingMessage:
        """The message, compressed if it is long and that makes it shorter. Raises MessageTooLong."""
        least = self._compress_from
        if least is None or len(message.body) < least or message.sys_flag & SYS_FLAG_COMPRESSED:
            return message
        self._check_size(topic, len(message.body))
        body = zlib.compress(message.body, ZLIB_LEVEL)
        if len(body) >= len(message.body):
            return message
        sys_flag = message.sys_flag | SYS_FLAG_COMPRESSED | ZLIB_TYPE
        return OutgoingMessage(body, message.properties, message.flag, message.born_timestamp_ms, sys_flag)

    def _check_size(self, topic: str, size: int) -> None:
        """Raises MessageTooLong."""
        most = self._message_bytes_max
        if most is not None and size > most:
            raise MessageTooLong(topic, f"a body of {size} bytes; {most} are allowed (message_bytes_max)")

    def _identified(self, message: OutgoingMessage) -> OutgoingMessage:
        """The message, with a new id unless it has one. An id has 32 hexadecimal digits for prefix, time and count."""
        own_id = message.properties.get("UNIQ_KEY") or self._next_id()
        properties = {"UNIQ_KEY": own_id, "WAIT": "true", **message.properties}
        return OutgoingMessage(
            message.body, properties, message.flag, message.born_timestamp_ms, message.sys_flag
        )

    def _next_id(self) -> str:
        self._ids += 1
        time_ms = self._clock.now_ms() & 0xFFFFFFFF
        return f"{self._id_prefix}{time_ms:08X}{self._ids & 0xFFFFFFFF:08X}"


def _queue_of_key(route: TopicRoute, sending: _Sending) -> tuple[MessageQueue, ...]:
    """The queue for the messages of this key, whether its set has a master now or not."""
    wanted = sending.broker_name
    queues = [queue for queue in route.write_queues if wanted in (None, queue.broker_name)]
    assert sending.key is not None
    return (queues[crc32(sending.key.encode()) % len(queues)],) if queues else ()


def _check_target(key: str | None, queue_id: int | None) -> None:
    """Raises ValueError for two choices of a queue, and TypeError for a key that is no text."""
    if key is not None and queue_id is not None:
        raise ValueError("key and queue_id exclude each other: a key chooses the queue")
    if key is not None and not isinstance(key, str):
        raise TypeError(f"a key is a text, not {key!r}")


def _when(delay_level: int | None, deliver_at: datetime | None) -> dict[str, str]:
    """The properties that delay a message. Raises ValueError."""
    if delay_level is not None and deliver_at is not None:
        raise ValueError("delay_level and deliver_at exclude each other: choose one")
    if delay_level is not None and delay_level < 1:
        raise ValueError(f"delay_level is 1 or more, not {delay_level}")
    if delay_level is not None:
        return {"DELAY": str(delay_level)}
    return {} if deliver_at is None else {"TIMER_DELIVER_MS": str(round(deliver_at.timestamp() * 1000))}


def _properties(topic: str, message: OutgoingMessage) -> str:
    try:
        return encode_properties(message.properties)
    except PropertiesTooLong as error:
        raise MessageTooLong(topic, str(error)) from error
