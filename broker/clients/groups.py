"""Connected clients: consumers by group, with their subscriptions, and producers by group. Upstream: ConsumerManager,
ProducerManager.

Invariant: a client is listed exactly while the connection of its last heartbeat is open. A group without clients does not
exist. The data of all clients is limited, that of one user's clients to half of it, and a heartbeat beyond the limit is
rejected as a whole. Filters are computed from the subscription's text, never taken from the client. For one client the newest
heartbeat counts, whatever its subscription versions are: a version is a time of the client's clock, and clocks may be set
back. If clients of a group differ, the newest version counts, as in upstream's ConsumerGroupInfo."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from accesscontrol.guard import NOBODY, Caller
from broker.clients.bounds import (
    JOINED_MAX,
    KEPT_CHARACTERS_MAX,
    SUBSCRIPTION_CHARACTERS,
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

OF_ONE_USER = 0.5
"""Share of the room for clients that those of one user may take, once so much is taken."""
CONSUMER, PRODUCER = "consumer", "producer"


@dataclass(slots=True)
class Subscription:
    """The subscription to one topic. Only a subscription by tags has a `filter`."""

    data: SubscriptionData
    filter: TagFilter | None

    def matching(self) -> PropertyFilter | None:
        """The filter by properties; None if the expression is invalid. Heartbeats create no such filters: to create as many as
        clients may register took 5 s. The filter is not kept here, because that many filters would take 6 GB."""
        try:
            return property_filter(self.data.sub_string, self.data.expression_type)
        except FilterError:  # the client gets the error when it pulls
            return None

    @property
    def version(self) -> int:
        return self.data.sub_version


class TopicSubscriptions:
    """The last subscriptions of a group's clients to one topic. Equal texts are stored once."""

    def __init__(self) -> None:
        self.characters = 0
        self._by_client: dict[str, tuple[int, Subscription]] = {}
        self._newest: list[tuple[int, int, str]] = []
        """A heap of (-version, -number, client id), which may include former subscriptions of a client."""
        self._texts: dict[tuple[str, str], tuple[Subscription, int]] = {}
        """By type and expression: the first such subscription, and the number of clients that have the same."""
        self._said = 0

    def __len__(self) -> int:
        return len(self._by_client)

    def of(self, client_id: str) -> Subscription | None:
        said = self._by_client.get(client_id)
        return said[1] if said is not None else None

    def like(self, data: SubscriptionData) -> Subscription | None:
        """An existing subscription with the same text; None if there is none."""
        known = self._texts.get(_text(data))
        return known[0] if known is not None else None

    def put(self, client_id: str, subscription: Subscription) -> None:
        """Set the subscription of `client_id`; it replaces a former one."""
        self.drop(client_id)
        key = _text(subscription.data)
        first, clients = self._texts.get(key, (subscription, 0))
        self._texts[key] = first, clients + 1
        if clients:
            data = subscription.data
            data.topic, data.sub_string = first.data.topic, first.data.sub_string
            data.tags_set, data.code_set = first.data.tags_set, first.data.code_set
            subscription.filter = first.filter
        else:
            self.characters += of_subscription(subscription.data) - SUBSCRIPTION_CHARACTERS
        self.characters += SUBSCRIPTION_CHARACTERS
        self._said += 1
        self._by_client[client_id] = self._said, subscription
        heappush(self._newest, (-subscription.version, -self._said, client_id))
        if len(self._newest) > 2 * len(self._by_client) + 8:
            self._newest = [(-each.version, -number, who) for who, (number, each) in self._by_client.items()]
            heapify(self._newest)

    def drop(self, client_id: str) -> None:
        """Remove the client's subscription to the topic."""
        said = self._by_client.pop(client_id, None)
        if said is None:
            return
        key = _text(said[1].data)
        first, clients = self._texts.pop(key)
        self.characters -= SUBSCRIPTION_CHARACTERS
        if clients > 1:
            self._texts[key] = first, clients - 1
        else:
            self.characters -= of_subscription(first.data) - SUBSCRIPTION_CHARACTERS

    def counting(self) -> Subscription | None:
        """The present subscription with the newest version; of two with the same version the one that came later. None if there
        is none."""
        while self._newest:
            _, number, client_id = self._newest[0]
            said = self._by_client.get(client_id)
            if said is not None and said[0] == -number:
                return said[1]
            heappop(self._newest)
        return None


