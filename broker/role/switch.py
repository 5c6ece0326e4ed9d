"""Performs a change of role on the log, the tables and the replication of this broker.

Invariant: sends are accepted only between a successful promotion and the first notice of a newer masterEpoch. Whenever
mastership ends, all waiting sends are answered. The HA service changes its role before the store does, so the store counts its
queue offsets on a log that ends with a complete record."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from broker.role.actions import Grant
from broker.role.events import BrokerEvents, RoleTaken
from broker.role.membership import Membership, ReplicaRole
from broker.tables.tables import Tables
from ha.errors import EpochFenced, HAError
from ha.service.replication import Replication
from messagestore.errors import StoreError
from messagestore.messages import QueueGrew
from messagestore.store.brokerstore import BrokerStore
from mqruntime.diskfull import cure


class RoleRefused(Exception):
    """The log knows a newer epoch than the granted epoch. This broker does not take the role, and nothing has changed."""


class RoleChangeFailed(Exception):
    """The change of role failed half-way and has to be repeated; the text gives the reason."""


class RoleSwitch:
    """Performs the changes that `membership` decides on, and notifies the listeners of `events`."""

    def __init__(
        self,
        membership: Membership,
        *,
        store: BrokerStore,
        ha: Replication,
        tables: Tables,
        events: BrokerEvents,
        may_have_lost_data: Callable[[], bool],
    ) -> None:
        """`may_have_lost_data()`: whether the log may be missing messages that it once held."""
        self._membership = membership
        self._store = store
        self._ha = ha
        self._tables = tables
        self._events = events
        self._may_have_lost_data = may_have_lost_data
        self._has_lost_data = False
        """Whether the log may have been missing messages when this broker was elected."""

    # -- roles

    async def become_master(self, grant: Grant) -> None:
        """Become master. Raises RoleRefused, RoleChangeFailed."""
        self._events.promotion_began()
        # asked before this broker leads, because the log of a leader is complete by definition
        self._has_lost_data = self._has_lost_data or self._may_have_lost_data()
        with _as_role_errors():
            await self._ha.become_master(
                grant.master_epoch, grant.master_id, grant.sync_state_set, grant.sync_state_set_epoch
            )
            await self._store.become_master()  # may be repeated: nothing is accepted during a change of role
            await self._tables.on_log_tail_lost(self._store, certain=self._has_lost_data)

    async def become_slave(self, grant: Grant, broker_id: int) -> None:
        """Become slave. Raises RoleRefused, RoleChangeFailed."""
        self._leave_mastership(stopping=False)
        with _as_role_errors():
            await self._ha.become_slave(grant.master_epoch, broker_id, grant.master_id)

    def role_taken(self, former: ReplicaRole, role: ReplicaRole, grant: Grant) -> None:
        """Called when `role` was taken; `former` is the role before."""
        self._has_lost_data = False
        if role is ReplicaRole.MASTER:
            epochs = [(entry.epoch, entry.start_offset) for entry in self._ha.history]
            self._tables.deletions.log_ends_at(self._store.max_offset(), epochs)
            for topic, queue_id in self._store.queues():
                self._tables.cover(self._store, topic, queue_id)
        self._events.role_taken(RoleTaken(former, role, grant))
        # a Raft group's term may be newer than the grant, but its members' tables were not read in that term yet
        epoch = max(min(self._ha.epoch, grant.master_epoch), 0)
        self._tables.role_taken(epoch, leads=role is ReplicaRole.MASTER)
        self._events.role_settled()

    def master_moved(self, address: str, master_epoch: int) -> None:
        """Called when the same master has another address."""
        self._events.master_moved(address, master_epoch)

    def stop_serving(self) -> None:
        """Stop serving, because the broker stops: waiting requests are answered, so clients try another broker."""
        self._membership.stop()
        self._leave_mastership(stopping=True)

    def _leave_mastership(self, *, stopping: bool) -> None:
        """From now on accept and store no messages, and answer no send OK."""
        self._store.become_slave()
        self._events.mastership_left(stopping)

    def deposed(self) -> None:
        """Called when this broker was deposed and no other leader is known. The outcome of its last sends is unknown; new
        messages wait a while for the next leader."""
        self._events.role_announced()
        self._leave_mastership(stopping=False)

    def role_announced(self) -> None:
        """Called when another role will be taken."""
        self._events.role_announced()

    # -- the log

    def queues_grew(self, grown: list[QueueGrew]) -> None:
        """Called when messages became readable: a master creates their topics, a slave copies the topics from its master."""
        for topic, queue_id, _ in grown:
            if self._membership.role is ReplicaRole.MASTER:
                self._tables.cover(self._store, topic, queue_id)
            elif self._tables.topics.find(topic) is None:
                self._events.topic_unknown()


@contextmanager
def _as_role_errors() -> Iterator[None]:
    """Convert expected failures of a role change into RoleRefused and RoleChangeFailed; other errors pass unchanged."""
    try:
        yield
    except EpochFenced as fenced:
        raise RoleRefused(str(fenced)) from fenced
    except (OSError, HAError, StoreError) as error:
        what_to_do = cure(error) if isinstance(error, OSError) else ""
        raise RoleChangeFailed(f"{error}{what_to_do}") from error
