"""Outbound calls of this broker: to name servers, its master, and the controllers when it leaves. Upstream: BrokerOuterAPI.

Invariant: all calls share one client, so there is one connection to each server. All other calls to controllers are made by the
replicas manager."""

from __future__ import annotations

import asyncio
import logging

from broker.neighbours.masterfinder import MasterFinder
from broker.neighbours.registration import Registration
from broker.neighbours.slavesync import SlaveSync
from broker.neighbours.tablecopy import Fence, TableCopy
from broker.role.events import BrokerEvents, RoleTaken
from broker.role.membership import Membership
from broker.settings.broker import BrokerSettings
from broker.tables.tables import Tables
from ha.service.replication import Replication
from mqruntime.clock import Clock
from mqruntime.log import fields
from mqruntime.network import Network
from mqruntime.tasks import Tasks
from remoting.client import RemotingClient
from remoting.signing import Signer

logger = logging.getLogger("broker")

LEAVE_MS = 1_000
SUCCESSOR_REGISTERS_MS = 300

FOLLOW_MS = 250
"""With access control slaves ask for changes of tables so often: an older copy of users and policies does not count."""


class Neighbours:
    """The calls, in the name of `membership` and `ha`. They run in `tasks`."""

    def __init__(
        self,
        membership: Membership,
        *,
        settings: BrokerSettings,
        ha: Replication,
        tables: Tables,
        clock: Clock,
        network: Network,
        tasks: Tasks,
        events: BrokerEvents,
        fence: Fence | None = None,
    ) -> None:
        self._settings = settings
        self._membership = membership
        self._in_pair = settings.pair is not None
        self._ha = ha
        self._tasks = tasks
        self._leaving = False
        self.client = RemotingClient(
            clock=clock,
            network=network,
            on_disconnect=self._lost,
            signer=Signer.of(settings.inner_keys),
        )
        self.finder = MasterFinder(self.client, self._master_found)
        self.registration = Registration(
            membership,
            ha,
            client=self.client,
            clock=clock,
            name_servers=settings.name_servers,
            period_ms=settings.register_name_server_period,
            timeout_ms=settings.register_broker_timeout_mills,
            topics=tables.topics,
            permission=lambda: settings.broker_permission,
            on_master=self._master_registered,
            needs_master=lambda: self._in_pair and membership.is_slave and membership.master_address is None,
        )
        self.facts = TableCopy(
            membership,
            client=self.client,
            clock=clock,
            tables=tables,
            interval_ms=settings.slave_sync_interval,
            on_known=lambda: self.copies.soon(),
            in_pair=self._in_pair,
            fence=fence,
            **({"wait_ms": FOLLOW_MS} if settings.authentication_enabled else {}),
        )
        self.copies = SlaveSync(
            membership,
            client=self.client,
            clock=clock,
            tables=tables,
            interval_ms=settings.slave_sync_interval,
            facts=self.facts,
            holds=ha.holds,
        )
        events.promotion_began.add(self.finder.forget)
        events.role_taken.add(self._role_taken)
        events.role_settled.add(self.registration.soon)
        events.master_moved.add(self.finder.follow)
        events.topic_unknown.add(self.copies.soon)

    def start(self) -> None:
        """Start the tasks. The calls begin with the first role."""
        self.registration.start(self._tasks)
        self._tasks.start(self.facts.run(), name="table copy")
        self._tasks.start(self.copies.run(), name="slave sync")
        self._tasks.start(self.finder.run(), name="master finder")

    def _role_taken(self, taken: RoleTaken) -> None:
        """Called when a role is taken. A slave of a pair gets its master's address from name servers."""
        if not taken.leads and not self._in_pair:
            self.finder.follow(taken.grant.master_address, taken.grant.master_epoch)

    def successor_serves(self) -> None:
        """Called when the successor has registered at name servers, or is about to register. Now this broker may register,
        too."""
        if not self._leaving:
            self._tasks.start(self._register_later(), name="register after successor")

    async def _register_later(self) -> None:
        await asyncio.sleep(SUCCESSOR_REGISTERS_MS / 1000)
        self.registration.soon()

    async def leave(self) -> None:
        """Leave the controllers before the name servers, so that the next master is elected while clients still look for a
        master."""
        self._leaving = True
        for controller in self._settings.controllers:
            self.client.disconnect(controller)
        try:
            async with asyncio.timeout(LEAVE_MS / 1000):
                await self.registration.unregister()
        except TimeoutError:
            logger.warning("unregister timed out")

    def _lost(self, address: str) -> None:
        if address in self._settings.name_servers:
            self.registration.soon()

    def _master_registered(self, address: str, ha_address: str) -> None:
        """Use the master's address from a name server."""
        if not self._in_pair:
            self.finder.offered_by_name_server(address, ha_address)
            return
        if self._membership.pair_led_at(address):
            logger.info("master of the pair", extra=fields(address=address, ha_address=ha_address))
            self.copies.soon()
        if not self._settings.ha_master_address:
            self._ha.set_master_ha_address(ha_address, self._ha.epoch)

    def _master_found(self, ha_address: str, master_epoch: int) -> None:
        logger.info("master's HA address", extra=fields(address=ha_address, epoch=master_epoch))
        self._ha.set_master_ha_address(ha_address, master_epoch)
        self.facts.soon()
        self.copies.soon()
