"""Clients that are connected now: consumers by group with their subscriptions, producers by group.

Invariant: a client stands here exactly while the connection of its last heartbeat is open; a group without clients
does not exist. What all of them said is bounded, and who says more is refused whole. Filters are computed from the
subscription's text, never taken from the client."""

from __future__ import annotations

from dataclasses import dataclass, field

from broker.clients.bounds import (
    JOINED_MAX,
    KEPT_CHARACTERS_MAX,
    check_names,
    of_member,
    of_subscription,
)
from broker.clients.subscription import is_tag_type, property_filter, tag_filter
from broker.tables.consumerfilters import ConsumerFilters
from filters.errors import FilterError
from messagestore.messages import PropertyFilter, TagFilter
from remoting.bodies.heartbeats import ConsumerData, ConsumerIdList, HeartbeatData, SubscriptionData
from remoting.errors import BodyError
from remoting.peer import Peer


@dataclass(slots=True)
class Subscription:
    """What a group wants of one topic; the newest version counts. One of another type than tags has no `filter`."""

    data: SubscriptionData
    filter: TagFilter | None

    def matching(self) -> PropertyFilter | None:
        """By properties; None where the expression is none. Not made for heartbeats: those that one has room for took the time
        of all others for 5 s, wanted or not. Nor kept here: so would all that clients may say take 6 GB."""
        try:
            return property_filter(self.data.sub_string, self.data.expression_type)
        except FilterError:  # its client asked whether it is one (46), and hears it when it pulls
            return None

    @property
    def version(self) -> int:
        return self.data.sub_version


@dataclass(slots=True)
class Client:
    """One client of a group."""

    client_id: str
    peer: Peer
    language: str
    version: int


@dataclass(slots=True)
class ConsumerGroup:
    """The consumers of one group by client id, and what they subscribed to by topic."""

    consume_type: str
    message_model: str
    consume_from_where: str
    clients: dict[str, Client] = field(default_factory=dict)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    characters: int = 0
    """Of the subscriptions."""
    _id_list: bytes | None = field(default=None, init=False)

    def id_list(self) -> bytes:
        """What answers 38, encoded once for each change of the members."""
        if self._id_list is None:
            self._id_list = ConsumerIdList(list(self.clients)).encode()
        return self._id_list

    def put(self, client: Client) -> Client | None:
        """Takes in a client; what stood here under its id."""
        known = self.clients.get(client.client_id)
        if known is None:
            self._id_list = None
        self.clients[client.client_id] = client
        return known

    def take_out(self, client_id: str, peer: Peer | None) -> Client | None:
        """The client, gone now; None where it is not here, or over another connection than `peer`."""
        dropped = _take_out(self.clients, client_id, peer)
        if dropped is not None:
            self._id_list = None
        return dropped


@dataclass(slots=True)
class _Joined:
    """(group, client id) of every client that one connection brought; some may have come anew over another since."""

    as_producer: dict[tuple[str, str], None] = field(default_factory=dict)
    as_consumer: dict[tuple[str, str], None] = field(default_factory=dict)


