"""One broker process: wires its parts, starts them in the order they need each other, and stops them in reverse.

Invariant: the ports are open before any controller hears of this broker, and nothing is accepted before a role was
taken. A stopping master first answers everybody, then lets the controllers see it go, and only then leaves the name
servers, so that its successor is elected while clients still look for it."""

from __future__ import annotations

import asyncio
import logging

from broker.neighbours.neighbours import Neighbours
from broker.parts import Parts
from broker.ports import Ports
from broker.requests import Requests
from broker.role.contract import contract_sentence, runs_contract_a
from broker.role.contractmark import keep_contract_mark
from broker.role.controllerclient import ControllerClient
from broker.role.currentrole import CurrentRole
from broker.role.identity import IDENTITY_FILE, Identity, TemporaryIdentity
from broker.role.identityfiles import IdentityFiles, LogFound
from broker.role.manager import ReplicasManager
from broker.role.membership import Replicas
from broker.role.switch import RoleSwitch
from broker.sends.syncflush import SyncFlush
from broker.settings.broker import BrokerSettings
from broker.tables.tables import Tables
from epochfile.file import DEFAULT_NAME as EPOCH_FILE
from epochfile.file import EpochFile
from ha.service import HAService
from messagestore.settings import FlushDiskType
from messagestore.store import MessageStore
from mqruntime.httppages import HttpPages
from mqruntime.log import fields
from mqruntime.runtime import Runtime
from mqruntime.settings import SettingsError
from mqruntime.tasks import Tasks
from remoting.codes import ResponseCode
from remoting.command import RemotingCommand
from remoting.headers.controller import BrokerHeartbeatHeader
from remoting.peer import Peer

logger = logging.getLogger("broker")

SWEEP_MS = 200


