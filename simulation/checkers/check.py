"""The invariants of a cluster, checked while it runs.

Invariant of the checker itself: `confirmed` holds the whole records below the highest confirm offset that any broker ever had.
No broker may confirm other bytes at these offsets. A record of which only a part is confirmed has not been acknowledged. Names
of invariants: M masters, S SyncStateSet, C confirm offset and acknowledgements, L logs, Q readers."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from broker.role.membership import ReplicaRole
from controller.state import SyncState
from simulation.checkers.grants import Grants
from simulation.checkers.holders import Holders
from simulation.checkers.logmatch import logs_match
from simulation.cluster.looks import BrokerLook
from simulation.kernel.violation import Violation

SIZE_BYTES = 4
"""A record and the filler at a segment's end both begin with their size."""
RECORD_BYTES_MIN = 8


@dataclass
class Watched:
    """What the check saw last of one process of a broker."""

    checked_end: int = 0
    end: int = 0
    confirm: int = 0
    dispatched: int = 0
    mastership: tuple[ReplicaRole, int] = (ReplicaRole.NONE, 0)
    epoch: int = 0


@dataclass
class ClusterCheck:
    """Checks the cluster at each `look`, which must be called often. Raises Violation."""

    masters: dict[int, int] = field(default_factory=dict)
    """Master epoch -> broker id, as controllers applied it and as brokers act."""
    sets: dict[int, tuple[int | None, frozenset[int]]] = field(default_factory=dict)
    """SyncStateSet epoch -> (master id, members)."""
    grants: Grants = field(default_factory=Grants)
    confirmed: bytearray = field(default_factory=bytearray)
    ends: list[int] = field(default_factory=lambda: [0])
    """Where the records of `confirmed` end."""
    watched: dict[tuple[str, int], Watched] = field(default_factory=dict)
    newest: tuple[int, int] = (0, 0)
    members: frozenset[int] = frozenset()
    electable: frozenset[int] = frozenset()
    """The members, and other brokers that may be elected because they hold all that was acknowledged."""
    members_min: int = 2
    """How many brokers at least hold a record when it is acknowledged."""
    learners: set[int] = field(default_factory=set)
    """Broker ids of learners, which never count."""
    holders: Holders = field(default_factory=Holders)
    forgetful: set[str] = field(default_factory=set)
    """Names of brokers that lost memory and have not held everything confirmed since."""
    copied_end: int = 0
    """The end of the log that enough brokers held when it was acknowledged."""

    @property
    def forked(self) -> bool:
        """Whether an unclean election was held. Confirmed records may then be gone, and brokers that are missing them may
        confirm other records in their place."""
        return bool(self.grants.unclean)

    flipped_at: Callable[[str], int | None] = lambda name: None
    """Returns the offset of a flipped bit in the log of this broker, whether the broker knows of it or not."""

    on_truncated: Callable[[str], None] = lambda name: None
    """Called with the name of a broker whose log has become shorter."""

    on_expanded: Callable[[frozenset[int], int], None] = lambda added, master_id: None
    """Called with the brokers that entered the set, and with the set's master."""

    def look(self, states: Iterable[SyncState], brokers: list[BrokerLook]) -> None:
        """Check everything. `states` are the states of the running controllers."""
        self.learners |= {broker.broker_id for broker in brokers if broker.is_learner and broker.broker_id}
        for state in states:
            self.look_at_state(state)
        for broker in brokers:
            self.look_at_broker(broker)
        self.look_at_members(brokers)
        self.remember(brokers)
        self.grants.look(brokers)
        if not self.forked:
            logs_match(brokers, len(self.confirmed))
        else:  # compare only below the lowest confirm offset; at_the_end compares the rest
            intact = [broker for broker in brokers if self.flipped_at(broker.name) is None]
            logs_match(intact, min((broker.store.confirm_offset() for broker in intact), default=0))

    def look_at_state(self, state: SyncState) -> None:
        if state.master_id is not None:
            self.one_master(state.master_epoch, state.master_id)
            if state.master_id not in state.members:
                members = sorted(state.members)
                raise Violation(
                    "S2",
                    f"master {state.master_id} of epoch {state.master_epoch} is not in the set {members}",
                )
        if counted := self.learners & (state.members | state.eligible):
            raise Violation("S6", f"learners {sorted(counted)} are members, or eligible, in {state}")
        seen = self.sets.setdefault(state.set_epoch, (state.master_id, state.members))
        if seen[1] != state.members:
            lists = f"{sorted(seen[1])} and {sorted(state.members)}"
            raise Violation("S1", f"set epoch {state.set_epoch} has two member lists: {lists}")
        if (state.master_epoch, state.set_epoch) > self.newest:
            same_master = state.master_epoch == self.newest[0]
            self.newest = (state.master_epoch, state.set_epoch)
            added, self.members = state.members - self.members, state.members
            self.electable = state.members | state.eligible
            if same_master and added and state.master_id is not None:
                self.on_expanded(added, state.master_id)

    def one_master(self, epoch: int, broker_id: int) -> None:
        if self.masters.setdefault(epoch, broker_id) != broker_id:
            raise Violation("M1", f"epoch {epoch} has two masters: {self.masters[epoch]} and {broker_id}")

    def look_at_broker(self, broker: BrokerLook) -> None:
        watched = self.watched.setdefault((broker.name, broker.incarnation), Watched())
        name, store = broker.name, broker.store
        if counted := self.learners & broker.counted:
            raise Violation("S6", f"{name} counts acknowledgements of learners {sorted(counted)}")
        if broker.role is ReplicaRole.MASTER and broker.broker_id is not None:
            self.one_master(broker.master_epoch, broker.broker_id)
        if broker.master_epoch < watched.epoch:
            raise Violation("M3", f"{name} went from epoch {watched.epoch} back to {broker.master_epoch}")
        watched.epoch = broker.master_epoch
        confirm, end = store.confirm_offset(), store.max_offset()
        if confirm > end:
            raise Violation("C2", f"{name} confirms up to {confirm}, its log ends at {end}")
        truncated, watched.end = end < watched.end, end
        fell = confirm < watched.confirm
        mastership = (broker.role, broker.master_epoch)
        if mastership == watched.mastership and broker.role is ReplicaRole.MASTER and fell:
            fell_to = f"fell from {watched.confirm} to {confirm}"
            raise Violation("C2", f"{name}'s confirm offset {fell_to} in epoch {broker.master_epoch}")
        watched.mastership, watched.confirm = mastership, confirm
        before, watched.dispatched = watched.dispatched, store.dispatched_offset()
        is_cut = self.forked and (
            fell or watched.dispatched <= before
        )  # its queues are truncated after its log
        if watched.dispatched > max(confirm, store.min_offset()) and not is_cut:
            raise Violation(
                "Q1", f"{name} dispatched up to {watched.dispatched}, above its confirm offset {confirm}"
            )
        if confirm < watched.checked_end:
            watched.checked_end = self.whole(confirm)
        if not self.forked:
            self.same_bytes(watched, broker, confirm)
        if truncated:
            self.on_truncated(name)

    def same_bytes(self, watched: Watched, broker: BrokerLook, end: int) -> None:
        at = max(watched.checked_end, broker.store.min_offset())
        while view := self.record(broker, at, end):
            known = self.confirmed[at : at + len(view)]
            if known != view[: len(known)] and known != self.before_the_flip(broker.name, at, known, view):
                held = f"holds {bytes(view[: len(known)])!r} in [{at}, {at + len(view)})"
                raise Violation("C6", f"{broker.name} {held}, confirmed was {bytes(known)!r}")
            if len(known) < len(view):
                self.confirmed += view[len(known) :]
                self.ends.append(at + len(view))
            at += len(view)
        watched.checked_end = at

    def record(self, broker: BrokerLook, at: int, end: int) -> memoryview:
        """The record or filler that begins at this offset, if it ends at or below `end`; else empty."""
        if at + SIZE_BYTES > end:
            return memoryview(b"")
        flipped_at = self.flipped_at(broker.name)
        is_flipped = flipped_at is not None and at <= flipped_at < at + SIZE_BYTES
        head = self.confirmed[at : at + SIZE_BYTES] if is_flipped else broker.store.read(at, SIZE_BYTES)
        size, segment = int.from_bytes(head), broker.store.segment_size_bytes
        if head and not RECORD_BYTES_MIN <= size <= segment - at % segment:
            raise Violation(
                "C6", f"{broker.name} has {bytes(head)!r} at {at}, below {end}, expected the size of a record"
            )
        if not size or at + size > end:
            return memoryview(b"")
        view = broker.store.read(at, size)
        if len(view) < size:
            raise Violation("C1", f"{broker.name} has {len(view)} of {size} bytes at {at}, below {end}")
        return view

    def whole(self, offset: int) -> int:
        """The end of the last whole record that ends at or below `offset`."""
        return self.ends[bisect_right(self.ends, offset) - 1]

    def before_the_flip(self, name: str, at: int, known: bytearray, view: memoryview) -> bytearray:
        held, flipped_at = bytearray(view[: len(known)]), self.flipped_at(name)
        if flipped_at is not None and at <= flipped_at < at + len(known):
            held[flipped_at - at] = known[flipped_at - at]
        return held

    def look_at_members(self, brokers: list[BrokerLook]) -> None:
        """Check that each running member of the controllers' newest set holds all that any master confirms."""
        masters = [broker for broker in brokers if broker.role is ReplicaRole.MASTER]
        for master in masters:
            self.holds_what_was_confirmed(master)
            self.enough_copies(master)
            if not master.counted:
                continue  # the broker is leaving the role
            if master.master_epoch == self.newest[0] and not self.members <= master.counted:
                raise Violation(
                    "S3",
                    f"the set is {sorted(self.members)}, its master counts acks over {sorted(master.counted)}",
                )
        if self.forked:
            return
        confirm = self.whole(max((master.store.confirm_offset() for master in masters), default=0))
        for broker in brokers:
            if (
                broker.role is ReplicaRole.NONE
                or broker.broker_id not in self.members
                or broker.name in self.forgetful
            ):
                continue
            if broker.store.max_offset() < confirm:
                raise Violation(
                    "C1",
                    f"broker {broker.broker_id} of the set {sorted(self.members)} ends at "
                    f"{broker.store.max_offset()}, a master confirms {confirm}",
                )

    def holds_what_was_confirmed(self, master: BrokerLook) -> None:
        """Check that the master of the newest epoch holds all confirmed records. An older master may be missing the newest
        records."""
        end = master.store.max_offset()
        if not self.forked and master.master_epoch == self.newest[0] and end < len(self.confirmed):
            raise Violation(
                "C6",
                f"broker {master.broker_id} leads epoch {master.master_epoch} with a log that ends at {end}, "
                f"{len(self.confirmed)} was confirmed",
            )

    def enough_copies(self, master: BrokerLook) -> None:
        """Contract C: check that enough brokers hold the records that may be acknowledged at this moment."""
        answered = master.acked_end
        if answered <= self.copied_end:
            return  # a copy may be lost later, once its broker has left the set
        if self.forked and master.master_epoch < self.newest[0]:
            return  # its slaves may have been truncated since, after an unclean election
        holders = self.holders.of(answered, master) - self.learners
        if len(holders) < self.members_min:
            what = f"sends below {answered} may be answered, brokers {sorted(holders)} hold them"
            raise Violation("C", f"{what}, expected {self.members_min} brokers")
        self.copied_end = answered

    def remember(self, brokers: list[BrokerLook]) -> None:
        """A broker that lost memory counts again once it holds all confirmed records."""
        for broker in brokers:
            caught_up = broker.store.max_offset() >= len(self.confirmed)
            if (
                caught_up
                and broker.role is not ReplicaRole.NONE
                and broker.history.last_epoch() >= self.newest[0]
            ):
                self.forgetful.discard(broker.name)

    def at_the_end(self, brokers: list[BrokerLook]) -> None:
        """Check that logs and epochs are equal after healing."""
        begins = max(broker.store.min_offset() for broker in brokers)
        histories = {broker.history.truncate_prefix(begins).entries for broker in brokers}
        if len(histories) != 1:
            raise Violation("E2", f"epoch histories differ after healing: {sorted(map(str, histories))}")
        if self.forked:
            self.confirmed.clear()
            self.ends = [0]
        for broker in brokers:
            watched, end = Watched(), broker.store.max_offset()
            self.same_bytes(watched, broker, end)
            if watched.checked_end != end:
                raise Violation(
                    "C6", f"{broker.name} ends at {end}, its records end at {watched.checked_end}"
                )
