"""Requests about offsets: the first, the last and those by time of a queue, and the committed offsets of consumer groups."""

from __future__ import annotations

from broker.clients.refusals import no_lite_topic
from broker.clients.requesters import is_passed_on
from broker.tables.consumeroffsets import NO_ROOM, ConsumerOffsets
from broker.tables.subscriptiongroups import NAME_RULE, is_group_name
from broker.tables.topics import Topics
from messagestore.store.brokerstore import BrokerStore
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.headers.offsets import (
    GetMaxOffsetHeader,
    OffsetResponseHeader,
    QueryConsumerOffsetHeader,
    QueueHeader,
    SearchOffsetHeader,
    TimestampResponseHeader,
    UpdateConsumerOffsetHeader,
)
from remoting.peer import Peer
from remoting.router import Router

UPPER = "UPPER"


class OffsetRequests:
    """The handlers. A consumer may commit any offset, but only if its group, the topic and the queue exist."""

    def __init__(self, store: BrokerStore, topics: Topics, offsets: ConsumerOffsets) -> None:
        self._store = store
        self._topics = topics
        self._offsets = offsets

    def add_to(self, router: Router) -> None:
        router.add(RequestCode.QUERY_CONSUMER_OFFSET, self._query)
        router.add(RequestCode.UPDATE_CONSUMER_OFFSET, self._update)
        router.add(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, self._search)
        router.add(RequestCode.GET_MAX_OFFSET, self._max)
        router.add(RequestCode.GET_MIN_OFFSET, self._min)
        router.add(RequestCode.GET_EARLIEST_MSG_STORETIME, self._earliest)

    def _query(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        header = QueryConsumerOffsetHeader.from_ext(command.ext)
        offset = self._offsets.find(header.consumer_group, header.topic, header.queue_id)
        if offset is None:
            from_zero = header.set_zero_if_not_found is not False
            if not from_zero or self._store.min_queue_offset(header.topic, header.queue_id) > 0:
                return command.reply(
                    ResponseCode.QUERY_NOT_FOUND,
                    "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first",
                )
            offset = 0
        return command.reply(header=OffsetResponseHeader(offset))

    def _update(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        header = UpdateConsumerOffsetHeader.from_ext(command.ext)
        group, topic, queue_id = header.consumer_group, self._topics.find(header.topic), header.queue_id
        if topic is None:
            return command.reply(ResponseCode.TOPIC_NOT_EXIST, f"Topic {header.topic} not exist!")
        if not is_group_name(group) and self._offsets.find(group, header.topic, queue_id) is None:
            return command.reply(ResponseCode.INVALID_PARAMETER, NAME_RULE)
        is_queue = 0 <= queue_id < max(topic.read_queue_nums, topic.write_queue_nums)
        if not is_queue and self._offsets.find(group, header.topic, queue_id) is None:
            why = f"queueId[{queue_id}] is not of topic {header.topic}"
            return command.reply(ResponseCode.INVALID_PARAMETER, why)
        place, passed_on = (group, header.topic, queue_id), is_passed_on(peer)
        if not self._offsets.commit(*place, header.commit_offset, is_passed_on=passed_on):
            return command.reply(ResponseCode.SYSTEM_ERROR, NO_ROOM)
        return command.reply()

    async def _search(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        header = SearchOffsetHeader.from_ext(command.ext)
        if header.lite_topic:
            return command.reply(ResponseCode.INVALID_PARAMETER, no_lite_topic(header.lite_topic))
        store, topic, queue_id = self._store, header.topic, header.queue_id
        if (header.boundary_type or "").upper() == UPPER:
            # the last message stored at or before this time, not the first stored at or after it
            after = await store.offset_by_time(topic, queue_id, header.timestamp + 1)
            offset = max(after - 1, store.min_queue_offset(topic, queue_id))
        else:
            offset = await store.offset_by_time(topic, queue_id, header.timestamp)
        return command.reply(header=OffsetResponseHeader(offset))

    def _max(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        header = GetMaxOffsetHeader.from_ext(command.ext)
        return command.reply(
            header=OffsetResponseHeader(self._store.max_queue_offset(header.topic, header.queue_id))
        )

    def _min(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        header = QueueHeader.from_ext(command.ext)
        return command.reply(
            header=OffsetResponseHeader(self._store.min_queue_offset(header.topic, header.queue_id))
        )

    async def _earliest(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        header = QueueHeader.from_ext(command.ext)
        store = self._store
        first = store.min_queue_offset(header.topic, header.queue_id)
        timestamp = await store.store_time_at(header.topic, header.queue_id, first)
        return command.reply(header=TimestampResponseHeader(timestamp))
