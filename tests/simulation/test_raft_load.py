"""Waiting in a loaded group: remote members, concurrent reads, limits."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest

from dledger.raft.errors import TooManyProposals
from simulation.kernel.world import World
from simulation.raft.group import SETTINGS, RaftGroup
from tests.simulation.raftscene import commit, leader_of, others, proposing, started


def committed_after_ms(way_ms: int, every_ms: int, **settings: int) -> float:
    """The average commit time of 100 consecutive entries, with this delay between members."""
    with World(77) as world:
        group = RaftGroup(world, 3, settings=replace(SETTINGS, **settings))  # type: ignore[arg-type]
        group.start_all()
        world.run_until(group.agreed, 8_000)
        node, member = leader_of(group)
        for one, other in permutations(group.nodes, 2):
            world.network.delay(one.host, other.host, way_ms, way_ms)
        took: list[int] = []

        async def propose(number: int) -> None:
            since_ms = world.now_ms
            await member.propose([b"%d" % number])
            took.append(world.now_ms - since_ms)

        for number in range(100):
            node.spawn(propose(number))
            world.run_for_ms(every_ms)
        world.run_until(lambda: len(took) == 100, 1_000)
        return sum(took) / len(took)


def test_entries_for_remote_members_are_sent_without_waiting_for_answers() -> None:
    assert committed_after_ms(40, 3) < 100 < 110 < committed_after_ms(40, 3, pushes_in_flight_max=1)


@pytest.mark.parametrize("reads", [33, 200])
def test_a_proposal_does_not_wait_for_concurrent_reads(reads: int) -> None:
    with World(13) as world:
        group = started(world)
        node, member = leader_of(group)
        served: list[int] = []

        async def read(number: int) -> None:
            await member.read_barrier()
            served.append(number)

        for number in range(reads):
            node.spawn(read(number))
        outcome = proposing(node, member, b"x")
        world.run_until(lambda: bool(outcome) and len(served) == reads, 50)
        assert outcome == [[1]] and served == sorted(served)


def test_pending_proposals_are_limited_by_bytes_too() -> None:
    with World(40) as world:
        group = RaftGroup(world, 3, settings=replace(SETTINGS, pending_bytes_max=5_000))
        group.start_all()
        world.run_until(group.agreed, 5_000)
        node, member = leader_of(group)
        for other in others(group, node):
            world.network.cut(node.host, other.host)
        large = [b"x" * 1_000]
        outcomes: list[list[Any]] = []
        for count in (3, 2, 1):
            outcomes.append(proposing(node, member, *(large * count)))
            world.run_for_ms(1)
        assert isinstance(outcomes[2][0], TooManyProposals) and outcomes[:2] == [[], []]
        world.network.heal()
        world.run_until(lambda: all(outcomes), 2_000)
        assert outcomes[:2] == [[[1, 2, 3]], [[4, 5]]]
        alone = proposing(node, member, *(large * 7))
        world.run_until(lambda: bool(alone), 1_000)
        assert len(alone[0]) == 7, "a proposal above the limit is accepted alone"


def test_entries_not_yet_on_the_leaders_disk_count_as_pending() -> None:
    with World(41) as world:
        group = RaftGroup(world, 3, settings=replace(SETTINGS, pending_bytes_max=20_000, recent_bytes_max=0))
        group.start_all()
        world.run_until(group.agreed, 5_000)
        node, member = leader_of(group)
        node.disk.stall(1_000)
        outcomes: list[list[Any]] = []
        for _ in range(40):
            outcomes.append(proposing(node, member, b"x" * 1_000))
            world.run_until(lambda: bool(outcomes[-1]), 100)
        refused = [isinstance(outcome[0], TooManyProposals) for outcome in outcomes]
        assert refused == sorted(refused) and 10 < refused.count(False) < 20
        world.run_for_ms(1_000)
        commit(group, 1)
