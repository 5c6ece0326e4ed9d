"""Acknowledged end of a pair's master, by upstream's brokerRole.

Invariant: 0 while it accepts no sends, so nothing is answered OK on the way out."""

from __future__ import annotations

from broker.role.membership import Membership
from ha.service.replication import Replication
from messagestore.store.brokerstore import BrokerStore


class PairAcknowledgement:
    """`flushes`: only messages on this disk are answered OK."""

    def __init__(self, membership: Membership, store: BrokerStore, ha: Replication, *, flushes: bool) -> None:
        self._membership = membership
        self._store = store
        self._ha = ha
        self._flushes = flushes

    def enough_in_sync(self) -> bool:
        """True: a pair's master stores messages with or without a slave."""
        return True

    def acked_end(self) -> int:
        """The log end below which sends may be answered OK."""
        return min(self.replicated_end(), self.stored_end())

    def replicated_end(self) -> int:
        """`acked_end`, even if this broker's own disk is missing part of it."""
        return self._ha.acked_end() if self._membership.accepts_sends else 0

    def stored_end(self) -> int:
        """The end of the log that this broker stored, on disk if `flushes`."""
        if not self._membership.accepts_sends:
            return 0
        return self._store.flushed_offset() if self._flushes else self._store.max_offset()

    def followed_end(self) -> int:
        """The log end of a slave that may become master, whether or not sends wait for one."""
        return self._ha.followed_end() if self._membership.accepts_sends else 0

    def reachable(self, end: int) -> bool:
        return self._ha.reachable(end)


class StoredHere:
    """Acknowledged end for messages that wait for no slave: delayed ones, when they are delivered."""

    def __init__(self, pair: PairAcknowledgement) -> None:
        self.enough_in_sync = pair.enough_in_sync
        self.acked_end = pair.stored_end
