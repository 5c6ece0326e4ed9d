"""Several PUSHes in flight to a follower: when they are allowed, and what each response proves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dledger.raft.actions import Action, Commit
from dledger.raft.messages import (
    HeartBeatRequest,
    HeartBeatResponse,
    PushRequest,
    PushResponse,
    PushType,
    ResultCode,
)
from dledger.raft.raft import Raft
from tests.unit.dledger.raftharness import SETTINGS, elected, group, leading, sent

NOW_MS = 700


def pushed(actions: Sequence[Action], to: str = "b") -> list[PushRequest]:
    """The PUSHes to one follower."""
    return [push for peer, push in sent(actions) if peer == to and isinstance(push, PushRequest)]


def leader(**limits: int) -> Raft:
    """Leads in term 1; its no-op is entry 0, which b and c hold."""
    world = group()
    world.elect("a")
    raft = world.cores["a"]
    raft.settings = replace(SETTINGS, **({"push_gap_ms": 0} | limits))  # type: ignore[arg-type]
    raft.now_ms = NOW_MS
    return raft


def proposed(raft: Raft, *bodies: bytes) -> list[Action]:
    """Propose each body in a turn of its own."""
    return [action for body in bodies for action in raft.propose([body], NOW_MS)]


def held(index: int, count: int, term: int = 1) -> PushResponse:
    return PushResponse(term, ResultCode.SUCCESS, index, count, index + count - 1)


def refused(push: PushRequest, end_index: int) -> PushResponse:
    first = push.prev_index + 1
    return PushResponse(push.term, ResultCode.INCONSISTENT_STATE, first, len(push.entries), end_index)


def test_a_caught_up_follower_gets_pipelined_pushes() -> None:
    raft = leader(pushes_in_flight_max=3)
    pushes = pushed(proposed(raft, b"1", b"2", b"3", b"4", b"5"))
    assert [(push.prev_index, len(push.entries)) for push in pushes] == [(0, 1), (1, 1), (2, 1)]
    assert raft.progress["b"].match_index == 0, "a sent push proves nothing"
    (rest,) = pushed(raft.receive("b", held(1, 1), NOW_MS))
    assert (rest.prev_index, [entry.body for entry in rest.entries]) == (3, [b"4", b"5"])
    assert raft.progress["b"].match_index == 1


def test_a_follower_without_a_response_gets_one_push_at_a_time() -> None:
    world = group()
    raft = elected(world.cores["a"])
    leading(raft).append([b"x"])
    leading(raft).append([b"y"])
    pushes = pushed(raft.actions())
    assert pushes == [], "the no-op is not answered"
    (rest,) = pushed(raft.receive("b", held(0, 1), NOW_MS))
    assert [entry.body for entry in rest.entries] == [b"x", b"y"]


def test_a_window_of_one_disables_pipelining() -> None:
    raft = leader(pushes_in_flight_max=1)
    assert len(pushed(proposed(raft, b"1", b"2", b"3"))) == 1


def test_small_pushes_wait_for_more_entries_and_full_ones_do_not() -> None:
    raft = leader(push_gap_ms=5, push_entries_max=3)
    pushes = pushed(proposed(raft, b"1", b"2", b"3", b"4", b"5"))
    assert [len(push.entries) for push in pushes] == [1, 3]
    assert pushed(raft.propose([b"6"], NOW_MS + 4)) == []
    (late,) = pushed(raft.propose([b"7"], NOW_MS + 5))
    assert [entry.body for entry in late.entries] == [b"5", b"6", b"7"]
    raft = leader(push_gap_ms=5, push_bytes_max=100)
    assert [len(push.entries) for push in pushed(proposed(raft, b"1", b"x" * 60, b"x" * 60))] == [1, 1]


def test_bytes_in_flight_have_a_limit_and_a_larger_entry_is_sent_alone() -> None:
    raft = leader(push_bytes_max=100, bytes_in_flight_max=250)
    body = b"x" * 90
    assert len(pushed(proposed(raft, body, body, body, body))) == 2
    raft.receive("b", held(1, 1), NOW_MS)
    assert raft.progress["b"].in_flight.size == 180
    raft = leader(push_bytes_max=100, bytes_in_flight_max=250)
    assert len(pushed(proposed(raft, b"x", b"y" * 500))) == 1
    (large,) = pushed(raft.receive("b", held(1, 1), NOW_MS))
    assert len(large.entries[0].body) == 500
    assert pushed(proposed(raft, b"z")) == []


def test_a_stuck_follower_does_not_use_up_the_window_of_another() -> None:
    raft = leader(push_bytes_max=100, bytes_in_flight_max=1000, all_bytes_in_flight_max=350)
    body = b"x" * 100
    proposed(raft, *[body] * 6)
    assert sum(known.in_flight.size for known in raft.progress.values()) == 300
    for index in range(1, 7):
        answered = raft.receive("c", held(index, 1), NOW_MS)
        assert index == 6 or raft.progress["c"].in_flight
        assert pushed(answered) == []
    assert raft.progress["c"].match_index == 6 and len(raft.progress["b"].in_flight) == 2


def test_responses_may_arrive_in_any_order_and_twice() -> None:
    raft = leader()
    proposed(raft, b"1", b"2", b"3")
    raft.persisted(NOW_MS)
    raft.persisted(NOW_MS)
    raft.persisted(NOW_MS)
    assert Commit(2) in raft.receive("b", held(2, 1), NOW_MS), "it holds the earlier entries too"
    progress = raft.progress["b"]
    assert (progress.match_index, [push.prev_index for push in pushes_of(raft)]) == (2, [2])
    for late in (held(1, 1), held(2, 1), held(0, 1)):
        raft.receive("b", late, NOW_MS)
        assert (progress.match_index, progress.next_index) == (2, 4)
    raft.receive("b", held(3, 1), NOW_MS)
    assert (progress.match_index, progress.next_index) == (3, 4)


def pushes_of(raft: Raft) -> list[PushRequest]:
    return [push for push in raft.progress["b"].in_flight.requests if isinstance(push, PushRequest)]


def test_a_refused_push_withdraws_the_pushes_after_it() -> None:
    raft = leader()
    first, second, third = pushed(proposed(raft, b"1", b"2", b"3"))
    (compare,) = pushed(raft.receive("b", refused(second, end_index=0), NOW_MS))
    assert (compare.type, compare.prev_index, compare.entries) == (PushType.COMPARE, 0, ())
    for late in (refused(third, end_index=0), refused(first, end_index=-1)):
        assert pushed(raft.receive("b", late, NOW_MS)) == []
        assert pushes_of(raft) == [compare]
    assert pushed(proposed(raft, b"4")) == [], "one at a time while the match index is unknown"
    (again,) = pushed(raft.receive("b", held(1, 0), NOW_MS))
    assert [entry.body for entry in again.entries] == [b"1", b"2", b"3", b"4"]
    assert len(pushed(proposed(raft, b"5", b"6"))) == 2, "caught up again"


def test_pushes_of_a_broken_connection_are_compared_before_they_are_sent_again() -> None:
    raft = leader()
    pushes = pushed(proposed(raft, b"1", b"2", b"3"))
    for push in pushes:
        assert pushed(raft.unsent("b", push, NOW_MS)) == []
    assert not raft.progress["b"].in_flight
    (compare,) = pushed(raft.receive("b", HeartBeatResponse(1, ResultCode.SUCCESS), NOW_MS))
    assert (compare.type, compare.prev_index) == (PushType.COMPARE, 0)
    (again,) = pushed(raft.receive("b", held(1, 0), NOW_MS))
    assert (again.prev_index, len(again.entries)) == (0, 3)


def test_a_follower_that_answers_some_pushes_does_not_time_out() -> None:
    raft = leader()
    proposed(raft, b"1", b"2", b"3")
    wait_ms = SETTINGS.push_timeout_ms - 1
    for index in (1, 2):
        raft.receive("b", held(index, 1), NOW_MS + index * wait_ms)
        raft.progress["b"].beat(NOW_MS + index * wait_ms, SETTINGS.push_timeout_ms)
    assert not raft.progress["b"].probing
    raft.progress["b"].beat(NOW_MS + 3 * wait_ms + 1, SETTINGS.push_timeout_ms)
    assert raft.progress["b"].probing and not raft.progress["b"].in_flight


def test_a_response_of_an_older_term_or_session_is_ignored() -> None:
    raft = leader()
    raft.receive("c", HeartBeatRequest(2), NOW_MS)
    raft.persisted(NOW_MS)
    again = elected(raft, 9000)
    again.persisted(9000)
    again.persisted(9000)
    progress = again.progress["b"]
    again.receive("b", held(0, 1, term=1), 9000)
    again.receive("b", replace(held(0, 1, term=3), session=77), 9000)
    assert progress.match_index == -1
    again.receive("b", held(0, 1, term=3), 9000)
    assert progress.match_index == 0
