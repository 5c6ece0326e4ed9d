"""Handlers of a controller's requests. Upstream: ControllerRequestProcessor.

Invariant: only the leader answers requests that change or read replicated state. Every controller answers heartbeats
(BROKER_HEARTBEAT, 904), metadata requests (CONTROLLER_GET_METADATA_INFO, 1005), and changes and reads of its own settings
(UPDATE_CONTROLLER_CONFIG, 1009; GET_CONTROLLER_CONFIG, 1010)."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from controller import requests
from controller.claims import claims_of
from controller.configuration import ControllerConfiguration
from controller.counts import RequestCounts
from controller.decision import Decision
from controller.electionrecorder import ElectionRecorder
from controller.events import AlterSyncStateSet
from controller.failover import SETS_A_TURN, MasterFailover
from controller.livebrokers import LiveBrokers
from controller.requests import Decide
from controller.runner import Busy, CommandRunner
from controller.setlocks import CommandSource, Rank
from controller.settings import ControllerSettings
from controller.state import ReplicasState
from dledger.node.node import DLedgerNode
from dledger.raft.actions import Role
from dledger.raft.errors import NotLeader, OutcomeUnknown, TooManyProposals
from mqruntime.log import fields
from remoting.bodies.replicas import BrokerReplicasInfo
from remoting.certificateguard import CertificateGuard
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.headers.controller import (
    BrokerHeartbeatHeader,
    ElectMasterHeader,
    GetMetadataResponseHeader,
    GetReplicaInfoHeader,
    RegisterBrokerToControllerHeader,
)
from remoting.peer import Peer
from remoting.router import Handler, Router

logger = logging.getLogger(__name__)

FIRST_HEARTBEAT_WAIT_MS = 400
NEXT_HEARTBEAT_WAIT_MS = 1_200
"""Brokers send a heartbeat each second by default."""
BEFORE_SETS, AFTER_SETS = BrokerReplicasInfo({}).encode().split(b"}", 1)[0], b"}}"
"""The bytes around the sets in the answer to CONTROLLER_GET_SYNC_STATE_DATA (1006)."""
CONNECTION = "controller connection number"
NOT_LEADER = "The controller is not in leader state"


@dataclass(eq=False)
class RequestProcessor:
    """Handles the requests of a controller. The server calls `connected` and `disconnected` for each accepted connection."""

    settings: ControllerSettings
    state: ReplicasState
    node: DLedgerNode
    brokers: LiveBrokers
    runner: CommandRunner
    guard: MasterFailover
    recorder: ElectionRecorder
    counts: RequestCounts
    configuration: ControllerConfiguration
    _connections: Iterator[int] = field(default_factory=partial(itertools.count, 1))

    def add_to(self, router: Router) -> None:
        router.add(RequestCode.BROKER_HEARTBEAT, self._heartbeat)
        router.add(RequestCode.CONTROLLER_GET_METADATA_INFO, self._metadata)
        router.add(RequestCode.UPDATE_CONTROLLER_CONFIG, self._update_configuration)
        router.add(RequestCode.GET_CONTROLLER_CONFIG, self._show_configuration)
        router.add(RequestCode.CONTROLLER_ELECT_MASTER, self._elect_master)
        router.add(RequestCode.CONTROLLER_REGISTER_BROKER, self._register_broker)
        router.add(RequestCode.GIVE_UP_REPLICA, self._give_up_replica)
        router.add(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, self._sync_state_data)
        router.add(RequestCode.CONTROLLER_GET_REPLICA_INFO, self._replica_info)
        for code, read in requests.WRITES.items():
            router.add(code, self._written(read))
        for code, read in requests.READS.items():
            router.add(code, self._read(read))
        CertificateGuard(self.node.clock).guard(router, claims_of(self.state))

    def connected(self, peer: Peer) -> None:
        peer.attributes[CONNECTION] = next(self._connections)

    def disconnected(self, peer: Peer) -> None:
        if CONNECTION in peer.attributes:
            self.brokers.connection_closed(connection_of(peer))

    def _asker(self, peer: Peer) -> CommandSource:
        connection = connection_of(peer)
        return CommandSource(Rank.BROKER if self.brokers.speak_over(connection) else Rank.ANYBODY, connection)

    def _written(self, read: Callable[[RemotingCommand], Decide]) -> Handler:
        async def handle(peer: Peer, request: RemotingCommand) -> RemotingCommand:
            decide = read(request)
            return await self._reply(
                request, self.runner.run(requests.broker_name_of(request), decide, self._asker(peer))
            )

        return handle

    def _read(self, read: Callable[[RemotingCommand], Decide]) -> Handler:
        async def handle(peer: Peer, request: RemotingCommand) -> RemotingCommand:
            return await self._reply(request, self.runner.read(read(request)))

        return handle

    async def _replica_info(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        header = GetReplicaInfoHeader.from_ext(request.ext)
        decide = requests.replica_info(header, self.brokers.polled(header))
        return await self._reply(request, self.runner.read(decide))

    async def _sync_state_data(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        return await self._reply(request, self._read_sets(requests.broker_names(request)))

    async def _read_sets(self, names: list[str]) -> Decision:
        """Read the sets, a few in a turn of the event loop. So different sets may be read at different moments of the call.
        That is correct, because sets are independent of each other."""
        names = list(dict.fromkeys(names))
        parts: list[bytes] = []
        for start in range(0, max(1, len(names)), SETS_A_TURN):
            few = names[start : start + SETS_A_TURN]
            decision = await self.runner.read(requests.sync_state_data(few))
            if decision.body is None or len(names) <= SETS_A_TURN:
                return decision
            parts.append(decision.body[len(BEFORE_SETS) : -len(AFTER_SETS)])
        return Decision(body=BEFORE_SETS + b",".join(filter(None, parts)) + AFTER_SETS)

    async def _register_broker(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        header = RegisterBrokerToControllerHeader.from_ext(request.ext)
        refused = self.brokers.why_not_this_process(header) is not None
        is_new = (
            refused
            or self.brokers.begins(header, connection_of(peer))
            or self.brokers.restarted(
                header.broker_name,
                header.broker_id,
                connection_of(peer),
                header.incarnation,
                header.register_check_code,
            )
        )
        decide = requests.register_broker(request, is_late=not is_new)
        return await self._reply(request, self.runner.run(header.broker_name, decide, self._asker(peer)))

    async def _give_up_replica(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """Remove a replica and notify the master at once, because the master's acknowledgements wait for the replica until
        then."""
        decide = requests.give_up_replica(request)
        name = requests.broker_name_of(request)

        async def given_up() -> Decision:
            decision = await self.runner.run(name, decide, self._asker(peer))
            if decision.events:
                logger.info("replica given up", extra=fields(broker=name, asked_by=peer.remote_address))
                self.guard.announce(name)
            return decision

        return await self._reply(request, given_up())

    async def _elect_master(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """Hold an election after a short wait. A starting broker's request may overtake its first heartbeat, so the election
        waits for that heartbeat. An operator's election waits for brokers that a new leader has not heard yet."""
        header = ElectMasterHeader.from_ext(request.ext)
        decide = requests.elect_master(request, lambda: self.settings.enable_elect_unclean_master)
        if self.node.is_active and header.designate_elect:
            await self.brokers.wait_reported(header.broker_name, NEXT_HEARTBEAT_WAIT_MS)
        elif self.node.is_active:
            await self.brokers.wait_alive(header.broker_name, header.broker_id, FIRST_HEARTBEAT_WAIT_MS)

        async def elected() -> Decision:
            decision = await self.guard.elect(
                header.broker_name, decide, asked_by=peer.remote_address, asker=self._asker(peer)
            )
            self.counts.answered(header.broker_name, decision, self.state)
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
            if isinstance(event, AlterSyncStateSet) and decision.code == ResponseCode.SUCCESS:
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
                    eligible=sorted(event.eligible),
                ),
            )

    def _heartbeat(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        header = BrokerHeartbeatHeader.from_ext(request.ext)
        if header.broker_id is None:
            return request.reply(ResponseCode.CONTROLLER_INVALID_REQUEST, "Heart beat with empty brokerId")
        self.brokers.heard(header, connection_of(peer))
        self.recorder.heard(header)
        return request.reply(ResponseCode.SUCCESS, "Heart beat success")

    def _metadata(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """CONTROLLER_GET_METADATA_INFO (1005). If the body names broker sets, the reply also has their elections; upstream's
        tools send no body."""
        named = requests.broker_names(request) if request.body else []
        header = GetMetadataResponseHeader(
            group=self.settings.group,
            controller_leader_id=self.node.leader_id,
            controller_leader_address=self.node.leader_address,
            is_leader=self.node.role is Role.LEADER,
            peers="".join(f"{peer_id}:{address};" for peer_id, address in self.node.peers.items()),
        )
        return request.reply(
            header=header, body=self.recorder.elections_of(named).encode() if named else None
        )

    async def _update_configuration(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        decision = await self.configuration.update(request.body)
        logger.info(
            "settings changed" if decision.code == 0 else "settings not changed",
            extra=fields(peer=peer.remote_address, code=decision.code, remark=decision.remark),
        )
        return replied(request, decision)

    def _show_configuration(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        return replied(request, self.configuration.show())


def connection_of(peer: Peer) -> int:
    """The number of an accepted connection; later connections have higher numbers."""
    connection = peer.attributes[CONNECTION]
    assert isinstance(connection, int)
    return connection


def replied(request: RemotingCommand, decision: Decision) -> RemotingCommand:
    """The reply for `decision`."""
    return request.reply(decision.code, decision.remark, decision.header, decision.body)