class ConsumerGroups:
    """All connected consumers and producers. `filters` hears of groups that come, change and go."""

    def __init__(self, filters: ConsumerFilters | None = None) -> None:
        self._filters = filters
        self._groups: dict[str, ConsumerGroup] = {}
        self._producers: dict[str, dict[str, Client]] = {}
        self._joined: dict[Peer, _Joined] = {}
        self._characters = 0

    def find(self, group: str) -> ConsumerGroup | None:
        return self._groups.get(group)

    def groups(self) -> dict[str, ConsumerGroup]:
        """Every group with its consumers."""
        return dict(self._groups)

    def all_producers(self) -> list[Client]:
        """The producers of every group."""
        return [client for clients in self._producers.values() for client in clients.values()]

    def producer_groups(self) -> dict[str, list[Client]]:
        """Every group of producers."""
        return {group: list(clients.values()) for group, clients in self._producers.items()}

    def producers(self, group: str) -> list[Client]:
        return list(self._producers.get(group, {}).values())

    def producer(self, client_id: str) -> Client | None:
        """The producer of any group that has this id."""
        return next((them[client_id] for them in self._producers.values() if client_id in them), None)

    def subscription(self, group: str, topic: str) -> Subscription | None:
        found = self._groups.get(group)
        return found.subscriptions.get(topic) if found else None

    def groups_of(self, topic: str) -> list[str]:
        """The groups that subscribe to `topic`."""
        return [name for name, group in self._groups.items() if topic in group.subscriptions]

    def client_id_of(self, peer: Peer, group: str) -> str | None:
        """The client of `group` whose heartbeats come over `peer`."""
        found, joined = self._groups.get(group), self._joined.get(peer)
        if found is None or joined is None:
            return None
        brought = (client_id for name, client_id in joined.as_consumer if name == group)
        return next((each for each in brought if _is_over(peer, found.clients.get(each))), None)

    def check_room(self, peer: Peer, data: HeartbeatData) -> None:
        """Raises BodyError for a heartbeat with names that nobody has, or of one client more than there is room for."""
        check_names(data)
        joined, client_id = self._joined.get(peer, _Joined()), data.client_id
        producers = {(each.group_name, client_id) for each in data.producer_data_set}
        consumers = {(each.group_name, client_id) for each in data.consumer_data_set}
        count = len(producers | joined.as_producer.keys()) + len(consumers | joined.as_consumer.keys())
        if count > JOINED_MAX:
            raise BodyError(
                f"a connection brings clients into {JOINED_MAX} groups at most, this one into {count}"
            )
        wanted = sum(of_member(*pair) for pair in producers - joined.as_producer.keys())
        wanted += sum(of_member(*pair) for pair in consumers - joined.as_consumer.keys())
        wanted += sum(
            self._wanted(each.group_name, each.subscription_data_set) for each in data.consumer_data_set
        )
        if not self._has_room(wanted):
            raise BodyError("this broker knows so many clients that it takes no others; connect fewer")

    def _wanted(self, group: str, data: list[SubscriptionData]) -> int:
        """What it would cost to keep what is new in these."""
        found = self._groups.get(group)
        return sum(map(of_subscription, _news(found.subscriptions if found is not None else {}, data)))

    def _has_room(self, wanted: int) -> bool:
        return not wanted or self._characters + wanted <= KEPT_CHARACTERS_MAX

    def renew(self, group: str, data: list[SubscriptionData]) -> None:
        """A client of `group` told what it subscribes to. Raises HeaderError for a bad subscription."""
        found = self._groups.get(group)
        if found is not None and self._has_room(self._wanted(group, data)):
            self._take_in(found, data)
            self._keep_filters(group, data)

    def heartbeat(self, peer: Peer, data: HeartbeatData, language: str, version: int) -> list[str]:
        """Take in a client; the groups whose members changed, or that read one more topic. Raises HeaderError for a
        bad subscription."""
        client = Client(data.client_id, peer, language, version)
        joined = self._joined.setdefault(peer, _Joined())
        for producer in data.producer_data_set:
            clients = self._producers.setdefault(producer.group_name, {})
            if client.client_id not in clients:
                self._characters += of_member(producer.group_name, client.client_id)
            clients[client.client_id] = client
            joined.as_producer[producer.group_name, client.client_id] = None
        changed: list[str] = []
        for consumer in data.consumer_data_set:
            if self._join(client, consumer):
                changed.append(consumer.group_name)
            joined.as_consumer[consumer.group_name, client.client_id] = None
        return changed

    def leave(self, client_id: str, consumer_group: str | None, producer_group: str | None) -> list[str]:
        """A client unregistered; the groups whose membership changed."""
        if producer_group:
            producer = self._drop_producer(producer_group, client_id)
            if producer is not None and producer.peer in self._joined:
                self._joined[producer.peer].as_producer.pop((producer_group, client_id), None)
        consumer = self._drop_consumer(consumer_group, client_id) if consumer_group else None
        if consumer is None or not consumer_group:
            return []
        if consumer.peer in self._joined:
            self._joined[consumer.peer].as_consumer.pop((consumer_group, client_id), None)
        return [consumer_group]

    def disconnected(self, peer: Peer) -> list[str]:
        """A connection ended; the groups whose membership changed. Costs no more than what the connection joined."""
        joined = self._joined.pop(peer, _Joined())
        for group, client_id in joined.as_producer:
            self._drop_producer(group, client_id, peer)
        return [
            group
            for group, client_id in joined.as_consumer
            if self._drop_consumer(group, client_id, peer) is not None
        ]

    def _join(self, client: Client, data: ConsumerData) -> bool:
        group = self._groups.get(data.group_name) or ConsumerGroup(
            data.consume_type, data.message_model, data.consume_from_where
        )
        reads_more = self._take_in(group, data.subscription_data_set)
        self._groups[data.group_name] = group
        self._keep_filters(data.group_name, data.subscription_data_set)
        known = group.put(client)
        if known is None:
            self._characters += of_member(data.group_name, client.client_id)
        return known is None or known.peer is not client.peer or reads_more

    def _take_in(self, group: ConsumerGroup, data: list[SubscriptionData]) -> bool:
        """The newest version of each topic's subscription counts; a bad one of tags changes nothing. True for a new topic."""
        known, before = len(group.subscriptions), group.characters
        for subscription in [subscription_of(item) for item in _news(group.subscriptions, data)]:
            old = group.subscriptions.get(subscription.data.topic)
            if old is None or old.version <= subscription.version:
                group.subscriptions[subscription.data.topic] = subscription
                group.characters += of_subscription(subscription.data)
                group.characters -= of_subscription(old.data) if old is not None else 0
        self._characters += group.characters - before
        return len(group.subscriptions) > known

    def _keep_filters(self, group: str, data: list[SubscriptionData]) -> None:
        if self._filters is not None:
            self._filters.register(group, data)

    def _drop_producer(self, group: str, client_id: str, peer: Peer | None = None) -> Client | None:
        """The client, gone now; None where it is not in the group, or there over another connection than `peer`."""
        clients = self._producers.get(group, {})
        dropped = _take_out(clients, client_id, peer)
        if dropped is not None:
            self._characters -= of_member(group, client_id)
        if dropped is not None and not clients:
            del self._producers[group]
        return dropped

    def _drop_consumer(self, group: str, client_id: str, peer: Peer | None = None) -> Client | None:
        """As `_drop_producer`."""
        found = self._groups.get(group)
        dropped = found.take_out(client_id, peer) if found is not None else None
        if dropped is not None:
            self._characters -= of_member(group, client_id)
        if found is not None and dropped is not None and not found.clients:
            del self._groups[group]
            self._characters -= found.characters
            if self._filters is not None:
                self._filters.unregister(group)
        return dropped


def _is_over(peer: Peer, client: Client | None) -> bool:
    return client is not None and client.peer is peer


def _take_out(clients: dict[str, Client], client_id: str, peer: Peer | None) -> Client | None:
    client = clients.get(client_id)
    if client is None or (peer is not None and client.peer is not peer):
        return None
    return clients.pop(client_id)


def _news(known: dict[str, Subscription], data: list[SubscriptionData]) -> list[SubscriptionData]:
    return [item for item in data if (before := known.get(item.topic)) is None or before.data != item]


def subscription_of(data: SubscriptionData) -> Subscription:
    """With its filter. Raises HeaderError for a bad one of tags."""
    if is_tag_type(data.expression_type):
        return Subscription(data, tag_filter(data.sub_string, None))
    return Subscription(data, None)
