"""Checks sends, and builds the message that is stored for a send.

Invariant: the checks run in upstream's order, so a send with several faults gets upstream's answer. Every stored message has a
unique key (UNIQ_KEY)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from random import Random

from broker.clients.bounds import NAME_LENGTH_MAX
from broker.clients.refusals import (
    BATCH_DELAYED,
    ENDS_BY_ITSELF,
    HALF_ALONE,
    TIMER_UNSUPPORTED,
    ClientRefused,
    check_topic_name,
)
from broker.replication.writegate import ClientLog
from broker.sends.request import SendRequest, asked_retries_max, asks_for_timer, delay_level, says_half
from broker.sends.retries import DLQ_QUEUES, NO_DELAY, dead_letter_topic, group_of_retry_topic, retries_max
from broker.sends.scheduling import scheduled
from broker.settings.transactions import TransactionSettings
from broker.tables.subscriptiongroups import SubscriptionGroups
from broker.tables.topics import Topics
from broker.transactions.records import facts_of, half_of
from messagestore.batch import SENT_MEMBERS_MAX, BatchError, parse_batch
from messagestore.messages import MessageToStore
from messagestore.systemtopics import NOT_FOR_CLIENTS, RETRY_PREFIX
from mqruntime.clock import Clock
from remoting.bodies.topics import TopicConfig
from remoting.codes import ResponseCode
from remoting.command import Body, RemotingCommand

UNIQ_KEY = "UNIQ_KEY\x01"
ASK_FOR_MORE = (b"DELAY\x01", b"TIMER_DEL", b"TRAN_MSG\x01")
"""Starts of the names of properties that request more than storing the message. In a batch without them no message is
checked."""
GROUP_TOO_LONG = f"the producer group of a transaction is longer than {NAME_LENGTH_MAX} characters"
END_THEM = " (transactionOpenMax): connect their producers, which will be checked"


class SendAdmission:
    """The checks of one broker. Unique keys that it generates begin with the host of `log` and the time of the start."""

    def __init__(
        self,
        *,
        log: ClientLog,
        topics: Topics,
        groups: SubscriptionGroups,
        clock: Clock,
        random: Random,
        cluster_name: str,
        delay_levels: int,
        settings: TransactionSettings,
        open_halves: Callable[[], int],
    ) -> None:
        self._log = log
        self._settings = settings
        self._open_halves = open_halves
        self._topics = topics
        self._groups = groups
        self._random = random
        self._delay_levels = delay_levels
        self._added_properties = (
            f"MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02CLUSTER\x01{cluster_name}\x02"
        )
        self.added_properties = self._added_properties.encode()
        self._started = f"{clock.now_ms():012x}"[-12:].upper()
        self.unique_keys_given = 0

    def message(
        self, request: SendRequest, command: RemotingCommand, born_host: bytes
    ) -> tuple[MessageToStore, str]:
        """The message to store for a send or a batch, and the message's unique key. Sets the chosen queue in `request`. Raises
        Refused, HeaderError."""
        name, topic = request.topic, self._topic(request)
        if name in NOT_FOR_CLIENTS:
            raise ClientRefused(ResponseCode.NO_PERMISSION, f"Sending message to topic[{name}] is forbidden.")
        queue_id = request.queue_id
        if queue_id >= max(topic.read_queue_nums, topic.write_queue_nums):
            raise ClientRefused(
                ResponseCode.INVALID_PARAMETER, f"request queueId[{queue_id}] is illegal, {topic}"
            )
        if queue_id < 0:
            queue_id = self._random.randrange(topic.write_queue_nums)
        if name.startswith(RETRY_PREFIX):
            if request.batch:
                raise ClientRefused(
                    ResponseCode.MESSAGE_ILLEGAL, "batch request does not support retry group"
                )
            if self._gives_up(request, command):
                name, queue_id = self._dead_letter(group_of_retry_topic(name)), 0
                request.properties += f"DELAY\x01{NO_DELAY}\x02"
        level, is_half = request.delay_level, request.is_half
        if request.batch:
            check_members(command.body or b"")
        if is_half:
            self._check_half(request)
        elif request.ends_by_itself:
            raise ClientRefused(ResponseCode.NO_PERMISSION, ENDS_BY_ITSELF)
        if request.timed:
            raise ClientRefused(ResponseCode.MESSAGE_ILLEGAL, TIMER_UNSUPPORTED)
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
        if is_half:
            return self._half(message), uniq_key
        if level:
            if request.batch:
                raise ClientRefused(ResponseCode.MESSAGE_ILLEGAL, BATCH_DELAYED)
            message = scheduled(message, level, self._delay_levels)
        return message, uniq_key

    def _check_half(self, request: SendRequest) -> None:
        """Check that the half may be stored. Raises ClientRefused."""
        if self._settings.reject_transaction_message:
            remark = "the broker sending transaction message is forbidden"
            raise ClientRefused(ResponseCode.NO_PERMISSION, remark)
        if request.batch or request.delay_level:
            raise ClientRefused(ResponseCode.MESSAGE_ILLEGAL, HALF_ALONE)
        if (count := self._open_halves()) >= self._settings.transaction_open_max:
            raise ClientRefused(ResponseCode.SYSTEM_BUSY, f"{count} transactions are open{END_THEM}")

    def _half(self, message: MessageToStore) -> MessageToStore:
        """The half of `message`. Raises ClientRefused for an invalid group."""
        half = half_of(message)
        if len(facts_of(half.properties).group) > NAME_LENGTH_MAX:
            raise ClientRefused(ResponseCode.MESSAGE_ILLEGAL, GROUP_TOO_LONG)
        return half

    @property
    def unique_key_prefix(self) -> bytes:
        """Prefix of generated unique keys; a counter of twelve digits follows."""
        return (self._log.store_host[:4].hex().upper() + self._started).encode()

    def plain_queues(self, name: str) -> int:
        """Plain sends to topic `name` may go to queue ids below this number; 0 if sends to the topic need more checks."""
        topic = self._topics.find(name)
        if topic is None or name in NOT_FOR_CLIENTS or name.startswith(RETRY_PREFIX):
            return 0
        return max(topic.read_queue_nums, topic.write_queue_nums)

    def _topic(self, request: SendRequest) -> TopicConfig:
        """The topic of a send, created if that is allowed. Raises ClientRefused."""
        name = request.topic
        topic = self._topics.find(name)
        if topic is None:
            check_topic_name(name)
            topic = self._topics.create_for_send(name, request.default_topic, request.default_queue_nums)
            if topic is None:
                raise ClientRefused(
                    ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist, apply first please!"
                )
        return topic

    def _gives_up(self, request: SendRequest, command: RemotingCommand) -> bool:
        """Whether a message to a group's retry topic has used up its tries. Raises ClientRefused, HeaderError."""
        name = group_of_retry_topic(request.topic)
        group = self._groups.find_or_create(name)
        if group is None:
            raise ClientRefused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {name}"
            )
        asked = asked_retries_max(command.code, command.ext)
        return request.reconsume_times > retries_max(group, asked, command.version)

    def _dead_letter(self, group: str) -> str:
        """The dead letter topic of `group`, created if it is new."""
        return self._topics.ensure(dead_letter_topic(group), DLQ_QUEUES).topic_name

    def _properties(self, request: SendRequest) -> tuple[bytes, str]:
        """Returns the properties to store, and the message's unique key (UNIQ_KEY); generates a key if the client sent none.
        The properties of a batch itself are not stored, because each message in it has its own."""
        text = request.properties
        at = text.rfind(UNIQ_KEY)
        if at == 0 or (at > 0 and text[at - 1] == "\x02"):
            uniq_key = text[at + len(UNIQ_KEY) : text.index("\x02", at)]
        else:
            self.unique_keys_given += 1
            uniq_key = f"{self.unique_key_prefix.decode()}{self.unique_keys_given:012X}"
            text += f"{UNIQ_KEY}{uniq_key}\x02"
        return (b"" if request.batch else (text + self._added_properties).encode()), uniq_key


def check_members(body: Body) -> None:
    """Check each message of a batch as a single message is checked. Raises ClientRefused. A body that does not parse passes
    here; the store rejects it."""
    content = bytes(body)
    if not any(name in content for name in ASK_FOR_MORE):
        return
    with contextlib.suppress(BatchError):
        for number, member in enumerate(parse_batch(content, SENT_MEMBERS_MAX)):
            properties = member.properties.decode("utf-8", "replace")
            try:
                if delay_level(properties):
                    raise ClientRefused(ResponseCode.MESSAGE_ILLEGAL, BATCH_DELAYED)
                if asks_for_timer(properties):
                    raise ClientRefused(ResponseCode.MESSAGE_ILLEGAL, TIMER_UNSUPPORTED)
                if says_half(properties):
                    raise ClientRefused(ResponseCode.MESSAGE_ILLEGAL, HALF_ALONE)
            except ClientRefused as refused:
                raise ClientRefused(
                    refused.code, f"message {number} of the batch: {refused.remark}"
                ) from None
