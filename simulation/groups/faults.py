"""Faults of a Raft-mode set, drawn from the seed.

Invariant: a whole disk is lost only after its member was down for a while and all other members have caught up. No other disk
is lost before that member holds everything again. So a majority keeps all that was committed. A killed process comes back by
itself. A full disk ends no broker that serves."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence

from simulation.cluster.looks import serves
from simulation.faults.fulldisks import wants_room
from simulation.kernel.node import Node
from simulation.kernel.violation import Violation
from simulation.kernel.world import World

BACK_MS = (100, 500, 2_000, 6_000)
WIPED_AFTER_MS = 4_000
CLOCK_JUMP_MS = 4_000
FULL_MS = (1_000, 4_000, 12_000)
FLEETING_MS = 8_000
OVERTAKEN_MS = 12_000
LEADS_MS = (0, 150)
"""How long a short-lived leader serves, which is less than its answers need to arrive."""


class GroupFaults:
    """Causes the faults. `leader()` is the node of the master. `caught_up(down)` says whether all nodes but `down` hold all
    that was committed. `depose(node)` makes the node transfer its leadership."""

    def __init__(
        self,
        world: World,
        nodes: Sequence[Node],
        *,
        leader: Callable[[], Node | None],
        caught_up: Callable[[Node | None], bool],
        depose: Callable[[Node], None],
        overtakes: bool = False,
    ) -> None:
        self.world = world
        self.nodes = list(nodes)
        self.done: Counter[str] = Counter()
        self.restart_at_ms: dict[str, int] = {}
        self.felt_full: set[str] = set()
        """Nodes whose disk was full since they were started."""
        self._served: dict[str, int] = {}
        """Node name -> the last process that was seen to serve."""
        self._random = random.Random(f"{world.seed}/groupfaults")
        self._leader = leader
        self._caught_up = caught_up
        self._depose = depose
        self._fleeting_until_ms = 0
        self._last_leader: Node | None = None
        self._leads_until_ms = 0
        self._to_wipe: tuple[Node, int] | None = None
        self._wiped: Node | None = None
        self._full_until_ms: dict[str, int] = {}
        kinds = {
            "kill": self._kill, "kill of the leader": self._kill_leader, "stop": self._stop,
            "power cut": self._power_cut, "all lose power": self._all_lose_power,
            "pause": self._pause, "pause of the leader": self._pause_leader,
            "cut": self._cut, "one-way cut": self._cut_one_way, "leader cut off": self._cut_leader_off,
            "leader deaf or dumb": self._cut_leader_one_way,
            "reset": self._reset, "half-open": self._half_open, "slow way": self._delay,
            "fleeting leaders": self._let_none_lead_for_long,
            "slow disk": self._slow_disk, "stalled disk": self._stall, "full disk": self._fill,
            "emptied member": self._empty, "clock jump": self._jump,
        }  # fmt: skip
        count = self._random.randint(6, len(kinds))
        self._kinds = {name: kinds[name] for name in sorted(self._random.sample(list(kinds), count))}
        if overtakes:
            self._kinds = {"overtaken follower": self._overtake}

    def strike(self) -> None:
        """Cause one fault, or none if it is impossible now."""
        name = self._random.choice(list(self._kinds))
        if self._kinds[name]():
            self.done[name] += 1

    def _one(self) -> Node:
        return self._random.choice(self.nodes)

    def _two(self) -> tuple[str, str]:
        one, other = self._random.sample(self.nodes, 2)
        return one.host, other.host

    # -- processes

    def _kill(self) -> bool:
        return self.end(self._one())

    def _kill_leader(self) -> bool:
        leader = self._leader()
        return leader is not None and self.end(leader)

    def end(self, node: Node, *, power_cut: bool = False) -> bool:
        if not node.running:
            return False
        node.kill(power_cut=power_cut)
        self.restart_at_ms[node.name] = self.world.now_ms + self._random.choice(BACK_MS)
        return True

    def _power_cut(self) -> bool:
        return self.end(self._one(), power_cut=True)

    def _all_lose_power(self) -> bool:
        """All running members lose power at once. Each comes back at a time of its own."""
        ended = [self.end(node, power_cut=True) for node in self.nodes]
        return any(ended)

    def _stop(self) -> bool:
        node = self._one() if self._random.random() < 0.5 else self._leader()
        if node is None or not node.running or node.app is None:
            return False
        node.leave()
        self.restart_at_ms[node.name] = self.world.now_ms + 4_000
        return True

    def _pause(self) -> bool:
        return self._pause_it(self._one())

    def _pause_leader(self) -> bool:
        leader = self._leader()
        return leader is not None and self._pause_it(leader)

    def _overtake(self) -> bool:
        """A follower is paused for longer than the log is kept. Then it gets messages from before and after the pause."""
        node = self._one()
        if node is self._leader() or not self._caught_up(None):
            return False
        node.disk.slow_down(0.2, self._random.choice((2, 4, 8)))
        node.pause(OVERTAKEN_MS)
        return True

    def _pause_it(self, node: Node) -> bool:
        if node.running:
            node.pause(self._random.choice((300, 1_500, 4_000, 12_000)))
        return node.running

    # -- the network

    def _cut(self) -> bool:
        self.world.network.cut(*self._two())
        return True

    def _cut_one_way(self) -> bool:
        self.world.network.cut(*self._two(), both=False)
        return True

    def _cut_leader_off(self) -> bool:
        """Cut the leader off from all other members, but not from clients and name servers."""
        leader = self._leader()
        for node in self.nodes if leader is not None else ():
            if node is not leader:
                self.world.network.cut(leader.host, node.host)  # type: ignore[union-attr]
        return leader is not None

    def _cut_leader_one_way(self) -> bool:
        leader = self._leader()
        if leader is None:
            return False
        receives_nothing = self._random.random() < 0.5
        for node in self.nodes:
            if node is not leader:
                way = (node.host, leader.host) if receives_nothing else (leader.host, node.host)
                self.world.network.cut(*way, both=False)
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

    def _let_none_lead_for_long(self) -> bool:
        """An operator transfers leadership again and again, without waiting until all members know the leader. One way of the
        network is slow."""
        self.world.network.delay(*self._two(), 150, 500)
        self._fleeting_until_ms = self.world.now_ms + FLEETING_MS
        return True

    def _look_at_leader(self, now_ms: int) -> None:
        if now_ms >= self._fleeting_until_ms:
            return
        leader = self._leader()
        if leader is not self._last_leader:
            self._last_leader, self._leads_until_ms = leader, now_ms + self._random.randint(*LEADS_MS)
        elif leader is not None and now_ms >= self._leads_until_ms:
            self._leads_until_ms = now_ms + 1_000
            self._depose(leader)

    # -- disks and clocks

    def _slow_disk(self) -> bool:
        """Slow down a disk, often that of the leader, so that others have entries that the leader is missing."""
        leader = self._leader()
        node = leader if leader is not None and self._random.random() < 0.5 else self._one()
        low, high = self._random.choice(((0.2, 2), (5, 40), (100, 500)))
        node.disk.slow_down(low, high)
        return True

    def _stall(self) -> bool:
        self._one().disk.stall(self._random.choice((200, 1_000, 4_000)))
        return True

    def _fill(self) -> bool:
        """Fill the leader's disk, another disk, or all disks."""
        leader = self._leader()
        lasts_ms, room_bytes = self._random.choice(FULL_MS), self._random.choice((0, 4_096, 20_000))
        for node in self._random.choice(([self._one()], [leader or self._one()], self.nodes)):
            node.disk.capacity_bytes = node.disk.used_bytes() + room_bytes
            self._full_until_ms[node.name] = self.world.now_ms + lasts_ms
            self.felt_full.add(node.name)
        return True

    def look_at_ends(self) -> None:
        """Raise Violation if a full disk ended a process that served."""
        for node in self.nodes:
            if serves(node):
                self._served[node.name] = node.incarnation
            elif wants_room(node.failure) and self._served.get(node.name) == node.incarnation:
                raise Violation("V2", f"{node.name} served, and ended on a full disk: {node.failure}")

    def _empty(self) -> bool:
        """The node's disk is lost after it has been down for a while."""
        node = self._one()
        if self._to_wipe is not None or self._wiped is not None or not self._caught_up(None):
            return False
        self.end(node)
        self._to_wipe = node, self.world.now_ms + WIPED_AFTER_MS
        self.restart_at_ms[node.name] = self.world.now_ms + WIPED_AFTER_MS + 100
        return True

    @property
    def may_lose_disk(self) -> bool:
        """Whether every disk has all that was committed, or will have."""
        return self._to_wipe is None and self._wiped is None and not self._full_until_ms

    def loses_disk(self, node: Node) -> None:
        """The node loses its disk. No other node may lose its disk before all hold everything again."""
        self._wiped = node

    def _jump(self) -> bool:
        self._one().skew_ms += self._random.randint(-CLOCK_JUMP_MS, CLOCK_JUMP_MS)
        return True

    # -- restarts

    def due(self) -> list[Node]:
        """The nodes to start now."""
        now_ms = self.world.now_ms
        self._look_at_disks(now_ms)
        self._look_at_leader(now_ms)
        return [
            node for node in self.nodes if not node.serving and self.restart_at_ms.get(node.name, 0) <= now_ms
        ]

    def _look_at_disks(self, now_ms: int) -> None:
        for node in self.nodes:
            if self._full_until_ms.get(node.name, now_ms + 1) <= now_ms:
                node.disk.capacity_bytes = None
                del self._full_until_ms[node.name]
        if self._wiped is not None and self._caught_up(None):
            self._wiped = None
        if self._to_wipe is not None and now_ms >= self._to_wipe[1]:
            (node, _), self._to_wipe = self._to_wipe, None
            if not node.running and self._caught_up(node):
                node.disk.wipe()
                self._wiped = node
                self.done["disk lost"] += 1

    def heal(self) -> None:
        """End all faults."""
        self.world.network.heal()
        self.world.network.usual_delays()
        self.restart_at_ms.clear()
        self._to_wipe = None
        self._full_until_ms.clear()
        self._fleeting_until_ms = 0
        for node in self.nodes:
            node.disk.capacity_bytes = None
            node.disk.slow_down(0.2, 2)
