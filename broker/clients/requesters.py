"""Clients that wait for replies, and the connections that lead to them.

A client is known as a producer by its heartbeats, which it sends each 30 s and to masters alone. Until the first one has come
the request that it sent tells who it is; where a former master passed that on, the way back leads over it.

Invariant: of one client id the producer's connection counts before that of a request. At most `ASKED_MAX` clients stand here
by their requests, each while its connection is open."""

from __future__ import annotations

from broker.clients.bounds import NAME_LENGTH_MAX
from broker.clients.groups import ConsumerGroups
from remoting.peer import Peer

ASKED_MAX = 10_000
FORMER_MAX = 8
PASSES_ON = "passes on"
"""Among the attributes of a connection over which a former master brings what its clients send."""


def note_passes_on(peer: Peer) -> None:
    """Whoever is at its other end says that it passes on what clients send: nobody gains by saying so."""
    peer.attributes[PASSES_ON] = True


def is_passed_on(peer: Peer) -> bool:
    """Whether a former master passes on what `peer` brings. It may be older than what clients said to this master itself, and
    undoes nothing of that."""
    return PASSES_ON in peer.attributes


class Requesters:
    """Of one broker."""

    def __init__(self, clients: ConsumerGroups) -> None:
        self._clients = clients
        self._asked: dict[str, Peer] = {}
        self._ids: dict[Peer, dict[str, None]] = {}
        self._former: dict[Peer, None] = {}

    def asked(self, client_id: str, peer: Peer) -> None:
        """A request of this client came over `peer`."""
        before = self._asked.get(client_id)
        if before is peer or len(client_id) > NAME_LENGTH_MAX:
            return
        if before is not None:
            self._forget(client_id)
        elif len(self._asked) >= ASKED_MAX:
            self._forget(next(iter(self._asked)))
        if peer not in self._ids:
            self._ids[peer] = {}
            peer.on_close(self._closed)
        self._asked[client_id] = peer
        self._ids[peer][client_id] = None

    def passes_on(self, peer: Peer) -> None:
        """A former master brings what its clients send over `peer`."""
        if peer in self._former:
            return
        if len(self._former) >= FORMER_MAX:
            del self._former[next(iter(self._former))]
        self._former[peer] = None
        peer.on_close(lambda gone: self._former.pop(gone, None))

    def find(self, client_id: str, *, own: bool = False) -> Peer | None:
        """The way to a client; with `own` only a connection of its own."""
        client = self._clients.producer(client_id)
        if client is not None:
            return client.peer
        peer = self._asked.get(client_id)
        return None if own and peer in self._former else peer

    def is_former(self, peer: Peer) -> bool:
        """Whether a former master is at the other end of `peer`."""
        return peer in self._former

    def former(self) -> list[Peer]:
        """The connections of former masters, newest first."""
        return list(reversed(self._former))

    def _forget(self, client_id: str) -> None:
        self._ids[self._asked.pop(client_id)].pop(client_id)

    def _closed(self, peer: Peer) -> None:
        for client_id in self._ids.pop(peer, {}):
            del self._asked[client_id]
