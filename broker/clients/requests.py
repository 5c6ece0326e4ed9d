"""Requests about connected clients: heartbeats, clients that leave, the members and connections of groups, the subscription of
a group, and checks of a subscription."""

from __future__ import annotations

from collections.abc import Iterator

from accesscontrol.guard import Access
from broker.access.needs import consumer_needs
from broker.clients.groups import ConsumerGroups, GroupClient
from broker.clients.notices import GroupNotices
from broker.clients.subscription import is_tag_type, not_supported, property_filter, tag_filter
from broker.role.membership import Membership
from broker.settings.clients import ClientSettings
from broker.tables.subscriptiongroups import SubscriptionGroups
from broker.tables.topics import Topics
from filters.errors import FilterError
from messagestore.systemtopics import RETRY_PREFIX
from mqruntime.clock import Clock
from mqruntime.inslices import InSlices
from mqruntime.tasks import Tasks
from remoting.bodies.heartbeats import (
    CheckClientConfigBody,
    Connection,
    ConsumerConnection,
    GroupSubscription,
    HeartbeatData,
    ProducerConnection,
    ProducerInfo,
    ProducerTable,
)
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import HeaderError
from remoting.headers.admin import (
    ConsumerGroupHeader,
    GroupAndTopicHeader,
    ProducerGroupHeader,
    UnregisterClientHeader,
)
from remoting.peer import Peer
from remoting.router import Router


class ClientRequests:
    """The handlers. Members are notified of every change of their group's members or topics. Only a master creates groups and
    topics, because a slave's tables are copies of its master's tables."""

    def __init__(
        self,
        consumers: ConsumerGroups,
        groups: SubscriptionGroups,
        topics: Topics,
        role: Membership,
        settings: ClientSettings,
        clock: Clock,
        tasks: Tasks,
        access: Access,
    ) -> None:
        self._access = access
        self._clock = clock
        self._role = role
        self._settings = settings
        self._consumers = consumers
        self._groups = groups
        self._topics = topics
        self._notices = GroupNotices(self._listeners, clock, tasks)
        self._in_slices = InSlices(tasks, clock, name="clients' rights")

    def add_to(self, router: Router) -> None:
        router.add(RequestCode.HEART_BEAT, self._heartbeat)
        router.add(RequestCode.UNREGISTER_CLIENT, self._leave)
        router.add(RequestCode.GET_CONSUMER_LIST_BY_GROUP, self._members)
        router.add(RequestCode.GET_CONSUMER_CONNECTION_LIST, self._consumer_connections)
        router.add(RequestCode.GET_PRODUCER_CONNECTION_LIST, self._producer_connections)
        router.add(RequestCode.GET_ALL_PRODUCER_INFO, self._all_producers)
        router.add(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, self._subscription)
        router.add(RequestCode.CHECK_CLIENT_CONFIG, self._check)

    def disconnected(self, peer: Peer) -> None:
        """Remove the clients of a connection that ended."""
        self._notices.changed(self._consumers.disconnected(peer))

    def notify_all_groups(self) -> None:
        """Notify all groups, because this broker has become master. A member whose last rebalance failed at a dead master would
        otherwise wait for its next rebalance, with upstream's clients 20 s."""
        self._notices.changed(self._consumers.groups())

    def rights_changed(self) -> None:
        """Remove the consumers whose users may not read any more, and the producers whose users may not connect. The others of
        a consumer's group get its queues."""
        self._in_slices.do(self._checked_consumers())
        self._in_slices.do(self._checked_producers())

    def _checked_consumers(self) -> Iterator[None]:
        for group, client, topics in self._consumers.consumers():
            if self._access.has_lost(client.caller, RequestCode.HEART_BEAT, consumer_needs(group, topics)):
                self._notices.changed(self._consumers.leave(client.client_id, group, None, client.caller))
            yield

    def _checked_producers(self) -> Iterator[None]:
        for group, client in self._consumers.each_producer():
            if self._access.has_lost(client.caller, RequestCode.HEART_BEAT, ()):
                self._consumers.leave(client.client_id, None, group, client.caller)
            yield

    def _heartbeat(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        data = HeartbeatData.from_request(command.body)
        caller = self._access.caller(peer, command)
        self._consumers.check_room(peer, data, caller)
        for consumer in data.consumer_data_set if self._role.accepts_sends else ():
            group = self._groups.find_or_create(consumer.group_name)
            if group is not None and group.retry_queue_nums > 0:
                self._topics.ensure(RETRY_PREFIX + consumer.group_name, group.retry_queue_nums)
        self._notices.changed(
            self._consumers.heartbeat(peer, data, command.language, command.version, caller)
        )
        return command.reply()

    def _leave(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        header = UnregisterClientHeader.from_ext(command.ext)
        caller = self._access.caller(peer, command)
        left = self._consumers.leave(header.client_id, header.consumer_group, header.producer_group, caller)
        self._notices.changed(left)
        return command.reply()

    def _members(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        name = ConsumerGroupHeader.from_ext(command.ext).consumer_group
        group = self._consumers.find(name)
        if group is None:
            return command.reply(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {name}")
        return command.reply(body=group.id_list())

    def _consumer_connections(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        name = ConsumerGroupHeader.from_ext(command.ext).consumer_group
        group = self._consumers.find(name)
        if group is None:
            return command.reply(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online")
        body = ConsumerConnection(
            _connections(list(group.clients.values())),
            {topic: subscription.data for topic, subscription in group.subscriptions.items()},
            group.consume_type,
            group.message_model,
            group.consume_from_where,
        )
        return command.reply(body=body.encode())

    def _producer_connections(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        name = ProducerGroupHeader.from_ext(command.ext).producer_group
        clients = self._consumers.producers(name)
        if not clients:
            return command.reply(ResponseCode.SYSTEM_ERROR, f"the producer group[{name}] not exist")
        return command.reply(body=ProducerConnection(_connections(clients)).encode())

    def _all_producers(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        now_ms, heard_now_ms = self._clock.now_ms(), self._clock.monotonic_ms()
        table = {
            group: [
                ProducerInfo(
                    client.client_id,
                    client.peer.remote_address,
                    client.language,
                    client.version,
                    now_ms - (heard_now_ms - client.peer.active_at_ms),
                )
                for client in clients
            ]
            for group, clients in self._consumers.producer_groups().items()
        }
        return command.reply(body=ProducerTable(table).encode())

    def _subscription(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        header = GroupAndTopicHeader.from_ext(command.ext)
        found = self._consumers.subscription(header.group, header.topic)
        body = GroupSubscription(header.topic, header.group, found.data if found is not None else None)
        return command.reply(body=body.encode())

    def _check(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        data = CheckClientConfigBody.from_request(command.body).subscription_data
        try:
            if is_tag_type(data.expression_type):
                tag_filter(data.sub_string, data.expression_type)
            elif not self._settings.enable_property_filter:
                return command.reply(ResponseCode.SYSTEM_ERROR, not_supported(data.expression_type))
            else:
                property_filter(data.sub_string, data.expression_type)
        except (HeaderError, FilterError) as error:
            return command.reply(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error))
        return command.reply()

    def _listeners(self, name: str) -> list[Peer]:
        """The members of a group, if the group wants notifications of changes."""
        group, config = self._consumers.find(name), self._groups.find(name)
        if group is None or (config is not None and not config.notify_consumer_ids_changed_enable):
            return []
        return [client.peer for client in group.clients.values()]


def _connections(clients: list[GroupClient]) -> list[Connection]:
    return [
        Connection(client.client_id, client.peer.remote_address, client.language, client.version)
        for client in clients
    ]
