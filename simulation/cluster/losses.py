"""A member of the SyncStateSet whose store is lost while every broker is down; it comes back first, and alone.

Invariant: never the last one: when the store is lost no controller takes its broker for alive, so that it cannot be elected
before it comes back, and the set has another member, whose disk is whole. Until the set goes on without the lost broker's id
nothing else may be lost."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from broker.role.identity import IDENTITY_FILE
from messagestore.checkpoint import FILE, CheckpointDamaged, decode_checkpoint
from messagestore.log.commitlog import FOLDER
from simulation.cluster.looks import controller_on
from simulation.kernel.node import Node
from simulation.kernel.world import World

EMPTIED = "emptied member"
WITHOUT_LOG = "member without its log"
UNNOTICED_MS = 20_000
"""By then every controller has noticed that the brokers are dead, or it is cut off from them."""
ALONE_MS = (3_000, 9_000)


@dataclass(frozen=True)
class Loss:
    """What is to happen to the store of `broker_id`, which runs on `node`."""

    kind: str
    node: Node
    broker_id: int
    struck_ms: int


class MemberLosses:
    """`done` and `restart_at_ms` (node name -> when it comes back) are those of all faults."""

    def __init__(
        self,
        world: World,
        chance: random.Random,
        controllers: list[Node],
        brokers: list[Node],
        done: Counter[str],
        restart_at_ms: dict[str, int],
        on_refusal_due: Callable[[Node, str], None],
    ) -> None:
        """`on_refusal_due` hears of a node that must not start with what is left, and which folder is gone."""
        self.world = world
        self.random = chance
        self.controllers = controllers
        self.brokers = brokers
        self.done = done
        self.restart_at_ms = restart_at_ms
        self.on_refusal_due = on_refusal_due
        self.planned: Loss | None = None
        self.lost_ids: set[int] = set()

    def plan(self, kind: str, node: Node, broker_id: int) -> None:
        """All brokers have just been killed."""
        self.planned = Loss(kind, node, broker_id, self.world.now_ms)

    def holds_back(self, node: Node) -> bool:
        """Whether this broker stays down until the loss has happened."""
        return self.planned is not None and node in self.brokers

    def next_step(self) -> None:
        """The loss happens as soon as it may; if that takes too long, never."""
        loss = self.planned
        if loss is None:
            return
        if self.may_happen(loss):
            self.perform(loss)
        elif self.world.now_ms - loss.struck_ms > UNNOTICED_MS:
            self.planned = None

    def may_happen(self, loss: Loss) -> bool:
        running = [look for node in self.controllers if (look := controller_on(node)) is not None]
        leading = [look for look in running if look.raft.is_active]
        leader = max(leading, key=lambda look: look.raft.term, default=None)
        state = leader.state if leader is not None else None
        if state is None or any(look.takes_for_alive(loss.broker_id) for look in running):
            return False
        return loss.broker_id in state.members and len(state.members) > 1

    def perform(self, loss: Loss) -> None:
        self.planned = None
        disk = loss.node.disk
        if loss.kind == EMPTIED:
            for path in sorted(disk.entries):
                if path != IDENTITY_FILE:
                    disk.wipe(path)
        elif vouched(loss.node):
            disk.wipe(f"{FOLDER}/")
            self.on_refusal_due(loss.node, FOLDER)
        else:
            return
        self.lost_ids.add(loss.broker_id)
        self.done[loss.kind] += 1
        for node in self.brokers:
            alone_ms = 0 if node is loss.node else self.random.randint(*ALONE_MS)
            self.restart_at_ms[node.name] = self.world.now_ms + alone_ms


def vouched(node: Node) -> bool:
    """Whether the checkpoint says that something was confirmed."""
    try:
        return decode_checkpoint(node.disk.content(FILE)).confirm_phy_offset > 0
    except CheckpointDamaged:
        return False
