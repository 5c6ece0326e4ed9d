"""Faults of a pair, drawn from the seed, and the operator who promotes a slave when a master has lost its memory.

Invariant: one machine at a time loses its memory, and no other machine does before the pair is whole again. So some machine
always holds every message that a SYNC_MASTER answered OK. A killed process comes back by itself."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

from broker.app import BrokerApp
from simulation.kernel.node import Node
from simulation.kernel.world import World

BACK_MS = (500, 3_000, 8_000)
NEVER_MS = 1 << 62
OPERATOR_MS = (10, 5_000, 15_000)


class PairFaults:
    """Causes the faults. `ids` are the broker ids with which nodes start. `held_end()` is the end that slaves have held.
    `start` starts a node."""

    def __init__(
        self,
        world: World,
        nodes: list[Node],
        *,
        loses_masters: bool,
        held_end: Callable[[], int],
        whole: Callable[[], bool],
    ) -> None:
        self.world = world
        self.nodes = nodes
        self.ids = {node.name: number for number, node in enumerate(nodes)}
        self.done: Counter[str] = Counter()
        self.restart_at_ms: dict[str, int] = {}
        self.operator_at_ms: int | None = None  # set after a master's memory was lost
        self._random = random.Random(f"{world.seed}/pairfaults")
        self._loses_masters = loses_masters
        self._held_end = held_end
        self._whole = whole
        self._memory_lost = False  # whether memory was lost since the pair was whole

    @property
    def master(self) -> Node:
        return next(node for node in self.nodes if self.ids[node.name] == 0)

    @property
    def slaves(self) -> list[Node]:
        return [node for node in self.nodes if self.ids[node.name]]

    def strike(self) -> None:
        """Cause one fault, or none if it is impossible now."""
        if self._memory_lost and self.operator_at_ms is None and self._whole():
            self._memory_lost = False
        kinds = {
            "kill": self._kill, "stop": self._stop, "pause": self._pause, "cut": self._cut,
            "one-way cut": self._cut_one_way, "reset": self._reset, "half-open": self._half_open,
            "slow way": self._delay, "emptied slave": self._empty_slave,
            "power cut of a slave": self._slave_power_cut, "power cut of the master": self._master_power_cut,
        }  # fmt: skip
        name = self._random.choice(list(kinds))
        if kinds[name]():
            self.done[name] += 1

    def _one(self) -> Node:
        return self._random.choice(self.nodes)

    def _two(self) -> tuple[str, str]:
        one, other = self._random.sample(self.nodes, 2)
        return one.host, other.host

    def _kill(self) -> bool:
        return self.end(self._one())

    def end(self, node: Node, *, power_cut: bool = False) -> bool:
        if not node.running:
            return False
        node.kill(power_cut=power_cut)
        self.restart_at_ms[node.name] = self.world.now_ms + self._random.choice(BACK_MS)
        return True

    def end_master(self, master: Node, *, spares_memory: float = 0.5) -> bool:
        """End the master. It may lose memory; `spares_memory` is the chance that it loses nothing."""
        return self._random.random() < 1 - spares_memory and self._master_power_cut() or self.end(master)

    def _stop(self) -> bool:
        node = self._one()
        if not node.running or node.app is None:
            return False
        node.leave()
        self.restart_at_ms[node.name] = self.world.now_ms + 4_000
        return True

    def _pause(self) -> bool:
        node = self._one()
        if node.running:
            node.pause(self._random.choice((300, 3_000, 12_000)))
        return node.running

    def _cut(self) -> bool:
        self.world.network.cut(*self._two())
        return True

    def _cut_one_way(self) -> bool:
        self.world.network.cut(*self._two(), both=False)
        return True

    def _reset(self) -> bool:
        self.world.network.reset(*self._two())
        return True

    def _half_open(self) -> bool:
        self.world.network.half_open(*self._two())
        return True

    def _delay(self) -> bool:
        self.world.network.delay(*self._two(), 20, self._random.choice((40, 400)))
        return True

    # -- faults that lose memory or disk

    def _may_lose(self) -> bool:
        return not self._memory_lost and self._whole()

    def _empty_slave(self) -> bool:
        slave = self._random.choice(self.slaves)
        if not self._may_lose():
            return False
        self._memory_lost = True
        self.end(slave)
        slave.disk.wipe()
        return True

    def empty(self, slave: Node) -> bool:
        """The operator empties a slave that was left behind, but not while waiting for another slave to take the master's
        place."""
        if self.operator_at_ms is not None:
            return False
        self._memory_lost = True
        self.end(slave)
        slave.disk.wipe()
        return True

    def _slave_power_cut(self) -> bool:
        if not self._may_lose():
            return False
        self._memory_lost = True
        return self.end(self._random.choice(self.slaves), power_cut=True)

    def may_lose_master(self) -> bool:
        """Whether the master may be lost, because some slave has the log from its beginning on and could take the master's
        place."""
        return self._loses_masters and self._may_lose() and self._successor() is not None

    def _master_power_cut(self) -> bool:
        if not self.may_lose_master():
            return False
        self._memory_lost = True
        self.operator_at_ms = self.world.now_ms + self._random.choice(OPERATOR_MS)
        ended = self.end(self.master, power_cut=True)
        if len(self.slaves) > 1:  # one slave might lead with less than the other holds
            self.restart_at_ms[self.master.name] = NEVER_MS
        return ended

    def master_goes_on(self) -> bool:
        """The master loses unsynced data and keeps leading. The operator empties its slaves, because their logs differ now."""
        if not self._may_lose():
            return False
        self._memory_lost = True
        for node in self.nodes:
            self.end(node, power_cut=True)
        for slave in self.slaves:
            slave.disk.wipe()
        return True

    def _successor(self) -> Node | None:
        """The slave with the longest log, once all slaves run. None if that log does not go back to the beginning."""
        logs = [
            (node.app.store.max_offset(), node.app.store.min_offset(), node)
            for node in self.slaves
            if isinstance(node.app, BrokerApp) and node.app.membership.is_slave
        ]
        if len(logs) < len(self.slaves):
            return None
        end, begins, node = max(logs, key=lambda log: log[0])
        return node if begins == 0 and end >= self._held_end() else None

    # -- restarts

    def due(self) -> list[Node]:
        """The nodes to start now. After the operator has acted, these are all nodes, with their new roles."""
        if self.operator_at_ms is not None and self.world.now_ms >= self.operator_at_ms:
            self._operator_acts()
        now_ms = self.world.now_ms
        due = [
            node for node in self.nodes if not node.serving and self.restart_at_ms.get(node.name, 0) <= now_ms
        ]
        return due

    def _operator_acts(self) -> None:
        """A slave becomes the master, and the master that lost its memory becomes a slave without a log."""
        successor = self._successor()
        if successor is None:
            return  # it is down; act later, when it is back
        self.operator_at_ms = None
        former = self.master
        for node in self.nodes:
            if node.running:
                node.kill()
            self.restart_at_ms[node.name] = 0
        self.ids[former.name], self.ids[successor.name] = self.ids[successor.name], 0
        former.disk.wipe()
        self.done["slave in the master's place"] += 1

    def heal(self) -> None:
        """End all faults. The operator does the remaining work."""
        self.world.network.heal()
        self.world.network.usual_delays()
        self.restart_at_ms = {name: at for name, at in self.restart_at_ms.items() if at == NEVER_MS}
        if self.operator_at_ms is not None:
            self.operator_at_ms = self.world.now_ms
