"""Requests of administrators that create, show, list and delete topics, or ask for a topic's statistics."""

from __future__ import annotations

from functools import partial

from broker.admin.attributes import AttributesRefused, changes_in, with_changes
from broker.admin.lists import named, why_not_deleted
from broker.admin.progress import QUEUES_A_TURN
from broker.clients.refusals import ClientRefused, check_topic_name
from broker.metrics.recent import RecentTotals
from broker.neighbours.agreement import MetadataReplication
from broker.settings.clients import TOPIC_QUEUES_MAX
from broker.tables.tables import Tables
from messagestore.store.brokerstore import BrokerStore
from mqruntime.clock import Clock
from mqruntime.slices import yield_to_loop
from remoting.bodies.body import LIST_BYTES_MAX
from remoting.bodies.queues import MessageQueue, TopicOffset, TopicStatsTable
from remoting.bodies.routes import TopicList
from remoting.bodies.topics import TopicConfig, TopicConfigList, TopicsForSlaves
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.headers.admin import CreateTopicHeader, TopicHeader
from remoting.peer import Peer
from remoting.router import Router

CONFIGURATION_BYTES_MAX = 8 << 10
"""Limit of the size of one topic with its attributes. Name servers and slaves get all topics in one frame."""
BUILT = {
    "cleanup.policy": ("DELETE", "compacted topics"),
    "queue.type": ("SimpleCQ", "queues of batches"),
    "reserve.time": ("-1", "retention by topic"),
}
"""Attributes of a topic's kind: the only supported value, and the unsupported feature of other values."""


