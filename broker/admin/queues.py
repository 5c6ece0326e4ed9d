"""Requests that look at queues as administrators do: who consumes a topic (300), what a group consumes (343), what a queue
lists (321), and moving a group in it (222), also to where another group is (314).

Invariant: a moved group is told its new offset by its next pull, whatever it commits before; the offset is on disk
before the administrator hears of it."""

from __future__ import annotations

from broker.clients.groups import ConsumerGroups
from broker.role.membership import Membership
from broker.tables.consumeroffsets import NO_ROOM, ConsumerOffsets
from broker.tables.savedtable import SavedTable
from broker.tables.subscriptiongroups import SubscriptionGroups
from broker.tables.topics import Topics
from messagestore.brokerstore import BrokerStore
from remoting.bodies.queues import ConsumeQueueData, MessageQueue, QueryConsumeQueueBody, ResetOffsetBody
from remoting.bodies.routes import GroupList, TopicList
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.headers.admin import CloneGroupOffsetHeader, GroupHeader, TopicHeader
from remoting.headers.messages import QueryConsumeQueueHeader
from remoting.headers.offsets import ResetOffsetHeader
from remoting.peer import Peer
from remoting.router import Router

ENTRIES_MAX = 1_000


class QueueRequests:
    """Their handlers. Consumers take their offsets from masters, so only these move them."""

    def __init__(
        self,
        *,
        broker_name: str,
        role: Membership,
        store: BrokerStore,
        topics: Topics,
        groups: SubscriptionGroups,
        consumers: ConsumerGroups,
        offsets: ConsumerOffsets,
        saved_offsets: SavedTable,
    ) -> None:
        self._broker_name = broker_name
        self._role = role
        self._store = store
        self._topics = topics
        self._groups = groups
        self._consumers = consumers
        self._offsets = offsets
        self._saved_offsets = saved_offsets

    def add_to(self, router: Router) -> None:
        router.add(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, self._consumers_of)
        router.add(RequestCode.QUERY_TOPICS_BY_CONSUMER, self._topics_of)
        router.add(RequestCode.QUERY_CONSUME_QUEUE, self._list)
        router.add(RequestCode.CLONE_GROUP_OFFSET, self._clone)
        router.add(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, self._reset)

    def _consumers_of(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        """The groups that subscribe to a topic now or have committed offsets in it."""
        topic = TopicHeader.from_ext(command.ext).topic
        groups = {*self._consumers.groups_of(topic), *self._offsets.groups_of(topic)}
        return command.reply(body=GroupList(sorted(groups)).encode())

    def _topics_of(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        group = GroupHeader.from_ext(command.ext).group
        return command.reply(body=TopicList(sorted(self._offsets.topics_of(group))).encode())

    def _list(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        header = QueryConsumeQueueHeader.from_ext(command.ext)
        store, topic, queue_id, group = (
            self._store,
            header.topic,
            header.queue_id,
            header.consumer_group or "",
        )
        if (topic, queue_id) not in store.queues():
            return command.reply(ResponseCode.SYSTEM_ERROR, f"{queue_id}@{topic} is not exist!")
        first, end = store.min_queue_offset(topic, queue_id), store.max_queue_offset(topic, queue_id)
        body = QueryConsumeQueueBody(min_queue_index=first, max_queue_index=end)
        subscription = self._consumers.subscription(group, topic)
        if subscription is not None:
            body.subscription_data = subscription.data
        elif group:
            body.filter_data = f"{group}@{topic} is not online!"
        wanted = subscription.filter if subscription is not None else None
        count = min(header.count, ENTRIES_MAX)
        body.queue_data = [
            ConsumeQueueData(
                entry.physical_offset,
                entry.size,
                entry.tags_code,
                eval=subscription is not None and (wanted is None or wanted(entry.tags_code)),
            )
            for entry in store.entries(topic, queue_id, max(header.index, first), count)
        ]
        return command.reply(body=body.encode())

    async def _reset(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        header = ResetOffsetHeader.from_ext(command.ext)
        if not self._role.accepts_sends:
            return command.reply(ResponseCode.SYSTEM_ERROR, "Can not reset offset in slave broker")
        topic = self._topics.find(header.topic)
        if topic is None:
            return command.reply(ResponseCode.TOPIC_NOT_EXIST, f"Topic {header.topic} does not exist")
        if self._groups.find(header.group) is None:
            return command.reply(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {header.group} does not exist"
            )
        if header.queue_id >= topic.read_queue_nums:
            return command.reply(
                ResponseCode.SYSTEM_ERROR,
                f"queue {header.queue_id} is none of the {topic.read_queue_nums} of {header.topic}",
            )
        queues = [header.queue_id] if header.queue_id >= 0 else range(topic.read_queue_nums)
        wanted = {queue_id: await self._target(header, queue_id) for queue_id in queues}
        for queue_id, offset in wanted.items():
            first = self._store.min_queue_offset(header.topic, queue_id)
            end = self._store.max_queue_offset(header.topic, queue_id)
            if not first <= offset <= end:
                return command.reply(
                    ResponseCode.SYSTEM_ERROR,
                    f"Target offset {offset} not in consume queue range [{first}-{end}]",
                )
        for queue_id, offset in wanted.items():
            if not self._offsets.reset(header.group, header.topic, queue_id, offset):
                return command.reply(ResponseCode.SYSTEM_ERROR, NO_ROOM)
        self._saved_offsets.changed()
        await self._saved_offsets.save()
        body = ResetOffsetBody(
            {MessageQueue(header.topic, self._broker_name, queue_id): at for queue_id, at in wanted.items()}
        )
        return command.reply(body=body.encode())

    async def _clone(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        """A topic that the source group reads no more is left out, unless it is said to be offline."""
        header = CloneGroupOffsetHeader.from_ext(command.ext)
        if not self._role.accepts_sends:
            return command.reply(ResponseCode.SYSTEM_ERROR, "Can not clone offsets in slave broker")
        source = self._consumers.find(header.src_group)
        for name in [header.topic] if header.topic else self._offsets.topics_of(header.src_group):
            topic = self._topics.find(name)
            left = source is not None and name not in source.subscriptions and not header.offline
            for queue_id in range(topic.read_queue_nums if topic is not None and not left else 0):
                offset = self._offsets.find(header.src_group, name, queue_id)
                if offset is not None and not self._offsets.reset(header.dest_group, name, queue_id, offset):
                    return command.reply(ResponseCode.SYSTEM_ERROR, NO_ROOM)
        self._saved_offsets.changed()
        await self._saved_offsets.save()
        return command.reply()

    async def _target(self, header: ResetOffsetHeader, queue_id: int) -> int:
        """Where a queue goes on: the given offset, the end, or the first message stored at or after a time."""
        if header.queue_id >= 0 and header.offset is not None and header.offset >= 0:
            return header.offset
        if header.timestamp < 0:
            return self._store.max_queue_offset(header.topic, queue_id)
        return await self._store.offset_by_time(header.topic, queue_id, header.timestamp)
