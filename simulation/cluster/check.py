"""The invariants of a cluster, checked while it runs.

Invariant of the checker itself: `confirmed` holds the bytes below the highest confirm offset that any broker ever had,
and no broker may confirm others. Names of invariants: M masters, S SyncStateSet, C confirm offset and acknowledgements,
L logs, Q readers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from broker.app import BrokerApp
from broker.role.membership import Role
from controller.server import ControllerApp
from simulation.cluster.grants import Grants
from simulation.cluster.logmatch import logs_match
from simulation.cluster.members import BROKER_HOSTS, BROKER_SET, MIN_IN_SYNC
from simulation.cluster.violation import Violation


@dataclass
class Watched:
    """What was seen of one incarnation of a broker."""

    checked_end: int = 0
    end: int = 0
    confirm: int = 0
    mastership: tuple[Role, int] = (Role.NONE, 0)
    epoch: int = 0


@dataclass
class ClusterCheck:
    """Call `look` often; it reads the apps that run and raises Violation."""

    masters: dict[int, int] = field(default_factory=dict)
    """Master epoch -> broker id, as controllers applied it and as brokers act."""
    sets: dict[int, tuple[int | None, frozenset[int]]] = field(default_factory=dict)
    """SyncStateSet epoch -> (master id, members)."""
    grants: Grants = field(default_factory=Grants)
    confirmed: bytearray = field(default_factory=bytearray)
    watched: dict[tuple[str, int], Watched] = field(default_factory=dict)
    newest: tuple[int, int] = (0, 0)
    members: frozenset[int] = frozenset()
    copied_end: int = 0
    """Up to here two brokers had what was answered, when it was."""
    on_truncated: Callable[[str], None] = lambda name: None
    """Called with the name of a broker whose log has become shorter."""

    on_expanded: Callable[[frozenset[int], int], None] = lambda added, master_id: None
    """Called with the brokers that came into the set and its master."""

    def look(
        self, controllers: Iterable[ControllerApp], brokers: Iterable[tuple[str, int, BrokerApp]]
    ) -> None:
        """`brokers` are (name, incarnation, app)."""
        for controller in controllers:
            self.look_at_controller(controller)
        running = [(name, number, app) for name, number, app in brokers if app.manager is not None]
        for name, number, app in running:
            self.look_at_broker(self.watched.setdefault((name, number), Watched()), name, app)
        apps = [app for _, _, app in running]
        self.look_at_members(apps)
        self.grants.look(apps)
        logs_match([(name, app) for name, _, app in running], len(self.confirmed))

    def look_at_controller(self, app: ControllerApp) -> None:
        known = app.state.known(BROKER_SET)
        if known is None:
            return
        state = known[1]
        if state.master_id is not None:
            self.one_master(state.master_epoch, state.master_id)
            if state.master_id not in state.members:
                raise Violation("S2", f"master {state.master_id} is not in the set {sorted(state.members)}")
        seen = self.sets.setdefault(state.set_epoch, (state.master_id, state.members))
        if seen[1] != state.members:
            raise Violation(
                "S1", f"set epoch {state.set_epoch} is {sorted(seen[1])} and {sorted(state.members)}"
            )
        if (state.master_epoch, state.set_epoch) > self.newest:
            same_master = state.master_epoch == self.newest[0]
            self.newest = (state.master_epoch, state.set_epoch)
            added, self.members = state.members - self.members, state.members
            if same_master and added and state.master_id is not None:
                self.on_expanded(added, state.master_id)

    def one_master(self, epoch: int, broker_id: int) -> None:
        if self.masters.setdefault(epoch, broker_id) != broker_id:
            raise Violation("M1", f"epoch {epoch} has the masters {self.masters[epoch]} and {broker_id}")

    def look_at_broker(self, watched: Watched, name: str, app: BrokerApp) -> None:
        assert app.manager is not None
        replicas, store = app.manager.replicas, app.store
        if replicas.role is Role.MASTER and replicas.broker_id is not None:
            self.one_master(replicas.master_epoch, replicas.broker_id)
        if replicas.master_epoch < watched.epoch:
            raise Violation("M3", f"{name} went from epoch {watched.epoch} back to {replicas.master_epoch}")
        watched.epoch = replicas.master_epoch
        confirm, end = store.confirm_offset(), store.max_offset()
        if confirm > end:
            raise Violation("C2", f"{name} confirms {confirm} of a log that ends at {end}")
        truncated, watched.end = end < watched.end, end
        mastership = (replicas.role, replicas.master_epoch)
        if mastership == watched.mastership and replicas.role is Role.MASTER and confirm < watched.confirm:
            raise Violation("C2", f"{name}'s confirm offset fell from {watched.confirm} to {confirm}")
        watched.mastership, watched.confirm = mastership, confirm
        if store.dispatched_offset() > max(confirm, store.min_offset()):
            raise Violation(
                "Q1", f"{name} dispatched {store.dispatched_offset()}, above its confirm offset {confirm}"
            )
        if confirm < watched.checked_end:
            watched.checked_end = confirm
        self.same_bytes(watched, name, app, confirm)
        if truncated:
            self.on_truncated(name)

    def same_bytes(self, watched: Watched, name: str, app: BrokerApp, end: int) -> None:
        at = watched.checked_end
        while at < end:
            view = app.store.read(at, end - at)
            if not view:
                raise Violation("C1", f"{name} has no bytes at {at}, below {end}")
            known = self.confirmed[at : at + len(view)]
            if known != view[: len(known)]:
                raise Violation(
                    "C6", f"{name} holds other bytes than were confirmed, in [{at}, {at + len(view)})"
                )
            self.confirmed += view[len(known) :]
            at += len(view)
        watched.checked_end = end

    def look_at_members(self, apps: list[BrokerApp]) -> None:
        """What any master confirms is there on each running member of the controllers' newest set."""
        masters = [app for app in apps if app.manager and app.manager.replicas.role is Role.MASTER]
        for app in masters:
            assert app.manager is not None
            self.holds_what_was_confirmed(app)
            self.enough_copies(app, apps)
            counted = app.ha.counted_members()
            if not counted:
                continue  # it is leaving the role
            if app.manager.replicas.master_epoch == self.newest[0] and not self.members <= counted:
                raise Violation(
                    "S3",
                    f"the set is {sorted(self.members)}, its master counts acks over {sorted(counted)}",
                )
        confirm = max((app.store.confirm_offset() for app in masters), default=0)
        for app in apps:
            assert app.manager is not None
            replicas = app.manager.replicas
            if replicas.role is Role.NONE or replicas.broker_id not in self.members:
                continue
            if app.store.max_offset() < confirm:
                raise Violation(
                    "C1",
                    f"broker {replicas.broker_id} of the set {sorted(self.members)} ends at "
                    f"{app.store.max_offset()}, a master confirms {confirm}",
                )

    def holds_what_was_confirmed(self, master: BrokerApp) -> None:
        """Whoever leads the newest epoch; an older master may have missed what followed."""
        assert master.manager is not None
        replicas, end = master.manager.replicas, master.store.max_offset()
        if replicas.master_epoch == self.newest[0] and end < len(self.confirmed):
            raise Violation(
                "C6",
                f"broker {replicas.broker_id} leads epoch {replicas.master_epoch} with a log that ends at {end}, "
                f"{len(self.confirmed)} was confirmed",
            )

    def enough_copies(self, master: BrokerApp, apps: list[BrokerApp]) -> None:
        """Contract C: what may be answered stands on two brokers at that moment. Those that do not run may hold it."""
        answered = master.role.acked_end()
        if answered <= self.copied_end:
            return  # a copy may be lost later, once the set went on without it
        holders = sum(app.store.max_offset() >= answered for app in apps) + len(BROKER_HOSTS) - len(apps)
        if holders < MIN_IN_SYNC:
            raise Violation("C", f"sends below {answered} may be answered, {holders} brokers hold them")
        self.copied_end = answered

    def at_the_end(self, brokers: list[BrokerApp]) -> None:
        """After healing: equal logs and equal epochs."""
        histories = {app.ha.history.entries for app in brokers}
        if len(histories) != 1:
            raise Violation("E2", f"epoch histories differ: {sorted(map(str, histories))}")
        for number, app in enumerate(brokers):
            fresh = Watched()
            self.same_bytes(fresh, f"broker {number}", app, app.store.max_offset())
