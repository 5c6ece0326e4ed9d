"""A replica that resigns in order to start empty: when it may, and the state that remains."""

from __future__ import annotations

import pytest

from controller.decision import Decision
from controller.electpolicy import LiveReport
from controller.events import CleanBrokerData, ElectMaster, Event
from controller.heartbeats import Liveness
from controller.resync import give_up_replica
from controller.state import ReplicasState
from remoting.codes import ResponseCode
from tests.unit.controller.brokersets import alive, applied, members, report

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


def test_a_member_resigns_when_enough_members_stay() -> None:
    state = applied(members(1, 2, 3))
    assert asked(state, ALL, dry_run=True) == Decision(), "a dry run changes nothing"
    decision = asked(state, ALL)
    assert decision == Decision(events=(members(1, 2), forgets(3)))
    before = state.sync_states["a"].set_epoch
    for event in decision.events:
        state.apply(event)
    assert state.sync_states["a"].set_epoch == before + 1, "so its master notices the change"
    assert asked(state, ALL) == Decision(), "repeated because the response was lost"


def test_a_replica_outside_the_set_may_always_resign() -> None:
    assert asked(applied(members(1, 2)), alive(b1=report(9), b2=report(9))) == Decision(events=(forgets(3),))


@pytest.mark.parametrize(
    ("state", "live", "broker_id", "why"),
    [
        (applied(members(1, 2, 3)), ALL, 1, "is the master of a: elect another one first"),
        (applied(members(1, 3)), ALL, 3, "minInSyncReplicas is 2"),
        (applied(members(1, 2, 3)), alive(b2=report(1), b3=report(1)), 3, "no living master"),
        (applied(members(1, 2, 3), ElectMaster("a", None)), ALL, 3, "no living master"),
        (applied(members(1, eligible=(2, 3))), alive(b1=report(9), b3=report(9), b2=report(9, may_miss=True)), 3, None),
        (applied(members(1, eligible=(3,))), ALL, 3, "only [1] would hold"),
        (
            applied(members(1, eligible=(2, 3))),
            alive(b1=report(9, may_miss=True), b2=report(9, may_miss=True), b3=report(9)),
            3,
            "may alone hold all that was acknowledged",
        ),
    ],
)  # fmt: skip
def test_a_needed_replica_may_not_resign_and_gets_the_reason(
    state: ReplicasState, live: Liveness, broker_id: int, why: str | None
) -> None:
    for dry_run in (True, False):
        decision = asked(state, live, broker_id, dry_run=dry_run)
        if why is None:
            assert decision.code == ResponseCode.SUCCESS
            assert dry_run or decision.events == (members(1, eligible=(2,)), forgets(3)), (
                "announced with a new set epoch"
            )
        else:
            assert decision.code == REFUSED and why in (decision.remark or "")
            assert decision.events == ()


def test_no_member_may_resign_when_the_set_would_fall_below_its_minimum() -> None:
    """Eligible replicas hold the acknowledged data, but sends would be refused for longer."""
    state = applied(members(1, 3, eligible=(2,)))
    live = alive(b1=LiveReport(1, 9, 0, 2), b2=report(9), b3=report(9))
    assert "sends would be refused" in (asked(state, live).remark or "")


def test_unknown_brokers_and_former_holders_of_the_id_may_not_resign() -> None:
    state = applied(members(1, 2))
    assert asked(state, ALL, 7).code == UNKNOWN
    assert asked(state, ALL, 3, code="another:1;8").code == UNKNOWN
    unknown_set = give_up_replica(
        ReplicasState(), ALL, broker_name="a", broker_id=3, check_code=None, dry_run=False
    )
    assert unknown_set.code == ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST
