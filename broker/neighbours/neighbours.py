"""Those that this broker calls by itself: name servers, its master, and the controllers.

Invariant: they share one client, so one connection each. What the replicas manager says to controllers is its own affair;
here they are only left."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from broker.neighbours.masterfinder import MasterFinder
from broker.neighbours.registration import Registration
from broker.neighbours.slavesync import SlaveSync
from broker.parts import Parts
from mqruntime.log import fields
from remoting.client import RemotingClient

logger = logging.getLogger("broker")

LEAVE_MS = 1_000


class Neighbours:
    """`address` and `ha_address` are what they are told of this broker, once its ports are open."""

    def __init__(self, parts: Parts, *, address: Callable[[], str], ha_address: Callable[[], str]) -> None:
        settings, tables, role = parts.settings, parts.tables, parts.role
        self._settings = settings
        self._ha = parts.ha
        self.client = RemotingClient(clock=parts.clock, on_disconnect=self._lost)
        self.finder = MasterFinder(self.client, self._master_found)
        self.registration = Registration(
            client=self.client,
            clock=parts.clock,
            name_servers=settings.name_servers,
            cluster_name=settings.broker_cluster_name,
            broker_name=settings.broker_name,
            address=address,
            period_ms=settings.register_name_server_period,
            timeout_ms=settings.register_broker_timeout_mills,
            role_id=lambda: role.role_id,
            ha_address=ha_address,
            topics=tables.topics.wrapper,
            on_master=self.finder.told_by_name_server,
        )
        self.copies = SlaveSync(
            client=self.client,
            clock=parts.clock,
            master=lambda: role.master_address,
            topics=tables.topics,
            groups=tables.groups,
            offsets=tables.offsets,
            delays=tables.delays,
            saved=tables.copied_from_master,
            interval_ms=settings.slave_sync_interval,
        )
        self._tasks = parts.tasks

    def start(self) -> None:
        """Calls begin as soon as there is a role."""
        self.registration.start(self._tasks)
        self._tasks.start(self.copies.run(), name="slave sync")
        self._tasks.start(self.finder.run(), name="master finder")

    async def leave(self) -> None:
        """Go, first from the controllers: the next master is elected while clients still look for it."""
        for controller in self._settings.controllers:
            self.client.disconnect(controller)
        try:
            async with asyncio.timeout(LEAVE_MS / 1000):
                await self.registration.unregister()
        except TimeoutError:
            logger.warning("name servers did not answer the farewell")

    def _lost(self, address: str) -> None:
        if address in self._settings.name_servers:
            self.registration.soon()

    def _master_found(self, ha_address: str, master_epoch: int) -> None:
        logger.info("master's HA address", extra=fields(address=ha_address, epoch=master_epoch))
        self._ha.set_master_ha_address(ha_address, master_epoch)
        self.copies.soon()
