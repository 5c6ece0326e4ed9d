"""Where requests go while mastership passes on."""

from __future__ import annotations

from broker.switchover.forwardingstate import (
    FORM_MS,
    FORWARD_MS,
    HOLD_MS_MAX,
    PATIENCE_MS,
    ForwardingState,
    Leave,
    Reach,
    Release,
    Stage,
    Successor,
)

NEXT = Successor("10.0.0.2:10911", 8)


def of_a_master() -> ForwardingState:
    passage = ForwardingState()
    passage.leads(0, is_formed=True)
    return passage


def after_hand_over() -> ForwardingState:
    passage = of_a_master()
    passage.hand_over(1_000, 0)
    passage.follows(NEXT, 100)
    return passage


def test_writes_wait_from_the_hand_over_on_and_reads_from_the_new_role_on() -> None:
    passage = of_a_master()
    assert passage.hand_over(1_000, 0) == []
    assert (passage.stage, passage.writes_here, passage.reads_here) == (Stage.PARKING, False, True)
    assert passage.follows(NEXT, 100) == [Reach(NEXT)]
    assert (passage.stage, passage.writes_here, passage.reads_here) == (Stage.AWAITING, False, False)
    assert passage.opened(NEXT) == [Release()]
    assert passage.stage is Stage.OPEN and not passage.holds
    assert passage.successor == NEXT


def test_a_former_master_names_its_successor_until_nobody_comes_to_it_any_more() -> None:
    passage = after_hand_over()
    passage.opened(NEXT)
    passage.closed(NEXT, 200)
    passage.tick(200 + PATIENCE_MS)
    assert passage.stage is Stage.SHUT and passage.successor == NEXT
    passage.tick(100 + FORWARD_MS)
    assert passage.stage is Stage.HERE and passage.successor is None


def test_a_hand_over_without_an_election_ends_by_itself() -> None:
    passage = of_a_master()
    passage.hand_over(1_000, 0)
    assert passage.tick(999) == []
    assert passage.next_tick_ms == 1_000
    assert passage.tick(1_000) == [Release()]
    assert passage.stage is Stage.HERE


def test_no_request_holds_a_master_longer_than_the_limit() -> None:
    passage = of_a_master()
    passage.hand_over(1 << 40, 0)
    assert passage.next_tick_ms == HOLD_MS_MAX


def test_a_hand_over_that_is_called_off_is_over_at_once() -> None:
    passage = of_a_master()
    passage.hand_over(1_000, 0)
    assert passage.called_off() == [Release()]
    assert passage.stage is Stage.HERE


def test_a_call_off_that_comes_after_the_election_changes_nothing() -> None:
    passage = after_hand_over()
    assert passage.called_off() == []
    assert passage.stage is Stage.AWAITING


def test_a_master_that_is_elected_again_serves_what_waited() -> None:
    passage = of_a_master()
    passage.announced(0)
    assert passage.reads_here and not passage.writes_here
    assert passage.leads(200, is_formed=True) == [Release()]
    assert passage.stage is Stage.HERE


def test_a_new_master_waits_a_moment_for_its_followers() -> None:
    passage = ForwardingState()
    assert passage.leads(0, is_formed=False) == []
    assert passage.forms and passage.reads_here and not passage.writes_here
    assert passage.formed() == [Release()]
    assert passage.writes_here and passage.formed() == []


def test_a_new_master_that_nobody_follows_says_so_soon() -> None:
    passage = ForwardingState()
    passage.leads(0, is_formed=False)
    assert passage.tick(FORM_MS) == [Release()]
    assert passage.writes_here and not passage.forms


def test_who_never_led_holds_and_forwards_nothing() -> None:
    passage = ForwardingState()
    assert passage.announced(0) == [] and passage.follows(NEXT, 0) == []
    assert passage.stage is Stage.HERE


def test_a_successor_that_does_not_serve_keeps_nobody_waiting_and_may_come_yet() -> None:
    passage = after_hand_over()
    assert passage.tick(100 + PATIENCE_MS) == [Release()]
    assert not passage.reads_here and not passage.holds
    assert passage.opened(NEXT) == [Release()]
    assert passage.stage is Stage.OPEN


def test_another_successor_takes_the_place_of_the_first() -> None:
    passage, third = after_hand_over(), Successor("10.0.0.3:10911", 9)
    passage.opened(NEXT)
    assert passage.follows(third, 5_000) == [Reach(third)]
    assert passage.opened(NEXT) == [], "the late word of the former one"
    assert passage.stage is Stage.AWAITING


def test_what_comes_while_the_connection_is_down_waits_for_it() -> None:
    passage = after_hand_over()
    passage.opened(NEXT)
    assert passage.closed(NEXT, 5_000) == []
    assert passage.stage is Stage.AWAITING
    assert passage.opened(NEXT) == [Release()]


def test_forwarding_ends_when_every_client_has_asked_for_routes() -> None:
    passage = after_hand_over()
    passage.opened(NEXT)
    assert passage.next_tick_ms == 100 + FORWARD_MS
    assert passage.tick(100 + FORWARD_MS) == [Leave(), Release()]
    assert passage.stage is Stage.HERE
    assert passage.follows(Successor("10.0.0.3:10911", 9), 100 + FORWARD_MS) == []


def test_a_former_master_that_leads_again_forwards_no_more() -> None:
    passage = after_hand_over()
    passage.opened(NEXT)
    assert passage.leads(200, is_formed=True) == [Leave(), Release()]
    assert passage.stage is Stage.HERE
    assert passage.tick(100 + FORWARD_MS) == []
