"""Replication by the core: cuts, commits, and acknowledgements that only count."""

from __future__ import annotations

import pytest

from dledger.node.messageframe import entries_in, entry_parts
from dledger.raft.actions import Action, Commit, Load, PersistThenSend, ReadReady, Reply, Role, Send, Vote
from dledger.raft.entries import Entry
from dledger.raft.messages import (
    HeartBeatRequest,
    HeartBeatResponse,
    PushRequest,
    PushResponse,
    PushType,
    ResultCode,
)
from dledger.raft.raft import Raft
from tests.unit.dledger.raftharness import SETTINGS, core, elected, entries, group, held, replies, sent


def append(term: int, prev: tuple[int, int], *new: Entry, commit: int = -1) -> PushRequest:
    return PushRequest(term, PushType.APPEND if new else PushType.COMMIT, *prev, commit, tuple(new))


def test_entries_are_durable_before_they_are_acknowledged() -> None:
    raft = core("b")
    first = raft.receive("a", append(1, (-1, -1), Entry(0, 1, b"x")), 10, ticket=3)
    ack = PushResponse(1, ResultCode.SUCCESS, 0, 1, 0)
    assert first[0] == PersistThenSend(Vote(1), None, (Entry(0, 1, b"x"),), (Reply(3, ack),))


def test_a_leader_counts_itself_only_for_durable_entries() -> None:
    world = group()
    world.elect("a")
    leader = world.cores["a"]
    actions = leader.propose([b"x"], world.now_ms)
    pushes = [to for to, _ in sent(actions)]
    assert pushes == ["b", "c"] and isinstance(actions[-1], PersistThenSend) and not actions[-1].messages
    ack = PushResponse(1, ResultCode.SUCCESS, 1, 1, 1)
    assert Commit(1) not in leader.receive("b", ack, world.now_ms)
    assert Commit(1) in leader.persisted(world.now_ms)


def test_a_quorum_of_followers_commits_while_the_leaders_disk_is_slow() -> None:
    world = group()
    world.elect("a")
    leader = world.cores["a"]
    leader.propose([b"x"], world.now_ms)
    ack = PushResponse(1, ResultCode.SUCCESS, 1, 1, 1)
    leader.receive("b", ack, world.now_ms)
    assert Commit(1) in leader.receive("c", ack, world.now_ms)


def test_a_compare_push_does_not_count_as_the_commit_notice() -> None:
    """Its response shows that the follower holds the next entry, but the follower does not know that it is
    committed."""
    world = group()
    world.elect("a")
    leader = world.cores["a"]
    leader.propose([b"x"], world.now_ms)
    leader.persisted(world.now_ms)
    append = leader.progress["b"].in_flight.requests[-1]
    assert isinstance(append, PushRequest) and append.entries
    leader.receive("c", PushResponse(1, ResultCode.SUCCESS, 1, 1, 1), world.now_ms)
    assert leader.committed_index == 1
    world.now_ms += SETTINGS.push_timeout_ms
    leader.receive("c", HeartBeatResponse(1, ResultCode.SUCCESS), world.now_ms)
    asked = [request for to, request in sent(leader.tick(world.now_ms)) if to == "b"]
    assert PushRequest(1, PushType.COMPARE, 0, 1, 1) in asked
    late = [
        request
        for response in (
            PushResponse(1, ResultCode.SUCCESS, 1, 1, 1),
            PushResponse(1, ResultCode.SUCCESS, 1, 0, 1),
        )
        for to, request in sent(leader.receive("b", response, world.now_ms))
        if to == "b"
    ]
    assert PushRequest(1, PushType.COMMIT, 1, 1, 1) in late


def test_a_lost_push_is_sent_again() -> None:
    world = group()
    world.elect("a")
    world.propose("a", b"x")
    world.inbox.clear()
    assert world.commits["a"] == 0
    for _ in range(4):
        world.beat("a", only=("a", "c"))
    assert world.commits["a"] == world.commits["c"] == 1


