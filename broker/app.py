"""One broker process: wires its parts, starts them in the order they need each other, and stops them in reverse.

Invariant: the ports are open before any controller hears of this broker, and nothing is accepted before a role was
taken. A stopping master first answers everybody, then lets the controllers see it go, and only then leaves the name
servers, so that its successor is elected while clients still look for it."""

from __future__ import annotations

import asyncio
import logging

from broker.contract import contract_sentence, runs_contract_a
from broker.contractmark import keep_contract_mark
from broker.controllerclient import ControllerClient
from broker.identity import IDENTITY_FILE, Identity
from broker.identityfiles import IdentityFiles, LogFound
from broker.masterfinder import MasterFinder
from broker.registration import Registration
from broker.replicas import Replicas
from broker.replicasmanager import ReplicasManager
from broker.requests import Requests, Waiting
from broker.roleswitch import RoleSwitch
from broker.settings import BrokerSettings
from broker.slavesync import SlaveSync
from broker.syncflush import SyncFlush
from broker.tables import Tables
from epochfile.file import DEFAULT_NAME as EPOCH_FILE
from epochfile.file import EpochFile
from ha.service import HAService
from messagestore.record import pack_host
from messagestore.settings import FlushDiskType
from messagestore.store import MessageStore
from mqruntime.httppages import HttpPages
from mqruntime.log import fields
from mqruntime.runtime import Runtime
from mqruntime.settings import SettingsError
from mqruntime.tasks import Tasks
from remoting.client import RemotingClient
from remoting.codes import ResponseCode
from remoting.command import RemotingCommand
from remoting.headers.controller import BrokerHeartbeatHeader
from remoting.limits import Limits
from remoting.peer import Peer
from remoting.server import RemotingServer

log = logging.getLogger("broker")

SWEEP_MS = 200
LEAVE_MS = 1_000


