"""Sends: checks them, stores all that one receive brought with one append, and answers when the replicas have them.

Invariant: a send is answered OK only after `replication.acked_end()` covered it; one that was refused was not stored.
No task, timer or future belongs to a single message."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from random import Random
from typing import Protocol

from broker.latencies import Latencies
from broker.pendingsends import PendingSend, PendingSends
from broker.retries import DLQ_QUEUES, NO_DELAY, dead_letter_topic, group_of_retry_topic, retries_max
from broker.scheduling import scheduled
from broker.sendrequest import SendRequest, asked_retries_max, read_send_request
from broker.subscriptiongroups import SubscriptionGroups
from broker.topics import RETRY_PREFIX, Topics
from broker.totals import Totals
from messagestore.messages import Appended, MessageToStore, PutStatus
from messagestore.record import COMPRESSED, offset_message_id, pack_host
from mqruntime.clock import Clock
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RESPONSE_BIT, RemotingCommand
from remoting.errors import HeaderError
from remoting.peer import Peer

SEND_CODES = {RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE}

REJECTED = "[REJECTREQUEST]system busy, start flow control for a while"
NO_ROLE = "this broker has no role yet; its set has no master that it knows"
NOT_ENOUGH = "in-sync replicas not enough"
TIMER_UNSUPPORTED = "timer messages are not supported yet"
BATCH_DELAYED = "a batch can not be delayed"
BATCH_COMPRESSED = (
    "a batch that was compressed as a whole cannot be read; send fewer or smaller messages in one"
)
TRANSACTION_UNSUPPORTED = "transactional messages are not supported yet"

TOPIC_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")
TOPIC_LENGTH_MAX = 127
NOT_FOR_CLIENTS = {
    "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC",
    "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT",
}  # fmt: skip

PUT_ERRORS = {
    PutStatus.MESSAGE_ILLEGAL: (ResponseCode.MESSAGE_ILLEGAL, "message, topic or batch outside the limits"),
    PutStatus.PROPERTIES_SIZE_EXCEEDED: (ResponseCode.MESSAGE_ILLEGAL, "properties exceed 32767 bytes"),
    PutStatus.SERVICE_NOT_AVAILABLE: (
        ResponseCode.SERVICE_NOT_AVAILABLE,
        "the store takes no messages now: not master, disk full or stopped",
    ),
    PutStatus.CREATE_MAPPED_FILE_FAILED: (
        ResponseCode.SYSTEM_ERROR,
        "create mapped file failed, server is busy",
    ),
}

REPLY_PROPERTIES = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
UNIQ_KEY = "UNIQ_KEY\x01"


class Refused(Exception):
    """This send gets `code` and is not stored."""

    def __init__(self, code: ResponseCode, remark: str) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark


class Replication(Protocol):
    """What the send path asks about the broker's role and its replicas."""

    @property
    def accepts_sends(self) -> bool: ...

    @property
    def is_slave(self) -> bool: ...

    def enough_in_sync(self) -> bool:
        """The SyncStateSet has minInSyncReplicas members."""
        ...

    def acked_end(self) -> int:
        """End of what every member holds, minInSyncReplicas of them at least."""
        ...


class Log(Protocol):
    """The part of the message store that sends go to."""

    store_host: bytes

    def append(self, messages: Sequence[MessageToStore]) -> list[Appended]: ...


