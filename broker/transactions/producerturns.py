"""Chooses the producer of a group to which the next check of a transaction is sent, by turns and by room.

Invariant: connected producers with room take turns. A producer has room while its unread and reserved bytes, of all its groups,
are below UNREAD_BYTES_MAX. Pure except for the table of clients that it reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from broker.clients.groups import GroupClient
from remoting.peer import Peer

GROUPS_MAX = 10_000
UNREAD_BYTES_MAX = 256 << 10
"""Far below the limits at which a connection is closed (remoting.limits) or sends from it are no longer read."""


class ProducerTurns:
    """The turns of all groups. `producers` returns the connected producers of a group. `may_end(client, topic)` is asked,
    because anybody may join a group of producers, and a check shows the half."""

    def __init__(
        self,
        producers: Callable[[str], Sequence[GroupClient]],
        may_end: Callable[[GroupClient, str], bool],
    ) -> None:
        self._producers = producers
        self._may_end = may_end
        self._turns: dict[str, int] = {}
        self._reserved: Counter[Peer] = Counter()
        """The bytes of checks that wait for the confirmed end."""

    def role_taken(self) -> None:
        """Drop reservations, because the waiting checks are not sent."""
        self._reserved.clear()

    def has_any(self, group: str, topic: str | None = None) -> bool:
        """Whether producers are connected that may end halves of `topic` (None: of some topic)."""
        return any(topic is None or self._may_end(client, topic) for client in self._producers(group))

    def is_full(self, group: str) -> bool:
        """Whether producers are connected but none has room."""
        clients = self._producers(group)
        return bool(clients) and not any(map(self._has_room, clients))

    def next(self, group: str, topic: str) -> GroupClient | None:
        """The next connected producer with room that may end halves of `topic`; None if there is none."""
        clients = [
            client
            for client in self._producers(group)
            if self._has_room(client) and self._may_end(client, topic)
        ]
        if not clients:
            return None
        turn = self._turns.pop(group, 0)
        self._turns[group] = turn + 1
        if len(self._turns) > GROUPS_MAX:
            del self._turns[next(iter(self._turns))]
        return clients[turn % len(clients)]

    def reserve(self, client: GroupClient, size: int) -> None:
        """Reserve room for a check that waits for the confirmed end."""
        self._reserved[client.peer] += size

    def release(self, client: GroupClient, size: int) -> None:
        """Release the room of a check that is sent or dropped."""
        self._reserved[client.peer] -= size
        if self._reserved[client.peer] <= 0:
            del self._reserved[client.peer]

    def _has_room(self, client: GroupClient) -> bool:
        peer = client.peer
        return not peer.closed and peer.unsent_bytes + self._reserved[peer] < UNREAD_BYTES_MAX
