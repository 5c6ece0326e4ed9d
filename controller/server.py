"""The controller as a server: assembles, starts and stops its parts. Upstream: ControllerManager.

Invariant: Raft and controller requests share one port. No committed entry is applied before all parts of the server are
connected with each other."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from accesscontrol.port import PortAccess
from controller.adoption import look_first
from controller.awakeclock import AwakeClock
from controller.configuration import ControllerConfiguration
from controller.counts import RequestCounts
from controller.electionrecorder import ElectionRecorder
from controller.events import Event
from controller.failover import MasterFailover
from controller.formerstate import let_go
from controller.handover import HandOver
from controller.holdingsfile import HoldingsFile
from controller.leaderless import log_leaderless
from controller.livebrokers import LiveBrokers
from controller.needs import CLUSTER, controller_table
from controller.notify import Notifier
from controller.processor import RequestProcessor
from controller.runner import CommandRunner
from controller.settings import ControllerSettings
from controller.state import ReplicasState
from controller.statemachine import ReplicasStateMachine
from controller.stepdown import step_down_if_isolated
from dledger.node.listener import NodeListener
from dledger.node.memberservice import MemberService
from dledger.node.node import DLedgerNode
from dledger.raft.actions import Role
from dledger.raft.messages import ResultCode
from dledger.raft.settings import INDEX_UNIT_BYTES, DLedgerSettings
from dledger.storage.entry import ENTRY_HEADER_BYTES
from mqruntime.httppages import HttpPages
from mqruntime.log import fields
from mqruntime.peercertificate import CONTROLLER
from mqruntime.runtime import Runtime
from mqruntime.tasks import Tasks
from remoting.client import RemotingClient
from remoting.limits import Limits
from remoting.router import Router
from remoting.server import RemotingServer
from remoting.servers import Server, directions
from remoting.signing import Signer

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT_MS = 1000
ENTRY_BYTES_MAX = 128 << 10


class ControllerApp(NodeListener):
    """One controller. `runtime` is rooted at its store folder. `shows_too()` returns the metrics collectors of other servers in
    this process. They are called when metrics are needed."""

    def __init__(
        self,
        settings: ControllerSettings,
        runtime: Runtime,
        *,
        shows_too: Callable[[], Sequence[Collector]] = tuple,
    ) -> None:
        self.settings = settings
        self._runtime = runtime
        self._shows_too = shows_too
        self.probes: HttpPages | None = None
        self._clock = clock = runtime.clock
        self._awake_clock = AwakeClock(clock)
        self.faileded: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        self._tasks = Tasks(self.failed)
        self._client = RemotingClient(
            clock=clock,
            network=runtime.network,
            connect_timeout_ms=CONNECT_TIMEOUT_MS,
            signer=Signer.of(settings.inner_keys),
        )
        machine = ReplicasStateMachine()
        self.state = machine.state
        self.node = DLedgerNode(
            self_id=settings.self_id,
            peers=settings.peers,
            group=settings.group,
            runtime=runtime,
            client=self._client,
            settings=dledger_settings(settings),
            listener=self,
            state_machine=machine,
            snapshots=machine,
        )
        side_files = runtime.side_files or runtime.files  # a vote must not wait for these writes
        self._holdings_file = HoldingsFile(side_files, self.state.check_code, clock)
        self.brokers = LiveBrokers(
            self.state,
            self._holdings_file.holdings,
            self._awake_clock,
            lambda broker_name: self._guard.changed(broker_name),
        )
        self._recorder = ElectionRecorder(self.state, self.brokers.liveness, side_files, clock)
        self._counts = RequestCounts()
        self._runner = CommandRunner(
            self.node, self.state, self.brokers.liveness, self._recorder.proposing, self._counts.proposed
        )
        self._guard = MasterFailover(
            self.state,
            self.brokers,
            self._runner,
            Notifier(self._client, clock, self._tasks),
            HandOver(self._client, self.state, self.brokers.liveness, self._tasks),
            settings,
            clock,
            self._tasks,
            self._recorder.notified,
        )
        processor = RequestProcessor(
            settings,
            self.state,
            self.node,
            self.brokers,
            self._runner,
            self._guard,
            self._recorder,
            self._counts,
            ControllerConfiguration(settings, runtime.files),
        )
        router = Router(on_fatal=self.failed)
        router.on_unserved = lambda peer, request: directions(request.code, Server.CONTROLLER)
        self.node.register(router)
        MemberService(self.node, settings.group).register(router)
        processor.add_to(router)
        self._access = PortAccess(
            settings, controller_table(), server="controller", cluster=CLUSTER, clock=clock
        )
        self._access.guard(router)
        if settings.serves_metrics:
            self._counts.watch(router)
        self._server = RemotingServer(
            router,
            host=settings.listens_on,
            port=settings.listen_port,
            clock=clock,
            network=runtime.network,
            limits=Limits(idle_ms_max=settings.server_channel_max_idle_time_seconds * 1000),
            on_connect=processor.connected,
            on_disconnect=processor.disconnected,
        )
        machine.on_applied(self._applied)
        machine.on_loaded(self._loaded)

    async def start(self) -> None:
        """Start serving. Raises AddressInUse, LogDamaged, OSError."""
        await look_first(self.settings, self._runtime)
        await self._server.start()
        await self._recorder.load()
        await self._holdings_file.load()
        await self.node.start()
        await self.node.replayed()
        if self.settings.serves_metrics:
            self.probes = await self._serve_probes()
        self._tasks.start(self._awake_clock.run(), name="stay awake")
        self._tasks.start(self._access.run(), name="watch administrators")
        self._tasks.start(self._guard.watch(), name="watch masters")
        self._tasks.start(self._recorder.run(), name="save elections")
        self._tasks.start(self._holdings_file.run(), name="save holdings")
        self._tasks.start(step_down_if_isolated(self.node, self.brokers), name="step down if isolated")
        self._tasks.start(log_leaderless(self.node, self._clock), name="log leaderless")
        logger.info("controller started", extra=fields(id=self.settings.self_id, port=self._server.port))

    async def stop(self) -> None:
        """Stop. A leader transfers leadership first, so that another controller leads when the brokers' connections end."""
        match await self.node.transfer_leadership():
            case ResultCode.SUCCESS:
                logger.info("leadership handed over", extra=fields(leader=self.node.leader_id))
            case ResultCode.TAKE_LEADERSHIP_FAILED:
                logger.info("no other controller took the leadership over")
        if self.probes is not None:
            await self.probes.stop()
        await self.node.stop()
        await self._tasks.stop()
        await self._server.stop()
        await self._client.close()
        await self._recorder.save()
        await self._holdings_file.save()

    async def wait_failed(self) -> BaseException:
        return await asyncio.shield(self.faileded)

    # The methods of dledger.node.listener.NodeListener

    def failed(self, error: BaseException) -> None:
        if not self.faileded.done():
            self.faileded.set_result(error)

    def role_changed(self, role: Role, term: int) -> None:
        self._runner.progressed()
        self._guard.role_changed(role, term)
        if role is not Role.LEADER:
            self._recorder.deposed()

    def _applied(self, index: int, event: Event) -> None:
        self._runner.progressed()
        self._recorder.applied(event, witnessed=self.node.is_live_entry(index))
        self.brokers.applied(event)
        self._guard.applied(event)
        if self.node.is_active:
            self._counts.applied(event, self.state)

    def _loaded(self, before: ReplicasState) -> None:
        """Called when a snapshot replaced the state, whose changes came with no entries."""
        self._runner.progressed()
        self._recorder.loaded(before)
        self.brokers.loaded(before)
        if before.replicas:
            self._tasks.start(let_go(before), name="let go of the former state")

    async def _serve_probes(self) -> HttpPages:
        """Serve /metrics, /health and /leader (200 on the leading controller). Raises PagesCannotListen."""
        # imported here, because these modules load the Prometheus library
        from accesscontrol.metrics import AccessCollector
        from controller.metrics import ControllerCollector
        from mqruntime.probes import serve_probes

        settings, node = self.settings, self.node
        return await serve_probes(
            settings,
            [
                ControllerCollector(settings, node, self.state, self.brokers.liveness, self._counts),
                *self._shows_too(),
                *([AccessCollector(self._access.audit)] if settings.authentication_enabled else []),
            ],
            lambda: {
                "group": settings.group,
                "id": settings.self_id,
                "role": node.role.name,
                "term": node.term,
                "leader": node.leader_id,
                "leaderAddress": node.leader_address,
            },
            {"/leader": lambda: node.is_active},
            self._runtime.network,
            self._clock,
        )


DATA_FILE_BYTES_OF_JAVA_MIN = 4 << 20


def dledger_settings(settings: ControllerSettings) -> DLedgerSettings:
    """Raft settings. Index files have upstream's size, because a Java controller does not start on index files of another size.
    Only with very small data files, which tests use, are the index files smaller, so that they get full."""
    data_file_bytes = settings.mapped_file_size_bytes
    units = data_file_bytes // ENTRY_HEADER_BYTES
    tiny = data_file_bytes < DATA_FILE_BYTES_OF_JAVA_MIN
    return replace(
        settings.timing,
        data_file_bytes=data_file_bytes,
        index_file_bytes=units * INDEX_UNIT_BYTES if tiny else DLedgerSettings().index_file_bytes,
        entry_bytes_max=ENTRY_BYTES_MAX,
        checks_addresses=settings.member_addresses_checked,
        certificate_role=CONTROLLER,
    )
