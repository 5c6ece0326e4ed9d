"""Elections of the core: one vote a term, durable first; pre-vote, check-quorum and a leader that is not
disturbed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dledger.raft.actions import (
    Action,
    BecomeRole,
    Commit,
    PersistThenSend,
    Reply,
    Role,
    Send,
    TransferFailed,
    Vote,
)
from dledger.raft.entries import Entry
from dledger.raft.messages import (
    HeartBeatRequest,
    HeartBeatResponse,
    PushRequest,
    PushResponse,
    PushType,
    ResultCode,
    TransferRequest,
    TransferResponse,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from dledger.raft.raft import Raft
from tests.unit.dledger.raftharness import SETTINGS, core, entries, group, replies, sent


def test_a_group_of_one_leads_at_once_and_commits_its_no_op_when_durable() -> None:
    raft = core("a", ["a"])
    assert raft.tick(0) == [
        PersistThenSend(Vote(1, "a"), None, (Entry(0, 1, b""),), ()),
        BecomeRole(Role.LEADER, 1, "a"),
    ]
    assert not raft.may_serve
    assert raft.persisted(1) == [Commit(0)]
    assert raft.may_serve


def test_an_election_timeout_sends_pre_votes_and_keeps_the_term() -> None:
    raft = core("a", log=entries(3))
    assert raft.tick(600) == [
        PersistThenSend(
            Vote(3),
            None,
            (),
            (Send("b", VoteRequest(4, 0, 3, pre_vote=True)), Send("c", VoteRequest(4, 0, 3, pre_vote=True))),
        ),
        BecomeRole(Role.CANDIDATE, 3, None),
    ]


def test_a_vote_for_itself_is_durable_before_it_asks_others() -> None:
    raft = core("a")
    raft.tick(600)
    assert raft.receive("b", VoteResponse(0, 1, VoteResult.ACCEPT, True), 601) == [
        PersistThenSend(
            Vote(1, "a"), None, (), (Send("b", VoteRequest(1, -1, -1)), Send("c", VoteRequest(1, -1, -1)))
        ),
        BecomeRole(Role.CANDIDATE, 1, None),
    ]


def test_a_vote_is_durable_before_the_reply_and_is_not_given_twice() -> None:
    raft = core("b")
    assert raft.receive("a", VoteRequest(1, -1, -1), 700, ticket=7) == [
        PersistThenSend(Vote(1, "a"), None, (), (Reply(7, VoteResponse(1, 1, VoteResult.ACCEPT)),)),
        BecomeRole(Role.FOLLOWER, 1, None),
    ]
    again = raft.receive("c", VoteRequest(1, 5, 0), 701, ticket=8)
    assert again == [Reply(8, VoteResponse(1, 1, VoteResult.REJECT_ALREADY_VOTED))]
    restarted = core("b", vote=Vote(1, "a"))
    assert replies(restarted.receive("c", VoteRequest(1, 5, 0), 9000)) == [
        VoteResponse(1, 1, VoteResult.REJECT_ALREADY_VOTED)
    ]
    assert replies(restarted.receive("a", VoteRequest(1, -1, -1), 9001)) == [
        VoteResponse(1, 1, VoteResult.ACCEPT)
    ]


@pytest.mark.parametrize(
    ("request_", "result"),
    [
        (VoteRequest(4, 9, 1), VoteResult.REJECT_EXPIRED_LEDGER_TERM),
        (VoteRequest(4, 0, 3), VoteResult.REJECT_SMALL_LEDGER_END_INDEX),
        (VoteRequest(2, 9, 1), VoteResult.REJECT_EXPIRED_VOTE_TERM),
        (VoteRequest(3, 9, 2, pre_vote=True), VoteResult.REJECT_EXPIRED_VOTE_TERM),
        (VoteRequest(4, 1, 3), VoteResult.ACCEPT),
        (VoteRequest(4, 1, 3, pre_vote=True), VoteResult.ACCEPT),
    ],
)
def test_a_vote_is_granted_only_to_an_up_to_date_log(request_: VoteRequest, result: VoteResult) -> None:
    raft = core("a", vote=Vote(3), log=entries(1, 3))
    (answer,) = replies(raft.receive("b", request_, 5000))
    assert isinstance(answer, VoteResponse) and answer.result is result


def test_a_pre_vote_changes_nothing() -> None:
    raft = core("a", vote=Vote(3, "c"), log=entries(1, 3))
    actions = raft.receive("b", VoteRequest(8, 1, 3, pre_vote=True), 5000, ticket=1)
    assert actions == [Reply(1, VoteResponse(3, 8, VoteResult.ACCEPT, True))]


def test_a_member_with_a_live_leader_rejects_votes_and_keeps_its_term() -> None:
    raft = core("b")
    raft.receive("a", HeartBeatRequest(1), 100)
    for pre_vote in (True, False):
        actions = raft.receive("c", VoteRequest(9, 4, 1, pre_vote), 650, ticket=2)
        assert actions == [Reply(2, VoteResponse(1, 9, VoteResult.REJECT_ALREADY_HAS_LEADER, pre_vote))]
    (answer,) = replies(raft.receive("c", VoteRequest(9, 4, 1), 701))
    assert answer == VoteResponse(9, 9, VoteResult.ACCEPT)


def test_a_partitioned_member_returns_without_disturbing_the_leader() -> None:
    world = group()
    world.elect("a")
    world.deliver()
    for _ in range(10):
        world.now_ms += 1000
        world.take("c", world.cores["c"].tick(world.now_ms))
        world.inbox.clear()
        world.beat("a", only=("a", "b"))
        world.inbox.clear()
    assert world.cores["c"].term == 1
    world.take("c", world.cores["c"].tick(world.now_ms + 700))
    world.deliver()
    world.beat("a")
    assert [raft.term for raft in world.cores.values()] == [1, 1, 1]
    assert world.cores["c"].leader_id == "a"


def test_a_leader_without_responses_of_a_quorum_steps_down() -> None:
    world = group()
    world.elect("a")
    for _ in range(SETTINGS.election_timeout_max_ms // SETTINGS.heartbeat_interval_ms + 2):
        world.beat("a", only=("a",))
    assert (world.cores["a"].role, world.cores["a"].term) == (Role.FOLLOWER, 1)


def test_a_stale_leader_steps_down_on_a_response_of_a_higher_term() -> None:
    world = group()
    world.elect("a")
    world.take(
        "a", world.cores["a"].receive("b", HeartBeatResponse(2, ResultCode.EXPIRED_TERM), world.now_ms)
    )
    assert (world.cores["a"].role, world.cores["a"].term) == (Role.FOLLOWER, 2)


def test_reads_do_not_keep_a_leader_without_a_quorum() -> None:
    world = group()
    world.elect("a")
    for read_id in range(200):
        world.now_ms += 20
        world.take("a", world.cores["a"].read(read_id, world.now_ms) + world.cores["a"].tick(world.now_ms))
        world.inbox.clear()
    assert world.cores["a"].role is not Role.LEADER
    assert set(world.reads.values()) == {None}


def test_late_pre_votes_and_repeated_votes_do_not_count() -> None:
    raft = core("a", ("a", "b", "c", "d", "e"))
    raft.tick(600)
    raft.receive("b", VoteResponse(0, 1, VoteResult.ACCEPT, True), 601)
    raft.receive("c", VoteResponse(0, 1, VoteResult.ACCEPT, True), 602)
    assert (raft.term, raft.ballots.pre_voting, raft.role) == (1, False, Role.CANDIDATE)
    raft.receive("d", VoteResponse(0, 1, VoteResult.ACCEPT, True), 603)
    raft.receive("e", VoteResponse(1, 1, VoteResult.ACCEPT), 604)
    raft.receive("e", VoteResponse(1, 1, VoteResult.ACCEPT), 605)
    assert raft.role is Role.CANDIDATE
    raft.receive("b", VoteResponse(1, 1, VoteResult.ACCEPT), 606)
    assert raft.role is Role.LEADER


def test_messages_of_unknown_members_are_rejected_and_change_nothing() -> None:
    raft = core("a", log=entries(1, 1), vote=Vote(1))
    push = PushRequest(9, PushType.APPEND, 0, 1, 5, (Entry(1, 9, b"x"),))
    assert replies(raft.receive("z", VoteRequest(9, 9, 8), 10)) == [
        VoteResponse(1, 9, VoteResult.REJECT_UNKNOWN_LEADER)
    ]
    assert replies(raft.receive("z", HeartBeatRequest(9), 10)) == [
        HeartBeatResponse(1, ResultCode.UNKNOWN_MEMBER, committed_index=-1)
    ]
    (answer,) = replies(raft.receive("z", push, 10))
    assert getattr(answer, "code", None) is ResultCode.UNKNOWN_MEMBER
    assert replies(raft.receive("a", HeartBeatRequest(9), 10)) == [
        HeartBeatResponse(1, ResultCode.UNKNOWN_MEMBER, committed_index=-1)
    ]
    assert raft.receive("z", HeartBeatResponse(99, ResultCode.SUCCESS), 10) == []
    assert (raft.term, raft.log.last_index, raft.leader_id) == (1, 1, None)
    assert sent(raft.tick(11)) == []


def test_a_late_vote_counts_while_the_candidate_pre_votes_again() -> None:
    raft = core("a")
    raft.tick(600)
    raft.receive("b", VoteResponse(0, 1, VoteResult.ACCEPT, True), 601)
    raft.persisted(950)
    raft.tick(1549)
    assert not raft.ballots.pre_voting, "the election timeout begins when its own vote is durable"
    raft.tick(1550)
    assert (raft.ballots.pre_voting, raft.term) == (True, 1)
    raft.receive("c", VoteResponse(1, 1, VoteResult.ACCEPT), 1600)
    assert (raft.role, raft.term) == (Role.LEADER, 1)


def test_a_candidate_whose_vote_is_not_durable_sends_nothing() -> None:
    raft = core("a")
    raft.tick(600)
    raft.receive("b", VoteResponse(0, 1, VoteResult.ACCEPT, True), 601)
    assert sent(raft.tick(1201)) == []
    assert (raft.role, raft.term, raft.next_tick_ms) == (Role.CANDIDATE, 1, 1801)


def follower_of_a(name: str = "b") -> Raft:
    raft = core(name)
    raft.receive("a", HeartBeatRequest(1), 100)
    raft.persisted(101)
    return raft


DOUBT = VoteRequest(2, -1, -1, pre_vote=True)


def test_a_follower_asks_a_leader_whose_connection_ended_whether_it_leads() -> None:
    raft = follower_of_a()
    assert raft.connection_lost("a", 200) == [Send("a", DOUBT)]
    assert raft.connection_lost("c", 200) == [], "a member that does not lead is not asked"
    leads = VoteResponse(1, 2, VoteResult.REJECT_ALREADY_HAS_LEADER, True)
    due_ms = raft.next_tick_ms
    assert raft.receive("a", leads, 201) == raft.unsent("a", DOUBT, 202) == []
    assert (raft.leader_id, raft.next_tick_ms) == ("a", due_ms)


def test_a_follower_does_not_wait_for_an_unreachable_leader() -> None:
    first, second = follower_of_a("b"), follower_of_a("c")
    for raft in (first, second):
        raft.connection_lost("a", 200)
        assert raft.unsent("a", DOUBT, 201) == [BecomeRole(Role.FOLLOWER, 1, None)]
    apart_ms = second.next_tick_ms - first.next_tick_ms
    assert first.next_tick_ms < 250 and apart_ms == SETTINGS.heartbeat_interval_ms
    (answer,) = replies(second.receive("b", DOUBT, 221))
    assert answer == VoteResponse(1, 2, VoteResult.ACCEPT, True)


def test_a_follower_does_not_wait_for_a_leader_that_stepped_down() -> None:
    raft = follower_of_a()
    raft.connection_lost("a", 200)
    raft.receive("a", VoteResponse(1, 2, VoteResult.ACCEPT, True), 201)
    assert raft.leader_id is None and raft.next_tick_ms < 250


def test_a_heartbeat_ends_the_suspicion_of_a_leader() -> None:
    raft = follower_of_a()
    raft.connection_lost("a", 200)
    raft.receive("a", HeartBeatRequest(1), 210)
    raft.unsent("a", DOUBT, 300)
    assert raft.leader_id == "a"
    (answer,) = replies(raft.receive("c", DOUBT, 301))
    assert answer == VoteResponse(1, 2, VoteResult.REJECT_ALREADY_HAS_LEADER, True)


def test_a_transfer_brings_the_target_up_to_date_first() -> None:
    world = group()
    world.elect("a")
    world.propose("a", b"x")
    leader = world.cores["a"]
    world.inbox.clear()
    assert sent(leader.transfer_leadership("c", world.now_ms)) == []
    *_, take = sent(leader.receive("c", PushResponse(1, ResultCode.SUCCESS, 0, 2, 1), world.now_ms))
    assert take == ("c", TransferRequest(1, "a", "c", 1))
    with pytest.raises(AssertionError, match="takes no proposals"):
        leader.propose([b"y"], world.now_ms)


def test_a_transfer_target_is_elected_while_the_leader_is_alive() -> None:
    world = group()
    world.elect("a")
    world.beat("a")
    world.take("a", world.cores["a"].transfer_leadership(None, world.now_ms))
    world.deliver()
    assert [raft.leader_id for raft in world.cores.values()] == ["b", "b", "b"]
    assert {raft.term for raft in world.cores.values()} == {2}


@pytest.mark.parametrize(
    ("sender", "request_", "code"),
    [
        ("a", TransferRequest(0, "a", "b", -1), ResultCode.INCONSISTENT_TERM),
        ("a", TransferRequest(2, "a", "b", -1), ResultCode.INCONSISTENT_TERM),
        ("c", TransferRequest(1, "c", "b", -1), ResultCode.INCONSISTENT_LEADER),
        ("a", TransferRequest(1, "a", "c", -1), ResultCode.INCONSISTENT_LEADER),
        ("a", TransferRequest(1, "a", "b", 0), ResultCode.TAKE_LEADERSHIP_FAILED),
        ("z", TransferRequest(1, "a", "b", -1), ResultCode.UNKNOWN_MEMBER),
    ],
)
def test_only_the_leader_of_this_term_can_transfer_leadership(
    sender: str, request_: TransferRequest, code: ResultCode
) -> None:
    raft = follower_of_a()
    assert raft.receive(sender, request_, 200, ticket=4) == [Reply(4, TransferResponse(1, code))]
    assert (raft.role, raft.term) == (Role.FOLLOWER, 1)


def test_a_transfer_fails_on_timeout_refusal_or_lost_request() -> None:
    world = group()
    world.elect("a")
    world.deliver()
    leader = world.cores["a"]
    take = TransferRequest(1, "a", "b", 0)
    ends: list[Callable[[], list[Action]]] = [
        lambda: leader.tick(world.now_ms + SETTINGS.election_timeout_min_ms),
        lambda: leader.receive("b", TransferResponse(1, ResultCode.INCONSISTENT_TERM), world.now_ms),
        lambda: leader.unsent("b", take, world.now_ms),
    ]
    for end in ends:
        assert leader.transfer_leadership("b", world.now_ms) == [Send("b", take)]
        assert TransferFailed() in end() and not leader.transfers
    alone = core("a", ["a"])
    alone.tick(0)
    assert alone.transfer_leadership(None, 1) == [TransferFailed()]
