"""The views that checks and faults have of the product's apps.

Invariant: a look only reads. Nothing else in the simulated cluster asks an app for its state, so only this file changes when an
app keeps its state elsewhere."""

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
    """A broker that has started, at one moment; `store` and `delays` are live."""

    name: str
    incarnation: int
    broker_id: int | None
    """Granted and durable."""
    role: ReplicaRole
    master_epoch: int
    """Of the role taken; 0 before."""
    epoch: int
    """The newest accepted."""
    history: EpochHistory
    counted: frozenset[int]
    """The ids whose acks count; empty unless master."""
    acked_end: int
    """Records that end here or below may be answered."""
    store: BrokerStore
    delays: DelayOffsets
    tables: Tables | None = None
    """Live, too."""
    accepts_sends: bool = False
    is_learner: bool = False
    stays_out: StayOut | LeftBehind | None = None
    """Why it follows no master until an operator acts."""
    may_miss: bool = False
    """It reports that its log may be missing data that it was counted for, and waits for a broker with all of it."""


def started_broker(node: Node) -> BrokerApp | None:
    """None where no broker runs, or where it has not started yet or has stopped already."""
    app = node.app
    if not isinstance(app, BrokerApp) or not app.membership.address or app.store.is_on_disk:
        return None
    return app


def epoch_led_on(node: Node) -> int | None:
    """The epoch in which a broker there acts as master; None where none does."""
    app = started_broker(node)
    return (
        app.membership.master_epoch if app is not None and app.membership.role is ReplicaRole.MASTER else None
    )


def broker_on(node: Node) -> BrokerLook | None:
    """None as in `started_broker`."""
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
    """The id of the broker there, running or not: it is on disk before the controllers receive it."""
    data = node.disk.content(IDENTITY_FILE)
    return None if data is None else decode_identity(IDENTITY_FILE, data, CLUSTER, BROKER_SET).broker_id


def log_ends(nodes: Iterable[Node]) -> dict[int, int]:
    """Broker id -> end of its log, of those that run and have an id."""
    apps = [node.app for node in nodes if isinstance(node.app, BrokerApp) and not node.app.store.is_on_disk]
    return {app.membership.broker_id: app.store.max_offset() for app in apps if app.membership.broker_id}


class ControllerLook(NamedTuple):
    """A controller that runs; `raft` is live."""

    raft: DLedgerNode
    state: SyncState | None
    """The state of the broker set as applied here; None before its first election."""
    known_ids: frozenset[int]
    """Broker ids of the set that are registered here."""
    takes_for_alive: Callable[[int], bool]
    """Called with a broker id."""


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
    """The state of the broker set; None before its first election."""
    known = state.known(BROKER_SET)
    return known[1] if known is not None else None


def serves(node: Node) -> bool:
    """Whether it has started."""
    controller = controller_app(node)
    return started_broker(node) is not None or (controller is not None and controller.node.core is not None)
