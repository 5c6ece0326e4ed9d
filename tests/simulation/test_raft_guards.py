"""Messages that members refuse: forged terms, foreign addresses, different member lists."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

import pytest

from dledger.node.messagejson import Envelope, encode_request
from dledger.node.node import DLedgerNode
from dledger.raft.actions import Role
from dledger.raft.entries import NO_INDEX
from dledger.raft.errors import ChangeRefused, MembersChanged, RefusalReason
from dledger.raft.membership import Change, Step, peer_list
from dledger.raft.messages import (
    CODE_OF,
    TERM_MAX,
    HeartBeatRequest,
    PushRequest,
    PushType,
    Request,
    VoteRequest,
)
from dledger.raft.newermembers import REPORT_MS
from remoting.client import RemotingClient
from remoting.command import RemotingCommand
from simulation.kernel.node import Node, SimulatedClock
from simulation.kernel.world import World
from simulation.raft.group import RaftGroup
from simulation.raft.member import PORT

FORGED: list[Request] = [
    VoteRequest(TERM_MAX, -1, -1),
    HeartBeatRequest(TERM_MAX),
    PushRequest(TERM_MAX, PushType.COMMIT, -1, -1, -1),
]


def started(world: World, size: int = 3) -> RaftGroup:
    group = RaftGroup(world, size)
    group.start_all()
    world.run_until(group.agreed, 5_000)
    return group


def member_of(group: RaftGroup, node: Node) -> DLedgerNode:
    member = group.member(node)
    assert member is not None
    return member


def say(
    group: RaftGroup,
    speaker: Node,
    receiver: Node,
    sender: str,
    request: Request,
    peers: str = "",
    index: int = NO_INDEX,
) -> None:
    """A process on `speaker`'s host sends the request in the name of `sender`, with this list from entry `index`."""

    async def call() -> None:
        client = RemotingClient(clock=SimulatedClock(speaker))
        envelope = Envelope("g", sender, receiver.name, peers, members_index=index)
        body = encode_request(envelope, request)
        await client.call(
            group.peers[receiver.name], RemotingCommand.request(CODE_OF[type(request)], body=body)
        )
        await client.close()

    speaker.spawn(call())
    group.world.run_for_ms(50)


@pytest.mark.parametrize("request_", FORGED)
@pytest.mark.parametrize("term", [TERM_MAX, 1 << 40])
def test_a_forged_term_of_one_member_changes_no_term(request_: Request, term: int) -> None:
    with World(1) as world:
        group = started(world)
        leader = group.active()[0]
        speaker, receiver = (node for node in group.nodes if node is not leader)
        world.run_for_ms(2_000)
        for _ in range(3):
            say(group, speaker, receiver, speaker.name, replace(request_, term=term))
        world.run_for_ms(3_000)
        assert max(member.term for member in group.members()) < 20
        assert group.agreed()
        assert member_of(group, receiver).guard.refused[speaker.name, "term"] == 3


def test_a_member_is_accepted_from_its_own_host_only(caplog: pytest.LogCaptureFixture) -> None:
    with World(2) as world, caplog.at_level(logging.ERROR, "dledger"):
        group = started(world)
        stranger = world.node("stranger", "10.0.9.9")
        before = [member.term for member in group.members()]
        for _ in range(2):
            say(group, stranger, group.nodes[0], "n1", VoteRequest(before[0] + 5, 900, before[0]))
            say(group, stranger, group.nodes[0], "n2", HeartBeatRequest(before[0] + 5))
        assert [member.term for member in group.members()] == before
        refused = member_of(group, group.nodes[0]).guard.refused
        assert +refused == {("n1", "address"): 2, ("n2", "address"): 2}
        assert len([record for record in caplog.records if "10.0.9.9" in record.getMessage()]) == 2


def test_a_member_that_missed_very_many_terms_comes_back() -> None:
    with World(3) as world:
        group = started(world)
        gone = group.nodes[2]
        gone.kill()
        for node in group.nodes[:2]:
            node.kill()
        for node in group.nodes[:2]:
            files = node.runtime().files
            node.spawn(
                files.replace(f"dledger-{node.name}/currterm", b"voteLeader=\ncurrTerm=%d\n" % (1 << 30))
            )
        world.run_for_ms(100)
        for node in group.nodes[:2]:
            node.kill()
            group.start(node)
        world.run_until(lambda: bool(group.active()), 5_000)
        group.start(gone)
        world.run_until(group.agreed, 5_000)
        assert member_of(group, gone).term > 1 << 30


def test_members_with_different_member_lists_elect_no_two_leaders(caplog: pytest.LogCaptureFixture) -> None:
    with World(4) as world, caplog.at_level(logging.ERROR, "dledger"):
        group = RaftGroup(world, 3)
        alone, *others = group.nodes
        group.start(alone, peers={"n0": group.peers["n0"]})
        for node in others:
            group.start(node)
        world.run_for_ms(6_000)
        assert len(group.active()) <= 1
        assert_named_once_on_both_sides(caplog)


def test_a_member_that_newly_lists_only_itself_does_not_start() -> None:
    with World(5) as world:
        group = started(world)
        alone = group.nodes[0]
        alone.kill()
        group.start(alone, peers={"n0": group.peers["n0"]})
        world.run_for_ms(100)
        assert not alone.running and isinstance(alone.failure, MembersChanged)


