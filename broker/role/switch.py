"""What a change of role does to this broker: who writes the log, what waits for whom, and what the others are told.

Invariant: sends are accepted only between a promotion that succeeded and the first word of a newer masterEpoch; on
every way out of mastership all waiting sends are answered. The HA service changes its role before the store does, so
the store's queue offsets are counted on a log that ends with a whole record."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from broker.neighbours.neighbours import Neighbours
from broker.requests import Requests
from broker.role.actions import Grant
from broker.role.membership import Membership, Role
from broker.tables.tables import Tables
from ha.errors import EpochFenced, HAError
from ha.replication import Replication
from messagestore.brokerstore import BrokerStore
from messagestore.errors import StoreError
from messagestore.messages import QueueGrew
from mqruntime.diskfull import cure


class RoleRefused(Exception):
    """The log knows a newer epoch than the granted one: this broker does not take the role, and nothing changed."""


class RoleChangeFailed(Exception):
    """The change broke off; the text says why. It is to be repeated."""


class RoleSwitch:
    """Performs what `membership` decides on log and replication, on the `requests` that wait, and towards the `neighbours`."""

    def __init__(
        self,
        membership: Membership,
        *,
        store: BrokerStore,
        ha: Replication,
        tables: Tables,
        requests: Requests,
        neighbours: Neighbours,
        may_lack: Callable[[], bool],
    ) -> None:
        """`may_lack()`: this log may lack what it once held."""
        self._membership = membership
        self._store = store
        self._ha = ha
        self._tables = tables
        self._requests = requests
        self._neighbours = neighbours
        self._may_lack = may_lack
        self._lacks = False
        """So it was when it was elected."""

    # -- roles

    async def become_master(self, grant: Grant) -> None:
        """Raises RoleRefused, RoleChangeFailed."""
        self._neighbours.finder.forget()
        self._lacks = self._lacks or self._may_lack()  # it lacks nothing by definition, once it leads
        with _told_as_role_errors():
            await self._ha.become_master(
                grant.master_epoch, grant.master_id, grant.sync_state_set, grant.sync_state_set_epoch
            )
            await self._store.become_master()  # harmless again: nothing is accepted during a change of role
            await self._tables.log_lost(self._store, surely=self._lacks)

    async def become_slave(self, grant: Grant, broker_id: int) -> None:
        """Raises RoleRefused, RoleChangeFailed."""
        self._leave_mastership(stopping=False)
        with _told_as_role_errors():
            await self._ha.become_slave(grant.master_epoch, broker_id, grant.master_id)

    def role_taken(self, former: Role, role: Role, grant: Grant) -> None:
        """`role` was accepted, `former` was the one before: tell everybody."""
        self._lacks = False
        if role is Role.SLAVE:
            self._neighbours.follow(grant.master_address, grant.master_epoch)
        else:
            epochs = [(entry.epoch, entry.start_offset) for entry in self._ha.history]
            self._tables.deletions.log_ends_at(self._store.max_offset(), epochs)
            for topic, queue_id in self._store.queues():
                self._tables.cover(self._store, topic, queue_id)
        self._requests.role_taken(
            became_master=role is Role.MASTER and former is not Role.MASTER,
            grant=grant if role is Role.SLAVE else None,
        )
        # a Raft group's term may have moved on, under which nothing was read of its members yet
        epoch = max(min(self._ha.epoch, grant.master_epoch), 0)
        self._tables.role_taken(epoch, leads=role is Role.MASTER)
        self._neighbours.registration.soon()

    def master_moved(self, address: str, master_epoch: int) -> None:
        """The master is the same, its address is another."""
        self._neighbours.finder.follow(address, master_epoch)
        self._requests.forwarding.follows(address, master_epoch)

    def stop_serving(self) -> None:
        """The broker stops: whoever waits gets an answer and goes elsewhere."""
        self._membership.stop()
        self._leave_mastership(stopping=True)

    def _leave_mastership(self, *, stopping: bool) -> None:
        """Nothing more is accepted, stored or answered OK."""
        self._store.become_slave()
        self._requests.leave_mastership(stopping=stopping)

    def deposed(self) -> None:
        """This broker leads no more, and nobody else is known to: what it stored may be lost or not, and what comes waits a
        while for whoever is next."""
        self._requests.forwarding.announced()
        self._leave_mastership(stopping=False)

    def role_announced(self) -> None:
        """Another role will be taken."""
        self._requests.forwarding.announced()

    async def tables_held_by(self, members: frozenset[int]) -> bool:
        """Whether all of them hold what administrators were answered; who is to enter the set must."""
        return await self._requests.agreement.held_by(members)

    # -- the log

    def queues_grew(self, grown: list[QueueGrew]) -> None:
        """Messages became readable: their topics must be known here, if need be from the master."""
        for topic, queue_id, _ in grown:
            if self._membership.role is Role.MASTER:
                self._tables.cover(self._store, topic, queue_id)
            elif self._tables.topics.find(topic) is None:
                self._neighbours.copies.soon()


@contextmanager
def _told_as_role_errors() -> Iterator[None]:
    """What the world can do to a role change, in the words of the replicas manager; bugs pass."""
    try:
        yield
    except EpochFenced as fenced:
        raise RoleRefused(str(fenced)) from fenced
    except (OSError, HAError, StoreError) as error:
        what_to_do = cure(error) if isinstance(error, OSError) else ""
        raise RoleChangeFailed(f"{error}{what_to_do}") from error
