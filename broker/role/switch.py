"""What a change of role does to this broker: who writes the log, what waits for whom, and what the others are told.

Invariant: sends are accepted only between a promotion that succeeded and the first word of a newer masterEpoch; on
every way out of mastership all waiting sends are answered. The HA service changes its role before the store does, so
the store's queue offsets are counted on a log that ends with a whole record."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from broker.neighbours.neighbours import Neighbours
from broker.parts import Parts
from broker.requests import Requests
from broker.role.actions import Grant
from broker.role.manager import RoleChangeFailed, RoleRefused
from broker.role.membership import Replicas, Role
from ha.errors import EpochFenced, HAError
from messagestore.errors import StoreError
from messagestore.messages import QueueGrew
from mqruntime.diskfull import DISK_FULL


class RoleSwitch:
    """Performs what `replicas` decides, on `parts`, on the `requests` that wait, and towards the `neighbours`."""

    def __init__(
        self, parts: Parts, requests: Requests, neighbours: Neighbours, replicas: Callable[[], Replicas]
    ) -> None:
        self._settings = parts.settings
        self._store = parts.store
        self._ha = parts.ha
        self._topics = parts.tables.topics
        self._role = parts.role
        self._requests = requests
        self._neighbours = neighbours
        self._replicas = replicas
        self._led = False  # the role before this one was a master's

    # -- roles

    async def become_master(self, grant: Grant) -> None:
        """Raises RoleRefused, RoleChangeFailed."""
        self._neighbours.finder.forget()
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
        role = self._role
        if role.is_slave:
            self._neighbours.finder.follow(taken.master_address, taken.master_epoch)
        else:
            for topic, queue_id in self._store.queues():
                self._topics.cover(topic, queue_id)
            self._requests.pending.acknowledged(role.acked_end())  # elected again: what was acked meanwhile
        leads = role.role is Role.MASTER
        if leads and not self._led:
            self._requests.clients.share_anew()
        self._led = leads
        self._topics.led_under(taken.master_epoch)
        self._requests.delivery.role_taken()
        self._neighbours.registration.soon()

    def master_moved(self, address: str) -> None:
        """The master is the same, its address is another."""
        self._neighbours.finder.follow(address, self._replicas().master_epoch)

    def stop_serving(self) -> None:
        """The broker stops: whoever waits gets an answer and goes elsewhere."""
        self._role.stopping = True
        self._leave_mastership()

    def _leave_mastership(self) -> None:
        """Nothing more is accepted, stored or answered OK."""
        self._store.become_slave()
        self._requests.pending.give_up()
        if not self._settings.slave_read_enable:
            self._requests.pulls.release_all()

    # -- the log

    def confirmed(self) -> None:
        """The confirm offset or what may be answered has moved."""
        self._requests.pending.acknowledged(self._role.acked_end())
        self._requests.delivery.acknowledged()

    def queues_grew(self, grown: list[QueueGrew]) -> None:
        """Messages became readable: their topics must be known here, if need be from the master."""
        for topic, queue_id, _ in grown:
            if self._role.role is Role.MASTER:
                self._topics.cover(topic, queue_id)
            elif self._topics.find(topic) is None:
                self._neighbours.copies.soon()

    # -- the SyncStateSet

    def propose(self, members: frozenset[int]) -> bool:
        return self._ha.propose(members)

    def applied(self, members: frozenset[int], sync_state_set_epoch: int) -> None:
        self._ha.applied(members, sync_state_set_epoch)

    def proposal_failed(self) -> None:
        self._ha.proposal_failed(True)


@contextmanager
def _told_as_role_errors() -> Iterator[None]:
    """What the world can do to a role change, in the words of the replicas manager; bugs pass."""
    try:
        yield
    except EpochFenced as fenced:
        raise RoleRefused(str(fenced)) from fenced
    except (OSError, HAError, StoreError) as error:
        full = isinstance(error, OSError) and error.errno in DISK_FULL
        cure = "; make room on this broker's disk" if full else ""
        raise RoleChangeFailed(f"{error}{cure}") from error
