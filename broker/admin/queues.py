"""Requests about queues: groups that consume a topic (QUERY_TOPIC_CONSUME_BY_WHO, 300), topics that a group consumes
(QUERY_TOPICS_BY_CONSUMER, 343) and entries of a queue (QUERY_CONSUME_QUEUE, 321).

Invariant: these requests change nothing."""

from __future__ import annotations

from broker.clients.groups import ConsumerGroups
from broker.tables.consumeroffsets import ConsumerOffsets
from messagestore.store.brokerstore import BrokerStore
from remoting.bodies.queues import ConsumeQueueData, QueryConsumeQueueBody
from remoting.bodies.routes import GroupList, TopicList
from remoting.bulk import BulkAnswers
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.headers.admin import GroupHeader, TopicHeader
from remoting.headers.messages import QueryConsumeQueueHeader
from remoting.peer import Peer
from remoting.router import Router

ENTRIES_MAX = 1_000


class QueueRequests:
    """The handlers."""

    def __init__(
        self, store: BrokerStore, consumers: ConsumerGroups, offsets: ConsumerOffsets, bulk: BulkAnswers
    ) -> None:
        self._bulk = bulk
        self._store = store
        self._consumers = consumers
        self._offsets = offsets

    def add_to(self, router: Router) -> None:
        router.add(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, self._consumers_of)
        router.add(RequestCode.QUERY_TOPICS_BY_CONSUMER, self._topics_of)
        router.add(RequestCode.QUERY_CONSUME_QUEUE, self._list)

    async def _consumers_of(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        """The groups that now subscribe to a topic or have committed offsets in it."""
        topic = TopicHeader.from_ext(command.ext).topic
        committed = await self._bulk.get((command.code, topic), lambda: self._offsets.groups_of(topic))
        groups = {*self._consumers.groups_of(topic), *committed}
        return command.reply(body=GroupList(sorted(groups)).encode())

    async def _topics_of(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        group = GroupHeader.from_ext(command.ext).group
        topics = await self._bulk.get((command.code, group), lambda: self._offsets.topics_of(group))
        return command.reply(body=TopicList(sorted(topics)).encode())

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
