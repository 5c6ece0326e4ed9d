"""Changes a simulated group's members at random moments. Servers are added as learners, vote once they have caught up, and are
removed.

Invariant: a disk is wiped only after its member's removal is committed. A removed member runs until the world is healed, as if
an operator had forgotten it."""

from __future__ import annotations

import random
from collections import Counter
from typing import Protocol

from dledger.node.node import DLedgerNode
from dledger.raft.actions import Role
from dledger.raft.errors import ChangeRefused, NotLeader, OutcomeUnknown
from dledger.raft.membership import Change, Members, Step
from simulation.kernel.node import Node
from simulation.kernel.world import World
from simulation.raft.group import RaftGroup
from simulation.raft.member import PORT

MEMBERS_MAX = 6
LATER_MS = (40, 400, 1_500)
SETTLE_EVERY_MS = 250


class ChangesWorld(Protocol):
    """What a world must offer so that its members can be changed."""

    world: World
    group: RaftGroup
    nodes: list[Node]
    wiped: set[str]

    @property
    def counts(self) -> Counter[str]: ...

    def crash(self, node: Node, *, power_cut: bool, away_ms: int | None = None) -> None: ...

    def isolate(self, node: Node, *, both: bool = True) -> None: ...

    def votes(self, node: Node) -> bool: ...

    def exchange_disk(self, node: Node) -> None: ...


class Changes:
    """The changes in the world of one seed, if the seed `plays` them."""

    def __init__(self, raft: ChangesWorld, seed: int, *, plays: bool) -> None:
        self.raft = raft
        self.random = random.Random(f"{seed}/members")
        self.plays = plays
        self.lists: dict[str, dict[str, str]] = {}
        """For each member that was added later: the list with which it is started."""
        self.removed: set[str] = set()
        """Members whose removal is committed, or that were never added."""
        self.next_ms = 1_500.0
        self.making: list[DLedgerNode] = []
        """Leaders that were asked for a change and have not reported the end of the change."""
        raft.group.check.members.begun_with = frozenset(raft.group.peers)
        raft.group.check.looks_at_members = self.plays

    def leader(self) -> DLedgerNode | None:
        """A member that believes it leads, whether it may serve or not."""
        leads = [
            node
            for node in self.raft.group.members()
            if node.core is not None and node.core.role is Role.LEADER
        ]
        return self.random.choice(leads) if leads else None

    def turn(self) -> None:
        """Begin a change, perhaps."""
        if not self.plays or self.raft.world.now_ms < self.next_ms or self.someone_is_emptied():
            return
        self.next_ms = self.raft.world.now_ms + self.random.choice(LATER_MS)
        leader = self.leader()
        if leader is None or leader.core is None:
            return
        members = leader.core.membership.members
        change = self.promotion(members) or self.removal(members) or self.addition(members)
        if change is not None:
            self.begin(leader, change)
            if self.random.random() < 0.1:
                self.raft.isolate(self.raft.world.nodes[leader.self_id])
            elif self.random.random() < 0.1:
                self.raft.crash(self.raft.world.nodes[leader.self_id], power_cut=self.random.random() < 0.5)

    def someone_is_emptied(self) -> bool:
        """Whether a member is emptied. A change could then leave too few voters for ever, because the leader may not know of
        the emptied member yet."""
        return any(node.name in self.raft.wiped and not self.raft.votes(node) for node in self.raft.nodes)

    def may_empty(self, names: set[str]) -> bool:
        """Whether all members use one committed list, and `members` and the emptied members are a minority of it."""
        cores = self.raft.group.running_cores()
        lists = {core.membership.index for core in cores}
        committed = all(core.members_committed for core in cores)
        busy = any(leader in self.raft.group.members() for leader in self.making)
        if busy or len(cores) < len(self.raft.nodes) or len(lists) > 1 or not committed:
            return False
        voters = cores[0].membership.members.voters
        return names <= voters.keys() and 2 * len(names) < len(voters)

    def begin(self, leader: DLedgerNode, change: Change) -> None:
        self.making.append(leader)
        self.raft.world.nodes[leader.self_id].spawn(self.make(leader, change))

    def promotion(self, members: Members) -> Change | None:
        if not members.learners or self.random.random() < 0.3:
            return None
        return Change(Step.PROMOTE, self.random.choice(sorted(members.learners)))

    def removal(self, members: Members) -> Change | None:
        if len(members.addresses) < 3 or self.random.random() < 0.5:
            return None
        return Change(Step.REMOVE, self.random.choice(sorted(members.addresses)))

    def addition(self, members: Members) -> Change | None:
        if len(members.addresses) >= MEMBERS_MAX:
            return None
        gone = sorted(self.removed - members.addresses.keys())
        if gone and self.random.random() < 0.6:
            node = self.raft.world.nodes[self.random.choice(gone)]
            self.removed.discard(node.name)
            address = f"{node.host}:{PORT}"
            if self.random.random() < 0.7:  # else it keeps its last list
                self.raft.exchange_disk(node)
                self.lists[node.name] = self.committed_list() | {node.name: address}
        else:
            number = len(self.raft.nodes)
            node = self.raft.world.node(f"n{number}", f"10.0.0.{number + 1}")
            self.raft.nodes.append(node)
            address = f"{node.host}:{PORT}"
            self.lists[node.name] = self.committed_list() | {node.name: address}
        return Change(Step.ADD, node.name, address)

    def committed_list(self) -> dict[str, str]:
        """The newest committed list, as an operator finds it by asking all running members."""
        cores = [core for core in self.raft.group.running_cores() if core.members_committed]
        newest = max(cores, key=lambda core: core.membership.index, default=None)
        return dict(self.raft.group.peers) if newest is None else newest.membership.members.addresses

    async def make(self, leader: DLedgerNode, change: Change) -> None:
        counts = self.raft.counts
        try:
            await leader.change_members(change, 2_000)
        except (ChangeRefused, NotLeader):
            counts["changes refused"] += 1
            if change.step is Step.ADD:
                self.removed.add(change.member)
        except OutcomeUnknown:
            counts["changes unknown"] += 1
        else:
            counts[f"changes {change.step.value}"] += 1
            if change.step is Step.REMOVE:
                self.removed.add(change.member)
        self.making.remove(leader)

    # The end

    def settled(self) -> bool:
        """Arrange that only voters are left and nothing else runs. Returns whether that is so."""
        if not self.plays:
            return True
        active = self.raft.group.active()
        leader = self.raft.group.member(active[0]) if len(active) == 1 else None
        if leader is None or leader.core is None or not leader.core.members_committed:
            return False
        members = leader.core.membership.members
        for node in [node for node in self.raft.nodes if node.name not in members.addresses]:
            self.retire(node)
        if members.learners and self.raft.world.now_ms >= self.next_ms:
            self.next_ms = self.raft.world.now_ms + SETTLE_EVERY_MS
            learner = min(members.learners)
            runs = any(node.name == learner for node in self.raft.nodes)
            self.begin(leader, Change(Step.PROMOTE if runs else Step.REMOVE, learner))
        return not members.learners

    def retire(self, node: Node) -> None:
        node.kill(power_cut=False)
        self.raft.nodes.remove(node)
