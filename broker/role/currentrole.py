"""The broker's role as everybody else in it sees it.

Invariant: nothing here changes a role: it is read from the state machine of the replicas. `stopping` is set once and for all,
and from then on nothing is accepted and nothing served."""

from __future__ import annotations

from collections.abc import Callable

from broker.role.membership import Replicas, Role
from broker.settings.broker import BrokerSettings
from ha.service import HAService
from messagestore.contractmark import ContractMark
from messagestore.settings import FlushDiskType
from messagestore.store import MessageStore

MASTER_ROLE_ID = 0


class CurrentRole:
    """`replicas` gives the state machine; `contract_mark` is the store's, see broker.role.contractmark."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        ha: HAService,
        replicas: Callable[[], Replicas],
    ) -> None:
        self.stopping = False
        self.contract_mark: ContractMark | None = None
        self._settings = settings
        self._store = store
        self._ha = ha
        self._replicas = replicas
        self._flushes = settings.flush_disk_type is FlushDiskType.SYNC_FLUSH

    @property
    def role(self) -> Role:
        return self._replicas().role

    @property
    def is_slave(self) -> bool:
        return self.role is Role.SLAVE

    @property
    def accepts_sends(self) -> bool:
        return not self.stopping and self._replicas().accepts_sends

    @property
    def serves_reads(self) -> bool:
        if self.stopping:
            return False
        return self.role is Role.MASTER or (self.role is Role.SLAVE and self._settings.slave_read_enable)

    @property
    def role_id(self) -> int | None:
        """The id that name servers and clients see: 0 on a master; None before the first role."""
        if self.role is Role.NONE:
            return None
        return MASTER_ROLE_ID if self.role is Role.MASTER else self._replicas().broker_id

    @property
    def replica_id(self) -> int | None:
        """The id that the controllers granted this store; None before."""
        return self._replicas().broker_id

    @property
    def ran_contract_a(self) -> bool:
        """Whether the log holds what was acknowledged before other replicas had it."""
        return self.contract_mark is not None

    @property
    def master_address(self) -> str | None:
        """Where a slave finds its master."""
        taken = self._replicas().taken
        return taken.master_address if taken is not None and self.role is Role.SLAVE else None

    def enough_in_sync(self) -> bool:
        return self._ha.in_sync_count() >= self._settings.min_in_sync_replicas

    def acked_end(self) -> int:
        """Sends that end here or below may be answered."""
        if not self.accepts_sends:
            return 0
        if self._settings.all_ack_in_sync_state_set:
            end = self._ha.acked_end(self._settings.min_in_sync_replicas)
        else:
            end = self._store.max_offset() if self.enough_in_sync() else 0
        return min(end, self._store.flushed_offset()) if self._flushes else end
