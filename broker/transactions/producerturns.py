"""Which producer of a group is asked next.

Invariant: those that are connected and read what they are sent take turns. Pure but for the table of clients that it asks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from broker.clients.groups import Client

GROUPS_MAX = 10_000
UNREAD_BYTES_MAX = 1 << 20
"""Who has left so many of a connection's bytes unread, replies to its sends among them, is asked later."""


class ProducerTurns:
    """`producers` gives those of a group that are connected."""

    def __init__(self, producers: Callable[[str], Sequence[Client]]) -> None:
        self._producers = producers
        self._turns: dict[str, int] = {}

    def has_any(self, group: str) -> bool:
        return bool(self._connected(group))

    def has_room(self, group: str) -> bool:
        """Whether one of them reads."""
        return bool(_with_room(self._connected(group)))

    def _connected(self, group: str) -> list[Client]:
        return [client for client in self._producers(group) if not client.peer.closed]

    def next(self, group: str) -> Client | None:
        """None where none is connected; one that does not read where none does."""
        connected = self._connected(group)
        clients = _with_room(connected) or connected
        if not clients:
            return None
        turn = self._turns.pop(group, 0)
        self._turns[group] = turn + 1
        if len(self._turns) > GROUPS_MAX:
            del self._turns[next(iter(self._turns))]
        return clients[turn % len(clients)]


def _with_room(clients: Sequence[Client]) -> list[Client]:
    return [client for client in clients if client.peer.unsent_bytes < UNREAD_BYTES_MAX]
