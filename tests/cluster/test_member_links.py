"""Connections between members: one from each other member, also after silent connection losses."""

from __future__ import annotations

import asyncio
import logging

import pytest

from dledger.node.messagejson import Envelope, encode_request
from dledger.raft.messages import HeartBeatRequest, MessageCode
from raftstore import member
from remoting.client import RemotingClient
from remoting.command import RemotingCommand
from simulation.kernel.node import Node, SimulatedClock
from simulation.kernel.world import World
from tests.cluster.groupset import MEMBERS, GroupSet, small_ledger

RAFT_PORT = 40911


@pytest.fixture(autouse=True)
def small_ledgers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member, "ledger_settings", small_ledger)


def links(world: World, node: Node, other: Node) -> list[int | None]:
    """For each connection that `node` has from `other`: since when it is lost, in us; None if it is
    intact."""
    assert node.process is not None
    return [
        each.lost_us
        for each in world.network.open_of(node.process)
        if each.host == other.host and each.port == RAFT_PORT
    ]


def test_a_new_connection_of_a_member_closes_its_lost_one() -> None:
    with World(5) as world:
        group = GroupSet(world)
        group.start_up()
        leader = group.master
        follower = next(node for node in group.brokers if node is not leader)
        term = group.app(leader).store._member.term
        for _ in range(3):
            world.network.half_open(leader.host, follower.host)
            assert None not in links(world, follower, leader)
            world.run_for_ms(4_000)
            assert links(world, follower, leader) == [None]
        assert group.master is leader and group.app(leader).store._member.term == term


def test_repeated_power_losses_leave_at_most_two_connections() -> None:
    with World(6) as world:
        group = GroupSet(world)
        group.start_up()
        for _ in range(3):
            leader = group.master
            leader.kill(power_cut=True)
            world.run_for_ms(4_000)
            group.start(leader)
            world.run_for_ms(4_000)
            group.wait_for_master()
        world.run_for_ms(5_000)
        for node in group.brokers:
            for other in group.brokers:
                assert node is other or len(links(world, node, other)) <= 2


def test_two_processes_of_one_member_do_not_close_each_others_connections(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An old process keeps running, and a new one starts on the same host."""
    with World(7) as world, caplog.at_level(logging.INFO, "remoting"):
        group = GroupSet(world)
        group.start_up()
        leader = group.master
        follower = next(node for node in group.brokers if node is not leader)
        here, there = (f"n{group.brokers.index(node)}" for node in (leader, follower))
        old_one = world.node("old process", leader.host)
        heartbeat = encode_request(Envelope("broker-a", here, there), HeartBeatRequest(0))
        answers: list[object] = []

        async def speak() -> None:
            client = RemotingClient(clock=SimulatedClock(old_one))
            while True:
                command = RemotingCommand.request(MessageCode.HEART_BEAT, body=heartbeat)
                answers.append((await client.call(MEMBERS[there], command)).code)
                await asyncio.sleep(0.02)

        caplog.clear()
        old_one.spawn(speak())
        world.run_for_ms(3_000)
        assert len(answers) > 100
        assert links(world, follower, leader) == [None, None]
        assert "connection cut" not in caplog.text
        old_one.kill()
        world.run_for_ms(3_000)
        assert links(world, follower, leader) == [None]
        assert group.master is leader
