"""Routes of replies: the clients that wait for replies, and their connections.

A client is known as a producer by its heartbeats, which it sends each 30 s and only to masters. Before the first heartbeat its
requests identify the client. If a former master passed the requests on, the route goes through the former master.

Invariant: for one client id the producer's connection has priority over the connection of a request. At most `ASKED_MAX`
clients are known only by their requests, each while its connection is open. Replies to requests of one user go to no other, as
long as the client is among the `ASKED_MAX` that asked last. A reply names no user. So an id belongs to the user who asked with
it first, and a connected client's id to the client's user; if these differ, replies go to nobody."""

from __future__ import annotations

from collections.abc import Callable

from broker.clients.bounds import NAME_LENGTH_MAX
from broker.clients.groups import ConsumerGroups
from remoting.command import RemotingCommand
from remoting.peer import Peer

ASKED_MAX = 10_000
FORMER_MAX = 8
PASSES_ON = "passes on"
"""Attribute of a connection over which a former master passes on requests of its clients."""


def note_passes_on(peer: Peer) -> None:
    """Mark a connection whose peer claims to pass on requests of clients. A false claim has no advantage."""
    peer.attributes[PASSES_ON] = True


def is_passed_on(peer: Peer) -> bool:
    """Whether a former master passes on the requests over `peer`. Such a request may be older than requests that clients sent
    directly to this master, so it must not undo them."""
    return PASSES_ON in peer.attributes


class Requesters:
    """The reply routes of one broker."""

    def __init__(
        self, clients: ConsumerGroups, signer: Callable[[Peer, RemotingCommand], str | None]
    ) -> None:
        self._clients = clients
        self._signer = signer
        self._asked: dict[str, Peer] = {}
        self._users: dict[str, str] = {}
        """Client id -> the user whose request it named first."""
        self._ids: dict[Peer, dict[str, None]] = {}
        self._former: dict[Peer, None] = {}

    def why_not(self, client_id: str, peer: Peer, request: RemotingCommand) -> str | None:
        """Why a request over `peer` may not name this client: the id is another user's, who would get the reply. None if it
        may. A client that has an id of its own may repeat requests of others, who get the replies."""
        if self._asked.get(client_id) is peer or not self._is_others(client_id, self._signer(peer, request)):
            return None
        own = self._clients.ids_over(peer)
        if own and client_id not in own:
            return None
        return f"another user asks with the client id {client_id}; connect with another id"

    def asked(self, client_id: str, peer: Peer, request: RemotingCommand) -> None:
        """Record a request of the client over `peer`, which may not be checked yet. A request that names a client of another
        user is not recorded."""
        before = self._asked.get(client_id)
        if before is peer or len(client_id) > NAME_LENGTH_MAX:
            return
        user = self._signer(peer, request)
        if user is None or self._is_others(client_id, user):
            return
        self._users[client_id] = user
        if len(self._users) > ASKED_MAX:
            del self._users[next(iter(self._users))]
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
        """Record that a former master passes on requests over `peer`."""
        if peer in self._former:
            return
        if len(self._former) >= FORMER_MAX:
            del self._former[next(iter(self._former))]
        self._former[peer] = None
        peer.on_close(lambda gone: self._former.pop(gone, None))

    def find(self, client_id: str, *, own: bool = False) -> Peer | None:
        """The connection to a client; with `own` only the client's own connection. None if it is not known."""
        user, connected = self._users.get(client_id), self._clients.connected(client_id)
        if user is not None and connected is not None and connected.caller.user != user:
            return None
        client = self._clients.producer(client_id, user)
        if client is not None:
            return client.peer
        peer = self._asked.get(client_id)
        return None if own and peer in self._former else peer

    def is_former(self, peer: Peer) -> bool:
        """Whether `peer` is the connection of a former master."""
        return peer in self._former

    def former(self) -> list[Peer]:
        """The connections of former masters, newest first."""
        return list(reversed(self._former))

    def _is_others(self, client_id: str, user: str | None) -> bool:
        """Whether the id belongs to another user."""
        connected = self._clients.connected(client_id)
        owners = {self._users.get(client_id, user), user if connected is None else connected.caller.user}
        return owners != {user}

    def _forget(self, client_id: str) -> None:
        self._ids[self._asked.pop(client_id)].pop(client_id)

    def _closed(self, peer: Peer) -> None:
        for client_id in self._ids.pop(peer, {}):
            del self._asked[client_id]
