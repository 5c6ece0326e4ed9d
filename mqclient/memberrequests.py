"""Requests of brokers to the members of groups in this client: that a group has changed (40), that an administrator moved it
(220), for offsets (221) and for the state of a member (307), and to consume a message now (309). Upstream:
ClientRemotingProcessor.

Invariant: a request for a group without a subscription here changes nothing, and is answered with an error."""

from __future__ import annotations

from mqclient.errors import GroupTaken
from mqclient.groupconsumer import GroupConsumer
from mqclient.message import RecordMalformed, decode_messages
from mqclient.received import ReceivedMessage
from mqclient.route import MessageQueue
from mqruntime.clock import Clock
from remoting.bodies.body import LIST_BYTES_MAX
from remoting.bodies.queues import (
    ConsumeDirectlyResult,
    ConsumerQueues,
    ConsumerStatusBody,
    ProcessQueueInfo,
    ResetOffsetBody,
)
from remoting.bodies.queues import MessageQueue as WireQueue
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.headers.admin import ConsumerGroupHeader, ConsumerStatusHeader, GetConsumerRunningInfoHeader
from remoting.headers.messages import ConsumeMessageDirectlyHeader
from remoting.headers.offsets import ResetOffsetHeader
from remoting.peer import Peer
from remoting.router import Router

DIRECT_S = 8.0
"""A message that an administrator sends is to be finished in this time. The broker waits for 10 s."""


class MemberRequests:
    """The handlers. A group has at most one subscription in a client."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._subscriptions: dict[str, GroupConsumer] = {}

    def add_to(self, router: Router) -> None:
        router.add(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, self._group_changed)
        router.add(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, self._moved)
        router.add(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, self._offsets)
        router.add(RequestCode.GET_CONSUMER_RUNNING_INFO, self._state)
        router.add(RequestCode.CONSUME_MESSAGE_DIRECTLY, self._consume)

    def check_free(self, group: str) -> None:
        """Raises GroupTaken if the group has a subscription here."""
        if group in self._subscriptions:
            raise GroupTaken(group, "a subscription")

    def add(self, subscription: GroupConsumer) -> None:
        """Raises GroupTaken."""
        self.check_free(subscription.group)
        self._subscriptions[subscription.group] = subscription

    def remove(self, subscription: GroupConsumer) -> None:
        if self._subscriptions.get(subscription.group) is subscription:
            del self._subscriptions[subscription.group]

    def all(self) -> list[GroupConsumer]:
        return list(self._subscriptions.values())

    def disconnected(self, address: str) -> None:
        """The connection to a broker has ended."""
        for subscription in self.all():
            subscription.member.disconnected(address)

    def _group_changed(self, peer: Peer, command: RemotingCommand) -> None:
        group = ConsumerGroupHeader.from_ext(command.ext).consumer_group
        if (subscription := self._subscriptions.get(group)) is not None:
            subscription.member.rebalance_soon()

    async def _moved(self, peer: Peer, command: RemotingCommand) -> None:
        subscription = self._subscriptions.get(ResetOffsetHeader.from_ext(command.ext).group)
        table = ResetOffsetBody.from_request(command.body, bytes_max=LIST_BYTES_MAX).offset_table
        if subscription is not None:
            await subscription.moved(
                {
                    MessageQueue(queue.topic, queue.broker_name, queue.queue_id): offset
                    for queue, offset in table.items()
                }
            )

    def _offsets(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        header = ConsumerStatusHeader.from_ext(command.ext)
        subscription = self._subscriptions.get(header.group)
        if subscription is None:
            return _not_here(command, header.group)
        table = {
            _wire(queue): puller.progress.committed
            for queue, puller in subscription.pullers.items()
            if queue.topic == header.topic and puller.progress is not None
        }
        return command.reply(body=ConsumerStatusBody(table).encode())

    def _state(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        header = GetConsumerRunningInfoHeader.from_ext(command.ext)
        subscription = self._subscriptions.get(header.consumer_group)
        if subscription is None:
            return _not_here(command, header.consumer_group)
        since_ms = self._clock.now_ms() - self._clock.monotonic_ms()
        table = {}
        for queue, puller in subscription.pullers.items():
            if (progress := puller.progress) is not None:
                table[_wire(queue)] = ProcessQueueInfo(
                    commit_offset=progress.committed,
                    cached_msg_min_offset=progress.committed if progress.count else 0,
                    cached_msg_max_offset=progress.last_offset,
                    cached_msg_count=progress.count,
                    cached_msg_size_in_mi_b=progress.size_bytes >> 20,
                    locked=puller.is_locked,
                    last_pull_timestamp=since_ms + puller.last_pull_ms,
                    last_consume_timestamp=since_ms + puller.last_taken_ms,
                )
        properties = {
            "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
            "PROP_CONSUMEORDERLY": str(subscription.options.ordered).lower(),
            "PROP_CLIENT_VERSION": "autoswitch-mq mqclient",
            "PROP_CONSUMER_START_TIMESTAMP": str(subscription.version),
        }
        body = ConsumerQueues(table, {}, properties, subscription.subscription_data)
        return command.reply(body=body.encode())

    async def _consume(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        header = ConsumeMessageDirectlyHeader.from_ext(command.ext)
        subscription = self._subscriptions.get(header.consumer_group)
        if subscription is None:
            return _not_here(command, header.consumer_group)
        try:
            (stored,) = decode_messages(command.body or b"")
        except (RecordMalformed, ValueError) as error:
            return command.reply(ResponseCode.SYSTEM_ERROR, f"no message: {error}")
        queue = MessageQueue(stored.topic, header.broker_name or "", stored.queue_id)
        begun_ms = self._clock.monotonic_ms()
        message = ReceivedMessage(stored, queue, stored.reconsume_times + 1)
        is_done = await subscription.consume_directly(message, DIRECT_S)
        took_ms = self._clock.monotonic_ms() - begun_ms
        if is_done is None:
            result = ConsumeDirectlyResult(
                consume_result="CR_THROW_EXCEPTION",
                remark=f"the application did not finish it in {DIRECT_S:.0f} s",
                spent_time_mills=took_ms,
            )
        else:
            said = "CR_SUCCESS" if is_done else "CR_LATER"
            result = ConsumeDirectlyResult(
                order=subscription.options.ordered, consume_result=said, spent_time_mills=took_ms
            )
        return command.reply(body=result.encode())


def _not_here(command: RemotingCommand, group: str) -> RemotingCommand:
    remark = f"The Consumer Group <{group}> not exist in this consumer"
    return command.reply(ResponseCode.SYSTEM_ERROR, remark)


def _wire(queue: MessageQueue) -> WireQueue:
    return WireQueue(queue.topic, queue.broker_name, queue.queue_id)
