"""What a role means for this broker: who writes the log, who may send and read, and what the others are told.

Invariant: sends are accepted only between a promotion that succeeded and the first word of a newer masterEpoch; on
every way out of mastership all waiting sends are answered. The HA service changes its role before the store does, so
the store's queue offsets are counted on a log that ends with a whole record."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from broker.delaydelivery import DelayDelivery
from broker.masterfinder import MasterFinder
from broker.pendingsends import PendingSends
from broker.pull import PullProcessor
from broker.replicas import Replicas, Role
from broker.replicasmanager import RoleChangeFailed, RoleRefused
from broker.settings import BrokerSettings
from broker.steps import Grant
from broker.topics import Topics
from ha.errors import EpochFenced, HAError
from ha.service import HAService
from messagestore.contractmark import ContractMark
from messagestore.errors import StoreError
from messagestore.messages import QueueGrew
from messagestore.settings import FlushDiskType
from messagestore.store import MessageStore

MASTER_ROLE_ID = 0


class Prompted(Protocol):
    """A periodic task that can be asked to run at once."""

    def soon(self) -> None: ...


class Consumers(Protocol):
    """The connected members of consumer groups."""

    def share_anew(self) -> None:
        """Have every group share its queues at once."""
        ...


class RoleSwitch:
    """The broker's role, performed and as others see it."""

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        store: MessageStore,
        ha: HAService,
        topics: Topics,
        pending: PendingSends,
        finder: MasterFinder,
        replicas: Callable[[], Replicas],
    ) -> None:
        self._settings = settings
        self._store = store
        self._ha = ha
        self._topics = topics
        self._pending = pending
        self._finder = finder
        self._replicas = replicas
        self._flushes = settings.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self.stopping = False
        self.contract_mark: ContractMark | None = None  # of the store, see broker.contractmark
        self.announcer: Prompted | None = None  # tells name servers what this broker is
        self.copier: Prompted | None = None  # copies the master's tables
        self.pulls: PullProcessor | None = None
        self.delivery: DelayDelivery | None = None
        self.consumers: Consumers | None = None
        self._led = False  # the role before this one was a master's

    # -- as others see it

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

    def confirmed(self, offset: int) -> None:
        """The confirm offset or what may be answered has moved."""
        self._pending.acknowledged(self.acked_end())
        if self.delivery is not None:
            self.delivery.acknowledged()

    # -- performing it

    async def become_master(self, grant: Grant) -> None:
        """Raises RoleRefused, RoleChangeFailed."""
        self._finder.forget()
        self._ha.set_broker_id(grant.master_id)
        with _told_as_role_errors():
            await self._ha.become_master(grant.master_epoch, grant.sync_state_set, grant.sync_state_set_epoch)
            await self._store.become_master()  # harmless again: nothing is accepted during a change of role

    async def become_slave(self, grant: Grant) -> None:
        """Raises RoleRefused, RoleChangeFailed."""
        self._leave_mastership()
        broker_id = self._replicas().broker_id
        assert broker_id is not None
        self._ha.set_broker_id(broker_id)
        with _told_as_role_errors():
            await self._ha.become_slave(grant.master_epoch, grant.master_id, None)

    def role_taken(self) -> None:
        """The state machine has accepted the role: tell everybody."""
        taken = self._replicas().taken
        assert taken is not None
        if self.role is Role.SLAVE:
            self._finder.follow(taken.master_address, taken.master_epoch)
        else:
            for topic, queue_id in self._store.queues():
                self._topics.cover(topic, queue_id)
            self._pending.acknowledged(self.acked_end())  # elected again: what was acked while it changed
        leads = self.role is Role.MASTER
        if leads and not self._led and self.consumers is not None:
            self.consumers.share_anew()
        self._led = leads
        self._topics.led_under(taken.master_epoch)
        if self.delivery is not None:
            self.delivery.role_taken()
        if self.announcer is not None:
            self.announcer.soon()

    def queues_grew(self, grown: list[QueueGrew]) -> None:
        """Messages became readable: their topics must be known here, if need be from the master."""
        for topic, queue_id, _ in grown:
            if self.role is Role.MASTER:
                self._topics.cover(topic, queue_id)
            elif self._topics.find(topic) is None and self.copier is not None:
                self.copier.soon()

    def _leave_mastership(self) -> None:
        """Nothing more is accepted, stored or answered OK."""
        self._store.become_slave()
        self._pending.give_up()
        if self.pulls is not None and not self._settings.slave_read_enable:
            self.pulls.release_all()

    def stop_serving(self) -> None:
        """The broker stops: whoever waits gets an answer and goes elsewhere."""
        self.stopping = True
        self._leave_mastership()

    # -- the SyncStateSet

    def propose(self, members: frozenset[int]) -> bool:
        return self._ha.propose(members)

    def applied(self, members: frozenset[int], sync_state_set_epoch: int) -> None:
        self._ha.applied(members, sync_state_set_epoch)

    def proposal_failed(self) -> None:
        self._ha.proposal_failed(True)

    def master_moved(self, address: str) -> None:
        self._finder.follow(address, self._replicas().master_epoch)


@contextmanager
def _told_as_role_errors() -> Iterator[None]:
    """What the world can do to a role change, in the words of the replicas manager; bugs pass."""
    try:
        yield
    except EpochFenced as fenced:
        raise RoleRefused(str(fenced)) from fenced
    except (OSError, HAError, StoreError) as error:
        raise RoleChangeFailed(str(error)) from error
