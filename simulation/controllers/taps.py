"""Taps on a controller's process. They note the messages that reach it, its proposals, and the entries that it applies.

Invariant: taps change nothing. Everything is noted before the controller acts on it."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from controller.server import ControllerApp
from controller.state import ReplicasState
from controller.statemachine import ReplicasStateMachine
from dledger.node.applying import Applier
from dledger.node.proposals import Committed
from dledger.raft.actions import Role
from dledger.raft.entries import NO_INDEX, NO_TERM
from dledger.raft.snapshot import Snapshot
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.peer import Peer
from remoting.router import Outcome
from simulation.controllers import entries
from simulation.controllers.check import ControllerCheck
from simulation.controllers.rules import LivenessView, Said, Unfitness
from simulation.controllers.scriptedbroker import CLUSTER_NAME
from simulation.controllers.setmodel import SetState
from simulation.kernel.node import Node

HEARTBEAT_TIMEOUT_MS = 10_000
"""The timeout of a broker that has sent no heartbeat, or whose heartbeats announce no timeout."""

COUNTED_MS_MAX = 500
"""How much of its own pause a controller may take for time in which it was awake."""
NOBODY = -1

Key = tuple[str, int]
"""(broker set, broker id)."""


@dataclass(slots=True)
class Contact:
    """The newest connection over which a broker's heartbeats came, and the last heartbeat over it."""

    connection: int
    open: bool
    last_ms: int
    timeout_ms: int
    said: Said


