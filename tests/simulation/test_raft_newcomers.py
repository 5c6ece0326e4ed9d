"""Members without stored state: first starts, emptied disks, and their right to vote."""

from __future__ import annotations

import random

import pytest

from dledger.raft.actions import Role
from dledger.raft.errors import NotLeader, OutcomeUnknown
from simulation.kernel.node import Node
from simulation.kernel.world import World
from simulation.raft.group import RaftGroup


def started(world: World, size: int = 3) -> tuple[RaftGroup, Node, list[Node]]:
    """The group, its leader and its followers."""
    group = RaftGroup(world, size)
    group.start_all()
    world.run_until(group.agreed, 5_000)
    (leader,) = group.active()
    return group, leader, [node for node in group.nodes if node is not leader]


def propose(group: RaftGroup, node: Node, body: bytes) -> bool:
    """Whether the body was committed within two seconds."""
    member = group.member(node)
    assert member is not None
    outcome: list[bool] = []

    async def run() -> None:
        try:
            await member.propose([body], 2_000)
            outcome.append(True)
        except (NotLeader, OutcomeUnknown):
            outcome.append(False)

    node.spawn(run())
    group.world.run_until(lambda: bool(outcome), 3_000)
    return outcome[0]


def votes(group: RaftGroup, node: Node) -> bool:
    member = group.member(node)
    return member is not None and member.core is not None and not member.core.rejoin.newcomer


def test_an_emptied_member_elects_no_leader_without_the_entries_it_acknowledged() -> None:
    with World(1) as world:
        group, leader, (returns_empty, cut_off) = started(world)
        for other in (leader, returns_empty):
            world.network.cut(cut_off.host, other.host)
        assert propose(group, leader, b"X")
        leader.kill()
        group.empty(returns_empty)
        group.start(returns_empty)
        world.network.heal()
        for _ in range(100):
            world.run_for_ms(100)
            assert not group.active()
        assert not votes(group, returns_empty)
        group.start(leader)
        world.run_until(group.agreed, 8_000)
        assert b"X" in {entry.body for entry in group.check.committed_log}
        world.run_until(lambda: votes(group, returns_empty), 2_000)


def test_an_emptied_member_counts_again_after_it_caught_up_with_its_leader() -> None:
    with World(2) as world:
        group, leader, (emptied, other) = started(world)
        assert all([propose(group, leader, b"%d" % number) for number in range(20)])
        group.empty(emptied)
        group.start(emptied)
        world.run_until(lambda: votes(group, emptied), 3_000)
        assert group.active() == [leader]
        other.kill()
        assert propose(group, leader, b"by the two")
        leader.kill()
        group.start(other)
        world.run_until(lambda: bool(group.active()), 5_000)
        assert propose(group, group.active()[0], b"by the other two")


def test_acknowledgements_of_an_emptied_member_do_not_count() -> None:
    with World(3) as world:
        group, leader, (emptied, other) = started(world)
        group.empty(emptied)
        other.kill()
        group.start(emptied)
        assert not propose(group, leader, b"not decided")
        world.run_for_ms(3_000)
        assert not group.active() and not votes(group, emptied)
        group.start(other)
        world.run_until(lambda: group.agreed() and votes(group, emptied), 8_000)


def test_an_emptied_majority_forms_no_new_group_next_to_a_survivor() -> None:
    with World(4) as world:
        group, leader, emptied = started(world)
        assert propose(group, leader, b"X")
        leader.kill()
        for node in emptied:
            group.empty(node)
            group.start(node)
        world.run_for_ms(5_000)
        assert not group.active(), "the third may hold entries that they lost"
        group.start(leader)
        world.run_for_ms(10_000)
        assert not group.active()


def test_an_emptied_group_of_one_starts_over() -> None:
    with World(5) as world:
        group = RaftGroup(world, 1)
        group.start_all()
        world.run_until(lambda: bool(group.active()), 100)
        group.empty(group.nodes[0])
        group.check.committed_log.clear()
        group.check.leaders.clear()
        group.check.votes.clear()
        group.check.applied.clear()
        group.start_all()
        world.run_until(lambda: bool(group.active()), 100)


@pytest.mark.parametrize("seed", range(1, 41))
def test_a_first_start_needs_no_operator_after_any_kills(seed: int) -> None:
    with World(seed) as world:
        draw = random.Random(f"{seed}/first start")
        group = RaftGroup(world, draw.choice((1, 2, 3, 3, 5)))
        nodes = draw.sample(group.nodes, len(group.nodes))
        for node in nodes:
            group.start(node)
            world.run_for_ms(draw.choice((0, 1, 30, 200, 900)))
        for _ in range(draw.randint(3, 30)):
            node = draw.choice(nodes)
            if node.running:
                node.kill(power_cut=draw.random() < 0.5)
            else:
                group.start(node)
            world.run_for_ms(draw.choice((0, 1, 5, 20, 200, 700)))
        for node in nodes:
            if not node.running:
                group.start(node)
        world.run_until(lambda: bool(group.active()), 8_000)
        assert propose(group, group.active()[0], b"first")
        world.run_until(group.agreed, 3_000)
        world.run_until(lambda: all(votes(group, node) for node in nodes), 3_000)


def test_two_of_three_members_form_no_group_until_the_third_starts() -> None:
    with World(6) as world:
        group = RaftGroup(world, 3)
        for node in group.nodes[:2]:
            group.start(node)
        world.run_for_ms(5_000)
        assert not group.active(), "the third may hold entries that the two lost"
        group.start(group.nodes[2])
        world.run_until(group.agreed, 4_000)
        assert [core.role for core in group.running_cores()].count(Role.LEADER) == 1
