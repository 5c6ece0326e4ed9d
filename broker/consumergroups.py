"""Clients that are connected now: consumers by group with their subscriptions, producers by group.

Invariant: a client stands here exactly while the connection of its last heartbeat is open; a group without clients
does not exist. Filters are computed from the subscription's text, never taken from the client."""

from __future__ import annotations

from dataclasses import dataclass, field

from broker.subscription import TAG, tag_filter
from messagestore.messages import TagFilter
from remoting.bodies.heartbeats import ConsumerData, HeartbeatData, SubscriptionData
from remoting.peer import Peer


@dataclass(slots=True)
class Subscription:
    """What a group wants of one topic; the newest version counts."""

    data: SubscriptionData
    filter: TagFilter | None

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


class ConsumerGroups:
    """All connected consumers and producers."""

    def __init__(self) -> None:
        self._groups: dict[str, ConsumerGroup] = {}
        self._producers: dict[str, dict[str, Client]] = {}

    def find(self, group: str) -> ConsumerGroup | None:
        return self._groups.get(group)

    def producers(self, group: str) -> list[Client]:
        return list(self._producers.get(group, {}).values())

    def subscription(self, group: str, topic: str) -> Subscription | None:
        found = self._groups.get(group)
        return found.subscriptions.get(topic) if found else None

    def groups_of(self, topic: str) -> list[str]:
        """The groups that subscribe to `topic`."""
        return [name for name, group in self._groups.items() if topic in group.subscriptions]

    def client_id_of(self, peer: Peer, group: str) -> str | None:
        """The client of `group` whose heartbeats come over `peer`."""
        found = self._groups.get(group)
        clients = found.clients.values() if found else ()
        return next((client.client_id for client in clients if client.peer is peer), None)

    def renew(self, group: str, data: list[SubscriptionData]) -> None:
        """A client of `group` told what it subscribes to. Raises HeaderError for a bad subscription."""
        found = self._groups.get(group)
        if found is not None:
            _take_in(found, data)

    def heartbeat(self, peer: Peer, data: HeartbeatData, language: str, version: int) -> list[str]:
        """Take in a client; the groups whose membership changed. Raises HeaderError for a bad subscription."""
        client = Client(data.client_id, peer, language, version)
        for producer in data.producer_data_set:
            self._producers.setdefault(producer.group_name, {})[client.client_id] = client
        return [consumer.group_name for consumer in data.consumer_data_set if self._join(client, consumer)]

    def leave(self, client_id: str, consumer_group: str | None, producer_group: str | None) -> list[str]:
        """A client unregistered; the groups whose membership changed."""
        if producer_group and producer_group in self._producers:
            self._drop(self._producers, producer_group, client_id)
        group = self._groups.get(consumer_group or "")
        if consumer_group is None or group is None or group.clients.pop(client_id, None) is None:
            return []
        if not group.clients:
            del self._groups[consumer_group]
        return [consumer_group]

    def disconnected(self, peer: Peer) -> list[str]:
        """A connection ended; the groups whose membership changed."""
        for name in list(self._producers):
            for client in [client for client in self._producers[name].values() if client.peer is peer]:
                self._drop(self._producers, name, client.client_id)
        changed: list[str] = []
        for name in list(self._groups):
            for client in [client for client in self._groups[name].clients.values() if client.peer is peer]:
                changed += self.leave(client.client_id, name, None)
        return changed

    def _join(self, client: Client, data: ConsumerData) -> bool:
        group = self._groups.get(data.group_name) or ConsumerGroup(
            data.consume_type, data.message_model, data.consume_from_where
        )
        _take_in(group, data.subscription_data_set)
        self._groups[data.group_name] = group
        known = group.clients.get(client.client_id)
        group.clients[client.client_id] = client
        return known is None or known.peer is not client.peer

    @staticmethod
    def _drop(groups: dict[str, dict[str, Client]], name: str, client_id: str) -> None:
        groups[name].pop(client_id, None)
        if not groups[name]:
            del groups[name]


def _take_in(group: ConsumerGroup, data: list[SubscriptionData]) -> None:
    """The newest version of each topic's subscription counts; a bad one changes nothing."""
    subscriptions = [
        Subscription(item, tag_filter(item.sub_string, None)) for item in data if item.expression_type in TAG
    ]
    for subscription in subscriptions:
        before = group.subscriptions.get(subscription.data.topic)
        if before is None or before.version <= subscription.version:
            group.subscriptions[subscription.data.topic] = subscription