def test_an_entry_of_an_old_term_is_committed_only_through_one_of_the_current_term() -> None:
    """Figure 3.7 of the thesis (figure 8 of the paper): s5 could still be elected and overwrite the old
    entry."""
    s1 = elected(core("s1", ("s1", "s2", "s3", "s4", "s5"), vote=Vote(3), log=entries(1, 2)))
    s1.persisted(601)
    s1.persisted(601)
    for follower in ("s2", "s3", "s4", "s5"):
        s1.receive(follower, PushResponse(4, ResultCode.SUCCESS, 1, 1, 1), 602)
    assert s1.committed_index == -1, "entry 1 of term 2 is everywhere, and still not committed"
    s1.receive("s2", PushResponse(4, ResultCode.SUCCESS, 2, 1, 2), 603)
    assert s1.committed_index == -1
    assert Commit(2) in s1.receive("s3", PushResponse(4, ResultCode.SUCCESS, 2, 1, 2), 603)


def test_a_conflict_is_cut_at_the_first_entry_that_differs() -> None:
    raft = core("b", vote=Vote(3), log=entries(1, 2, 2, 2))
    new = (Entry(1, 2, b"1@2"), Entry(2, 3, b"new"), Entry(3, 3, b"newer"))
    actions = raft.receive("a", append(3, (0, 1), *new, commit=2), 10, ticket=5)
    ack = PushResponse(3, ResultCode.SUCCESS, 1, 3, 3)
    assert actions[0] == PersistThenSend(None, 2, new[1:], (Reply(5, ack),))
    assert actions[-1] == Commit(2)
    assert [entry.term for entry in held(raft)] == [1, 2, 3, 3]


def test_a_repeated_push_cuts_nothing() -> None:
    raft = core("b", vote=Vote(2), log=entries(1, 2, 2))
    actions = raft.receive("a", append(2, (0, 1), Entry(1, 2, b"1@2")), 10, ticket=1)
    assert replies(actions) == [PushResponse(2, ResultCode.SUCCESS, 1, 1, 2)]
    assert not any(isinstance(action, PersistThenSend) for action in actions)
    assert raft.log.last_index == 2


def test_new_entries_of_a_push_do_not_retain_the_known_ones() -> None:
    """Otherwise each push that repeats known entries would stay in memory as a whole."""
    raft, known = core("b"), [Entry(index, 1, b"x" * 100) for index in range(9)]
    pushed = entries_in(memoryview(b"".join(entry_parts([*known, Entry(9, 1, b"new")]))), 0)
    raft.receive("a", append(1, (-1, -1), *known), 10)
    actions = raft.receive("a", PushRequest(1, PushType.APPEND, -1, -1, -1, pushed), 20)
    (persist,) = [action for action in actions if isinstance(action, PersistThenSend)]
    (block,) = raft.log.slice(9, 9, 999).blocks
    assert persist.entries == [Entry(9, 1, b"new")] and block.body(0) == b"new"
    assert len(block.data) == len(block.view)
    raft.log.cut(1)
    (block,) = raft.log.slice(0, 9, 999).blocks
    assert len(block) == 1 and len(block.data) == len(block.view)


def test_a_follower_commits_only_up_to_the_matched_entry() -> None:
    raft = core("b", vote=Vote(2), log=entries(1, 1, 1))
    raft.receive("a", append(2, (0, 1), commit=9), 10)
    assert raft.committed_index == 0


@pytest.mark.parametrize(
    ("prev", "answer"),
    [
        ((9, 4), PushResponse(5, ResultCode.INCONSISTENT_STATE, 10, 0, 4)),
        ((4, 4), PushResponse(5, ResultCode.INCONSISTENT_STATE, 5, 0, 4, x_term=3, x_index=2)),
    ],
)
def test_a_follower_reports_its_log_end_or_the_conflicting_term(
    prev: tuple[int, int], answer: PushResponse
) -> None:
    raft = core("b", vote=Vote(5), log=entries(1, 1, 3, 3, 3))
    assert replies(raft.receive("a", append(5, prev), 10)) == [answer]


