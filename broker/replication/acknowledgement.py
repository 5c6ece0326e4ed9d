"""The acknowledged end of a broker under controllers, by the contract of its settings (see broker.role.contract).

Invariant: the acknowledged end is 0 while the broker accepts no sends, so no send is answered OK on the way out of
mastership."""

from __future__ import annotations

from broker.role.membership import Membership
from broker.settings.broker import BrokerSettings
from ha.service.replication import Replication
from messagestore.store.brokerstore import BrokerStore
from messagestore.store.settings import FlushDiskType


class Acknowledgement:
    """The acknowledged end. `settings` may change while the broker runs."""

    def __init__(
        self, membership: Membership, settings: BrokerSettings, store: BrokerStore, ha: Replication
    ) -> None:
        self._membership = membership
        self._settings = settings
        self._store = store
        self._ha = ha
        self._flushes = settings.flush_disk_type is FlushDiskType.SYNC_FLUSH

    def enough_in_sync(self) -> bool:
        """Whether the SyncStateSet has minInSyncReplicas members."""
        return self._ha.in_sync_count() >= self._settings.min_in_sync_replicas

    def acked_end(self) -> int:
        """The log end below which sends may be answered OK."""
        end = self.replicated_end()
        return min(end, self._store.flushed_offset()) if self._flushes else end

    def replicated_end(self) -> int:
        """Like `acked_end`, but a part may be missing on this broker's own disk."""
        if not self._membership.accepts_sends:
            return 0
        if self._settings.all_ack_in_sync_state_set:
            return self._ha.acked_end()
        return self._store.max_offset() if self._ha.may_confirm() else 0

    def stored_end(self) -> int:
        """Always 0: under controllers no send is answered only because it is stored here."""
        return self.acked_end()

    def followed_end(self) -> int:
        """The log end that every possible next master has."""
        return self.replicated_end()

    def reachable(self, end: int) -> bool:
        """Always True: a slave that does not have the send in time leaves the set."""
        return True