@dataclass(slots=True)
class GroupClient:
    """One client of a group."""

    client_id: str
    peer: Peer
    language: str
    version: int
    caller: Caller = NOBODY


@dataclass(slots=True)
class ConsumerGroup:
    """The consumers of one group by client id, and their subscriptions by topic."""

    consume_type: str
    message_model: str
    consume_from_where: str
    clients: dict[str, GroupClient] = field(default_factory=dict)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    """The subscription of the group, by topic."""
    characters: int = 0
    """The size counted for all subscriptions of the group's clients."""
    _said: dict[str, TopicSubscriptions] = field(default_factory=dict, init=False)
    _topics: dict[str, set[str]] = field(default_factory=dict, init=False)
    """The subscribed topics of each client."""
    _id_list: bytes | None = field(default=None, init=False)

    def id_list(self) -> bytes:
        """Body of the answer to GET_CONSUMER_LIST_BY_GROUP (38), encoded once for each change of the members."""
        if self._id_list is None:
            self._id_list = ConsumerIdList(list(self.clients)).encode()
        return self._id_list

    def put(self, client: GroupClient) -> GroupClient | None:
        """Add a client. Returns the former client with the same id, or None."""
        known = self.clients.get(client.client_id)
        if known is None:
            self._id_list = None
        self.clients[client.client_id] = client
        return known

    def take_out(self, client_id: str, peer: Peer | None) -> GroupClient | None:
        """Remove the client. Returns None if it is not here, or is connected over another connection than `peer`."""
        dropped = _take_out(self.clients, client_id, peer)
        if dropped is not None:
            self._id_list = None
            for topic in list(self._topics.get(client_id, ())):
                self._say(client_id, topic, None)
        return dropped

    def news(self, client_id: str, data: Iterable[SubscriptionData]) -> list[SubscriptionData]:
        """The part of `data` that differs from the client's last heartbeat. Of two items for one topic the last counts."""
        return [
            item
            for item in {each.topic: each for each in data}.values()
            if (said := self._said.get(item.topic)) is None
            or (before := said.of(client_id)) is None
            or (before.version, _text(before.data)) != (item.sub_version, _text(item))
        ]

    def version(self, client_id: str, topic: str) -> int:
        """Version of the client's subscription to `topic`; -1 without a subscription."""
        said = self._said.get(topic)
        subscription = said.of(client_id) if said is not None else None
        return subscription.version if subscription is not None else -1

    def wanted(self, client_id: str, data: Iterable[SubscriptionData]) -> int:
        """The additional size if these subscriptions are kept."""
        return sum(
            SUBSCRIPTION_CHARACTERS if self._like(item) is not None else of_subscription(item)
            for item in self.news(client_id, data)
        )

    def take_in(self, client_id: str, data: list[SubscriptionData], *, all_of_them: bool) -> bool:
        """Set subscriptions of a client. If these are `all_of_them`, remove the client's other subscriptions. Returns whether
        the group reads one more topic. Raises HeaderError for a bad tag expression, and then nothing is changed."""
        known = len(self.subscriptions)
        for subscription in [
            Subscription(item, like.filter)
            if (like := self._like(item)) is not None
            else subscription_of(item)
            for item in self.news(client_id, data)
        ]:
            self._say(client_id, subscription.data.topic, subscription)
        more = len(self.subscriptions) > known
        if all_of_them:
            for topic in self._topics.get(client_id, set()) - {item.topic for item in data}:
                self._say(client_id, topic, None)
        return more

    def topics_of(self, client_id: str) -> frozenset[str]:
        """The topics that the client subscribes to."""
        return frozenset(self._topics.get(client_id, ()))

    def _like(self, data: SubscriptionData) -> Subscription | None:
        said = self._said.get(data.topic)
        return said.like(data) if said is not None else None

    def _say(self, client_id: str, topic: str, subscription: Subscription | None) -> None:
        said, topics = (
            self._said.setdefault(topic, TopicSubscriptions()),
            self._topics.setdefault(client_id, set()),
        )
        before = said.characters
        if subscription is not None:
            said.put(client_id, subscription)
            topics.add(topic)
        else:
            said.drop(client_id)
            topics.discard(topic)
        self.characters += said.characters - before
        counting = said.counting()
        if counting is not None:
            self.subscriptions[topic] = counting
        else:
            del self.subscriptions[topic], self._said[topic]
        if not topics:
            del self._topics[client_id]