class BrokerApp:
    """A broker in controller mode."""

    def __init__(self, settings: BrokerSettings, runtime: Runtime) -> None:
        self.settings = settings
        self._runtime = runtime
        self._clock = runtime.clock
        self._failed: asyncio.Future[BaseException] | None = None
        self._tasks = Tasks(self._fatal)
        self.manager: ReplicasManager | None = None
        self._no_replicas = Replicas(cluster_name="", broker_name="", address="", poll_ms=1)
        self.probes: HttpPages | None = None
        self.tables = Tables(settings, runtime.files, runtime.clock, self._topics_changed)
        self.store = MessageStore(runtime, settings, on_fatal=self._fatal)
        self.ha = HAService(
            self.store,
            EpochFile(runtime.files, settings.store_path_epoch_file or EPOCH_FILE),
            settings=settings.replication,
            clock=runtime.clock,
            host=settings.listens_on,
            port=settings.ha_port,
            on_sync_state_set_wanted=self._sync_state_set_wanted,
            on_confirm=lambda offset: self._switch.confirmed(),
            on_fatal=self._fatal,
        )
        self.role = CurrentRole(settings, self.store, self.ha, self._replicas)
        parts = Parts(
            settings=settings,
            clock=runtime.clock,
            random=runtime.random,
            tasks=self._tasks,
            store=self.store,
            ha=self.ha,
            tables=self.tables,
            role=self.role,
        )
        self.requests = Requests(
            parts,
            address=lambda: self.address,
            ha_address=lambda: self.ha_address,
            on_role_changed=self._role_changed,
        )
        self._ports = Ports(settings, self.requests.router, runtime.clock, self.requests.disconnected)
        self._neighbours = Neighbours(parts, address=lambda: self.address, ha_address=lambda: self.ha_address)
        self._switch = RoleSwitch(parts, self.requests, self._neighbours, self._replicas)
        self.store.on_arrival(self._switch.queues_grew)
        self.store.on_arrival(self.requests.pulls.arrived)
        self.store.on_arrival(self.requests.delivery.arrived)

    # -- life

    async def start(self) -> None:
        """Serves, still without a role. Raises typed errors of the store, the ports, the identity and the tables."""
        self._failed = asyncio.get_running_loop().create_future()
        if not self.settings.controllers:
            raise SettingsError(
                "controllerAddr", "", "settings", None, "must name controllers: host:port;host:port"
            )
        report = await self.store.start()
        logger.info("store recovered", extra=fields(report=report))
        await self.tables.load()
        await self.ha.start()
        identity_files = self._identity_files()
        identity = await self._who_we_are(identity_files)
        self.role.contract_mark = await keep_contract_mark(
            self._runtime.files,
            contract_a=runs_contract_a(self.settings),
            epoch=self.ha.epoch,
            log_min=self.store.min_offset(),
            log_max=self.store.max_offset(),
        )
        await self._ports.open()
        self.store.store_host = self._ports.packed_address
        self.manager = manager = self._new_manager(identity_files)
        manager.known_as(identity)
        self._start_tasks()
        manager.start(self._switch)
        if self.settings.serves_metrics:
            from broker.metrics.collector import (
                serve_broker_probes,  # only then: it brings the Prometheus library
            )

            self.probes = await serve_broker_probes(self, self._clock)
        logger.info(
            "broker started: %s", contract_sentence(self.settings), extra=fields(address=self.address)
        )

    async def stop(self) -> None:
        """Graceful end within three seconds; also after a `start` that failed or was cut short."""
        self._switch.stop_serving()
        if self.probes is not None:
            await self.probes.stop()
        if self.manager is not None:
            await self.manager.stop()
        await self._neighbours.leave()
        await self._tasks.stop()
        await self._ports.close()
        await self.ha.stop()
        await self._neighbours.client.close()
        try:
            await self.tables.save()
        except OSError as error:
            logger.error("tables not written at the end", extra=fields(why=error))
        await self.store.stop()

    async def wait_failed(self) -> BaseException:
        """Resolves with the first fatal error."""
        assert self._failed is not None, "start comes first"
        return await self._failed

    def _fatal(self, error: BaseException) -> None:
        self.role.stopping = True
        if self._failed is not None and not self._failed.done():
            self._failed.set_result(error)

    # -- what a start consists of

    def _identity_files(self) -> IdentityFiles:
        settings = self.settings
        return IdentityFiles(
            self._runtime.files,
            settings.store_path_broker_identity or IDENTITY_FILE,
            settings.broker_cluster_name,
            settings.broker_name,
        )

    async def _who_we_are(self, files: IdentityFiles) -> Identity | TemporaryIdentity | None:
        """The epochs of a log that is gone are forgotten, unless its id is still held."""
        found = LogFound(self.store.has_segments(), self.ha.history)
        identity = await files.load(found)
        if not found.segments and not isinstance(identity, Identity):
            await self.ha.forget_epochs()
        return identity

    def _new_manager(self, identity_files: IdentityFiles) -> ReplicasManager:
        settings = self.settings
        return ReplicasManager(
            cluster_name=settings.broker_cluster_name,
            broker_name=settings.broker_name,
            address=self.address,
            identity_files=identity_files,
            timers=settings,
            controllers=ControllerClient(self._neighbours.client, settings.controllers),
            clock=self._clock,
            heartbeat=self._heartbeat,
            on_fatal=self._fatal,
        )

    def _start_tasks(self) -> None:
        tasks = self._tasks
        self._neighbours.start()
        tasks.start(self.tables.run(), name="tables")
        tasks.start(self.requests.delivery.run(), name="delay delivery")
        tasks.start(self._sweep(), name="sweep")
        if self.settings.flush_disk_type is FlushDiskType.SYNC_FLUSH:
            flush = SyncFlush(self.store, self._switch.confirmed)
            tasks.start(flush.run(), name="sync flush")

    # -- addresses and what others ask

    @property
    def address(self) -> str:
        """What clients and controllers call us."""
        return self._ports.address

    @property
    def ha_address(self) -> str:
        """Where slaves get the log."""
        return f"{self.settings.ha_host}:{self.ha.port}"

    def _replicas(self) -> Replicas:
        return self.manager.replicas if self.manager is not None else self._no_replicas

    def _heartbeat(self) -> BrokerHeartbeatHeader:
        settings = self.settings
        return BrokerHeartbeatHeader(
            settings.broker_cluster_name,
            self.address,
            settings.broker_name,
            self._replicas().broker_id,
            self.ha.history.last_epoch(),
            self.store.max_offset(),
            self.store.confirm_offset(),
            settings.controller_heart_beat_timeout_mills,
            settings.broker_election_priority,
        )

    # -- what happens

    def _sync_state_set_wanted(self, members: frozenset[int], why: str) -> None:
        if self.manager is not None:
            self.manager.sync_state_set_wanted(members, why)

    def _topics_changed(self) -> None:
        self._neighbours.registration.soon()

    async def _sweep(self) -> None:
        """The one timer of waiting sends, held pulls and rates."""
        while True:
            await asyncio.sleep(SWEEP_MS / 1000)
            self.requests.sweep(self._clock.monotonic_ms())

    def _role_changed(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        if self.manager is None:
            return command.reply(ResponseCode.SERVICE_NOT_AVAILABLE, "this broker is still starting")
        return self.manager.notified(peer, command)