class SendProcessor:
    """Serves codes 10, 310 and 320 of all connections."""

    def __init__(
        self,
        *,
        log: Log,
        topics: Topics,
        groups: SubscriptionGroups,
        replication: Replication,
        pending: PendingSends,
        clock: Clock,
        random: Random,
        cluster_name: str,
        delay_levels: int,
        slave_timeout_ms: int,
        totals: Totals | None = None,
        latencies: Latencies | None = None,
    ) -> None:
        self._log = log
        self._topics = topics
        self._groups = groups
        self._delay_levels = delay_levels
        self._replication = replication
        self._pending = pending
        self._clock = clock
        self._random = random
        self._slave_timeout_ms = slave_timeout_ms
        self._added_properties = (
            f"MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02CLUSTER\x01{cluster_name}\x02"
        )
        self._id_prefix = f"{clock.now_ms():012x}"[-12:].upper()
        self._ids_given = 0
        self._totals = totals
        self._latencies = latencies
        self.stored = 0

    def handle(self, peer: Peer, commands: list[RemotingCommand]) -> None:
        """Answers all of `commands`, at once or when their replication ends."""
        replies: list[RemotingCommand] = []
        accepted: list[tuple[RemotingCommand, SendRequest, str]] = []
        messages: list[MessageToStore] = []
        born_host = packed_address(peer)
        refusal = self._refusal(len(commands))
        for command in commands:
            try:
                if refusal is not None:
                    raise refusal
                request = read_send_request(command.code, command.ext)
                message, uniq_key = self._message(request, command, born_host)
            except Refused as refused:
                _add(replies, command, command.reply(refused.code, refused.remark))
            except HeaderError as error:
                _add(replies, command, command.reply(ResponseCode.SYSTEM_ERROR, str(error)))
            else:
                accepted.append((command, request, uniq_key))
                messages.append(message)
        if messages:
            replies += self._store(peer, accepted, messages)
        if replies:
            if self._latencies is not None:
                self._latencies.answered_at_once(commands, replies, peer.active_at_ms)
            peer.send(replies)

    def _refusal(self, count: int) -> Refused | None:
        """Why nothing is taken at all now."""
        replication = self._replication
        if not replication.accepts_sends:
            if replication.is_slave:
                return Refused(ResponseCode.SYSTEM_BUSY, REJECTED)
            return Refused(ResponseCode.SERVICE_NOT_AVAILABLE, NO_ROLE)
        if self._pending.full:
            return Refused(ResponseCode.SYSTEM_BUSY, REJECTED)
        if not replication.enough_in_sync():
            return Refused(ResponseCode.SYSTEM_ERROR, NOT_ENOUGH)
        return None

    def _message(
        self, request: SendRequest, command: RemotingCommand, born_host: bytes
    ) -> tuple[MessageToStore, str]:
        """What to store for one send, and its client id. Raises Refused, in the order of upstream's checks."""
        name = request.topic
        topic = self._topics.find(name)
        if topic is None:
            check_topic_name(name)
            topic = self._topics.create_for_send(name, request.default_topic, request.default_queue_nums)
            if topic is None:
                raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist, apply first please!")
        if name in NOT_FOR_CLIENTS:
            raise Refused(ResponseCode.NO_PERMISSION, f"Sending message to topic[{name}] is forbidden.")
        queue_id = request.queue_id
        if queue_id >= max(topic.read_queue_nums, topic.write_queue_nums):
            raise Refused(ResponseCode.INVALID_PARAMETER, f"request queueId[{queue_id}] is illegal, {topic}")
        if queue_id < 0:
            queue_id = self._random.randrange(topic.write_queue_nums)
        if name.startswith(RETRY_PREFIX):
            if request.batch:
                raise Refused(ResponseCode.MESSAGE_ILLEGAL, "batch request does not support retry group")
            if self._gives_up(request, command):
                name, queue_id = self._dead_letter(group_of_retry_topic(name)), 0
                request.properties += f"DELAY\x01{NO_DELAY}\x02"
        if request.transactional:
            raise Refused(ResponseCode.NO_PERMISSION, TRANSACTION_UNSUPPORTED)
        if request.timed:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, TIMER_UNSUPPORTED)
        request.queue_id = queue_id
        properties, uniq_key = self._properties(request)
        message = MessageToStore(
            name,
            queue_id,
            memoryview(command.body) if command.body is not None else b"",
            properties,
            request.flag,
            request.sys_flag,
            request.born_timestamp,
            born_host,
            request.reconsume_times,
            0,
            request.batch,
        )
        if level := request.delay_level:
            if request.batch:
                raise Refused(ResponseCode.MESSAGE_ILLEGAL, BATCH_DELAYED)
            message = scheduled(message, level, self._delay_levels)
        return message, uniq_key

    def _gives_up(self, request: SendRequest, command: RemotingCommand) -> bool:
        """Whether a message on its way back to its group was tried often enough. Raises Refused, HeaderError."""
        name = group_of_retry_topic(request.topic)
        group = self._groups.find_or_create(name)
        if group is None:
            raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {name}")
        asked = asked_retries_max(command.code, command.ext)
        return request.reconsume_times > retries_max(group, asked, command.version)

    def _dead_letter(self, group: str) -> str:
        """The dead letter topic of `group`, which exists then."""
        return self._topics.ensure(dead_letter_topic(group), DLQ_QUEUES).topic_name

    def _properties(self, request: SendRequest) -> tuple[bytes, str]:
        """Stored properties and client id. A batch's own are not stored: its members carry theirs."""
        text = request.properties
        at = text.rfind(UNIQ_KEY)
        if at == 0 or (at > 0 and text[at - 1] == "\x02"):
            uniq_key = text[at + len(UNIQ_KEY) : text.index("\x02", at)]
        else:
            self._ids_given += 1
            host = self._log.store_host[:4].hex().upper()
            uniq_key = f"{host}{self._id_prefix}{self._ids_given:012X}"
            text += f"{UNIQ_KEY}{uniq_key}\x02"
        return (b"" if request.batch else (text + self._added_properties).encode()), uniq_key

    def _store(
        self,
        peer: Peer,
        accepted: list[tuple[RemotingCommand, SendRequest, str]],
        messages: list[MessageToStore],
    ) -> list[RemotingCommand]:
        """Appends `messages`; the replies that need not wait."""
        replies: list[RemotingCommand] = []
        deadline_ms = self._clock.monotonic_ms() + self._slave_timeout_ms
        pending = self._pending
        stored, stored_bytes = self.stored, 0
        results = self._log.append(messages)
        for (command, request, uniq_key), appended in zip(accepted, results, strict=True):
            if appended.error is not None:
                code, remark = PUT_ERRORS[appended.error]
                if code == ResponseCode.MESSAGE_ILLEGAL and request.batch and request.sys_flag & COMPRESSED:
                    remark = BATCH_COMPRESSED  # what the C++ client makes of batches of 4 KiB and more
                _add(replies, command, command.reply(code, remark))
                continue
            self.stored += appended.count
            stored_bytes += appended.end_offset - appended.physical_offset
            if command.is_oneway:
                continue
            fields = self._reply_fields(request.queue_id, appended, uniq_key)
            reply = RemotingCommand(ResponseCode.SUCCESS.value, command.opaque, RESPONSE_BIT, None, fields)
            if request.waits_for_replicas:
                pending.add(PendingSend(appended.end_offset, deadline_ms, peer, reply, command.code))
            else:
                replies.append(reply)
        if self._totals is not None:
            self._totals.sends_stored(messages, results, self.stored - stored, stored_bytes)
        pending.acknowledged(self._replication.acked_end())
        return replies

    def _reply_fields(self, queue_id: int, appended: Appended, uniq_key: str) -> dict[str, str]:
        host = self._log.store_host
        if appended.physical_offsets:
            message_id = ",".join(offset_message_id(host, offset) for offset in appended.physical_offsets)
        else:
            message_id = offset_message_id(host, appended.physical_offset)
        return {
            "msgId": message_id,
            "queueId": str(queue_id),
            "queueOffset": str(appended.queue_offset),
            "transactionId": uniq_key,
            **REPLY_PROPERTIES,
        }


def check_topic_name(name: str) -> None:
    """Raises Refused for a name that no topic of a client may have."""
    if not name.strip():
        raise Refused(ResponseCode.INVALID_PARAMETER, "The specified topic is blank.")
    if not TOPIC_NAME.fullmatch(name):
        raise Refused(
            ResponseCode.INVALID_PARAMETER,
            "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$",
        )
    if len(name) > TOPIC_LENGTH_MAX:
        raise Refused(ResponseCode.INVALID_PARAMETER, "The specified topic is longer than topic max length.")


def packed_address(peer: Peer) -> bytes:
    """The peer's address as records hold it; 127.0.0.1:0 when it has none."""
    packed = peer.attributes.get("packed_address")
    if not isinstance(packed, bytes):
        host, _, port = peer.remote_address.rpartition(":")
        try:
            packed = pack_host(str(ipaddress.ip_address(host.strip("[]"))), int(port))
        except ValueError:
            packed = pack_host("127.0.0.1", 0)
        peer.attributes["packed_address"] = packed
    return packed


def _add(replies: list[RemotingCommand], request: RemotingCommand, reply: RemotingCommand) -> None:
    if not request.is_oneway:
        replies.append(reply)
