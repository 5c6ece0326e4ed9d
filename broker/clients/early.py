"""What consumers said of their groups when they were asked, before the first heartbeat over their connection.

A broker that was started a moment ago, and is master now, knows no consumer: clients tell brokers of themselves each 30 s.

Invariant: what was said over a connection counts for its own pulls alone, is forgotten with it and once a heartbeat came over
it, and is bounded."""

from __future__ import annotations

from broker.clients.bounds import of_subscription
from broker.clients.groups import ConsumerGroups, Subscription, subscription_of
from remoting.bodies.heartbeats import SubscriptionData
from remoting.peer import Peer

KEPT_CHARACTERS_MAX = 8 << 20
"""Beside what heartbeats said."""


class EarlySubscriptions:
    """Of the connections that brought no heartbeat of a group yet."""

    def __init__(self, consumers: ConsumerGroups) -> None:
        self._consumers = consumers
        self._told: dict[Peer, dict[str, dict[str, Subscription]]] = {}
        self._characters = 0

    def said(self, peer: Peer, group: str, data: list[SubscriptionData]) -> None:
        """The client behind `peer` reads these for `group`. Raises HeaderError for a bad subscription."""
        self._forget(peer, group)
        wanted = sum(map(of_subscription, data))
        if peer.closed or self._characters + wanted > KEPT_CHARACTERS_MAX:
            return
        told = {each.topic: subscription_of(each) for each in data}
        if peer not in self._told:
            self._told[peer] = {}
            peer.on_close(self._closed)
        self._told[peer][group] = told
        self._characters += _characters(told)

    def find(self, peer: Peer, group: str, topic: str) -> Subscription | None:
        """What the client behind `peer` wants of `topic` for `group`."""
        if self.is_known(peer, group):
            self._forget(peer, group)
            return None
        return self._told.get(peer, {}).get(group, {}).get(topic)

    def subscribed(self, peer: Peer, group: str, topic: str) -> SubscriptionData | None:
        """The same of any client of the group, where heartbeats said it."""
        found = self._consumers.subscription(group, topic) or self.find(peer, group, topic)
        return None if found is None else found.data

    def is_known(self, peer: Peer, group: str) -> bool:
        """Whether heartbeats of `group` came over `peer`."""
        return self._consumers.client_id_of(peer, group) is not None

    def _forget(self, peer: Peer, group: str) -> None:
        self._characters -= _characters(self._told.get(peer, {}).pop(group, {}))

    def _closed(self, peer: Peer) -> None:
        for told in self._told.pop(peer, {}).values():
            self._characters -= _characters(told)


def _characters(told: dict[str, Subscription]) -> int:
    return sum(of_subscription(each.data) for each in told.values())
