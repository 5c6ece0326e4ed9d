"""The acknowledged end of a pair's master, by upstream's brokerRole.

Invariant: the acknowledged end is 0 while the broker accepts no sends, so no send is answered OK when the broker stops."""

from __future__ import annotations

from broker.role.membership import Membership
from ha.service.replication import Replication
from messagestore.store.brokerstore import BrokerStore


class PairAcknowledgement:
    """The acknowledged end. With `flushes` only messages on this disk are answered OK."""

    def __init__(self, membership: Membership, store: BrokerStore, ha: Replication, *, flushes: bool) -> None:
        self._membership = membership
        self._store = store
        self._ha = ha
        self._flushes = flushes

    def enough_in_sync(self) -> bool:
        """Always True: a pair's master stores messages with or without a slave."""
        return True

    def acked_end(self) -> int:
        """The log end below which sends may be answered OK."""
        return min(self.replicated_end(), self.stored_end())

    def replicated_end(self) -> int:
        """Like `acked_end`, but a part may be missing on this broker's own disk."""
        return self._ha.acked_end() if self._membership.accepts_sends else 0

    def stored_end(self) -> int:
        """The end of the log that this broker has stored; with `flushes` the end on disk."""
        if not self._membership.accepts_sends:
            return 0
        return self._store.flushed_offset() if self._flushes else self._store.max_offset()

    def followed_end(self) -> int:
        """The log end of a slave that may become master, whether or not sends wait for a slave."""
        return self._ha.followed_end() if self._membership.accepts_sends else 0

    def reachable(self, end: int) -> bool:
        return self._ha.reachable(end)


class StoredHere:
    """The acknowledged end for messages that wait for no slave, such as delivered delayed messages."""

    def __init__(self, pair: PairAcknowledgement) -> None:
        self.enough_in_sync = pair.enough_in_sync
        self.acked_end = pair.stored_end
