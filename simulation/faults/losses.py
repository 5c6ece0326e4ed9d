"""A member of the SyncStateSet loses its store while every broker is down. It comes back first, and alone.

Invariant: the last store is never lost. At the moment of the loss, no controller considers the broker alive, so the broker
cannot be elected before it comes back, and the set has another member with an intact disk. Nothing else may be lost until the
broker's old id has left the set."""

from __future__ import annotations

from dataclasses import dataclass

from broker.role.identity import IDENTITY_FILE
from simulation.checkers.damagedstores import LOG, vouched_end
from simulation.faults.fault import Fault, Moment
from simulation.kernel.node import Node

UNNOTICED_MS = 20_000
"""After this time every controller has noticed that the brokers are dead, or is cut off from them."""
ALONE_MS = (3_000, 9_000)


@dataclass(frozen=True)
class Loss:
    """A loss planned for the store of `broker_id`, which runs on `node`."""

    node: Node
    broker_id: int
    struck_ms: int


class LostMember(Fault):
    """The base of all losses. All brokers die at once, together with the leading controller, which might otherwise elect one of
    them."""

    planned: Loss | None = None

    def strike(self, now: Moment) -> bool:
        leader, members = now.leader, self.machines.check.members
        broker_id = self.machines.can_lose(now.broker)
        if broker_id is not None and broker_id in members:
            for victim in (leader, *self.machines.brokers):
                self.machines.kill(victim)
            self.planned = Loss(now.broker, broker_id, self.world.now_ms)
        return False

    def lose(self, node: Node) -> bool:
        """Lose the data. Returns whether there was something to lose."""
        raise NotImplementedError

    def holds_back(self, node: Node) -> bool:
        """Whether the broker must stay down, because the loss has not happened yet."""
        return self.planned is not None and node in self.machines.brokers

    def next_step(self) -> None:
        """Perform the loss as soon as it may happen, or cancel it if that takes too long."""
        loss = self.planned
        if loss is not None and self.may_happen(loss):
            self.planned = None
            if self.lose(loss.node):
                self.has_happened(loss)
        elif loss is not None and self.world.now_ms - loss.struck_ms > UNNOTICED_MS:
            self.planned = None

    def may_happen(self, loss: Loss) -> bool:
        running = self.machines.controller_looks()
        leading = [look for look in running if look.raft.is_active]
        leader = max(leading, key=lambda look: look.raft.term, default=None)
        state = leader.state if leader is not None else None
        if state is None or any(look.takes_for_alive(loss.broker_id) for look in running):
            return False
        return loss.broker_id in state.members and len(state.members) > 1

    def has_happened(self, loss: Loss) -> None:
        self.machines.lost_ids.add(loss.broker_id)
        self.count()
        for node in self.machines.brokers:
            alone_ms = 0 if node is loss.node else self.random.randint(*ALONE_MS)
            self.machines.restart_at_ms[node.name] = self.world.now_ms + alone_ms

    def heal(self) -> None:
        self.planned = None


class EmptiedMember(LostMember):
    """A member loses everything but its identity."""

    name = "emptied member"
    chance = 0.25

    def lose(self, node: Node) -> bool:
        for path in sorted(node.disk.entries):
            if path != IDENTITY_FILE:
                node.disk.wipe(path)
        return True


class MemberWithoutLog(LostMember):
    """A member loses its log. It must refuse to start with the rest of its store."""

    name = "member without its log"
    chance = 0.2

    def lose(self, node: Node) -> bool:
        if not vouched_end(node):
            return False
        node.disk.wipe(LOG)
        self.machines.damaged.where[node.name] = LOG
        return True