def test_a_leader_probes_back_by_terms_and_keeps_the_common_prefix() -> None:
    common = entries(1, 1)
    mine = [*common, *(Entry(index, 4, b"mine") for index in range(2, 60))]
    theirs = [*common, *(Entry(index, 3, b"theirs") for index in range(2, 90))]
    world = group(a=mine, b=theirs, c=mine)
    world.elect("a")
    world.deliver(rounds=20)
    assert held(world.cores["b"]) == held(world.cores["a"])
    vote, log = world.disks["b"]
    assert log == held(world.cores["a"]) and vote.term == 5


def test_a_conflicting_push_below_the_committed_index_is_rejected() -> None:
    raft = core("b", vote=Vote(2), log=entries(1, 1, 2), committed_index=1)
    conflicting = replies(raft.receive("a", append(5, (0, 1), Entry(1, 5, b"forged")), 10))
    assert conflicting == [PushResponse(5, ResultCode.INCONSISTENT_INDEX, 1, 1, 2)]
    mismatching = replies(raft.receive("a", append(5, (1, 4), Entry(2, 5, b"forged")), 11))
    assert mismatching == [PushResponse(5, ResultCode.INCONSISTENT_INDEX, 2, 1, 2)]
    assert held(raft) == entries(1, 1, 2)


def test_a_push_of_an_old_term_or_a_second_leader_is_rejected() -> None:
    raft = core("b", vote=Vote(3), log=entries(1, 2))
    old = replies(raft.receive("a", append(2, (0, 1), Entry(1, 1, b"x")), 10))
    assert old == [PushResponse(3, ResultCode.EXPIRED_TERM, 1, 1, 1)]
    raft.receive("a", HeartBeatRequest(3), 11)
    second = replies(raft.receive("c", append(3, (0, 1), Entry(1, 3, b"x")), 12))
    assert second == [PushResponse(3, ResultCode.INCONSISTENT_LEADER, 1, 1, 1)]
    assert held(raft) == entries(1, 2) and raft.leader_id == "a"


def test_a_push_to_the_leader_of_the_same_term_is_rejected() -> None:
    world = group()
    world.elect("a")
    answer = replies(world.cores["a"].receive("b", append(1, (-1, -1), Entry(0, 1, b"forged")), world.now_ms))
    assert answer == [PushResponse(1, ResultCode.INCONSISTENT_LEADER, 0, 1, 0)]
    assert world.cores["a"].role is Role.LEADER


def test_an_acknowledgement_above_the_leaders_log_end_is_ignored() -> None:
    world = group()
    world.elect("a")
    leader = world.cores["a"]
    leader.receive("b", PushResponse(1, ResultCode.SUCCESS, 1 << 40, 5, 1 << 41), world.now_ms)
    assert leader.progress["b"].match_index == leader.log.last_index == leader.committed_index == 0


def test_a_read_waits_for_a_quorum_of_heartbeat_responses() -> None:
    world = group()
    world.elect("a")
    leader = world.cores["a"]
    world.take("a", leader.read(1, world.now_ms))
    assert world.reads == {}
    stale = HeartBeatResponse(1, ResultCode.SUCCESS, read_round=0)
    assert leader.receive("b", stale, world.now_ms) == []
    fresh = HeartBeatResponse(1, ResultCode.SUCCESS, read_round=1)
    assert leader.receive("b", fresh, world.now_ms) == [ReadReady(1, 0)]


