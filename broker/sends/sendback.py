"""CONSUMER_SEND_MSG_BACK (36): a consumer hands back what it could not consume.

Invariant: code 0 means that every replica that counts holds the message, in its group's retry topic (after a delay) or
dead letter topic; the consumer moves on after it, so nothing else may be lost here than where sends are lost. Any other
code means: not known to be stored, and clients send it themselves. So it is where an election that lost messages has put
another one into the place of the one that is handed back."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Protocol

from broker.metrics.totals import Totals
from broker.sends.pending import PendingSend
from broker.sends.retries import (
    DLQ_QUEUES,
    NO_DELAY,
    ORIGIN_MESSAGE_ID,
    RETRY_TOPIC,
    dead_letter_topic,
    is_named,
    retries_max,
    retry_level,
    retry_topic,
)
from broker.sends.scheduling import scheduled
from broker.sends.writegate import Log, WriteGate
from broker.tables.subscriptiongroups import SubscriptionGroups
from broker.tables.topics import Topics
from messagestore.messages import MessageToStore
from messagestore.properties import DELAY, WAIT, format_properties
from messagestore.record import Message, decode
from remoting.bodies.groups import SubscriptionGroupConfig
from remoting.bodies.topics import PERM_WRITE, TopicConfig
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.headers.messages import ConsumerSendMsgBackHeader
from remoting.peer import Peer
from remoting.router import Router

NOT_ENOUGH = "IN_SYNC_REPLICAS_NOT_ENOUGH"  # upstream gives the status by name here


class Records(Log, Protocol):
    """The part of the message store that is read and written here."""

    async def message_at(self, physical_offset: int) -> memoryview | None: ...


class SendBack:
    """The handler of 36."""

    def __init__(
        self,
        *,
        store: Records,
        topics: Topics,
        groups: SubscriptionGroups,
        gate: WriteGate,
        random: Random,
        permission: Callable[[], int],
        delay_levels: int,
        totals: Totals | None = None,
    ) -> None:
        self._store = store
        self._topics = topics
        self._groups = groups
        self._gate = gate
        self._random = random
        self._permission = permission
        self._delay_levels = delay_levels
        self._totals = totals

    def add_to(self, router: Router) -> None:
        router.add(RequestCode.CONSUMER_SEND_MSG_BACK, self.handle)

    async def handle(self, peer: Peer, command: RemotingCommand) -> RemotingCommand | None:
        """Answers at once what is refused or dropped, the rest when the replicas have it."""
        header = ConsumerSendMsgBackHeader.from_ext(command.ext)
        if refusal := self._gate.refusal(NOT_ENOUGH):
            return refusal.reply_to(command)
        group = self._groups.find_or_create(header.group)
        if group is None:
            return command.reply(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {header.group}"
            )
        if not self._permission() & PERM_WRITE:
            return command.reply(ResponseCode.NO_PERMISSION, "the broker sending message is forbidden")
        if group.retry_queue_nums <= 0:
            return command.reply()  # this group does not want retries
        topic = self._topics.ensure(retry_topic(header.group), group.retry_queue_nums)
        if not topic.perm & PERM_WRITE:
            return command.reply(
                ResponseCode.NO_PERMISSION, f"the topic[{topic.topic_name}] sending message is forbidden"
            )
        content = await self._store.message_at(header.offset)
        if content is None:
            return command.reply(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {header.offset}")
        failed = decode(content, verify_body=False)
        if not is_named(failed, header.origin_msg_id):
            remark = f"look message by offset failed, {header.offset}: {header.origin_msg_id} is not there any more"
            return command.reply(ResponseCode.SYSTEM_ERROR, remark)
        if refusal := self._gate.refusal(NOT_ENOUGH):  # the role may have changed meanwhile
            return refusal.reply_to(command)
        message = self._next_try(failed, header, group, topic, command.version)
        if self._totals is not None:
            self._totals.message_sent_back(failed.property_map.get(RETRY_TOPIC, failed.topic), header.group)
        return self._put(peer, command, message)

    def _next_try(
        self,
        failed: Message,
        header: ConsumerSendMsgBackHeader,
        group: SubscriptionGroupConfig,
        topic: TopicConfig,
        client_version: int,
    ) -> MessageToStore:
        properties = failed.property_map
        properties.setdefault(RETRY_TOPIC, failed.topic)
        properties.setdefault(ORIGIN_MESSAGE_ID, failed.message_id)
        properties.pop(WAIT, None)
        most = retries_max(group, header.max_reconsume_times, client_version)
        dead = failed.reconsume_times >= most or header.delay_level < 0
        if dead:
            name = self._topics.ensure(dead_letter_topic(header.group), DLQ_QUEUES).topic_name
            queue_id = 0
            properties[DELAY] = NO_DELAY
        else:
            name = topic.topic_name
            queue_id = self._random.randrange(max(min(group.retry_queue_nums, topic.write_queue_nums), 1))
        message = MessageToStore(
            name,
            queue_id,
            failed.body,
            format_properties(properties),
            failed.flag,
            failed.sys_flag,
            failed.born_timestamp,
            failed.born_host,
            failed.reconsume_times + 1,
        )
        if dead:
            return message
        level = retry_level(header.delay_level, failed.reconsume_times)
        return scheduled(message, level, self._delay_levels)

    def _put(self, peer: Peer, command: RemotingCommand, message: MessageToStore) -> RemotingCommand | None:
        (appended,) = self._store.append([message])
        if appended.error is not None:
            return command.reply(ResponseCode.SYSTEM_ERROR, appended.error.name)
        if self._totals is not None:
            self._totals.dead_letter(message.topic)
        if command.is_oneway:
            return None
        gate = self._gate
        unknown = command.reply(ResponseCode.SYSTEM_ERROR, "FLUSH_SLAVE_TIMEOUT")
        gate.pending.add(
            PendingSend(appended.end_offset, gate.deadline_ms(), peer, command.reply(), command.code, unknown)
        )
        gate.settle()
        return None
