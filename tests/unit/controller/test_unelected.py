"""Sets that stay without a master although brokers are alive: when this is logged, and which fields."""

from __future__ import annotations

import asyncio

import pytest

from controller.elections import WaitingReason, waiting
from controller.events import ElectMaster
from controller.failover import LOG_EVERY_MS
from controller.heartbeats import Liveness
from controller.masterless import UNELECTED_MS, Unelected
from controller.state import ReplicasState
from mqruntime.repeatedfailure import REMIND_MS
from tests.unit.controller.brokersets import alive, applied, members, report
from tests.unit.controller.guardscene import Scene, play

STRUCK_OFF = ElectMaster("a", None)
WAITS = WaitingReason({1: 50}, frozenset({2}), 1)


def waiting_reason(state: ReplicasState, live: Liveness) -> WaitingReason | None:
    return waiting(state, live, broker_name="a")


def test_an_unelected_set_names_the_missing_member() -> None:
    state = applied(members(1, 2), STRUCK_OFF)
    assert waiting_reason(state, alive(b1=report(50, may_miss=True), b3=report(90))) == WAITS
    incomplete = alive(b1=report(50), incomplete=(1,))
    assert waiting_reason(state, incomplete) == WAITS, "also if only the controllers know of the loss"


def test_an_unelected_set_also_waits_for_eligible_brokers() -> None:
    state = applied(members(1, eligible=(2, 3)), STRUCK_OFF)
    live = alive(b1=report(50, may_miss=True), b2=report(70, may_miss=True))
    assert waiting_reason(state, live) == WaitingReason({1: 50, 2: 70}, frozenset({3}), 2)


def test_a_broker_outside_the_set_is_not_named_as_the_best() -> None:
    assert waiting_reason(applied(members(1, 2), STRUCK_OFF), alive(b3=report(90))) == WaitingReason(
        {}, frozenset({1, 2}), None
    )


def test_no_waiting_reason_with_a_master_an_electable_member_or_no_live_broker() -> None:
    assert waiting_reason(applied(members(1, 2)), alive(b2=report(50, may_miss=True))) is None, (
        "the lost master is not removed yet"
    )
    state = applied(members(1, 2), STRUCK_OFF)
    assert waiting_reason(state, alive(b1=report(50, may_miss=True), b2=report(40))) is None
    assert waiting_reason(state, alive()) is None
    assert waiting_reason(ReplicasState(), alive()) is None


def logged_fields(caplog: pytest.LogCaptureFixture) -> list[dict[str, object]]:
    found = [record.__dict__["fields"] for record in caplog.records if record.name == "controller.masterless"]
    caplog.clear()
    assert all("mqadmin" in each["hint"] or "enableElectUncleanMaster" in each["hint"] for each in found)
    return [{key: value for key, value in each.items() if key != "hint"} for each in found]


def test_an_unelected_set_is_logged_after_a_delay_and_every_half_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    unelected, found = Unelected(), {"a": WAITS}
    unelected.look(found, 0)
    unelected.look(found, UNELECTED_MS - 1)
    assert logged_fields(caplog) == []
    unelected.look(found, UNELECTED_MS)
    assert logged_fields(caplog) == [
        {"broker": "a", "missing": [2], "may_miss": [1], "best": 1, "log_end": 50}
    ]
    unelected.look(found, UNELECTED_MS + REMIND_MS - 1)
    assert logged_fields(caplog) == []
    unelected.look(found, UNELECTED_MS + REMIND_MS)
    assert len(logged_fields(caplog)) == 1


def test_a_set_with_only_empty_logs_names_no_missing_member(caplog: pytest.LogCaptureFixture) -> None:
    state = applied(members(1, 2), STRUCK_OFF)
    empty = {f"b{each}": report(0, may_miss=True) for each in (1, 2)}
    found = waiting_reason(state, alive(**empty, incomplete=(1, 2)))
    assert found == WaitingReason({1: 0, 2: 0}, frozenset(), 1)
    Unelected().log("a", found)
    assert "the logs of all members are empty" in caplog.text
    assert all("missing" not in record.__dict__["fields"]["hint"] for record in caplog.records)
    assert logged_fields(caplog) == [{"broker": "a", "may_miss": [1, 2], "best": 1}]


def test_a_set_that_had_a_master_since_starts_its_delay_again(caplog: pytest.LogCaptureFixture) -> None:
    unelected = Unelected()
    unelected.look({"a": WAITS}, 0)
    unelected.look({}, UNELECTED_MS - 1)
    unelected.look({"a": WAITS}, UNELECTED_MS)
    assert logged_fields(caplog) == []


def test_a_set_without_live_members_names_no_best_member(caplog: pytest.LogCaptureFixture) -> None:
    unelected = Unelected()
    for now_ms in (0, UNELECTED_MS):
        unelected.look({"a": WaitingReason({}, frozenset({2, 1}), None)}, now_ms)
    (record,) = caplog.records
    assert "enableElectUncleanMaster" in record.__dict__["fields"]["hint"]
    assert logged_fields(caplog) == [{"broker": "a", "missing": [1, 2]}]


def test_a_leader_logs_only_the_set_that_waits(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(scene: Scene) -> None:
        waits = scene.names[3]
        scene.brokers.hear(1, [name for name in scene.names if name != waits])
        scene.brokers.lose(2, [waits])
        scene.state.apply(ElectMaster(waits, None))
        scene.brokers.hear(2, [waits], may_miss=True)
        scene.lead()
        for _ in range(0, UNELECTED_MS + 2 * LOG_EVERY_MS, LOG_EVERY_MS):
            scene.clock.ms += LOG_EVERY_MS
            scene.guard.changed("unknown")  # the test's clock wakes no task
            for _ in range(20):
                await asyncio.sleep(0)

    play(scenario)
    assert [fields["broker"] for fields in logged_fields(caplog)] == ["set-3"]