class Taps:
    """The taps on one process, made with the process's app."""

    def __init__(self, node: Node, app: ControllerApp, check: ControllerCheck) -> None:
        self.node = node
        self.app = app
        self.check = check
        self.process = f"{node.name}.{node.incarnation}"
        self.contacts: dict[Key, Contact] = {}
        self.spoken: dict[Key, dict[int, int]] = {}
        """Incarnation -> newest connection over which that process sent something."""
        self.restarting: Counter[tuple[Key, int]] = Counter()
        """Connection -> how many registrations over it are in progress. Late registrations do not count."""
        self.leads_since_ms = 0
        self._numbers = itertools.count(1)
        self._connections: dict[Peer, int] = {}
        """Connections are counted as the controller counts them."""
        self._tap_server()
        self._tap_log()

    @property
    def now_ms(self) -> int:
        return self.node.loop.now_us // 1000

    def _tap_server(self) -> None:
        connections = self.app._server._connections
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
        router.watch(RequestCode.BROKER_HEARTBEAT, self._heartbeat_arrived)
        router.watch(RequestCode.CONTROLLER_REGISTER_BROKER, self._registering)
        brokers, is_new = self.app.brokers, self.app.brokers.restarted

        def restarted(
            broker_name: str,
            broker_id: int,
            connection: int,
            incarnation: int = 0,
            check_code: str | None = None,
        ) -> bool:
            key = broker_name, broker_id
            own = check_code is None or self._granted(key).get("code", check_code) == check_code
            if own and not self._is_of_former(key, connection, {"incarnation": str(incarnation)}):
                self._restarted(key, connection, incarnation)
            return is_new(broker_name, broker_id, connection, incarnation, check_code)

        brokers.restarted = restarted  # type: ignore[method-assign]

    def _heartbeat_arrived(self, peer: Peer, request: RemotingCommand) -> Callable[[Outcome], None]:
        """A heartbeat counts if it names the broker's cluster and address, and this controller knows the broker."""
        ext = request.ext
        key = ext.get("brokerName", ""), int(ext.get("brokerId", NOBODY))
        registered = self._granted(key).get("address") == ext["brokerAddr"]
        if not registered or ext["clusterName"] != CLUSTER_NAME:
            return ignore_outcome
        connection, now_ms, said = self._connections[peer], self.now_ms, said_in(ext)
        self.check.once_held[key] = max(said.log_end, self.check.once_held[key])
        if self._is_of_former(key, connection, ext):
            return ignore_outcome
        contact = self.contacts.get(key)
        if contact is None:
            timeout_ms = int(ext.get("heartbeatTimeoutMills", HEARTBEAT_TIMEOUT_MS))
            self.contacts[key] = Contact(connection, True, now_ms, timeout_ms, said)
            return ignore_outcome
        if connection >= contact.connection or not contact.open:
            contact.connection, contact.open, contact.said = connection, True, said
        contact.last_ms = now_ms
        return ignore_outcome

    def _granted(self, key: Key) -> dict[str, str]:
        """The code and address of the broker that has the id, as far as this controller knows."""
        replicas = self.app.state.replicas.get(key[0])
        if replicas is None or key[1] not in replicas.by_id:
            return {}
        replica = replicas.by_id[key[1]]
        return {"code": replica.check_code, "address": replica.address}

    def _is_of_former(self, key: Key, connection: int, ext: dict[str, str]) -> bool:
        """Whether a dead process sent this message, because a later process has already sent something over a newer
        connection."""
        incarnation = int(ext.get("incarnation", 0))
        spoken = self.spoken.setdefault(key, {})
        spoken[incarnation] = max(connection, spoken.get(incarnation, 0))
        return incarnation > 0 and any(
            later > incarnation and over > connection for later, over in spoken.items()
        )

    def _restarted(self, key: Key, connection: int, incarnation: int) -> None:
        """A registration came, so heartbeats over other connections are those of dead processes. A registration over an older
        connection is late and does not count, unless only earlier processes sent something over newer connections."""
        contact = self.contacts.get(key)
        newer = [said for said, over in self.spoken.get(key, {}).items() if over > connection]
        if (
            contact is not None
            and contact.connection > connection
            and not 0 < max(newer, default=0) < incarnation
        ):
            return
        if contact is not None and contact.connection != connection:
            contact.open = False
        self.restarting[key, connection] += 1

    def _registering(self, peer: Peer, request: RemotingCommand) -> Callable[[Outcome], None]:
        key = request.ext["brokerName"], int(request.ext["brokerId"])
        connection = self._connections[peer]

        def answered(outcome: Outcome) -> None:
            self.restarting[key, connection] = max(0, self.restarting[key, connection] - 1)

        return answered

    def _closed(self, connection: int) -> None:
        for contact in self.contacts.values():
            if contact.connection == connection:
                contact.open = False

    def _tap_log(self) -> None:
        node, applier = self.app.node, self.app.node._applier
        assert isinstance(applier, Applier)
        machine = applier.state_machine
        assert isinstance(machine, ReplicasStateMachine)
        propose, apply, role_change = node.propose, machine.apply, self.app.role_changed
        restore = applier.restore
        restored = NO_INDEX

        async def proposing(bodies: Sequence[bytes], timeout_ms: int = 3000) -> Committed:
            for number, body in enumerate(bodies, start=node.last_index + 1):
                entry = entries.read(body)
                assert entry is not None
                if not node.is_active:
                    break  # another leader's entry may come at that index
                self.check.proposing(number, node.term, self.liveness(entry.broker_name))
            return await propose(bodies, timeout_ms)

        def applied(index: int, body: bytes) -> None:
            apply(index, body)
            self.check.guarded(lambda: self._applied(index, body))

        def role_changed(role: Role, term: int) -> None:
            if role is Role.LEADER:
                self.leads_since_ms = self.now_ms
            role_change(role, term)

        def restoring(snapshot: Snapshot) -> None:
            nonlocal restored
            restored = snapshot.last_index
            restore(snapshot)

        node.propose = proposing  # type: ignore[method-assign]
        machine.apply = applied  # type: ignore[method-assign]
        applier.restore = restoring  # type: ignore[method-assign]
        machine.on_loaded(lambda before: self.check.guarded(lambda: self._loaded(before, restored)))
        self.app.role_changed = role_changed  # type: ignore[method-assign]

    def _applied(self, index: int, body: bytes) -> None:
        app = self.app
        assert app.node.core is not None
        entry = entries.read(body)
        if entry is not None and entry.kind == entries.APPLY_ID and entry.broker_id is not None:
            self.contacts.pop((entry.broker_name, entry.broker_id), None)  # the new owner has not sent it
            self.spoken.pop((entry.broker_name, entry.broker_id), None)
        kept = self._kept(entry.broker_name) if entry is not None else None
        log = app.node.core.log
        term = log.term_at(index) if index >= log.prev_index else NO_TERM
        self.check.applied(self.process, index, term, body, kept)

    def _kept(self, broker_name: str) -> SetState | None:
        known = self.app.state.known(broker_name)
        if known is None:
            return None
        replicas, sync_state = known
        return SetState(
            {broker_id: replica.check_code for broker_id, replica in replicas.by_id.items()},
            {broker_id: replica.address for broker_id, replica in replicas.by_id.items()},
            sync_state.master_id,
            sync_state.master_epoch,
            sync_state.members,
            sync_state.set_epoch,
            sync_state.eligible,
            frozenset(replicas.forgotten),
        )

    def _loaded(self, before: ReplicasState, index: int) -> None:
        """A snapshot of all entries up to `index` replaced the state `before`."""
        state = self.app.state
        for name, replicas in state.replicas.items():
            for broker_id, replica in replicas.by_id.items():
                if before.check_code((replicas.cluster_name, name, broker_id)) != replica.check_code:
                    self.contacts.pop((name, broker_id), None)
                    self.spoken.pop((name, broker_id), None)
        names = state.replicas.keys() & state.sync_states.keys()
        self.check.loaded(self.process, index, {name: self._kept(name) for name in names})

    # What this controller may believe

    def liveness(self, broker_name: str) -> LivenessView:
        """The liveness view of the brokers of one set at this moment."""
        alive, surely, gone, said = set(), set(), set(), {}
        for broker_id in self.check.state(broker_name).codes:
            contact = self.contacts.get((broker_name, broker_id))
            if contact is not None and contact.open:
                key = broker_name, broker_id
                overtaken = max(self.spoken.get(key, {}).values(), default=0) > contact.connection
                said[broker_id] = replace(contact.said, once=self.check.once_held[key], overtaken=overtaken)
                awake_ms, _ = self._awake_since(contact.last_ms)
                if awake_ms <= contact.timeout_ms:
                    alive.add(broker_id)
                if self.now_ms - contact.last_ms <= contact.timeout_ms:
                    surely.add(broker_id)
            if self._gone(contact):
                gone.add(broker_id)
        restarted = (
            broker_id
            for ((name, broker_id), _), count in self.restarting.items()
            if count and name == broker_name
        )
        return LivenessView(
            self.process,
            frozenset(alive),
            frozenset(gone),
            frozenset(surely),
            frozenset(restarted),
            said,
        )

    def _gone(self, contact: Contact | None) -> bool:
        if contact is not None and not contact.open:
            return True
        _, silent_ms = self._awake_since(max(self.leads_since_ms, contact.last_ms if contact else 0))
        return silent_ms > (contact.timeout_ms if contact else HEARTBEAT_TIMEOUT_MS)

    def _awake_since(self, since_ms: int) -> tuple[int, int]:
        """For how long, in ms, this process was awake since `since`, and for how long it may believe that it was."""
        process = self.node.process
        assert process is not None
        asleep_ms = [
            (until_us // 1000) - max(from_us // 1000, since_ms)
            for from_us, until_us in process.pauses
            if until_us // 1000 > since_ms
        ]
        awake_ms = self.now_ms - since_ms - sum(asleep_ms)
        return awake_ms, awake_ms + sum(min(ms, COUNTED_MS_MAX) for ms in asleep_ms)


def said_in(heartbeat: dict[str, str]) -> Said:
    """The contents of a heartbeat. A field that upstream's brokers do not send has its default value."""
    return Said(
        max(0, int(heartbeat.get("minInSyncReplicas", 0))),
        heartbeat.get("mayMissAcknowledged") == "true",
        unfitness(heartbeat),
        int(heartbeat.get("maxOffset", 0)),
    )


def unfitness(heartbeat: dict[str, str]) -> Unfitness:
    if not heartbeat.get("unfitToLead"):
        return Unfitness.FIT
    return Unfitness.COULD_LEAD if heartbeat.get("couldLead") == "true" else Unfitness.CANNOT


def ignore_outcome(outcome: Outcome) -> None:
    """Ignore the outcome, because it is seen elsewhere."""
