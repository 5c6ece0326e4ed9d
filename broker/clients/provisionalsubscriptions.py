"""Provisional subscriptions: answers of consumers that are asked before the first heartbeat over their connection.

A broker that just started and became master knows no consumers, because clients send heartbeats only each 30 s.

Invariant: an answer over a connection counts only for pulls over this connection. The answer is dropped when the connection
ends, or when a heartbeat comes over it. The size of all answers is limited."""

from __future__ import annotations

from broker.clients.bounds import of_member, of_subscription
from broker.clients.groups import ConsumerGroups, Subscription, subscription_of
from remoting.bodies.heartbeats import SubscriptionData
from remoting.peer import Peer

KEPT_CHARACTERS_MAX = 8 << 20
"""Limit of the size, in addition to the limit of subscriptions from heartbeats."""


class ProvisionalSubscriptions:
    """The subscriptions of connections over which no heartbeat of the group came yet."""

    def __init__(self, consumers: ConsumerGroups) -> None:
        self._consumers = consumers
        self._known: dict[Peer, dict[str, dict[str, Subscription]]] = {}
        self._characters = 0

    def said(self, peer: Peer, group: str, data: list[SubscriptionData]) -> None:
        """Handle the answer of the client at `peer` for `group`. Raises HeaderError for a bad subscription."""
        self._forget(peer, group)
        wanted = _characters(group, data)
        if peer.closed or self._characters + wanted > KEPT_CHARACTERS_MAX:
            return
        known = {each.topic: subscription_of(each) for each in data}
        if peer not in self._known:
            self._known[peer] = {}
            peer.on_close(self._closed)
        self._known[peer][group] = known
        self._characters += _characters(group, [each.data for each in known.values()])

    def find(self, peer: Peer, group: str, topic: str) -> Subscription | None:
        """The provisional subscription to `topic` of the client at `peer`, for `group`. None if there is none; heartbeats of
        the group over `peer` end it."""
        if self.is_known(peer, group):
            self._forget(peer, group)
            return None
        return self._known.get(peer, {}).get(group, {}).get(topic)

    def subscribed(self, peer: Peer, group: str, topic: str) -> SubscriptionData | None:
        """The newer of two subscriptions: that of `find`, and the group's subscription from heartbeats. None if there is
        neither."""
        known, provisional = self._consumers.subscription(group, topic), self.find(peer, group, topic)
        found = [each.data for each in (known, provisional) if each is not None]
        return max(found, key=lambda data: data.sub_version, default=None)

    def is_known(self, peer: Peer, group: str) -> bool:
        """Whether heartbeats of `group` came over `peer`."""
        return self._consumers.client_id_of(peer, group) is not None

    def _forget(self, peer: Peer, group: str) -> None:
        known = self._known.get(peer, {}).pop(group, None)
        if known is not None:
            self._characters -= _characters(group, [each.data for each in known.values()])

    def _closed(self, peer: Peer) -> None:
        for group in list(self._known.get(peer, {})):
            self._forget(peer, group)
        self._known.pop(peer, None)


def _characters(group: str, data: list[SubscriptionData]) -> int:
    """The size counted for an answer. A group without a subscription counts too."""
    return of_member(group, "") + sum(map(of_subscription, data))