def test_a_read_of_a_new_leader_waits_for_its_no_op() -> None:
    leader = elected(core("a", vote=Vote(1), log=entries(1, 1)))
    assert leader.read(1, 601) == []
    leader.persisted(602)
    leader.persisted(602)
    actions = leader.receive("b", PushResponse(2, ResultCode.SUCCESS, 2, 1, 2), 603)
    assert Commit(2) in actions and not any(isinstance(action, ReadReady) for action in actions)
    proven = leader.receive("b", HeartBeatResponse(2, ResultCode.SUCCESS, read_round=1), 604)
    assert proven == [ReadReady(1, 2)]


def test_a_read_fails_when_leadership_is_lost() -> None:
    world = group()
    world.elect("a")
    leader = world.cores["a"]
    world.take("a", leader.read(1, world.now_ms))
    world.take("a", leader.receive("b", HeartBeatResponse(7, ResultCode.EXPIRED_TERM), world.now_ms))
    assert world.reads == {1: None}
    world.take("a", leader.read(2, world.now_ms))
    assert world.reads == {1: None, 2: None}


def test_a_restarted_group_keeps_committed_entries() -> None:
    world = group()
    world.elect("a")
    world.propose("a", b"x", b"y")
    world.deliver()
    for name in world.cores:
        world.restart(name)
    world.elect("c")
    assert [entry.body for entry in held(world.cores["c"])] == [b"", b"x", b"y", b""]
    assert world.cores["c"].term == 2 and world.cores["c"].committed_index == 3


def test_after_a_push_was_not_sent_the_next_heartbeat_compares_logs() -> None:
    world = group()
    world.elect("a")
    leader = world.cores["a"]
    pushes = [request for _, request in sent(leader.propose([b"x"], world.now_ms))]
    for peer, push in zip(leader.peers, pushes, strict=True):
        assert isinstance(push, PushRequest)
        assert leader.unsent(peer, push, world.now_ms) == [], "an immediate retry may fail as fast"
        assert not leader.progress[peer].in_flight
    again = [request for _, request in sent(leader.tick(world.now_ms + SETTINGS.heartbeat_interval_ms))]
    compare = PushRequest(1, PushType.COMPARE, 0, 1, 0)
    assert [request for request in again if isinstance(request, PushRequest)] == [compare, compare]
    equal = PushResponse(1, ResultCode.SUCCESS, 1, 0, 0)
    assert sent(leader.receive("b", equal, world.now_ms + 200)) == [("b", pushes[0])]


def test_after_a_failed_push_a_heartbeat_response_triggers_a_compare() -> None:
    world = group()
    world.elect("a")
    leader = world.cores["a"]
    push = dict(sent(leader.propose([b"x"], world.now_ms)))["b"]
    assert isinstance(push, PushRequest)
    leader.unsent("b", push, world.now_ms)
    heard = leader.receive("b", HeartBeatResponse(1, ResultCode.SUCCESS), world.now_ms)
    assert sent(heard) == [("b", PushRequest(1, PushType.COMPARE, 0, 1, 0))]


def test_a_restarted_follower_gets_the_commit_index_with_the_next_heartbeat() -> None:
    """No message was lost, so the leader has no other sign of the restart."""
    world = group()
    world.elect("a")
    leader = world.cores["a"]
    assert (leader.committed_index, leader.progress["b"].commit_index_sent) == (0, 0)
    beat, forgot = (HeartBeatResponse(1, ResultCode.SUCCESS, 0, committed_index=index) for index in (0, -1))
    assert sent(leader.receive("b", beat, world.now_ms)) == []
    assert sent(leader.receive("b", HeartBeatResponse(1, ResultCode.SUCCESS), world.now_ms)) == []
    commit = PushRequest(1, PushType.COMMIT, 0, 1, 0)
    assert sent(leader.receive("b", forgot, world.now_ms)) == [("b", commit)]
    assert sent(leader.receive("b", forgot, world.now_ms)) == [], "it is in flight"


