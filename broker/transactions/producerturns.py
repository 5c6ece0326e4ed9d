"""Which producer of a group is asked next.

Invariant: those that are connected take turns. Pure but for the table of clients that it asks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from broker.clients.groups import Client

GROUPS_MAX = 10_000


class ProducerTurns:
    """`producers` gives those of a group that are connected."""

    def __init__(self, producers: Callable[[str], Sequence[Client]]) -> None:
        self._producers = producers
        self._turns: dict[str, int] = {}

    def has_any(self, group: str) -> bool:
        return bool(self._producers(group))

    def next(self, group: str) -> Client | None:
        """None where none is connected."""
        clients = [client for client in self._producers(group) if not client.peer.closed]
        if not clients:
            return None
        turn = self._turns.pop(group, 0)
        self._turns[group] = turn + 1
        if len(self._turns) > GROUPS_MAX:
            del self._turns[next(iter(self._turns))]
        return clients[turn % len(clients)]