class TopicRequests:
    """The handlers. A change is on the members of the set before the request is answered."""

    def __init__(
        self,
        broker_name: str,
        tables: Tables,
        agreement: MetadataReplication,
        store: BrokerStore,
        recent: RecentTotals,
        clock: Clock,
    ) -> None:
        self._recent = recent
        self._clock = clock
        self._broker_name = broker_name
        self._tables = tables
        self._topics = tables.topics
        self._agreement = agreement
        self._store = store

    def add_to(self, router: Router) -> None:
        router.add(RequestCode.UPDATE_AND_CREATE_TOPIC, self._create)
        router.add(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, self._create_list)
        router.add(RequestCode.GET_TOPIC_CONFIG, self._show)
        router.add(RequestCode.GET_ALL_TOPIC_CONFIG, self._list)
        router.add(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, self._system)
        router.add(RequestCode.GET_TOPIC_STATS_INFO, self._statistics)
        router.add(RequestCode.DELETE_TOPIC_IN_BROKER, self._delete)
        router.add(RequestCode.DELETE_TOPIC_IN_BROKER_LIST, self._delete_list)

    async def _create(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        header = CreateTopicHeader.from_ext(command.ext)
        try:
            changes = changes_in(header.attributes)
        except AttributesRefused as refused:
            return command.reply(ResponseCode.INVALID_PARAMETER, str(refused))
        topic = TopicConfig(
            header.topic,
            header.read_queue_nums,
            header.write_queue_nums,
            header.perm,
            header.topic_filter_type,
            header.topic_sys_flag or 0,
            header.order,
            changes,
        )
        return await self._put([topic], command)

    async def _create_list(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        return await self._put(
            TopicConfigList.from_request(command.body, bytes_max=LIST_BYTES_MAX).topic_config_list, command
        )

    async def _put(self, asked: list[TopicConfig], command: RemotingCommand) -> RemotingCommand:
        """Create or change topics; attributes in `asked` are changes."""
        try:
            topics = [with_changes(topic, self._topics.find(topic.topic_name)) for topic in asked]
        except AttributesRefused as refused:
            return command.reply(ResponseCode.INVALID_PARAMETER, str(refused))
        for topic in topics:
            why = self._why_not(topic)
            if why is not None:
                return command.reply(ResponseCode.INVALID_PARAMETER, why)

        def put() -> None:
            for topic in topics:
                if self._topics.find(topic.topic_name) != topic:
                    self._topics.put(topic)

        what = f"topic {named([topic.topic_name for topic in topics])}"
        return await self._agreement.change(command, what, put)

    def _why_not(self, topic: TopicConfig) -> str | None:
        try:
            check_topic_name(topic.topic_name)
        except ClientRefused as refused:
            return refused.remark
        if topic.topic_name in self._topics.system_names:
            return f"The topic[{topic.topic_name}] is conflict with system topic."
        if not (
            0 < topic.read_queue_nums <= TOPIC_QUEUES_MAX and 0 < topic.write_queue_nums <= TOPIC_QUEUES_MAX
        ):
            return f"queue numbers must be within 1..{TOPIC_QUEUES_MAX}"
        if (unbuilt := self._unbuilt(topic)) is not None:
            return unbuilt
        if (size := len(topic.encode())) > CONFIGURATION_BYTES_MAX:
            return f"a topic with its attributes has {CONFIGURATION_BYTES_MAX} bytes at most, this one {size}"
        return None

    def _unbuilt(self, topic: TopicConfig) -> str | None:
        """The attribute in `topic` that would have no effect; None if there is none. An attribute that the topic already has,
        for example from a Java broker, may stay."""
        known = self._topics.find(topic.topic_name)
        before = known.attributes if known is not None else {}
        for key, (value, what) in BUILT.items():
            asked = topic.attributes.get(key, value)
            if asked not in (value, before.get(key)):
                return f"attribute {key}={asked} of topic {topic.topic_name}: not built here: {what}"
        return None

    def _show(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        name = TopicHeader.from_ext(command.ext).topic
        topic = self._topics.find(name)
        if topic is None:
            return command.reply(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {name}")
        return command.reply(body=topic.encode())

    def _list(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        table = self._topics.wrapper()
        deleted = self._tables.deletions.topic_ends()
        body = TopicsForSlaves(table.topic_config_table, table.data_version, deleted_topics=deleted)
        return command.reply(body=body.encode())

    def _system(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        return command.reply(body=TopicList(sorted(self._topics.system_names)).encode())

    async def _statistics(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        name = TopicHeader.from_ext(command.ext).topic
        topic = self._topics.find(name)
        if topic is None:
            return command.reply(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist")
        store, table = self._store, TopicStatsTable()
        table.topic_put_tps = self._recent.per_second("TOPIC_PUT_NUMS", name, self._clock.monotonic_ms())
        for queue_id in range(max(topic.read_queue_nums, topic.write_queue_nums)):
            if queue_id % QUEUES_A_TURN == QUEUES_A_TURN - 1:
                await yield_to_loop()
            first, end = store.min_queue_offset(name, queue_id), store.max_queue_offset(name, queue_id)
            last_ms = await store.store_time_at(name, queue_id, end - 1) if end > first else 0
            queue = MessageQueue(name, self._broker_name, queue_id)
            table.offset_table[queue] = TopicOffset(max(first, 0), max(end, 0), max(last_ms, 0))
        return command.reply(body=table.encode())

    async def _delete(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        return await self._deleted([TopicHeader.from_ext(command.ext).topic], command)

    async def _delete_list(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        """DELETE_TOPIC_IN_BROKER_LIST (5002, from 5.5.1 on): delete all of the topics or none."""
        names = TopicList.from_request(command.body).topic_list
        if (why := why_not_deleted("topic", names)) is not None:
            return command.reply(ResponseCode.INVALID_PARAMETER, why)
        return await self._deleted(names, command)

    async def _deleted(self, names: list[str], command: RemotingCommand) -> RemotingCommand:
        for name in names:
            if name in self._topics.system_names:
                why = f"The topic[{name}] is conflict with system topic."
                return command.reply(ResponseCode.INVALID_PARAMETER, why)

        def delete(name: str) -> None:
            self._tables.delete_topic(name, self._store.max_offset())

        steps = [partial(delete, name) for name in names]
        return await self._agreement.change_in_steps(command, f"the deletion of topic {named(names)}", steps)
