"""Lag of consumer groups by queue: of one group (GET_CONSUME_STATS, 208), of all groups (GET_BROKER_CONSUME_STATS, 317), and as
time spans (QUERY_CONSUME_TIME_SPAN, 303).

Invariant: a queue ends at its last readable message. As in upstream, a group without a committed offset counts from 0."""

from __future__ import annotations

from broker.clients.groups import ConsumerGroups
from broker.metrics.recent import RecentTotals
from broker.tables.tables import Tables
from messagestore.store.brokerstore import BrokerStore
from mqruntime.clock import Clock
from mqruntime.slices import yield_to_loop
from remoting.bodies.queues import (
    ConsumeStats,
    ConsumeStatsList,
    MessageQueue,
    OffsetWrapper,
    QueueTimeSpan,
    QueueTimeSpans,
)
from remoting.bulk import BulkAnswers
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.headers.admin import ConsumeStatsInBrokerHeader, GetConsumeStatsHeader, GroupAndTopicHeader
from remoting.peer import Peer
from remoting.router import Router

QUEUES_A_TURN = 1_000
"""A topic may have 65,536 queues, each of which takes up to 8 us."""


class ProgressRequests:
    """The handlers."""

    def __init__(
        self,
        broker_name: str,
        tables: Tables,
        store: BrokerStore,
        consumers: ConsumerGroups,
        recent: RecentTotals,
        clock: Clock,
        bulk: BulkAnswers,
    ) -> None:
        self._bulk = bulk
        self._broker_name = broker_name
        self._topics = tables.topics
        self._groups = tables.groups
        self._offsets = tables.offsets
        self._store = store
        self._consumers = consumers
        self._recent = recent
        self._clock = clock

    def add_to(self, router: Router) -> None:
        router.add(RequestCode.GET_CONSUME_STATS, self._of_one)
        router.add(RequestCode.GET_BROKER_CONSUME_STATS, self._of_all)
        router.add(RequestCode.QUERY_CONSUME_TIME_SPAN, self._time_spans)

    async def _of_one(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        header = GetConsumeStatsHeader.from_ext(command.ext)
        group = header.consumer_group
        wanted = list(dict.fromkeys(name for name in (header.topic_list or "").split(";") if name)) or (
            [header.topic]
            if header.topic
            else await self._bulk.get((command.code, group), lambda: self._offsets.topics_of(group))
        )
        return command.reply(body=(await self._stats(header.consumer_group, wanted)).encode())

    async def _of_all(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        """The lag of every group, in the topics in which the group has offsets and that it still subscribes to."""
        ordered_only = ConsumeStatsInBrokerHeader.from_ext(command.ext).is_order
        found = ConsumeStatsList()
        topics_by_group = await self._bulk.get(command.code, self._offsets.topics_by_group)
        for group in sorted(self._groups.wrapper.subscription_group_table):
            connected = self._consumers.find(group)
            each = []
            for name in sorted(topics_by_group.get(group, ())):
                topic = self._topics.find(name)
                left = connected is not None and name not in connected.subscriptions
                if topic is None or left or (ordered_only and not topic.order):
                    continue
                stats = await self._stats(group, [name])
                each.append(stats)
                rows = stats.offset_table.values()
                found.total_diff += sum(row.broker_offset - row.consumer_offset for row in rows)
            found.consume_stats_list.append({group: each})
        return command.reply(body=found.encode())

    async def _stats(self, group: str, names: list[str]) -> ConsumeStats:
        stats, store, now_ms = ConsumeStats(), self._store, self._clock.monotonic_ms()
        for name in names:
            topic = self._topics.find(name)
            for queue_id in range(topic.read_queue_nums if topic else 0):
                if queue_id % QUEUES_A_TURN == QUEUES_A_TURN - 1:
                    await yield_to_loop()
                end = max(store.max_queue_offset(name, queue_id), 0)
                done = self._offsets.find(group, name, queue_id) or 0
                last_ms = max(await store.store_time_at(name, queue_id, done - 1), 0) if done > 0 else 0
                queue = MessageQueue(name, self._broker_name, queue_id)
                stats.offset_table[queue] = OffsetWrapper(end, done, done, last_ms)
            await yield_to_loop()
            stats.consume_tps += self._recent.per_second("GROUP_GET_NUMS", f"{name}@{group}", now_ms)
        return stats

    async def _time_spans(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        header = GroupAndTopicHeader.from_ext(command.ext)
        topic = self._topics.find(header.topic)
        if topic is None:
            return command.reply(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist")
        spans: list[QueueTimeSpan] = []
        for queue_id in range(topic.write_queue_nums):
            if queue_id % QUEUES_A_TURN == QUEUES_A_TURN - 1:
                await yield_to_loop()
            spans.append(await self._time_span(header.group, header.topic, queue_id))
        return command.reply(body=QueueTimeSpans(spans).encode())

    async def _time_span(self, group: str, topic: str, queue_id: int) -> QueueTimeSpan:
        store = self._store
        first, end = store.min_queue_offset(topic, queue_id), store.max_queue_offset(topic, queue_id)
        done = self._offsets.find(group, topic, queue_id) or 0
        begin_ms = await store.store_time_at(topic, queue_id, first)
        last_ms = await store.store_time_at(topic, queue_id, end - 1)
        done_ms = await store.store_time_at(topic, queue_id, done - 1) if done > 0 else begin_ms
        next_ms = await store.store_time_at(topic, queue_id, max(done, first)) if done < end else -1
        behind_ms = max(self._clock.now_ms() - next_ms, 0) if next_ms >= 0 else 0
        queue = MessageQueue(topic, self._broker_name, queue_id)
        return QueueTimeSpan(queue, begin_ms, last_ms, done_ms, behind_ms)
