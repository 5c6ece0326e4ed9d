"""The controller as a server: requests in, commands carried out, replies out.

Invariant: Raft and controller requests share one port. What changes or reads replicated state is answered
by the leader only; heartbeats, 1005, 1009 and 1010 are answered by every controller, from what it has
itself."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace

from controller import requests
from controller.configuration import Configuration
from controller.counts import Counts
from controller.decision import Decision
from controller.electionrecorder import ElectionRecorder
from controller.events import AlterSyncStateSet, Event
from controller.guard import MasterGuard
from controller.holdingsfile import HoldingsFile
from controller.leaderless import tell_leaderless
from controller.notify import Notifier
from controller.requests import Decide
from controller.runner import Busy, CommandRunner
from controller.settings import ControllerSettings
from controller.state import SyncState
from controller.statemachine import ReplicasStateMachine
from dledger.actions import Role
from dledger.entry import ENTRY_HEADER_BYTES
from dledger.errors import NotLeader, OutcomeUnknown, TooManyProposals
from dledger.node import DLedgerNode
from dledger.settings import INDEX_UNIT_BYTES, DLedgerSettings
from mqruntime.httppages import HttpPages
from mqruntime.log import fields
from mqruntime.runtime import Runtime
from mqruntime.tasks import Tasks
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.headers.controller import (
    BrokerHeartbeatHeader,
    ElectMasterHeader,
    GetMetadataResponseHeader,
    RegisterBrokerToControllerHeader,
)
from remoting.limits import Limits
from remoting.peer import Peer
from remoting.router import Router
from remoting.server import RemotingServer

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT_MS = 1000
FIRST_HEARTBEAT_WAIT_MS = 400
ENTRY_BYTES_MAX = 128 << 10
CONNECTION = "controller connection number"
NOT_LEADER = "The controller is not in leader state"


class ControllerApp:
    """One controller; `runtime` is rooted at its store folder."""

    def __init__(self, settings: ControllerSettings, runtime: Runtime) -> None:
        self.settings = settings
        self._clock = runtime.clock
        self._group = settings.group  # a request may change the settings, not the group
        self._failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        self._tasks = Tasks(self._fail)
        self._client = RemotingClient(clock=runtime.clock, connect_timeout_ms=CONNECT_TIMEOUT_MS)
        self._machine = ReplicasStateMachine(self._applied)
        self.state = self._machine.state
        self.node = DLedgerNode(
            self_id=settings.self_id,
            peers=settings.peers,
            group=settings.group,
            runtime=runtime,
            state_machine=self._machine,
            client=self._client,
            settings=dledger_settings(settings.mapped_file_size_bytes),
            on_role_change=self._role_changed,
            on_fatal=self._fail,
        )
        self._counts = Counts()
        on_proposed = self._counts.proposed if settings.serves_metrics else None
        self._recorder = ElectionRecorder(
            self.state, lambda: self.guard.liveness(), runtime.files, runtime.clock
        )
        self._runner = CommandRunner(self.node, on_proposed, self._recorder.proposing)
        notifier = Notifier(self._client, runtime.clock, self._tasks)
        self._holdings_file = HoldingsFile(runtime.files, self.state.check_code, runtime.clock)
        self.guard = MasterGuard(
            self.state,
            self._runner,
            notifier,
            settings,
            runtime.clock,
            self._recorder.notified,
            self._holdings_file.holdings,
        )
        self._configuration = Configuration(settings, runtime.files)
        self.probes: HttpPages | None = None
        self._connections = itertools.count(1)
        self.server = RemotingServer(
            self._router(),
            host=settings.listens_on,
            port=settings.listen_port,
            clock=runtime.clock,
            limits=Limits(idle_ms_max=settings.server_channel_max_idle_time_seconds * 1000),
            on_connect=self._connected,
            on_disconnect=self._disconnected,
        )

    async def start(self) -> None:
        """Serves. Raises AddressInUse, LogDamaged, OSError."""
        await self.server.start()
        await self._recorder.load()
        await self._holdings_file.load()
        await self.node.start()
        if self.settings.serves_metrics:
            # only then: it brings the Prometheus library
            from controller.metrics import serve_controller_probes

            self.probes = await serve_controller_probes(self, self._counts)
        self._tasks.start(self.guard.watch(), name="watch masters")
        self._tasks.start(self._recorder.run(), name="save elections")
        self._tasks.start(self._holdings_file.run(), name="save holdings")
        self._tasks.start(tell_leaderless(self.node, self._clock), name="tell leaderless")
        logger.info("controller started", extra=fields(id=self.settings.self_id, port=self.server.port))

    async def stop(self) -> None:
        if self.probes is not None:
            await self.probes.stop()
        await self.node.stop()
        await self._tasks.stop()
        await self.server.stop()
        await self._client.close()
        await self._recorder.save()
        await self._holdings_file.save()

    async def wait_failed(self) -> BaseException:
        return await asyncio.shield(self._failed)

    def _fail(self, error: BaseException) -> None:
        if not self._failed.done():
            self._failed.set_result(error)

    def _role_changed(self, role: Role, term: int) -> None:
        self._runner.progressed()
        self.guard.role_changed(role, term)
        if role is not Role.LEADER:
            self._recorder.deposed()

    def _applied(self, index: int, event: Event) -> None:
        self._runner.progressed()
        self._recorder.applied(event, witnessed=self.node.came_undecided(index))
        self.guard.applied(event)
        if self.node.is_active:
            self._counts.applied(event, self.state)

    def _connected(self, peer: Peer) -> None:
        peer.attributes[CONNECTION] = next(self._connections)

    def _disconnected(self, peer: Peer) -> None:
        if CONNECTION in peer.attributes:
            self.guard.connection_closed(connection_of(peer))

    def _router(self) -> Router:
        router = Router(on_fatal=self._fail)
        self.node.register(router)
        router.add(RequestCode.BROKER_HEARTBEAT, self._heartbeat)
        router.add(RequestCode.CONTROLLER_GET_METADATA_INFO, self._metadata)
        router.add(RequestCode.UPDATE_CONTROLLER_CONFIG, self._update_configuration)
        router.add(RequestCode.GET_CONTROLLER_CONFIG, self._show_configuration)
        router.add(RequestCode.CONTROLLER_ELECT_MASTER, self._elect_master)
        router.add(RequestCode.CONTROLLER_REGISTER_BROKER, self._register_broker)
        for code, read in requests.WRITES.items():
            router.add(code, self._write(read))
        for code, read in requests.READS.items():
            router.add(code, self._read(read))
        if self.settings.serves_metrics:
            self._counts.watch(router)
        return router

    def _write(
        self, read: Callable[[RemotingCommand], Decide]
    ) -> Callable[[Peer, RemotingCommand], Awaitable[RemotingCommand]]:
        async def handle(peer: Peer, request: RemotingCommand) -> RemotingCommand:
            decide = read(request)
            return await self._reply(request, self._runner.run(lambda: self.guard.decide(decide)))

        return handle

    def _read(
        self, read: Callable[[RemotingCommand], Decide]
    ) -> Callable[[Peer, RemotingCommand], Awaitable[RemotingCommand]]:
        async def handle(peer: Peer, request: RemotingCommand) -> RemotingCommand:
            decide = read(request)
            return await self._reply(request, self._runner.read(lambda: self.guard.decide(decide)))

        return handle

    async def _register_broker(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        header = RegisterBrokerToControllerHeader.from_ext(request.ext)
        decide = requests.register_broker(request)
        self.guard.registering(header.broker_name, header.broker_id, connection_of(peer))
        return await self._reply(request, self._runner.run(lambda: self.guard.decide(decide)))

    async def _elect_master(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """A starting broker's election request may overtake its first heartbeat: wait for that a moment."""
        header = ElectMasterHeader.from_ext(request.ext)
        decide = requests.elect_master(request, lambda: self.settings.enable_elect_unclean_master)
        if self.node.is_active and not header.designate_elect:
            await self.guard.wait_alive(header.broker_name, header.broker_id, FIRST_HEARTBEAT_WAIT_MS)
        before = SyncState()

        def decide_now() -> Decision:
            nonlocal before
            before = replace(self.state.sync_states.get(header.broker_name, before))
            return self.guard.decide(decide)

        async def elected() -> Decision:
            decision = await self._runner.run(decide_now)
            self.guard.log_election(header.broker_name, decision, before, peer.remote_address)
            self._counts.answered(header.broker_name, decision, self.state)
            return decision

        return await self._reply(request, elected())

    async def _reply(self, request: RemotingCommand, outcome: Awaitable[Decision]) -> RemotingCommand:
        try:
            decision = await outcome
        except NotLeader:
            return request.reply(ResponseCode.CONTROLLER_NOT_LEADER, NOT_LEADER)
        except (Busy, TooManyProposals) as error:
            return request.reply(ResponseCode.SYSTEM_BUSY, f"not tried: {error}")
        except OutcomeUnknown as error:
            return request.reply(ResponseCode.SYSTEM_ERROR, f"outcome unknown: {error}")
        for event in decision.events:
            if isinstance(event, AlterSyncStateSet):
                self._log_alter(event)
        return replied(request, decision)

    def _log_alter(self, event: AlterSyncStateSet) -> None:
        sync_state = self.state.sync_states.get(event.broker_name)
        if sync_state is not None:
            logger.info(
                "sync state set altered",
                extra=fields(
                    broker=event.broker_name,
                    epoch=sync_state.master_epoch,
                    sync_state_set=sorted(event.members),
                    set_epoch=sync_state.set_epoch,
                ),
            )

    def _heartbeat(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        header = BrokerHeartbeatHeader.from_ext(request.ext)
        if header.broker_id is None:
            return request.reply(ResponseCode.CONTROLLER_INVALID_REQUEST, "Heart beat with empty brokerId")
        self.guard.heard(header, connection_of(peer))
        self._recorder.heard(header)
        return request.reply(ResponseCode.SUCCESS, "Heart beat success")

    def _metadata(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """1005; a body that names broker sets, as 1006 has it and upstream's tools never send, asks for their
        elections too."""
        named = requests.broker_names(request) if request.body else []
        header = GetMetadataResponseHeader(
            group=self.settings.group,
            controller_leader_id=self.node.leader_id,
            controller_leader_address=self.node.leader_address,
            is_leader=self.node.role is Role.LEADER,
            peers="".join(f"{peer_id}:{address};" for peer_id, address in self.node.peers.items()),
        )
        return request.reply(header=header, body=self._recorder.tell(named).encode() if named else None)

    async def _update_configuration(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        decision = await self._configuration.update(request.body)
        logger.info(
            "settings changed" if decision.code == 0 else "settings not changed",
            extra=fields(peer=peer.remote_address, code=decision.code, remark=decision.remark),
        )
        return replied(request, decision)

    def _show_configuration(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        return replied(request, self._configuration.show())


def connection_of(peer: Peer) -> int:
    """The number of an accepted connection; later ones have higher numbers."""
    connection = peer.attributes[CONNECTION]
    assert isinstance(connection, int)
    return connection


def replied(request: RemotingCommand, decision: Decision) -> RemotingCommand:
    """The reply that tells `decision`."""
    return request.reply(decision.code, decision.remark, decision.header, decision.body)


def dledger_settings(data_file_bytes: int) -> DLedgerSettings:
    """Small data files get index files that are no larger than their entries can fill."""
    units = data_file_bytes // ENTRY_HEADER_BYTES
    return DLedgerSettings(
        data_file_bytes=data_file_bytes,
        index_file_bytes=min(DLedgerSettings().index_file_bytes, units * INDEX_UNIT_BYTES),
        entry_bytes_max=ENTRY_BYTES_MAX,
    )
