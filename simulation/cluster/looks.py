"""The way in which checks and faults read the state of the product's apps.

Invariant: a look changes nothing. No other code of the simulated cluster reads an app's state. So if the product keeps its
state elsewhere, only this file has to change."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from broker.app import BrokerApp
from broker.role.identity import IDENTITY_FILE, decode_identity
from broker.role.membership import ReplicaRole
from broker.settings.broker import BrokerSettings
from broker.tables.delayoffsets import DelayOffsets
from broker.tables.tables import Tables
from controller.server import ControllerApp
from controller.state import ReplicasState, SyncState
from dledger.node.node import DLedgerNode
from epochfile.history import EpochHistory
from ha.slave.link import LeftBehind, StayOut
from messagestore.store.brokerstore import BrokerStore
from simulation.cluster.members import BROKER_SET
from simulation.kernel.node import Node

CLUSTER = str(BrokerSettings.model_fields["broker_cluster_name"].default)


class BrokerLook(NamedTuple):
    """A started broker at one moment. `store` and `delays` are the live objects."""

    name: str
    incarnation: int
    broker_id: int | None
    """The id that was granted to the broker and is durable."""
    role: ReplicaRole
    master_epoch: int
    """The epoch of the broker's role; 0 before it took a role."""
    epoch: int
    """The newest epoch that the broker accepted."""
    history: EpochHistory
    counted: frozenset[int]
    """The broker ids whose acks count; empty unless this broker is master."""
    acked_end: int
    """Records that end at or below this offset may be acknowledged."""
    store: BrokerStore
    delays: DelayOffsets
    tables: Tables | None = None
    """The live tables."""
    accepts_sends: bool = False
    is_learner: bool = False
    stays_out: StayOut | LeftBehind | None = None
    """Why the broker follows no master until an operator acts."""
    may_miss: bool = False
    """Whether the broker reports that its log may be missing data that it was counted for, and waits for a broker with all
    data."""


def started_broker(node: Node) -> BrokerApp | None:
    """The broker on the node. None if no broker runs, or it has not started yet or has stopped."""
    app = node.app
    if not isinstance(app, BrokerApp) or not app.membership.address or app.store.is_on_disk:
        return None
    return app


def epoch_led_on(node: Node) -> int | None:
    """The epoch in which the broker on the node acts as master; None if it does not."""
    app = started_broker(node)
    return (
        app.membership.master_epoch if app is not None and app.membership.role is ReplicaRole.MASTER else None
    )


def broker_on(node: Node) -> BrokerLook | None:
    """A look at the broker on the node; None as for `started_broker`."""
    app = started_broker(node)
    if app is None:
        return None
    membership = app.membership
    return BrokerLook(
        name=node.name,
        incarnation=node.incarnation,
        broker_id=membership.broker_id,
        role=membership.role,
        master_epoch=membership.master_epoch,
        epoch=app.ha.epoch,
        history=app.ha.history,
        counted=app.ha.counted_members(),
        acked_end=app.acknowledgement.acked_end(),
        store=app.store,
        delays=app.tables.delays,
        tables=app.tables,
        accepts_sends=membership.accepts_sends,
        is_learner=app.settings.async_learner,
        stays_out=app.ha.stays_out,
        may_miss=app.memory_mark.may_have_lost_data,
    )


def id_on_disk(node: Node) -> int | None:
    """The id of the broker on the node, running or not. The id is on disk before the controllers get it."""
    data = node.disk.content(IDENTITY_FILE)
    return None if data is None else decode_identity(IDENTITY_FILE, data, CLUSTER, BROKER_SET).broker_id


def log_ends(nodes: Iterable[Node]) -> dict[int, int]:
    """Broker id -> end of the broker's log, for brokers that run and have an id."""
    apps = [node.app for node in nodes if isinstance(node.app, BrokerApp) and not node.app.store.is_on_disk]
    return {app.membership.broker_id: app.store.max_offset() for app in apps if app.membership.broker_id}


class ControllerLook(NamedTuple):
    """A running controller. `raft` is the live object."""

    raft: DLedgerNode
    state: SyncState | None
    """The state of the broker set as this controller applied it; None before the first election."""
    known_ids: frozenset[int]
    """Broker ids of the set that are registered at this controller."""
    takes_for_alive: Callable[[int], bool]
    """Called with a broker id: whether the controller takes the broker for alive."""


def controller_app(node: Node) -> ControllerApp | None:
    """None where none runs."""
    return node.app if isinstance(node.app, ControllerApp) else None


def controller_on(node: Node) -> ControllerLook | None:
    """None where none runs."""
    app = controller_app(node)
    if app is None:
        return None

    def takes_for_alive(broker_id: int) -> bool:
        return app.brokers.liveness().is_alive((CLUSTER, BROKER_SET, broker_id))

    known = app.state.known(BROKER_SET)
    known_ids = frozenset(known[0].by_id) if known is not None else frozenset()
    return ControllerLook(app.node, sync_state(app.state), known_ids, takes_for_alive)


def sync_state(state: ReplicasState) -> SyncState | None:
    """The state of the broker set; None before the set's first election."""
    known = state.known(BROKER_SET)
    return known[1] if known is not None else None


def serves(node: Node) -> bool:
    """Whether the server has started."""
    controller = controller_app(node)
    return started_broker(node) is not None or (controller is not None and controller.node.core is not None)
