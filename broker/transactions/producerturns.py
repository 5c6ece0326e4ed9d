"""Which producer of a group is asked next, and who has room for it.

Invariant: those that are connected and have room take turns. One has room while less than UNREAD_BYTES_MAX wait for it to read
them or will soon, in all its groups. Pure but for the table of clients that it asks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from broker.clients.groups import Client
from remoting.peer import Peer

GROUPS_MAX = 10_000
UNREAD_BYTES_MAX = 256 << 10
"""Far less than what a connection is cut for (remoting.limits), and than what stops the reading of its sends."""


class ProducerTurns:
    """`producers` gives those of a group that are connected."""

    def __init__(self, producers: Callable[[str], Sequence[Client]]) -> None:
        self._producers = producers
        self._turns: dict[str, int] = {}
        self._reserved: Counter[Peer] = Counter()
        """Bytes that will be sent once they are confirmed."""

    def role_taken(self) -> None:
        """What was to be sent is not."""
        self._reserved.clear()

    def has_any(self, group: str) -> bool:
        return bool(self._producers(group))

    def is_full(self, group: str) -> bool:
        """Producers are connected, and none has room."""
        clients = self._producers(group)
        return bool(clients) and not any(map(self._has_room, clients))

    def next(self, group: str) -> Client | None:
        """None where none is connected that has room."""
        clients = [client for client in self._producers(group) if self._has_room(client)]
        if not clients:
            return None
        turn = self._turns.pop(group, 0)
        self._turns[group] = turn + 1
        if len(self._turns) > GROUPS_MAX:
            del self._turns[next(iter(self._turns))]
        return clients[turn % len(clients)]

    def reserve(self, client: Client, size: int) -> None:
        """So many bytes will be sent to it."""
        self._reserved[client.peer] += size

    def release(self, client: Client, size: int) -> None:
        """They are sent now, or not at all."""
        self._reserved[client.peer] -= size
        if self._reserved[client.peer] <= 0:
            del self._reserved[client.peer]

    def _has_room(self, client: Client) -> bool:
        peer = client.peer
        return not peer.closed and peer.unsent_bytes + self._reserved[peer] < UNREAD_BYTES_MAX
