"""A replica that begins anew: who may, and what stays behind."""

from __future__ import annotations

import pytest

from controller.decision import Decision
from controller.electpolicy import LiveReport
from controller.events import CleanBrokerData, ElectMaster, Event
from controller.givingup import give_up_replica
from controller.heartbeats import Liveness
from controller.state import ReplicasState
from remoting.codes import ResponseCode
from tests.unit.controller.test_controller_eligibility import alive, applied, members, report

REFUSED = ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
UNKNOWN = ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED


def asked(
    state: ReplicasState,
    live: Liveness,
    broker_id: int = 3,
    *,
    code: str | None = None,
    dry_run: bool = False,
) -> Decision:
    return give_up_replica(
        state,
        live,
        broker_name="a",
        broker_id=broker_id,
        check_code=code or f"h{broker_id}:1;7",
        dry_run=dry_run,
    )


def forgets(broker_id: int) -> Event:
    return CleanBrokerData("a", frozenset({broker_id}))


ALL = alive(b1=report(100), b2=report(100), b3=report(100))


def test_a_member_leaves_the_set_and_is_forgotten_where_enough_stay() -> None:
    state = applied(members(1, 2, 3))
    assert asked(state, ALL, dry_run=True) == Decision(), "only asked"
    decision = asked(state, ALL)
    assert decision == Decision(events=(members(1, 2), forgets(3)))
    before = state.sync_states["a"].set_epoch
    for event in decision.events:
        state.apply(event)
    assert state.sync_states["a"].set_epoch == before + 1, "so its master hears of it"
    assert asked(state, ALL) == Decision(), "asked again because the answer was lost"


def test_one_that_is_left_behind_needs_nobody() -> None:
    assert asked(applied(members(1, 2)), alive(b1=report(9), b2=report(9))) == Decision(events=(forgets(3),))


@pytest.mark.parametrize(
    ("state", "live", "broker_id", "why"),
    [
        (applied(members(1, 2, 3)), ALL, 1, "is the master of a: elect another one first"),
        (applied(members(1, 3)), ALL, 3, "minInSyncReplicas is 2"),
        (applied(members(1, 2, 3)), alive(b2=report(1), b3=report(1)), 3, "no living master"),
        (applied(members(1, 2, 3), ElectMaster("a", None)), ALL, 3, "no living master"),
        (applied(members(1, eligible=(2, 3))), alive(b1=report(9), b3=report(9), b2=report(9, may_lack=True)), 3, None),
        (applied(members(1, eligible=(3,))), ALL, 3, "only [1] would hold"),
        (
            applied(members(1, eligible=(2, 3))),
            alive(b1=report(9, may_lack=True), b2=report(9, may_lack=True), b3=report(9)),
            3,
            "may alone hold all that was acknowledged",
        ),
    ],
)  # fmt: skip
def test_who_is_needed_is_refused_and_told_why(
    state: ReplicasState, live: Liveness, broker_id: int, why: str | None
) -> None:
    for dry_run in (True, False):
        decision = asked(state, live, broker_id, dry_run=dry_run)
        if why is None:
            assert decision.code == ResponseCode.SUCCESS
            assert dry_run or decision.events == (members(1, eligible=(2,)), forgets(3)), (
                "told with a new set epoch"
            )
        else:
            assert decision.code == REFUSED and why in (decision.remark or "")
            assert decision.events == ()


def test_where_a_set_below_its_minimum_is_short_of_a_member_nobody_may_go() -> None:
    """Eligible replicas hold what was acknowledged, but sends would be refused for longer."""
    state = applied(members(1, 3, eligible=(2,)))
    live = alive(b1=LiveReport(1, 9, 0, 2), b2=report(9), b3=report(9))
    assert "sends would be refused" in (asked(state, live).remark or "")


def test_strangers_and_former_holders_of_the_id_are_refused() -> None:
    state = applied(members(1, 2))
    assert asked(state, ALL, 7).code == UNKNOWN
    assert asked(state, ALL, 3, code="another:1;8").code == UNKNOWN
    unknown_set = give_up_replica(
        ReplicasState(), ALL, broker_name="a", broker_id=3, check_code=None, dry_run=False
    )
    assert unknown_set.code == ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST
