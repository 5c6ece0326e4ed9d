"""Faults in an order that seeds seldom meet: each scenario finds a planted bug."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from dledger.raft.messages import MessageCode, PushRequest, Request, Response
from simulation.kernel.world import NotReached, World
from simulation.mutants.raft import planted
from simulation.raft.group import SETTINGS, RaftGroup
from tests.simulation.raftscene import leader_of, others, proposing, started


def a_follower_hangs_under_load() -> None:
    """A follower's disk hangs while it answers heartbeats. Its leader's cost is bounded, and the others commit."""
    with World(42) as world:
        settings = replace(SETTINGS, push_bytes_max=4_000, bytes_in_flight_max=8_000, recent_bytes_max=0)
        group = RaftGroup(world, 3, settings=settings)
        group.start_all()
        world.run_until(group.agreed, 5_000)
        node, member = leader_of(group)
        hung = others(group, node)[0]
        on_their_way, most = dict[int, int](), [0]
        answer_of = member._transport.answer_of

        async def answering(to: str, code: MessageCode, request: Request) -> Response | None:
            if to == hung.name and isinstance(request, PushRequest):
                on_their_way[id(request)] = sum(len(entry.body) for entry in request.entries)
                most.append(max(most.pop(), sum(on_their_way.values())))
            try:
                return await answer_of(to, code, request)
            finally:
                on_their_way.pop(id(request), None)

        member._transport.answer_of = answering  # type: ignore[method-assign]
        hung.disk.stall(12_000)
        for number in range(100):
            outcome = proposing(node, member, b"%04d" % number + b"x" * 900)
            world.run_until(lambda outcome=outcome: bool(outcome), 100)  # type: ignore[misc]
            assert isinstance(outcome[0], list)
            world.run_for_ms(100)
        assert 4_000 < most[0] <= settings.bytes_in_flight_max
        world.run_until(group.agreed, 10_000)


def a_push_is_repeated_while_disks_hang() -> None:
    with World(20) as world:
        group = started(world)
        node, member = leader_of(group)
        for other in others(group, node):
            other.disk.stall(2_000)
        outcome = proposing(node, member, b"x")
        world.run_for_ms(20)
        for other in others(group, node):
            world.network.reset(node.host, other.host)
        world.run_for_ms(1_000)
        assert outcome == [], "no other disk holds it"
        world.run_until(lambda: bool(outcome), 2_000)
        assert outcome == [[1]]


def leaders_on_slow_disks_lose_power() -> None:
    with World(21) as world:
        settings = replace(SETTINGS, checkpoint_interval_ms=200)
        group = RaftGroup(world, 3, settings=settings)
        group.start_all()
        for round_ in range(12):
            world.run_until(group.agreed, 10_000)
            node, member = leader_of(group)
            node.disk.slow_down(150, 150)
            for number in range(60 + 7 * round_):
                if not member.is_active:
                    break
                proposing(node, member, b"%d of %d" % (number, round_))
                world.run_for_ms(20)
            node.kill(power_cut=True)
            node.disk.slow_down(0.2, 2)
            group.start(node)
            world.run_for_ms(100)
            assert node.running, node.failure


def a_leader_lives_on_when_all_its_connections_break() -> None:
    with World(16) as world:
        group = started(world)
        node, member = leader_of(group)
        before = (member.role, member.term)
        for _ in range(5):
            for other in others(group, node):
                world.network.reset(node.host, other.host)
            world.run_for_ms(700)
        assert (member.role, member.term) == before
        assert {each.leader_id for each in group.members()} == {node.name}


def a_follower_is_restarted_in_a_quiet_group() -> None:
    with World(23) as world:
        group = started(world)
        away = others(group, leader_of(group)[0])[0]
        away.kill()
        group.start(away)
        world.run_until(group.agreed, 2_000)


def a_follower_dies_of_its_first_answer_in_a_new_term() -> None:
    with World(22) as world:
        group = started(world)
        node, member = leader_of(group)
        away, former = others(group, node)[0], member.term
        for other in (node, others(group, node)[1]):
            world.network.cut(away.host, other.host)
        node.kill()
        group.start(node)
        world.run_until(lambda: any(each.is_active and each.term > former for each in group.members()), 8_000)
        away.disk.stall(2_000)
        group.check.on_vote = lambda voter: away.kill() if voter == away.name else None
        world.network.heal()
        world.run_until(lambda: not away.running, 8_000)
        group.check.on_vote = lambda voter: None
        group.start(away)
        world.run_until(group.agreed, 8_000)


@pytest.mark.parametrize(
    ("bug", "scenario"),
    [
        ("bodies-again-unanswered", a_follower_hangs_under_load),
        ("push-answered-before-entries", a_push_is_repeated_while_disks_hang),
        ("heartbeat-answered-before-vote", a_follower_dies_of_its_first_answer_in_a_new_term),
        ("checkpoint-ahead-of-disk", leaders_on_slow_disks_lose_power),
        ("ended-connection-is-a-dead-leader", a_leader_lives_on_when_all_its_connections_break),
        ("restarted-unreported", a_follower_is_restarted_in_a_quiet_group),
    ],
)
def test_a_bug_that_seeds_seldom_find_is_found_by_its_scenario(
    bug: str, scenario: Callable[[], None]
) -> None:
    scenario()
    with planted(bug), pytest.raises((AssertionError, NotReached)):
        scenario()