def test_a_single_member_does_not_lead_while_another_groups_leader_lists_it() -> None:
    theirs = "n0-10.0.0.1:9877;n1-10.0.0.2:9877;n2-10.0.0.3:9877"
    with World(6) as world:
        group = RaftGroup(world, 1)
        alone = group.nodes[0]
        group.start(alone)
        world.run_until(lambda: bool(group.active()), 100)
        listed, elsewhere = world.node("n1", "10.0.0.2"), world.node("stranger", "10.0.9.9")
        say(group, elsewhere, alone, "n1", HeartBeatRequest(7), peers=theirs)
        say(group, listed, alone, "n1", VoteRequest(7, -1, -1), peers=theirs)
        say(group, listed, alone, "n1", HeartBeatRequest(7), peers=theirs.removeprefix("n0-10.0.0.1:9877;"))
        assert group.active()
        for _ in range(40):
            say(group, listed, alone, "n1", HeartBeatRequest(7), peers=theirs)
            world.run_for_ms(100)
            assert not group.active()
        world.run_until(lambda: bool(group.active()), 5_000)


class Lagging:
    """A group whose leader and the member `behind` do not reach each other. n3 is added meanwhile."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.group = group = started(world)
        group.check.members.begun_with = frozenset(group.peers)
        self.leader = group.active()[0]
        self.behind, self.other = (node for node in group.nodes if node is not self.leader)
        world.network.cut(self.leader.host, self.behind.host)
        self.added = world.node("n3", "10.0.0.4")
        address = f"{self.added.host}:{PORT}"
        group.nodes.append(self.added)
        group.start(self.added, peers=group.peers | {"n3": address})
        self.change(Change(Step.ADD, "n3", address))

    def change(self, change: Change) -> int:
        """Make the change, and return the index of its entry."""
        member = member_of(self.group, self.leader)
        outcome: list[int] = []

        async def make() -> None:
            while not outcome:
                try:
                    outcome.append((await member.change_members(change))[0])
                except ChangeRefused as refusal:
                    assert refusal.why is RefusalReason.NOT_LEVEL
                    await asyncio.sleep(0.1)

        self.leader.spawn(make())
        self.world.run_until(lambda: bool(outcome), 10_000)
        other = member_of(self.group, self.other)
        self.world.run_until(lambda: other.guard.members_index == outcome[0], 1_000)
        return outcome[0]

    def text_with(self, *nodes: Node) -> str:
        added = {node.name: f"{node.host}:{PORT}" for node in nodes}
        return peer_list(self.group.peers | added)


def test_a_member_that_is_behind_follows_a_leader_that_it_never_knew() -> None:
    with World(7) as world:
        scene = Lagging(world)
        scene.change(Change(Step.PROMOTE, "n3"))
        behind = member_of(scene.group, scene.behind)
        assert "n3" not in behind.peers and behind.guard.members_index == NO_INDEX
        scene.leader.spawn(member_of(scene.group, scene.leader).transfer_leadership("n3"))
        world.run_until(lambda: member_of(scene.group, scene.added).is_active, 2_000)
        world.run_until(lambda: behind.leader_id == "n3" and "n3" in behind.peers, 1_000)


def test_a_member_that_is_behind_votes_for_a_candidate_that_it_never_knew() -> None:
    with World(10) as world:
        scene = Lagging(world)
        scene.change(Change(Step.PROMOTE, "n3"))
        behind, other = member_of(scene.group, scene.behind), member_of(scene.group, scene.other)
        scene.leader.kill()
        other.suppress_elections()  # so that n3 needs both votes
        world.run_until(lambda: member_of(scene.group, scene.added).role is Role.LEADER, 8_000)
        assert "n3" not in behind.peers and behind.term == other.term


@pytest.mark.parametrize("ahead", [1, 10**9])
def test_a_stranger_is_not_believed_by_a_member_that_is_behind(ahead: int) -> None:
    with World(8) as world:
        scene = Lagging(world)
        behind, stranger = member_of(scene.group, scene.behind), world.node("stranger", "10.0.9.9")
        term, index = behind.term + 5, scene.change(Change(Step.PROMOTE, "n3"))
        made_up = scene.text_with(scene.added, stranger)
        for request in (HeartBeatRequest(term), VoteRequest(term, 900, term - 1)) * 4:
            say(scene.group, stranger, scene.behind, "stranger", request, made_up, index + ahead)
            world.run_for_ms(400)
        assert behind.term < term and behind.guard.refused["stranger", "unconfirmed"] >= 8
        assert set(behind.guard.vouched) <= {"n3"}


def test_a_removed_member_is_not_believed_by_a_member_that_is_behind() -> None:
    """It was confirmed before its removal."""
    with World(9) as world:
        scene = Lagging(world)
        behind = member_of(scene.group, scene.behind)
        world.run_until(lambda: "n3" in behind.guard.vouched, 5_000)
        index = scene.change(Change(Step.REMOVE, "n3"))
        scene.added.kill()
        world.run_for_ms(REPORT_MS)
        term = behind.term + 5
        for _ in range(4):
            beat, listed = HeartBeatRequest(term), scene.text_with(scene.added)
            say(scene.group, scene.added, scene.behind, "n3", beat, listed, index + 1)
            world.run_for_ms(400)
        assert behind.term < term and "n3" not in behind.guard.vouched


def assert_named_once_on_both_sides(caplog: pytest.LogCaptureFixture) -> None:
    lines = [
        record.getMessage() for record in caplog.records if "list of members differs" in record.getMessage()
    ]
    assert any("refused by n0: " in line and "only there n1, n2" in line for line in lines)
    assert any("peer=n0 refused by n" in line and "only here n1, n2" in line for line in lines)
    assert len(lines) <= 4