class BrokerApp:
    """A broker in controller mode."""

    def __init__(self, settings: BrokerSettings, runtime: Runtime) -> None:
        self.settings = settings
        self._runtime = runtime
        self._clock = runtime.clock
        self._failed: asyncio.Future[BaseException] | None = None
        self._tasks = Tasks(self._fatal)
        self.manager: ReplicasManager | None = None
        self._registration: Registration | None = None
        self._slave_sync: SlaveSync | None = None
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
            on_confirm=self._confirmed,
            on_fatal=self._fatal,
        )
        self._client = RemotingClient(clock=runtime.clock, on_disconnect=self._server_lost)
        self._finder = MasterFinder(self._client, self._master_found)
        waiting = Waiting(settings, self.tables, runtime.clock)
        self.role = RoleSwitch(
            settings=settings,
            store=self.store,
            ha=self.ha,
            topics=self.tables.topics,
            pending=waiting.pending,
            finder=self._finder,
            replicas=self._replicas,
        )
        self._no_replicas = Replicas(cluster_name="", broker_name="", address="", poll_ms=1)
        self.requests = Requests(
            settings=settings,
            store=self.store,
            tables=self.tables,
            ha=self.ha,
            role=self.role,
            waiting=waiting,
            clock=runtime.clock,
            random=runtime.random,
            tasks=self._tasks,
            address=lambda: self.address,
            ha_address=lambda: self.ha_address,
            on_role_changed=self._role_changed,
        )
        limits = Limits(idle_ms_max=settings.server_channel_max_idle_time_seconds * 1000)
        self._server, self._fast_server = (
            RemotingServer(
                self.requests.router,
                host=settings.listens_on,
                port=port,
                clock=runtime.clock,
                limits=limits,
                on_disconnect=self.requests.disconnected,
            )
            for port in (settings.listen_port, settings.fast_port)
        )

    # -- life

    async def start(self) -> None:
        """Serves, still without a role. Raises typed errors of the store, the ports, the identity and the tables."""
        settings, runtime = self.settings, self._runtime
        self._failed = asyncio.get_running_loop().create_future()
        if not settings.controllers:
            raise SettingsError(
                "controllerAddr", "", "settings", None, "must name controllers: host:port;host:port"
            )
        report = await self.store.start()
        log.info("store recovered", extra=fields(report=report))
        await self.tables.load()
        await self.ha.start()
        identity_files = IdentityFiles(
            runtime.files,
            settings.store_path_broker_identity or IDENTITY_FILE,
            settings.broker_cluster_name,
            settings.broker_name,
        )
        found = LogFound(self.store.has_segments(), self.ha.history)
        identity = await identity_files.load(found)
        if not found.segments and not isinstance(identity, Identity):
            await self.ha.forget_epochs()
        self.role.contract_mark = await keep_contract_mark(
            runtime.files,
            contract_a=runs_contract_a(settings),
            epoch=self.ha.epoch,
            log_min=self.store.min_offset(),
            log_max=self.store.max_offset(),
        )
        await self._server.start()
        await self._fast_server.start()
        self.store.store_host = pack_host(settings.broker_ip1, self._server.port)
        manager = ReplicasManager(
            cluster_name=settings.broker_cluster_name,
            broker_name=settings.broker_name,
            address=self.address,
            identity_files=identity_files,
            timers=settings,
            controllers=ControllerClient(self._client, settings.controllers),
            clock=runtime.clock,
            heartbeat=self._heartbeat,
            on_fatal=self._fatal,
        )
        manager.known_as(identity)
        self.manager = manager
        self._start_tasks()
        manager.start(self.role)
        if settings.serves_metrics:
            from broker.metrics import serve_broker_probes  # only then: it brings the Prometheus library

            self.probes = await serve_broker_probes(self, self._clock)
        log.info("broker started: %s", contract_sentence(settings), extra=fields(address=self.address))

    def _start_tasks(self) -> None:
        settings, tables = self.settings, self.tables
        self._registration = self.role.announcer = Registration(
            client=self._client,
            clock=self._clock,
            name_servers=settings.name_servers,
            cluster_name=settings.broker_cluster_name,
            broker_name=settings.broker_name,
            address=self.address,
            period_ms=settings.register_name_server_period,
            timeout_ms=settings.register_broker_timeout_mills,
            role_id=lambda: self.role.role_id,
            ha_address=lambda: self.ha_address,
            topics=tables.topics.wrapper,
            on_master=self._finder.told_by_name_server,
        )
        self._slave_sync = self.role.copier = SlaveSync(
            client=self._client,
            clock=self._clock,
            master=lambda: self.role.master_address,
            topics=tables.topics,
            groups=tables.groups,
            offsets=tables.offsets,
            delays=tables.delays,
            saved=tables.copied_from_master,
            interval_ms=settings.slave_sync_interval,
        )
        tasks = self._tasks
        self._registration.start(tasks)
        tasks.start(self._slave_sync.run(), name="slave sync")
        tasks.start(self._finder.run(), name="master finder")
        tasks.start(tables.run(), name="tables")
        tasks.start(self.requests.delivery.run(), name="delay delivery")
        tasks.start(self._sweep(), name="sweep")
        if settings.flush_disk_type is FlushDiskType.SYNC_FLUSH:
            flush = SyncFlush(self.store, lambda: self._confirmed(0))
            tasks.start(flush.run(), name="sync flush")

    async def stop(self) -> None:
        """Graceful end within three seconds; also after a `start` that failed or was cut short."""
        self.role.stop_serving()
        if self.probes is not None:
            await self.probes.stop()
        if self.manager is not None:
            await self.manager.stop()
        for controller in self.settings.controllers:
            self._client.disconnect(controller)
        if self._registration is not None:
            try:
                async with asyncio.timeout(LEAVE_MS / 1000):
                    await self._registration.unregister()
            except TimeoutError:
                log.warning("name servers did not answer the farewell")
        await self._tasks.stop()
        await self._server.stop()
        await self._fast_server.stop()
        await self.ha.stop()
        await self._client.close()
        try:
            await self.tables.save()
        except OSError as error:
            log.error("tables not written at the end", extra=fields(why=error))
        await self.store.stop()

    async def wait_failed(self) -> BaseException:
        """Resolves with the first fatal error."""
        assert self._failed is not None, "start comes first"
        return await self._failed

    def _fatal(self, error: BaseException) -> None:
        self.role.stopping = True
        if self._failed is not None and not self._failed.done():
            self._failed.set_result(error)

    # -- addresses and what others ask

    @property
    def address(self) -> str:
        """What clients and controllers call us."""
        return f"{self.settings.broker_ip1}:{self._server.port}"

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

    def _confirmed(self, offset: int) -> None:
        self.role.confirmed(offset)

    def _master_found(self, ha_address: str, master_epoch: int) -> None:
        log.info("master's HA address", extra=fields(address=ha_address, epoch=master_epoch))
        self.ha.set_master_ha_address(ha_address, master_epoch)
        if self._slave_sync is not None:
            self._slave_sync.soon()

    def _topics_changed(self) -> None:
        if self._registration is not None:
            self._registration.soon()

    def _server_lost(self, address: str) -> None:
        if self._registration is not None and address in self.settings.name_servers:
            self._registration.soon()

    async def _sweep(self) -> None:
        """The one timer of waiting sends, held pulls and rates."""
        while True:
            await asyncio.sleep(SWEEP_MS / 1000)
            self.requests.sweep(self._clock.monotonic_ms())

    def _role_changed(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        if self.manager is None:
            return command.reply(ResponseCode.SERVICE_NOT_AVAILABLE, "this broker is still starting")
        return self.manager.notified(peer, command)