def test_a_silent_follower_is_sent_no_more_bodies() -> None:
    world = group()
    world.elect("a")
    leader = world.cores["a"]
    pushed = sent(leader.propose([b"x"], world.now_ms))
    leader.persisted(world.now_ms)
    for _ in range(40):
        world.now_ms += SETTINGS.heartbeat_interval_ms
        leader.receive("c", HeartBeatResponse(1, ResultCode.SUCCESS), world.now_ms)
        pushed += sent(leader.tick(world.now_ms))
    to_b = [request for to, request in pushed if to == "b" and isinstance(request, PushRequest)]
    assert len(to_b) > 10 and [len(push.entries) for push in to_b] == [1] + [0] * (len(to_b) - 1)


def test_the_failure_of_a_push_that_was_repeated_since_changes_nothing() -> None:
    world = group()
    world.elect("a")
    leader = world.cores["a"]
    first = dict(sent(leader.propose([b"x"], world.now_ms)))["b"]
    leader.tick(world.now_ms + SETTINGS.push_timeout_ms)
    (repeated,) = leader.progress["b"].in_flight.requests
    assert isinstance(first, PushRequest) and repeated is not first
    leader.unsent("b", first, world.now_ms)
    assert leader.progress["b"].in_flight.has(repeated)


def committed_without_b() -> tuple[Raft, int]:
    """A leader whose entry 1 is committed by itself and c; b got a push of it and has not answered."""
    world = group()
    world.elect("a")
    leader = world.cores["a"]
    leader.propose([b"x"], world.now_ms)
    leader.persisted(world.now_ms)
    leader.receive("c", PushResponse(1, ResultCode.SUCCESS, 1, 1, 1), world.now_ms)
    assert leader.committed_index == 1
    return leader, world.now_ms


def test_a_follower_that_answers_during_a_compare_gets_the_commit_index() -> None:
    leader, now_ms = committed_without_b()
    compare = dict(sent(leader.tick(now_ms + SETTINGS.push_timeout_ms)))["b"]
    assert compare == PushRequest(1, PushType.COMPARE, 0, 1, 1), "it commits entry 0 only"
    pushed = sent(leader.receive("b", PushResponse(1, ResultCode.SUCCESS, 1, 1, 1), now_ms + 500))
    pushed += sent(leader.receive("b", PushResponse(1, ResultCode.SUCCESS, 1, 0, 1), now_ms + 500))
    assert pushed == [("b", PushRequest(1, PushType.COMMIT, 1, 1, 1))]


def test_a_lost_commit_push_is_repeated_after_an_ambiguous_response() -> None:
    leader, now_ms = committed_without_b()
    commit = dict(sent(leader.receive("b", PushResponse(1, ResultCode.SUCCESS, 1, 1, 1), now_ms)))["b"]
    assert commit == PushRequest(1, PushType.COMMIT, 1, 1, 1)
    compare = dict(sent(leader.tick(now_ms + SETTINGS.push_timeout_ms)))["b"]
    assert compare == PushRequest(1, PushType.COMPARE, 1, 1, 1)
    leader.receive(
        "b", PushResponse(1, ResultCode.SUCCESS, 2, 0, 1), now_ms + 500
    )  # the response to the first, but it also fits the second
    leader.unsent("b", compare, now_ms + 510)
    assert dict(sent(leader.tick(now_ms + 1000)))["b"] == commit


def test_one_heartbeat_round_proves_all_reads_that_waited_for_it() -> None:
    world = group()
    world.elect("a")
    leader = world.cores["a"]
    asked = [request for read_id in range(100) for request in sent(leader.read(read_id, world.now_ms))]
    assert asked == [("b", HeartBeatRequest(1, 1)), ("c", HeartBeatRequest(1, 1))]
    first = leader.receive("b", HeartBeatResponse(1, ResultCode.SUCCESS, 1), world.now_ms)
    assert first == [Send("b", HeartBeatRequest(1, 100)), ReadReady(0, 0)]
    rest = leader.receive("b", HeartBeatResponse(1, ResultCode.SUCCESS, 100), world.now_ms)
    assert rest == [ReadReady(read_id, 0) for read_id in range(1, 100)]


