"""Up to where a broker under controllers may answer what it stored: the contract that its settings name, see
broker.role.contract.

Invariant: 0 while it accepts no sends, so nothing is answered OK on the way out of mastership."""

from __future__ import annotations

from broker.role.membership import Membership
from broker.settings.broker import BrokerSettings
from ha.replication import Replication
from messagestore.brokerstore import BrokerStore
from messagestore.settings import FlushDiskType


class Acknowledgement:
    """`settings` may change while the broker runs."""

    def __init__(
        self, membership: Membership, settings: BrokerSettings, store: BrokerStore, ha: Replication
    ) -> None:
        self._membership = membership
        self._settings = settings
        self._store = store
        self._ha = ha
        self._flushes = settings.flush_disk_type is FlushDiskType.SYNC_FLUSH

    def enough_in_sync(self) -> bool:
        """The SyncStateSet has minInSyncReplicas members."""
        return self._ha.in_sync_count() >= self._settings.min_in_sync_replicas

    def acked_end(self) -> int:
        """Sends that end here or below may be answered."""
        end = self.replicated_end()
        return min(end, self._store.flushed_offset()) if self._flushes else end

    def replicated_end(self) -> int:
        """The same, whatever this broker's own disk lacks of it."""
        if not self._membership.accepts_sends:
            return 0
        if self._settings.all_ack_in_sync_state_set:
            return self._ha.acked_end()
        return self._store.max_offset() if self._ha.may_confirm() else 0

    def stored_end(self) -> int:
        """Under controllers nothing is answered for being stored here alone."""
        return self.acked_end()

    def followed_end(self) -> int:
        """Up to where whoever takes this master's place has its log."""
        return self.replicated_end()

    def reachable(self, end: int) -> bool:
        """Whoever does not have it in time leaves the set."""
        return True
