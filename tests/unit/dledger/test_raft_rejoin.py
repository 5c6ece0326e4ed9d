"""Newcomers in elections, leadership transfers and reads; only a vote waits for the disk."""

from __future__ import annotations

import pytest

from dledger.node.syncqueue import SyncQueue
from dledger.raft.actions import PersistThenSend, Reply, Role, Send, TransferFailed, Vote
from dledger.raft.messages import (
    HeartBeatRequest,
    HeartBeatResponse,
    PushRequest,
    PushResponse,
    PushType,
    RecoveryRequest,
    RecoveryResponse,
    ResultCode,
    TransferRequest,
    VoteRequest,
    VoteResult,
)
from dledger.raft.progress import FORMER_SESSIONS_MAX
from dledger.raft.raft import Raft
from tests.unit.dledger.raftharness import NAMES, SETTINGS, core, elected, entries, leading, replies, sent

NEW = Vote(newcomer=True)
SUCCESS = ResultCode.SUCCESS


def acknowledged(index: int, session: int, *, newcomer: bool) -> PushResponse:
    return PushResponse(1, SUCCESS, index, 1, index, session=session, newcomer=newcomer)


def led_with_newcomer() -> Raft:
    """A leader whose disk has confirmed nothing in its term; `c` has reported that it is a newcomer."""
    leader = elected(core())
    leader.receive("c", RecoveryRequest(0, 7), 600)
    leader.receive("c", HeartBeatResponse(1, SUCCESS, 0, newcomer=True), 600)
    return leader


def test_a_newcomers_acknowledgement_does_not_count_for_a_majority() -> None:
    leader = led_with_newcomer()
    leader.receive("b", acknowledged(0, 0, newcomer=False), 610)
    leader.receive("c", acknowledged(0, 7, newcomer=True), 610)
    assert leader.committed_index == -1 and leader.durable_index == -1
    leader.receive("c", acknowledged(0, 7, newcomer=False), 620)
    assert leader.committed_index == 0 and leader.durable_index == -1


@pytest.mark.parametrize("pre_vote", [True, False])
def test_a_newcomer_grants_no_vote(pre_vote: bool) -> None:
    """It may have voted in this term before its disk was emptied."""
    newcomer = core("c", vote=NEW)
    request = VoteRequest(5, 9, 4, pre_vote=pre_vote)
    assert newcomer.on_vote_request("a", request) is VoteResult.REJECT_NEWCOMER
    assert newcomer.voted_for is None
    member = core("c", vote=Vote(0))
    assert member.on_vote_request("a", request) is VoteResult.ACCEPT


def test_a_late_acknowledgement_of_an_earlier_session_is_ignored() -> None:
    leader = led_with_newcomer()
    leader.receive("b", acknowledged(0, 0, newcomer=False), 610)
    leader.receive("c", acknowledged(0, 0, newcomer=False), 610)
    assert leader.committed_index == -1


def test_the_number_of_former_sessions_has_a_limit() -> None:
    leader = led_with_newcomer()
    for session in range(1_000, 2_000):
        leader.receive("c", RecoveryRequest(0, session), 610)
    former = leader.progress["c"].former_sessions
    assert former == tuple(range(1_999 - FORMER_SESSIONS_MAX, 1_999))
    leader.receive("c", RecoveryRequest(0, 1_998), 620)  # late, of the previous session
    assert leader.progress["c"].session == 1_999


def test_a_newcomers_heartbeat_response_proves_no_read() -> None:
    leader = led_with_newcomer()
    leader.receive("b", acknowledged(0, 0, newcomer=False), 610)
    leader.persisted(610)  # its vote
    leader.persisted(610)  # its no-op
    assert leader.may_serve
    asked = [to for to, request in sent(leader.read(1, 620)) if isinstance(request, HeartBeatRequest)]
    assert asked == ["b", "c"]
    assert not leader.receive("c", HeartBeatResponse(1, SUCCESS, 1, newcomer=True), 621)
    progress = leader.progress["c"]
    assert progress.round_sent == progress.read_round == 0


def test_leadership_is_not_transferred_to_a_newcomer() -> None:
    leader = led_with_newcomer()
    leader.receive("b", HeartBeatResponse(1, SUCCESS, 0), 610)
    assert leader.transfer_leadership("c", 620) == [TransferFailed()]
    leader.transfer_leadership(None, 620)
    assert leading(leader).transfer.target == "b"


def test_a_newcomer_rejects_a_leadership_transfer() -> None:
    newcomer = core("b", vote=NEW)
    newcomer.receive("a", HeartBeatRequest(1), 10)
    answer = replies(newcomer.receive("a", TransferRequest(1, "a", "b", -1), 20, 1))
    assert [getattr(each, "code", None) for each in answer] == [ResultCode.TAKE_LEADERSHIP_FAILED]
    assert (newcomer.role, newcomer.term) == (Role.FOLLOWER, 1)


def test_a_member_with_suppressed_elections_ignores_a_transfer() -> None:
    raft = core("b")
    raft.receive("a", HeartBeatRequest(1), 10)
    raft.suppress_elections(15, 2 * SETTINGS.election_timeout_max_ms)
    raft.receive("a", TransferRequest(1, "a", "b", -1), 20, 1)
    assert (raft.role, raft.term) == (Role.FOLLOWER, 1)


def test_the_end_of_newcomer_state_is_durable_before_it_is_sent() -> None:
    newcomer, lane = core("b", vote=NEW), SyncQueue()
    newcomer.receive("a", HeartBeatRequest(1), 10)
    newcomer.persisted(10)
    session = newcomer.rejoin.session
    newcomer.receive("c", RecoveryResponse(1, session, True, -1), 20)
    newcomer.receive("a", RecoveryResponse(1, session, True, 0), 20)
    push = PushRequest(1, PushType.APPEND, -1, -1, 0, tuple(entries(1)), session)
    steps = newcomer.receive("a", push, 30, 1)
    assert [answer.newcomer for answer in replies(steps) if isinstance(answer, PushResponse)] == [True]
    early = newcomer.receive("a", HeartBeatRequest(1), 31, 2)
    assert early == [Reply(2, HeartBeatResponse(1, SUCCESS, 0, newcomer=True, committed_index=0))]
    assert lane.takes(steps[0]) and not lane.takes(early[0]), "a heartbeat waits for no entries"
    settled = newcomer.persisted(40)
    assert settled == [PersistThenSend(Vote(1, "a"), None, (), ())]
    late = newcomer.receive("a", HeartBeatRequest(1), 41, 3)
    assert late == [Reply(3, HeartBeatResponse(1, SUCCESS, 0, committed_index=0))]
    assert lane.takes(settled[0]) and lane.takes(late[0]), "a message that shows a vote waits for it"


def test_an_empty_group_of_one_leads_at_once() -> None:
    alone = core("a", ["a"], vote=NEW)
    (step, *_) = alone.tick(alone.next_tick_ms)
    assert isinstance(step, PersistThenSend) and step.vote == Vote(1, "a")
    assert alone.role is Role.LEADER


def test_a_newcomer_sends_recovery_requests_and_starts_no_election() -> None:
    newcomer = core("b", vote=NEW)
    for now_ms in range(0, 6_000, SETTINGS.heartbeat_interval_ms):
        asked = newcomer.tick(now_ms)
        expected = [Send(peer, RecoveryRequest(0, newcomer.rejoin.session)) for peer in NAMES if peer != "b"]
        assert asked == expected
