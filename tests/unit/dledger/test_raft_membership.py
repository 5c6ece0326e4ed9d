"""Membership changes in the core: counted votes, elections, and the conditions that a leader waits for."""

from __future__ import annotations

import pytest

from dledger.raft.actions import PersistThenSend, Role, Vote
from dledger.raft.entries import Entry
from dledger.raft.errors import ChangeRefused, RefusalReason
from dledger.raft.membership import Change, Members, Step, encode_members
from dledger.raft.messages import (
    HeartBeatRequest,
    HeartBeatResponse,
    InstallRequest,
    PushRequest,
    PushResponse,
    PushType,
    RecoveryRequest,
    RecoveryResponse,
    ResultCode,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from dledger.raft.raft import Raft
from dledger.raft.rejoin import SESSION_MAX
from tests.unit.dledger.raftharness import Group, core, entries, group, leading, replies, sent

ABC = Members(dict.fromkeys("abc", ""))
LEARNING = Members(dict.fromkeys("abc", ""), {"d": "h:1"})
ALL = frozenset("abcde")


def began(world: Group, name: str = "a", *only: str) -> Raft:
    """Elect `name` and commit its no-op."""
    world.elect(name, only=only)
    world.beat(name, only=only)
    assert world.cores[name].may_serve
    return world.cores[name]


def change(world: Group, leader: str, wanted: Change) -> Members:
    raft = world.cores[leader]
    members = raft.next_members(wanted, ALL)
    world.take(leader, raft.reconfigure(members, world.now_ms))
    return members


def refused(raft: Raft, wanted: Change) -> RefusalReason:
    with pytest.raises(ChangeRefused) as refusal:
        raft.next_members(wanted, ALL)
    return refusal.value.why


def with_a_learner() -> Group:
    """a leads, and d is a learner that is caught up."""
    world = group()
    world.cores["d"] = core("d", "abcd")
    began(world)
    change(world, "a", Change(Step.ADD, "d", "h:1"))
    for _ in range(4):
        world.beat("a")
    return world


def test_a_learner_receives_entries_and_is_not_counted() -> None:
    world = with_a_learner()
    leader, learner = world.cores["a"], world.cores["d"]
    assert learner.committed_index == leader.committed_index == 1
    assert (leader.quorum, leader.voters, leader.peers) == (2, ("b", "c"), ("b", "c", "d"))
    world.propose("a", b"x")
    world.deliver(only="ad")
    assert learner.log.last_index == 2 and leader.committed_index == 1
    world.now_ms += 5000
    assert not sent(learner.tick(world.now_ms)) and learner.role is Role.FOLLOWER
    assert leader.read(1, world.now_ms) and not leading(leader).quorum_active()


def test_a_candidate_does_not_ask_a_learner_but_a_learner_grants_votes() -> None:
    world = with_a_learner()
    world.now_ms += 5000
    asked = sent(world.cores["b"].tick(world.now_ms))
    assert {to for to, _ in asked} == {"a", "c"}
    ballot = VoteRequest(9, 1, 1)
    answer = replies(world.cores["d"].receive("b", ballot, world.now_ms, 1))
    assert answer == [VoteResponse(9, 9, VoteResult.ACCEPT)]


def test_a_configuration_takes_effect_when_appended_and_ends_when_cut() -> None:
    world = with_a_learner()
    change(world, "a", Change(Step.PROMOTE, "d"))
    leader = world.cores["a"]
    assert leader.quorum == 3 and not leader.members_committed
    world.deliver(only="ad")
    assert world.cores["d"].quorum == 3 and leader.committed_index == 1
    world.elect("c", only="bc")  # by members without it
    for _ in range(5):
        world.beat("c")
    assert leader.membership.members == world.cores["d"].membership.members == LEARNING
    assert leader.quorum == 2


def test_members_change_one_at_a_time_after_the_leader_committed_in_its_term() -> None:
    world = group()
    world.elect("a", only="ab")
    early = world.cores["a"]
    early.committed_index = -1
    assert refused(early, Change(Step.REMOVE, "c")) is RefusalReason.NOT_BEGUN
    leader = began(world, "b")
    change(world, "b", Change(Step.ADD, "d", "h:1"))
    assert refused(leader, Change(Step.REMOVE, "c")) is RefusalReason.UNDER_WAY
    world.deliver(only="abc")
    assert refused(leader, Change(Step.PROMOTE, "d")) is RefusalReason.NOT_LEVEL
    assert refused(leader, Change(Step.REMOVE, "b")) is RefusalReason.LEADS
    assert change(world, "b", Change(Step.REMOVE, "d")) == ABC


def test_a_change_that_leaves_too_few_live_voters_is_rejected() -> None:
    world = group()
    leader = began(world)
    for _ in range(6):
        world.beat("a", only="ab")
    assert refused(leader, Change(Step.REMOVE, "b")) is RefusalReason.TOO_FEW
    assert leader.next_members(Change(Step.REMOVE, "c"), ALL).quorum == 2
    assert refused_by_an_old_member(leader) is RefusalReason.OLD_MEMBER


def refused_by_an_old_member(leader: Raft) -> RefusalReason:
    with pytest.raises(ChangeRefused) as refusal:
        leader.next_members(Change(Step.REMOVE, "c"), {"c"})
    return refusal.value.why


def test_a_leader_rejects_changes_during_a_transfer() -> None:
    world = group()
    leader = began(world)
    leader.transfer_leadership("b", world.now_ms)
    assert refused(leader, Change(Step.REMOVE, "c")) is RefusalReason.HANDING_OVER


def test_a_removed_member_starts_no_election_and_is_unknown() -> None:
    world = group()
    began(world)
    change(world, "a", Change(Step.REMOVE, "c"))
    world.deliver(only="ab")
    world.beat("a")
    leader, former = world.cores["a"], world.cores["c"]
    assert leader.members_committed and leader.peers == ("b",) and "c" not in leader.progress
    pre_vote = VoteRequest(7, 9, 1, pre_vote=True)
    answer = replies(leader.receive("c", pre_vote, world.now_ms, 1))
    assert answer == [VoteResponse(1, 7, VoteResult.REJECT_UNKNOWN_LEADER, pre_vote=True)]
    configuration = Entry(1, 1, encode_members(leader.membership.members))
    former.receive("a", PushRequest(1, PushType.APPEND, 0, 1, 1, (configuration,)), world.now_ms)
    assert not former.membership.votes and not sent(former.tick(world.now_ms + 5000))


def test_a_leader_that_does_not_know_an_uncommitted_change_is_accepted() -> None:
    """b took c's removal from a, which failed; c leads and does not know of it."""
    two = Members({"a": "", "b": ""})
    log = [Entry(0, 1, b""), Entry(1, 1, encode_members(two))]
    b = core("b", vote=Vote(1), log=log, committed_index=0, configurations=[(1, two)])
    assert b.peers == ("a",) and not b.members_committed
    beat = replies(b.receive("c", HeartBeatRequest(2), 10, 1))
    assert beat == [HeartBeatResponse(2, ResultCode.SUCCESS, committed_index=0)]
    b.receive("c", PushRequest(2, PushType.APPEND, 0, 1, 0, (Entry(1, 2, b""),)), 20)
    assert b.peers == ("a", "c") and b.committed_index == 0


def test_a_leader_of_a_newer_configuration_is_accepted() -> None:
    b = core("b", vote=Vote(1), log=entries(1))
    assert replies(b.receive("e", HeartBeatRequest(2), 10, 1))[0].code is ResultCode.UNKNOWN_MEMBER  # type: ignore[attr-defined]
    b.newer_config_peers_are({"e"})
    assert replies(b.receive("e", HeartBeatRequest(2), 10, 1)) == [
        HeartBeatResponse(2, ResultCode.SUCCESS, committed_index=-1)
    ]
    assert b.leader_id == "e"


def test_known_members_are_asked_for_a_newer_list_once_in_a_while() -> None:
    """A pre-vote asks, because it changes nothing where it arrives."""
    b, a = core("b", vote=Vote(1), log=entries(1)), core("a", vote=Vote(1), log=entries(1))
    before = a.term, a.leader_id, a.election_due_ms
    asked = sent(b.ask_for_members(0))
    assert [to for to, _ in asked] == ["a", "c"] and b.role is Role.FOLLOWER
    for _, request in asked:
        assert isinstance(request, VoteRequest) and request.pre_vote
        (answer,) = replies(a.receive("b", request, 5, 1))
        assert isinstance(answer, VoteResponse)
        b.receive("a", answer, 6)
    assert (a.term, a.leader_id, a.election_due_ms) == before and b.role is Role.FOLLOWER
    assert sent(b.ask_for_members(599)) == [] and len(sent(b.ask_for_members(600))) == 2
    b.newer_config_peers_are({"e"})
    assert [to for to, _ in sent(b.ask_for_members(610))] == ["a", "c", "e"]
    b.newer_config_peers_are({"e"})
    assert sent(b.ask_for_members(620)) == []


def test_a_peer_that_is_not_confirmed_any_more_is_refused() -> None:
    b = core("b", vote=Vote(1), log=entries(1))
    b.newer_config_peers_are({"e"})
    b.newer_config_peers_are(())
    (answer,) = replies(b.receive("e", HeartBeatRequest(2), 10, 1))
    assert answer == HeartBeatResponse(1, ResultCode.UNKNOWN_MEMBER, committed_index=-1)


def test_votes_of_a_larger_group_elect_no_leader_of_a_smaller_one() -> None:
    """e is a candidate in term 1 and gets d's vote; a wins, removes b and c, and fails: two votes are no
    majority of three."""
    e = core("e", "abcde", log=entries(0))
    e.tick(600)
    for peer in "bcd":
        e.receive(peer, VoteResponse(0, 1, VoteResult.ACCEPT, pre_vote=True), 610)
    assert (e.term, e.role) == (1, Role.CANDIDATE)
    e.receive("d", VoteResponse(1, 1, VoteResult.ACCEPT), 620)
    left = [Entry(1, 1, b""), Entry(2, 1, encode_members(Members(dict.fromkeys("ade", ""))))]
    e.receive("a", PushRequest(1, PushType.APPEND, 0, 0, 2, tuple(left)), 630)
    assert e.quorum == 2 and e.role is Role.FOLLOWER
    e.persisted(640)
    e.persisted(640)
    e.tick(5000)
    assert e.role is Role.CANDIDATE and e.term == 1
    e.receive("a", VoteResponse(1, 2, VoteResult.REJECT_ALREADY_HAS_LEADER, pre_vote=True), 5010)
    assert e.role is Role.CANDIDATE


def test_late_responses_from_before_a_removal_are_ignored() -> None:
    world = with_a_learner()
    leader = world.cores["a"]
    change(world, "a", Change(Step.PROMOTE, "d"))
    world.deliver()
    world.beat("a")
    late = PushResponse(1, ResultCode.SUCCESS, 0, 4, 3, session=leader.progress["d"].session)
    change(world, "a", Change(Step.REMOVE, "d"))
    world.deliver(only="abc")
    change(world, "a", Change(Step.ADD, "d", "h:1"))
    assert leader.progress["d"].session == SESSION_MAX + 1 + leader.membership.index
    leader.receive("d", late, world.now_ms)
    assert leader.progress["d"].match_index == leader.progress["d"].held_index == -1


def test_a_leader_admits_no_newcomer_while_a_change_is_uncommitted() -> None:
    world = with_a_learner()
    leader = world.cores["a"]
    change(world, "a", Change(Step.REMOVE, "c"))
    asked = RecoveryRequest(0, 77)
    (answer,) = replies(leader.receive("b", asked, world.now_ms, 1))
    assert answer.admits == -1  # type: ignore[attr-defined]
    world = with_a_learner()
    (answer,) = replies(world.cores["a"].receive("d", asked, world.now_ms, 1))
    assert answer.admits == 1  # type: ignore[attr-defined]


def test_a_newcomer_needs_responses_of_the_voters_of_its_committed_list() -> None:
    """c does not have to answer: it was removed and will not return."""
    n = core("d", "abcd", vote=Vote(newcomer=True))
    n.tick(0)
    for peer in "ab":
        n.receive(peer, answer_of(n, term=1, admits=1 if peer == "a" else -1), 10)
    configuration = Entry(1, 1, encode_members(Members({"a": "", "b": ""}, {"d": "h:1"})))
    n.receive("a", PushRequest(1, PushType.APPEND, -1, -1, 0, (Entry(0, 1, b""), configuration)), 20)
    while n.disk.silent_ms(1 << 30):
        n.persisted(25)
    assert n.rejoin.unanswered == set() and n.rejoin.newcomer
    n.receive("a", PushRequest(1, PushType.COMMIT, 1, 1, 1), 30)
    assert not n.rejoin.newcomer and n.voted_for == "a" and not n.promotable


def test_a_newcomer_asks_a_leader_that_its_list_does_not_name() -> None:
    """Otherwise that leader would count acknowledgements of its earlier life."""
    n = core("d", "abd", vote=Vote(newcomer=True))
    n.tick(0)
    n.newer_config_peers_are({"e"})
    n.receive("e", HeartBeatRequest(2), 10)
    assert {to for to, request in sent(n.tick(5000)) if isinstance(request, RecoveryRequest)} == {*"abe"}


def answer_of(newcomer: Raft, *, term: int, admits: int) -> RecoveryResponse:
    return RecoveryResponse(term, newcomer.rejoin.session, True, admits)


def test_a_snapshot_carries_the_member_list() -> None:
    b = core("b", "abc")
    members = '[{"index":3,"voters":{"a":"x:1","b":"y:1"},"learners":{}}]'
    part = InstallRequest(2, 9, 1, 1, 0xE8B7BE43, 0, b"a", members=members)
    actions = b.receive("a", part, 10, 1)
    assert b.peers == ("a",) and (b.membership.index, b.log.first_index) == (3, 10)
    saved = [step.snapshot for step in actions if isinstance(step, PersistThenSend)][0]
    assert saved is not None and saved.configurations == ((3, Members({"a": "x:1", "b": "y:1"})),)


# The fault of the thesis' first rule for single-server changes (raft-dev, 10 July 2015)


def before_the_fault() -> Group:
    """a leads four members in term 1 and promotes e; only e receives that. Then b can be elected by b, c and
    d."""
    world = group(*"abcd")
    world.cores["e"] = core("e", "abcde")
    began(world)
    change(world, "a", Change(Step.ADD, "e", "h:1"))
    for _ in range(4):
        world.beat("a")
    change(world, "a", Change(Step.PROMOTE, "e"))
    world.deliver(only="ae")
    assert world.cores["e"].quorum == 3
    world.now_ms += 5000
    return world


def test_a_change_before_the_first_commit_of_a_term_is_rejected() -> None:
    world = before_the_fault()
    world.take("b", world.cores["b"].tick(world.now_ms))
    for _ in range(4):  # elected by all three, and its no-op is on its way
        world.inbox, waiting = [], world.inbox
        for sender, receiver, message in waiting:
            if receiver in "bcd" and isinstance(message, VoteRequest):
                world.request(sender, receiver, message)
    assert world.cores["b"].role is Role.LEADER
    assert refused(world.cores["b"], Change(Step.REMOVE, "a")) is RefusalReason.NOT_BEGUN


def test_after_the_no_op_is_committed_the_former_leader_cannot_win() -> None:
    world = before_the_fault()
    world.elect("b", only="bcd")
    world.beat("b", only="bcd")
    change(world, "b", Change(Step.REMOVE, "a"))
    world.deliver(only="bc")
    world.beat("b", only="bc")
    committed = world.cores["b"].committed_index
    assert world.cores["b"].members_committed and world.cores["d"].log.last_term == 2
    for _ in range(3):
        world.now_ms += 5000
        world.take("a", world.cores["a"].tick(world.now_ms))
        world.deliver(only="ade")
        assert world.cores["a"].role is not Role.LEADER
    assert world.cores["c"].committed_index == committed


def test_without_the_no_op_rule_a_committed_entry_is_lost() -> None:
    """The same story without waiting for the no-op: it shows that the rule is needed."""
    world = before_the_fault()
    for name in "bcd":
        world.cores[name].now_ms = world.now_ms
    world.take("b", world.cores["b"].tick(world.now_ms))
    while world.cores["b"].role is not Role.LEADER:
        world.inbox, waiting = [], world.inbox
        for sender, receiver, message in waiting:
            if receiver in "cd" and isinstance(message, VoteRequest):
                world.request(sender, receiver, message)
    b = world.cores["b"]
    leading(b).append([encode_members(Change(Step.REMOVE, "a").of(b.membership.members))])
    world.take("b", b.actions())
    for _ in range(3):
        world.beat("b", only="bc")
    assert b.members_committed and b.committed_index == world.cores["c"].committed_index
    world.now_ms += 5000
    world.inbox.clear()
    a = world.cores["a"]
    for _ in range(3):
        world.now_ms += 5000
        world.take("a", a.tick(world.now_ms))
        world.deliver(only="ade")
    assert a.role is Role.LEADER and a.log.term_at(b.membership.index) != b.log.term_at(b.membership.index)