@dataclass(slots=True)
class _Joined:
    """(group, client id) of every client whose heartbeat came over one connection. Such a client may be connected over another
    connection by now."""

    as_producer: dict[tuple[str, str], None] = field(default_factory=dict)
    as_consumer: dict[tuple[str, str], None] = field(default_factory=dict)


class ConsumerGroups:
    """All connected consumers and producers. `filters` is notified when groups come, change or leave."""

    def __init__(self, filters: ConsumerFilters | None = None) -> None:
        self._filters = filters
        self._groups: dict[str, ConsumerGroup] = {}
        self._producers: dict[str, dict[str, GroupClient]] = {}
        self._joined: dict[Peer, _Joined] = {}
        self._clients: dict[str, GroupClient] = {}
        """By id: the client of the newest heartbeat, while its connection is open."""
        self._characters = 0
        self._shares: dict[tuple[str, str, str], tuple[str, int]] = {}
        """(consumer or producer, group, client id) -> user, and the size if nobody else had the same texts."""
        self._of_users: Counter[str] = Counter()
        """The sum of these sizes for each user."""

    def find(self, group: str) -> ConsumerGroup | None:
        return self._groups.get(group)

    def groups(self) -> dict[str, ConsumerGroup]:
        """Every group of consumers."""
        return dict(self._groups)

    def consumers(self) -> Iterator[tuple[str, GroupClient, frozenset[str]]]:
        """Each consumer with its group and the topics that it subscribes to. Consumers may leave between two of them."""
        for name, group in self.groups().items():
            for client in [*group.clients.values()]:
                if group.clients.get(client.client_id) is client:
                    yield name, client, group.topics_of(client.client_id)

    def all_producers(self) -> list[GroupClient]:
        """The producers of every group."""
        return [client for clients in self._producers.values() for client in clients.values()]

    def producer_groups(self) -> dict[str, list[GroupClient]]:
        """Every group of producers."""
        return {group: list(clients.values()) for group, clients in self._producers.items()}

    def each_producer(self) -> Iterator[tuple[str, GroupClient]]:
        """Each producer with its group. Producers may leave between two of them."""
        for group, clients in self.producer_groups().items():
            for client in clients:
                if self._producers.get(group, {}).get(client.client_id) is client:
                    yield group, client

    def producers(self, group: str) -> list[GroupClient]:
        return list(self._producers.get(group, {}).values())

    def producer(self, client_id: str, user: str | None) -> GroupClient | None:
        """The producer with this id, of any group, whose heartbeats `user` signs (None: anybody); None if none is connected."""
        found = (them[client_id] for them in self._producers.values() if client_id in them)
        return next((client for client in found if user is None or client.caller.user == user), None)

    def connected(self, client_id: str) -> GroupClient | None:
        """The client with this id, of any group; None if none is connected."""
        known = self._clients.get(client_id)
        return None if known is None or known.peer.closed else known

    def ids_over(self, peer: Peer) -> set[str]:
        """The ids of the clients whose heartbeats came over `peer`."""
        joined = self._joined.get(peer, _Joined())
        return {client_id for _, client_id in (*joined.as_producer, *joined.as_consumer)}

    def subscription(self, group: str, topic: str) -> Subscription | None:
        found = self._groups.get(group)
        return found.subscriptions.get(topic) if found else None

    def groups_of(self, topic: str) -> list[str]:
        """The groups that subscribe to `topic`."""
        return [name for name, group in self._groups.items() if topic in group.subscriptions]

    def client_id_of(self, peer: Peer, group: str) -> str | None:
        """The id of the client of `group` whose heartbeats come over `peer`; None if there is none."""
        found, joined = self._groups.get(group), self._joined.get(peer)
        if found is None or joined is None:
            return None
        brought = (client_id for name, client_id in joined.as_consumer if name == group)
        return next((each for each in brought if _is_over(peer, found.clients.get(each))), None)

    def check_room(self, peer: Peer, data: HeartbeatData, caller: Caller) -> None:
        """Check a heartbeat. Raises BodyError for invalid names, for the id of a connected client of another user, or if there
        is no room for the client."""
        check_names(data)
        joined, client_id = self._joined.get(peer, _Joined()), data.client_id
        known = self._clients.get(client_id)
        if (
            known is not None
            and known.caller.user != caller.user
            and not (known.peer is peer or known.peer.closed)
        ):
            raise BodyError(
                f"a client of another user is connected with the id {client_id}; connect with another id"
            )
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
            self._wanted(each.group_name, client_id, each.subscription_data_set)
            for each in data.consumer_data_set
        )
        if not self._has_room(wanted):
            raise BodyError("this broker has too many clients and accepts no others; connect fewer")
        most = KEPT_CHARACTERS_MAX * OF_ONE_USER
        if (
            wanted
            and caller.user
            and self._characters + wanted > most
            and self._of_users[caller.user] + wanted > most
        ):
            raise BodyError(
                f"clients of user {caller.user} take half of the room for clients, and others must have the rest; connect fewer"
            )

    def _wanted(self, group: str, client_id: str, data: list[SubscriptionData]) -> int:
        """The additional size if these subscriptions are kept."""
        found = self._groups.get(group)
        return found.wanted(client_id, data) if found is not None else sum(map(of_subscription, data))

    def _has_room(self, wanted: int) -> bool:
        return not wanted or self._characters + wanted <= KEPT_CHARACTERS_MAX

    def renew(self, group: str, client_id: str, data: list[SubscriptionData]) -> None:
        """Handle the answer of a client of `group` about its subscriptions. The answer may be older than a heartbeat that came
        meanwhile, so only newer versions count. Raises HeaderError for a bad subscription."""
        found = self._groups.get(group)
        if found is None or client_id not in found.clients:
            return
        newer = [item for item in data if found.version(client_id, item.topic) < item.sub_version]
        if self._has_room(found.wanted(client_id, newer)):
            self._take_in(found, client_id, newer, all_of_them=False)
            self._keep_filters(group, found, data)

    def heartbeat(
        self, peer: Peer, data: HeartbeatData, language: str, version: int, caller: Caller = NOBODY
    ) -> list[str]:
        """Handle the heartbeat of a client. Returns the groups whose members changed, or that read one more topic. Raises
        HeaderError for a bad subscription."""
        client = GroupClient(data.client_id, peer, language, version, caller)
        joined = self._joined.setdefault(peer, _Joined())
        if (data.producer_data_set or data.consumer_data_set) and not _is_late(
            client, self._clients.get(client.client_id)
        ):
            self._clients[client.client_id] = client
        for producer in data.producer_data_set:
            clients = self._producers.setdefault(producer.group_name, {})
            if _is_late(client, clients.get(client.client_id)):
                continue
            if client.client_id not in clients:
                self._characters += of_member(producer.group_name, client.client_id)
            clients[client.client_id] = client
            self._charge((PRODUCER, producer.group_name, client.client_id), caller)
            joined.as_producer[producer.group_name, client.client_id] = None
        changed: list[str] = []
        for consumer in data.consumer_data_set:
            if self._join(client, consumer):
                changed.append(consumer.group_name)
            joined.as_consumer[consumer.group_name, client.client_id] = None
        return changed

    def leave(
        self, client_id: str, consumer_group: str | None, producer_group: str | None, caller: Caller = NOBODY
    ) -> list[str]:
        """Remove a client that unregistered. Returns the groups whose members changed."""
        known = self._clients.get(client_id)
        if known is not None and known.caller.user != caller.user:
            return []
        if producer_group:
            producer = self._drop_producer(producer_group, client_id)
            if producer is not None and producer.peer in self._joined:
                self._joined[producer.peer].as_producer.pop((producer_group, client_id), None)
        consumer = self._drop_consumer(consumer_group, client_id) if consumer_group else None
        if consumer is not None and consumer_group and consumer.peer in self._joined:
            self._joined[consumer.peer].as_consumer.pop((consumer_group, client_id), None)
        if known is not None and not self._is_in_a_group(known):
            del self._clients[client_id]
        return [consumer_group] if consumer is not None and consumer_group else []

    def _is_in_a_group(self, client: GroupClient) -> bool:
        joined = self._joined.get(client.peer, _Joined())
        return any(each == client.client_id for _, each in (*joined.as_producer, *joined.as_consumer))

    def disconnected(self, peer: Peer) -> list[str]:
        """Remove the clients of a connection that ended. Returns the groups whose members changed. The cost depends only on the
        number of these clients."""
        joined = self._joined.pop(peer, _Joined())
        for _, client_id in (*joined.as_producer, *joined.as_consumer):
            if _is_over(peer, self._clients.get(client_id)):
                del self._clients[client_id]
        for group, client_id in joined.as_producer:
            self._drop_producer(group, client_id, peer)
        return [
            group
            for group, client_id in joined.as_consumer
            if self._drop_consumer(group, client_id, peer) is not None
        ]

    def _join(self, client: GroupClient, data: ConsumerData) -> bool:
        group = self._groups.get(data.group_name) or ConsumerGroup(
            data.consume_type, data.message_model, data.consume_from_where
        )
        if _is_late(client, group.clients.get(client.client_id)):
            return False
        reads_more = self._take_in(group, client.client_id, data.subscription_data_set, all_of_them=True)
        self._groups[data.group_name] = group
        self._keep_filters(data.group_name, group, data.subscription_data_set)
        known = group.put(client)
        if known is None:
            self._characters += of_member(data.group_name, client.client_id)
        self._charge((CONSUMER, data.group_name, client.client_id), client.caller, data.subscription_data_set)
        return known is None or known.peer is not client.peer or reads_more

    def _charge(
        self, member: tuple[str, str, str], caller: Caller, data: Iterable[SubscriptionData] = ()
    ) -> None:
        """Count a member of a group for its user."""
        self._discharge(member)
        if caller.user:
            size = of_member(*member[1:]) + sum(map(of_subscription, data))
            self._shares[member] = caller.user, size
            self._of_users[caller.user] += size

    def _discharge(self, member: tuple[str, str, str]) -> None:
        user, size = self._shares.pop(member, ("", 0))
        if user:
            self._of_users[user] -= size
            if not self._of_users[user]:
                del self._of_users[user]

    def _take_in(
        self, group: ConsumerGroup, client_id: str, data: list[SubscriptionData], *, all_of_them: bool
    ) -> bool:
        before = group.characters
        try:
            return group.take_in(client_id, data, all_of_them=all_of_them)
        finally:
            self._characters += group.characters - before

    def _keep_filters(self, name: str, group: ConsumerGroup, data: list[SubscriptionData]) -> None:
        if self._filters is not None:
            counting = (group.subscriptions.get(each.topic) for each in data)
            self._filters.register(name, [each.data for each in counting if each is not None])

    def _drop_producer(self, group: str, client_id: str, peer: Peer | None = None) -> GroupClient | None:
        """Remove the client. Returns None if it is not in the group, or is connected over another connection than `peer`."""
        clients = self._producers.get(group, {})
        dropped = _take_out(clients, client_id, peer)
        if dropped is not None:
            self._characters -= of_member(group, client_id)
            self._discharge((PRODUCER, group, client_id))
        if dropped is not None and not clients:
            del self._producers[group]
        return dropped

    def _drop_consumer(self, group: str, client_id: str, peer: Peer | None = None) -> GroupClient | None:
        """Like `_drop_producer`, for a consumer."""
        found = self._groups.get(group)
        before = found.characters if found is not None else 0
        dropped = found.take_out(client_id, peer) if found is not None else None
        if found is not None and dropped is not None:
            self._characters += found.characters - before - of_member(group, client_id)
            self._discharge((CONSUMER, group, client_id))
        if found is not None and dropped is not None and not found.clients:
            del self._groups[group]
            if self._filters is not None:
                self._filters.unregister(group)
        return dropped


def _is_over(peer: Peer, client: GroupClient | None) -> bool:
    return client is not None and client.peer is peer


def _take_out(clients: dict[str, GroupClient], client_id: str, peer: Peer | None) -> GroupClient | None:
    client = clients.get(client_id)
    if client is None or (peer is not None and client.peer is not peer):
        return None
    return clients.pop(client_id)


def _is_late(client: GroupClient, known: GroupClient | None) -> bool:
    """Whether the data of a heartbeat is old: another heartbeat of the client already came over a newer connection."""
    return (
        known is not None
        and known.peer is not client.peer
        and not known.peer.closed
        and known.peer.number > client.peer.number
    )


def _text(data: SubscriptionData) -> tuple[str, str]:
    return data.expression_type, data.sub_string


def subscription_of(data: SubscriptionData) -> Subscription:
    """The subscription with its filter. Raises HeaderError for a bad tag expression."""
    if is_tag_type(data.expression_type):
        return Subscription(data, tag_filter(data.sub_string, None))
    return Subscription(data, None)
