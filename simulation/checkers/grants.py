"""Checks that each acting master was elected, and acknowledges only data that no later master is missing.

Invariant M4: a broker that is neither in the set nor eligible is elected only if unclean elections are switched on. A broker
that lost memory is elected only if no better broker lives or an operator requests it. M2: a broker acts as master of epoch e
only if an applied election gave it e. Two brokers may believe to be master at once. If a broker that the older master counts
has already accepted a newer epoch, the older master may still acknowledge data in two cases. In the first, the data lies in
that broker's log below the newer epoch's first byte, so the newer master has the data too. In the second, the older master was
itself elected for the newer epoch and does not know it yet. It still counts every electable broker then, because only another
master could have added members to the set, and none has led in between."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from broker.role.membership import ReplicaRole
from controller.statemachine import ReplicasStateMachine
from simulation.cluster.looks import BrokerLook, sync_state
from simulation.kernel.violation import Violation

Apply = Callable[[ReplicasStateMachine, int, bytes], None]
apply = ReplicasStateMachine.apply


@dataclass
class Grants:
    """The elected masters, and how far each has acknowledged."""

    master_of: dict[int, int] = field(default_factory=dict)
    """Epoch -> broker id."""
    acked: dict[tuple[int, int], int] = field(default_factory=dict)
    """(epoch, broker id) -> the end of the records that may be acknowledged."""
    unclean_allowed: bool = False
    unclean: set[int] = field(default_factory=set)
    """Epochs of masters that were neither in the set nor eligible, or that were missing acknowledged data."""
    elected_incomplete: set[int] = field(default_factory=set)
    """Epochs of masters that were missing acknowledged data, or that were ineligible and may have lost memory."""
    is_incomplete: Callable[[int, frozenset[int]], bool] = lambda broker_id, electable: False
    """Whether the broker lost memory and is elected because no other of these brokers is intact, or because an operator
    requests it."""
    may_have_lost_memory: Callable[[int], bool] = lambda broker_id: False
    acks_wait: bool = True
    """Whether a send waits until the other members have the message."""
    were_in: set[int] = field(default_factory=set)
    """Broker ids that were ever in an applied SyncStateSet, however briefly."""
    accepted: dict[int, dict[int, int]] = field(default_factory=dict)
    """Broker id -> newer epoch that it accepted -> the end of its log at that moment."""
    led: set[int] = field(default_factory=set)
    """Epochs that began. An elected broker may die before it leads."""

    def noting(self) -> Apply:
        """Make ReplicasStateMachine.apply note here the master and the members after each event."""

        def applied(machine: ReplicasStateMachine, index: int, body: bytes) -> None:
            before = sync_state(machine.state)
            epoch, electable = (
                (before.master_epoch, before.members | before.eligible) if before else (0, frozenset())
            )
            apply(machine, index, body)
            state = sync_state(machine.state)
            if state is not None:
                self.were_in |= state.members
            if state is not None and state.master_id is not None:
                if 0 < epoch < state.master_epoch and state.master_id not in electable:
                    self.elected_from_outside(state.master_epoch, state.master_id, electable)
                elif (
                    epoch > 0
                    and state.master_epoch not in self.master_of
                    and self.unclean_allowed
                    and self.is_incomplete(state.master_id, electable)
                ):
                    self.unclean.add(state.master_epoch)
                    self.elected_incomplete.add(state.master_epoch)
                self.granted(state.master_epoch, state.master_id)

        return applied

    def elected_from_outside(self, epoch: int, broker_id: int, electable: frozenset[int]) -> None:
        if not self.unclean_allowed:
            raise Violation(
                "M4", f"epoch {epoch} was given to {broker_id}, expected one of {sorted(electable)}"
            )
        self.unclean.add(epoch)
        if self.may_have_lost_memory(broker_id):
            self.elected_incomplete.add(epoch)

    def granted(self, epoch: int, broker_id: int) -> None:
        """Note an applied election. Rule M1: each epoch has only one election."""
        if self.master_of.setdefault(epoch, broker_id) != broker_id:
            raise Violation("M1", f"epoch {epoch} was given to {self.master_of[epoch]} and to {broker_id}")

    def look(self, brokers: Iterable[BrokerLook]) -> None:
        """Raises Violation."""
        by_id = {broker.broker_id: broker for broker in brokers if broker.broker_id is not None}
        for broker_id, broker in by_id.items():
            self.accepted.setdefault(broker_id, {}).setdefault(broker.epoch, broker.store.max_offset())
            self.led.update(entry.epoch for entry in broker.history.entries)
        for broker_id, broker in by_id.items():
            epoch = broker.master_epoch
            if broker.role is ReplicaRole.MASTER and self.master_of.get(epoch) != broker_id:
                raise Violation(
                    "M2", f"broker {broker_id} acts as master of epoch {epoch}, which no election gave it"
                )
            if broker.counted and self.acks_wait and not self.unclean:
                self.look_at_acks(broker_id, broker, by_id)

    def look_at_acks(self, broker_id: int, master: BrokerLook, by_id: dict[int, BrokerLook]) -> None:
        """Check that each broker that this master counts keeps the records that may be acknowledged since the last look."""
        epoch, end = master.epoch, master.acked_end
        if end <= self.acked.get((epoch, broker_id), 0):
            return
        self.acked[epoch, broker_id] = end
        for member in sorted(master.counted - {broker_id}):
            broker = by_id.get(member)
            if (
                broker is not None
                and broker.epoch > epoch
                and not self.its_own(epoch, broker.epoch, broker_id)
                and (held := self.held_under(member, broker, epoch)) < end
            ):
                raise Violation(
                    "M2",
                    f"master {broker_id} of epoch {epoch} may answer what ends at {end}; it counts broker {member},  "
                    f"which is in epoch {broker.epoch} and holds of epochs up to {epoch} only {held}",
                )

    def its_own(self, epoch: int, newer: int, broker_id: int) -> bool:
        """Whether this master of `epoch` was also elected in `newer`, and no other broker has led an epoch in between."""
        between = {self.master_of.get(at) for at in self.led if epoch < at < newer}
        return self.master_of.get(newer) == broker_id and between <= {broker_id}

    def held_under(self, broker_id: int, broker: BrokerLook, epoch: int) -> int:
        """The end of the records of `epoch` and earlier epochs that this broker holds, and held when it accepted a newer
        epoch."""
        starts = (entry.start_offset for entry in broker.history.entries if entry.epoch > epoch)
        ends = (end for newer, end in self.accepted[broker_id].items() if newer > epoch)
        return min([*starts, *ends])
