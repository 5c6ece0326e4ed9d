"""The handling of requests during a change of master."""

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
    state = ForwardingState()
    state.leads(0, is_formed=True)
    return state


def after_hand_over() -> ForwardingState:
    state = of_a_master()
    state.hand_over(1_000, 0)
    state.follows(NEXT, 100)
    return state


def test_writes_are_held_from_the_hand_over_and_reads_from_the_new_role() -> None:
    state = of_a_master()
    assert state.hand_over(1_000, 0) == []
    assert (state.stage, state.writes_here, state.reads_here) == (Stage.HOLDING, False, True)
    assert state.follows(NEXT, 100) == [Reach(NEXT)]
    assert (state.stage, state.writes_here, state.reads_here) == (Stage.AWAITING, False, False)
    assert state.opened(NEXT) == [Release()]
    assert state.stage is Stage.FORWARDING and not state.holds
    assert state.successor == NEXT


def test_a_former_master_names_its_successor_until_forwarding_ends() -> None:
    state = after_hand_over()
    state.opened(NEXT)
    state.closed(NEXT, 200)
    state.tick(200 + PATIENCE_MS)
    assert state.stage is Stage.REFUSING and state.successor == NEXT
    state.tick(100 + FORWARD_MS)
    assert state.stage is Stage.SERVING and state.successor is None


def test_a_hand_over_without_an_election_ends_at_its_deadline() -> None:
    state = of_a_master()
    state.hand_over(1_000, 0)
    assert state.tick(999) == []
    assert state.next_tick_ms == 1_000
    assert state.tick(1_000) == [Release()]
    assert state.stage is Stage.SERVING


def test_a_hand_over_holds_requests_no_longer_than_the_limit() -> None:
    state = of_a_master()
    state.hand_over(1 << 40, 0)
    assert state.next_tick_ms == HOLD_MS_MAX


def test_a_hand_over_that_is_called_off_ends_at_once() -> None:
    state = of_a_master()
    state.hand_over(1_000, 0)
    assert state.called_off() == [Release()]
    assert state.stage is Stage.SERVING


def test_calling_off_a_hand_over_after_the_election_changes_nothing() -> None:
    state = after_hand_over()
    assert state.called_off() == []
    assert state.stage is Stage.AWAITING


def test_a_reelected_master_serves_the_held_requests() -> None:
    state = of_a_master()
    state.announced(0)
    assert state.reads_here and not state.writes_here
    assert state.leads(200, is_formed=True) == [Release()]
    assert state.stage is Stage.SERVING


def test_a_new_master_holds_writes_until_its_set_is_formed() -> None:
    state = ForwardingState()
    assert state.leads(0, is_formed=False) == []
    assert state.forms and state.reads_here and not state.writes_here
    assert state.formed() == [Release()]
    assert state.writes_here and state.formed() == []


def test_a_new_master_without_followers_releases_writes_after_a_limit() -> None:
    state = ForwardingState()
    state.leads(0, is_formed=False)
    assert state.tick(FORM_MS) == [Release()]
    assert state.writes_here and not state.forms


def test_a_broker_that_never_led_holds_and_forwards_nothing() -> None:
    state = ForwardingState()
    assert state.announced(0) == [] and state.follows(NEXT, 0) == []
    assert state.stage is Stage.SERVING


def test_held_requests_are_released_if_the_successor_is_late_and_forwarded_once_it_serves() -> None:
    state = after_hand_over()
    assert state.tick(100 + PATIENCE_MS) == [Release()]
    assert not state.reads_here and not state.holds
    assert state.opened(NEXT) == [Release()]
    assert state.stage is Stage.FORWARDING


def test_a_second_successor_replaces_the_first() -> None:
    state, third = after_hand_over(), Successor("10.0.0.3:10911", 9)
    state.opened(NEXT)
    assert state.follows(third, 5_000) == [Reach(third)]
    assert state.opened(NEXT) == [], "a late event of the former successor"
    assert state.stage is Stage.AWAITING


def test_requests_are_held_while_the_forwarding_connection_is_down() -> None:
    state = after_hand_over()
    state.opened(NEXT)
    assert state.closed(NEXT, 5_000) == []
    assert state.stage is Stage.AWAITING
    assert state.opened(NEXT) == [Release()]


def test_forwarding_ends_after_the_forwarding_period() -> None:
    state = after_hand_over()
    state.opened(NEXT)
    assert state.next_tick_ms == 100 + FORWARD_MS
    assert state.tick(100 + FORWARD_MS) == [Leave(), Release()]
    assert state.stage is Stage.SERVING
    assert state.follows(Successor("10.0.0.3:10911", 9), 100 + FORWARD_MS) == []


def test_a_former_master_that_leads_again_stops_forwarding() -> None:
    state = after_hand_over()
    state.opened(NEXT)
    assert state.leads(200, is_formed=True) == [Leave(), Release()]
    assert state.stage is Stage.SERVING
    assert state.tick(100 + FORWARD_MS) == []