def test_a_read_round_that_was_not_sent_is_sent_with_the_next_read() -> None:
    world = group()
    world.elect("a")
    leader = world.cores["a"]
    for peer, request in sent(leader.read(1, world.now_ms)):
        assert isinstance(request, HeartBeatRequest)
        leader.unsent(peer, request, world.now_ms)
    assert sent(leader.read(2, world.now_ms)) == [
        ("b", HeartBeatRequest(1, 2)),
        ("c", HeartBeatRequest(1, 2)),
    ]


def loads(actions: list[Action]) -> list[Load]:
    return [action for action in actions if isinstance(action, Load)]


def leader_of_a_group_that_is_behind() -> tuple[Raft, Load, list[Entry]]:
    """A leader without entries 0 to 5 in memory, its request to read them for b, and the entries."""
    old = entries(1, 1, 1, 2, 2, 2)
    leader = elected(core(vote=Vote(2), log=old, recent_bytes_max=0))
    leader.persisted(600)
    leader.persisted(600)
    assert (leader.log.recent_from, leader.log.last_index) == (7, 6)
    actions = leader.receive("b", PushResponse(3, ResultCode.INCONSISTENT_STATE, 6, 1, -1), 610)
    actions += leader.receive("b", PushResponse(3, ResultCode.SUCCESS, 0, 0, -1), 611)
    (load,) = loads(actions)
    return leader, load, old


def test_entries_that_left_memory_are_read_from_disk_and_pushed() -> None:
    leader, load, old = leader_of_a_group_that_is_behind()
    assert load == Load("b", 0, 7)
    assert "b" not in [load.peer for load in loads(leader.tick(1000))], "one read at a time"
    actions = leader.loaded(load, old[:4], 630)
    ((to, push),) = sent(actions)
    assert to == "b" and isinstance(push, PushRequest)
    assert (push.prev_index, push.prev_term, push.entries) == (-1, -1, tuple(old[:4]))
    assert loads(actions) == [Load("b", 4, 3)], "the next entries are read while that push is in flight"
    assert loads(leader.receive("b", PushResponse(3, ResultCode.SUCCESS, 0, 4, 3), 640)) == []


def test_entries_read_for_an_earlier_term_are_not_pushed() -> None:
    leader, load, old = leader_of_a_group_that_is_behind()
    leader.receive("c", HeartBeatRequest(4), 620)
    assert leader.loaded(load, old, 630) == []
    leader.persisted(640)
    again = elected(leader, 5000)
    assert again.term == 5 and sent(leader.loaded(load, old, 5001)) == []


def test_a_read_without_entries_is_repeated() -> None:
    leader, load, old = leader_of_a_group_that_is_behind()
    (again,) = loads(leader.loaded(load, [], 620))
    assert again == load and again is not load
    assert leader.loaded(load, old, 630) == [], "the first one is over"
    assert sent(leader.loaded(again, old, 640))


def test_entries_that_a_follower_has_by_now_are_not_pushed() -> None:
    leader, load, old = leader_of_a_group_that_is_behind()
    leader.receive("b", PushResponse(3, ResultCode.SUCCESS, 0, 3, 2), 620)
    actions = leader.loaded(load, old, 630)
    assert sent(actions) == [] and loads(actions) == [Load("b", 3, 4)]


def test_a_caught_up_follower_is_pushed_from_memory() -> None:
    leader, _, _ = leader_of_a_group_that_is_behind()
    leader.receive("c", PushResponse(3, ResultCode.SUCCESS, 6, 1, 6), 620)
    leader.receive("c", PushResponse(3, ResultCode.SUCCESS, 7, 0, 6), 625)
    actions = leader.propose([b"x"], 630)
    assert not loads(actions)
    assert [push.entries for _, push in sent(actions) if isinstance(push, PushRequest)] == [
        (Entry(7, 3, b"x"),)
    ]
