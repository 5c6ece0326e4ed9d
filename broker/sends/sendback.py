"""CONSUMER_SEND_MSG_BACK (36): a consumer sends back a message that it could not consume.

Invariant: SUCCESS (0) is answered only once the message is in its group's retry topic (after a delay) or dead letter topic, and
the replicas hold it as they hold an acknowledged send. The consumer then continues, so the message may be lost only if sends
may be lost. After any other code the message is not known to be stored, and the client sends it itself. This includes a message
that an election lost and whose offset another message has now. Requests that arrive together are stored with one append, unless
their messages are long."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Protocol

from accesscontrol.guard import Access
from broker.access.needs import SUB, topic_need
from broker.clients.refusals import REJECTED, ClientRefused
from broker.metrics.latencies import Latencies
from broker.metrics.totals import Totals
from broker.replication.pending import PendingSend
from broker.replication.writegate import ClientLog, WriteGate
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
from broker.tables.subscriptiongroups import SubscriptionGroups
from broker.tables.topics import Topics
from messagestore.errors import RecordDamaged
from messagestore.messages import MessageToStore
from messagestore.properties import DELAY, WAIT, format_properties
from messagestore.record import Message, decode
from messagestore.systemtopics import HALF_TOPIC, OP_HALF_TOPIC, SCHEDULE_TOPIC
from mqruntime.log import fields
from mqruntime.slices import yield_to_loop
from mqruntime.tasks import Tasks
from remoting.bodies.groups import SubscriptionGroupConfig
from remoting.bodies.topics import PERM_WRITE, TopicConfig
from remoting.codes import ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import HeaderError
from remoting.headers.messages import ConsumerSendMsgBackHeader
from remoting.peer import Peer

RUNNING_MAX = 1_000
"""Limit of receives whose records are read at the same time."""
PORTION_BYTES = 1 << 20
"""Messages of a receive that have so many bytes are stored before more are read: a message may have 4 MiB."""
logger = logging.getLogger("broker.sendback")

NO_CONSUMER_HAS = (HALF_TOPIC, OP_HALF_TOPIC, SCHEDULE_TOPIC)

NOT_ENOUGH = "IN_SYNC_REPLICAS_NOT_ENOUGH"  # upstream answers with the name of the status


@dataclass(slots=True)
class HandedBack:
    """A message that is sent back to its group."""

    message: Message
    header: ConsumerSendMsgBackHeader
    group: SubscriptionGroupConfig
    topic: TopicConfig
    client_version: int


class SendBackLog(ClientLog, Protocol):
    """The part of the message store that send-back uses."""

    async def listed_at(self, physical_offset: int) -> memoryview | None: ...


class SendBack:
    """Serves CONSUMER_SEND_MSG_BACK (36) of all connections; `tasks` run the reads of records."""

    def __init__(
        self,
        *,
        store: SendBackLog,
        topics: Topics,
        groups: SubscriptionGroups,
        gate: WriteGate,
        random: Random,
        permission: Callable[[], int],
        delay_levels: int,
        tasks: Tasks,
        access: Access,
        totals: Totals | None = None,
        latencies: Latencies | None = None,
    ) -> None:
        self._store = store
        self._topics = topics
        self._groups = groups
        self._gate = gate
        self._random = random
        self._permission = permission
        self._delay_levels = delay_levels
        self._tasks = tasks
        self._access = access
        self._totals = totals
        self._latencies = latencies
        self._running = 0

    def handle(self, peer: Peer, commands: list[RemotingCommand]) -> None:
        """Answer all `commands`, which arrived together. Rejected and dropped messages are answered at once, the rest when the
        replicas have them. Records may have to be read from disk first."""
        refusal = self._gate.refusal(NOT_ENOUGH)
        if refusal is None and self._running >= RUNNING_MAX:
            refusal = ClientRefused(ResponseCode.SYSTEM_BUSY, REJECTED)
        if refusal is not None:
            self._answer(peer, commands, [refusal.reply_to(each) for each in commands], peer.active_at_ms)
            return
        self._running += 1
        name = f"{len(commands)} messages sent back by {peer.remote_address}"
        self._tasks.start(self._hand_back(peer, commands, peer.active_at_ms), name=name)

    async def _hand_back(self, peer: Peer, commands: list[RemotingCommand], arrived_ms: int) -> None:
        rest = deque(commands)
        try:
            while rest:
                await self._hand_back_some(peer, rest, arrived_ms)
                if rest:
                    await yield_to_loop()
        finally:
            self._running -= 1

    async def _hand_back_some(self, peer: Peer, rest: deque[RemotingCommand], arrived_ms: int) -> None:
        """Take commands from `rest` until their messages have PORTION_BYTES, and answer them."""
        taken: list[RemotingCommand] = []
        handed: list[RemotingCommand | HandedBack] = []
        size = 0
        try:
            while rest and size < PORTION_BYTES:
                taken.append(rest.popleft())
                one = await self._handed_back(peer, taken[-1])
                handed.append(one)
                size += len(one.message.body) if isinstance(one, HandedBack) else 0
            replies = self._stored_or_answered(peer, taken, handed)
        except AssertionError:
            raise
        except Exception as error:  # noqa: BLE001 - as in remoting.dispatch: the client gets an answer and the broker lives
            logger.error("messages not handed back", exc_info=error)
            why = f"{type(error).__name__}: {error}"
            replies = [each.reply(ResponseCode.SYSTEM_ERROR, why) for each in taken]
        self._answer(peer, taken, replies, arrived_ms)

    def _stored_or_answered(
        self, peer: Peer, commands: list[RemotingCommand], handed: list[RemotingCommand | HandedBack]
    ) -> list[RemotingCommand]:
        """Store the messages in `handed`. Returns the answers that need not wait."""
        accepted: list[tuple[RemotingCommand, MessageToStore]] = []
        replies: list[RemotingCommand] = []
        refusal = self._gate.refusal(NOT_ENOUGH)  # the role may have changed during the reads
        for command, one in zip(commands, handed, strict=True):
            if isinstance(one, RemotingCommand):
                replies.append(one)
            elif refusal is not None:
                replies.append(refusal.reply_to(command))
            else:
                accepted.append((command, self._next_try(one)))
        return replies + (self._put(peer, accepted) if accepted else [])

    def _answer(
        self, peer: Peer, commands: list[RemotingCommand], replies: list[RemotingCommand], arrived_ms: int
    ) -> None:
        oneway = {command.opaque for command in commands if command.is_oneway}
        wanted = [reply for reply in replies if reply.opaque not in oneway]
        if wanted:
            if self._latencies is not None:
                self._latencies.answered_at_once(commands, wanted, arrived_ms)
            peer.send(wanted)

    async def _handed_back(self, peer: Peer, command: RemotingCommand) -> RemotingCommand | HandedBack:
        """The message that `command` names, or the answer to `command`."""
        try:
            header = ConsumerSendMsgBackHeader.from_ext(command.ext)
            return await self._checked(peer, command, header)
        except HeaderError as error:
            return command.reply(ResponseCode.SYSTEM_ERROR, str(error))
        except (RecordDamaged, OSError) as error:
            logger.error("message not handed back", extra=fields(at=header.offset, why=error))
            return command.reply(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")

    async def _checked(
        self, peer: Peer, command: RemotingCommand, header: ConsumerSendMsgBackHeader
    ) -> RemotingCommand | HandedBack:
        group = self._groups.find_or_create(header.group)
        if group is None:
            return command.reply(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {header.group}"
            )
        if not self._permission() & PERM_WRITE:
            return command.reply(ResponseCode.NO_PERMISSION, "the broker sending message is forbidden")
        if group.retry_queue_nums <= 0:
            return command.reply()  # the group has no retries: the message is dropped
        topic = self._topics.ensure(retry_topic(header.group), group.retry_queue_nums)
        if not topic.perm & PERM_WRITE:
            return command.reply(
                ResponseCode.NO_PERMISSION, f"the topic[{topic.topic_name}] sending message is forbidden"
            )
        content = await self._store.listed_at(header.offset)
        if content is None:
            return command.reply(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {header.offset}")
        failed = decode(content, verify_body=False)
        if failed.topic in NO_CONSUMER_HAS:
            remark = f"look message by offset failed, {header.offset}: it is in {failed.topic}"
            return command.reply(ResponseCode.SYSTEM_ERROR, remark)
        need = topic_need(
            failed.topic, SUB
        )  # otherwise a group could read any topic through its own retry topic
        if (why := self._access.why_not(peer, command, need)) is not None:
            return command.reply(ResponseCode.NO_PERMISSION, why)
        if not is_named(failed, header.origin_msg_id):
            remark = f"look message by offset failed, {header.offset}: {header.origin_msg_id} is not there any more"
            return command.reply(ResponseCode.SYSTEM_ERROR, remark)
        return HandedBack(failed, header, group, topic, command.version)

    def _next_try(self, handed: HandedBack) -> MessageToStore:
        failed, header, group = handed.message, handed.header, handed.group
        properties = failed.property_map
        properties.setdefault(RETRY_TOPIC, failed.topic)
        if self._totals is not None:
            self._totals.message_sent_back(properties[RETRY_TOPIC], header.group)
        properties.setdefault(ORIGIN_MESSAGE_ID, failed.message_id)
        properties.pop(WAIT, None)
        most = retries_max(group, header.max_reconsume_times, handed.client_version)
        dead = failed.reconsume_times >= most or header.delay_level < 0
        if dead:
            name = self._topics.ensure(dead_letter_topic(header.group), DLQ_QUEUES).topic_name
            queue_id = 0
            properties[DELAY] = NO_DELAY
        else:
            name = handed.topic.topic_name
            queues = min(group.retry_queue_nums, handed.topic.write_queue_nums)
            queue_id = self._random.randrange(max(queues, 1))
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
            stored_before=True,
        )
        if dead:
            return message
        level = retry_level(header.delay_level, failed.reconsume_times)
        return scheduled(message, level, self._delay_levels)

    def _put(
        self, peer: Peer, accepted: list[tuple[RemotingCommand, MessageToStore]]
    ) -> list[RemotingCommand]:
        """Store the messages with one append. Returns the answers for messages that were not stored."""
        refused: list[RemotingCommand] = []
        gate, deadline_ms = self._gate, self._gate.deadline_ms()
        results = self._store.append([message for _, message in accepted])
        for (command, message), appended in zip(accepted, results, strict=True):
            if appended.error is not None:
                why = f"{appended.error.name}: {appended.why}" if appended.why else appended.error.name
                refused.append(command.reply(ResponseCode.SYSTEM_ERROR, why))
                continue
            if self._totals is not None:
                self._totals.dead_letter(message.topic)
            if not command.is_oneway:
                unknown = command.reply(ResponseCode.SYSTEM_ERROR, "FLUSH_SLAVE_TIMEOUT")
                gate.pending.add(
                    PendingSend(
                        appended.end_offset, deadline_ms, peer, command.reply(), command.code, unknown
                    )
                )
        gate.settle()
        return refused
