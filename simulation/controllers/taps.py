"""Taps on a controller's process: what comes to it, what it proposes, what it applies.

Invariant: they change nothing; what is noted is noted before the controller acts on it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from controller.server import ControllerApp
from controller.statemachine import ReplicasStateMachine
from dledger.actions import Role
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.peer import Peer
from remoting.router import Outcome
from simulation.controllers import entries
from simulation.controllers.check import ControllerCheck
from simulation.controllers.rules import Hearing
from simulation.controllers.scriptedbroker import CLUSTER_NAME
from simulation.controllers.setmodel import SetState
from simulation.kernel.node import Node

HEARTBEAT_TIMEOUT_MS = 10_000
"""Of a broker that was never heard, or says nothing else."""

NOBODY = -1

Key = tuple[str, int]
"""(broker set, broker id)"""


@dataclass(slots=True)
class Ear:
    """The newest connection that a broker's heartbeats came over."""

    connection: int
    open: bool
    last_ms: int
    timeout_ms: int


class Taps:
    """On one process; made with its app."""

    def __init__(self, node: Node, app: ControllerApp, check: ControllerCheck) -> None:
        self.node = node
        self.check = check
        self.process = f"{node.name}.{node.incarnation}"
        self.ears: dict[Key, Ear] = {}
        self.leads_since_ms = 0
        self._numbers = itertools.count(1)
        self._connections: dict[Peer, int] = {}
        self._tap_server(app)
        self._tap_log(app)

    @property
    def now_ms(self) -> int:
        return self.node.loop.now_us // 1000

    def _tap_server(self, app: ControllerApp) -> None:
        connections = app._server._connections
        connected, disconnected = connections._on_connect, connections._on_disconnect
        assert connected is not None and disconnected is not None
        router = connections._dispatcher._router

        def on_connect(peer: Peer) -> None:
            self._connections[peer] = next(self._numbers)
            connected(peer)

        def on_disconnect(peer: Peer) -> None:
            self._closed(self._connections.pop(peer, 0))
            disconnected(peer)

        connections._on_connect, connections._on_disconnect = on_connect, on_disconnect
        router.watch(RequestCode.BROKER_HEARTBEAT, self._heard)
        router.watch(RequestCode.CONTROLLER_REGISTER_BROKER, self._restarted)

    def _heard(self, peer: Peer, request: RemotingCommand) -> Callable[[Outcome], None]:
        """It counts for a registered broker that names its own cluster."""
        ext = request.ext
        key = ext.get("brokerName", ""), int(ext.get("brokerId", NOBODY))
        model = self.check.sets.get(key[0])
        if model is None or key[1] not in model.now.codes or ext["clusterName"] != CLUSTER_NAME:
            return untold
        connection, now_ms = self._connections[peer], self.now_ms
        ear = self.ears.get(key)
        if ear is None:
            timeout_ms = int(ext.get("heartbeatTimeoutMills", HEARTBEAT_TIMEOUT_MS))
            self.ears[key] = Ear(connection, True, now_ms, timeout_ms)
            return untold
        if connection >= ear.connection or not ear.open:
            ear.connection, ear.open = connection, True
        ear.last_ms = now_ms
        return untold

    def _restarted(self, peer: Peer, request: RemotingCommand) -> Callable[[Outcome], None]:
        """What a broker said over another connection was said by a process that is no more."""
        ear = self.ears.get((request.ext["brokerName"], int(request.ext["brokerId"])))
        if ear is not None and ear.connection != self._connections[peer]:
            ear.open = False
        return untold

    def _closed(self, connection: int) -> None:
        for ear in self.ears.values():
            if ear.connection == connection:
                ear.open = False

    def _tap_log(self, app: ControllerApp) -> None:
        node, machine = app.node, app.node.state_machine
        assert isinstance(machine, ReplicasStateMachine)
        propose, apply, role_change = node.propose, machine.apply, node.on_role_change

        async def proposing(bodies: Sequence[bytes], timeout_ms: int = 3000) -> list[object]:
            for number, body in enumerate(bodies, start=node.last_index + 1):
                entry = entries.read(body)
                assert entry is not None
                self.check.proposing(number, node.term, self.hearing(entry.broker_name))
            return await propose(bodies, timeout_ms)

        def applied(index: int, body: bytes) -> None:
            apply(index, body)
            self.check.guarded(lambda: self._applied(app, index, body))

        def role_changed(role: Role, term: int) -> None:
            if role is Role.LEADER:
                self.leads_since_ms = self.now_ms
            role_change(role, term)

        node.propose = proposing  # type: ignore[method-assign]
        machine.apply = applied  # type: ignore[method-assign]
        node.on_role_change = role_changed

    def _applied(self, app: ControllerApp, index: int, body: bytes) -> None:
        assert app.node.core is not None
        entry = entries.read(body)
        known = app.state.known(entry.broker_name) if entry is not None else None
        kept = None
        if known is not None:
            replicas, sync_state = known
            kept = SetState(
                {broker_id: replica.check_code for broker_id, replica in replicas.by_id.items()},
                {broker_id: replica.address for broker_id, replica in replicas.by_id.items()},
                sync_state.master_id,
                sync_state.master_epoch,
                sync_state.members,
                sync_state.set_epoch,
            )
        self.check.applied(self.process, index, app.node.core.log.entry(index).term, body, kept)

    # What this controller may believe

    def hearing(self, broker_name: str) -> Hearing:
        """Of the brokers of one set, now."""
        alive, gone = set(), set()
        for broker_id in self.check.state(broker_name).codes:
            ear = self.ears.get((broker_name, broker_id))
            if ear is not None and ear.open and ear.last_ms + ear.timeout_ms >= self.now_ms:
                alive.add(broker_id)
            elif self._gone(ear):
                gone.add(broker_id)
        return Hearing(self.process, frozenset(alive), frozenset(gone))

    def _gone(self, ear: Ear | None) -> bool:
        if ear is not None and not ear.open:
            return True
        heard_ms = max(self.leads_since_ms, ear.last_ms if ear else 0)
        timeout_ms = ear.timeout_ms if ear else HEARTBEAT_TIMEOUT_MS
        return heard_ms + timeout_ms < self.now_ms


def untold(outcome: Outcome) -> None:
    """What became of it is seen elsewhere."""
