"""Up to where the master of a pair may answer what it stored, as upstream's brokerRole has it.

Invariant: 0 while it accepts no sends, so nothing is answered OK on the way out."""

from __future__ import annotations

from broker.role.membership import Membership
from ha.replication import Replication
from messagestore.brokerstore import BrokerStore


class PairAcknowledgement:
    """`flushes`: what this disk does not have is answered by nobody."""

    def __init__(self, membership: Membership, store: BrokerStore, ha: Replication, *, flushes: bool) -> None:
        self._membership = membership
        self._store = store
        self._ha = ha
        self._flushes = flushes

    def enough_in_sync(self) -> bool:
        """A pair's master stores what it is sent, whether or not a slave is there."""
        return True

    def acked_end(self) -> int:
        """Sends that end here or below may be answered OK."""
        return min(self.replicated_end(), self.stored_end())

    def replicated_end(self) -> int:
        """The same, whatever this broker's own disk lacks of it."""
        return self._ha.acked_end() if self._membership.accepts_sends else 0

    def stored_end(self) -> int:
        """Up to where this broker alone has what `flushes` asks for."""
        if not self._membership.accepts_sends:
            return 0
        return self._store.flushed_offset() if self._flushes else self._store.max_offset()

    def followed_end(self) -> int:
        """Up to where a slave that is put in this master's place has its log, whether or not sends wait for one."""
        return self._ha.followed_end() if self._membership.accepts_sends else 0

    def reachable(self, end: int) -> bool:
        return self._ha.reachable(end)


class StoredHere:
    """The same for messages that wait for no slave: delayed ones, when they are delivered."""

    def __init__(self, pair: PairAcknowledgement) -> None:
        self.enough_in_sync = pair.enough_in_sync
        self.acked_end = pair.stored_end
