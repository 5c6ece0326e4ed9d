"""Sets that stay without a master though brokers live: when that is told, and what."""

from __future__ import annotations

import asyncio

import pytest

from controller.elections import WaitingReason, waiting
from controller.events import ElectMaster
from controller.guard import LOG_EVERY_MS
from controller.heartbeats import Liveness
from controller.state import ReplicasState
from controller.unelected import UNELECTED_MS, Unelected
from mqruntime.repeatedfailure import REMIND_MS
from tests.unit.controller.test_controller_eligibility import alive, applied, members, report
from tests.unit.controller.test_controller_guard import Scene, play

STRUCK_OFF = ElectMaster("a", None)
WAITS = WaitingReason({1: 50}, frozenset({2}), 1)


def stands(state: ReplicasState, live: Liveness) -> WaitingReason | None:
    return waiting(state, live, broker_name="a")


def test_who_lives_may_lack_what_a_missing_member_held() -> None:
    state = applied(members(1, 2), STRUCK_OFF)
    assert stands(state, alive(b1=report(50, may_lack=True), b3=report(90))) == WAITS
    lacking = alive(b1=report(50), lacking=(1,))
    assert stands(state, lacking) == WAITS, "also where the controllers know it and not the broker"


def test_who_is_eligible_is_waited_for_too_and_the_longest_log_is_the_best() -> None:
    state = applied(members(1, eligible=(2, 3)), STRUCK_OFF)
    live = alive(b1=report(50, may_lack=True), b2=report(70, may_lack=True))
    assert stands(state, live) == WaitingReason({1: 50, 2: 70}, frozenset({3}), 2)


def test_who_was_not_in_the_set_is_not_the_best_of_it() -> None:
    assert stands(applied(members(1, 2), STRUCK_OFF), alive(b3=report(90))) == WaitingReason(
        {}, frozenset({1, 2}), None
    )


def test_nothing_is_waited_for_where_somebody_leads_or_can_be_elected_or_nobody_lives() -> None:
    assert stands(applied(members(1, 2)), alive(b2=report(50, may_lack=True))) is None, "not struck off yet"
    state = applied(members(1, 2), STRUCK_OFF)
    assert stands(state, alive(b1=report(50, may_lack=True), b2=report(40))) is None
    assert stands(state, alive()) is None
    assert stands(ReplicasState(), alive()) is None


def told(caplog: pytest.LogCaptureFixture) -> list[dict[str, object]]:
    found = [record.__dict__["fields"] for record in caplog.records if record.name == "controller.unelected"]
    caplog.clear()
    assert all("mqadmin" in each["hint"] or "enableElectUncleanMaster" in each["hint"] for each in found)
    return [{key: value for key, value in each.items() if key != "hint"} for each in found]


def test_it_is_told_once_it_has_lasted_and_then_each_half_minute(caplog: pytest.LogCaptureFixture) -> None:
    unelected, found = Unelected(), {"a": WAITS}
    unelected.look(found, 0)
    unelected.look(found, UNELECTED_MS - 1)
    assert told(caplog) == []
    unelected.look(found, UNELECTED_MS)
    assert told(caplog) == [{"broker": "a", "missing": [2], "may_lack": [1], "best": 1, "log_end": 50}]
    unelected.look(found, UNELECTED_MS + REMIND_MS - 1)
    assert told(caplog) == []
    unelected.look(found, UNELECTED_MS + REMIND_MS)
    assert len(told(caplog)) == 1


def test_where_all_are_there_and_empty_nobody_is_said_to_be_missing(caplog: pytest.LogCaptureFixture) -> None:
    state = applied(members(1, 2), STRUCK_OFF)
    empty = {f"b{each}": report(0, may_lack=True) for each in (1, 2)}
    found = stands(state, alive(**empty, lacking=(1, 2)))
    assert found == WaitingReason({1: 0, 2: 0}, frozenset(), 1)
    Unelected().log("a", found)
    assert "the logs of all members are empty" in caplog.text
    assert all("missing" not in record.__dict__["fields"]["hint"] for record in caplog.records)
    assert told(caplog) == [{"broker": "a", "may_lack": [1, 2], "best": 1}]


def test_a_set_that_was_led_meanwhile_has_its_time_again(caplog: pytest.LogCaptureFixture) -> None:
    unelected = Unelected()
    unelected.look({"a": WAITS}, 0)
    unelected.look({}, UNELECTED_MS - 1)
    unelected.look({"a": WAITS}, UNELECTED_MS)
    assert told(caplog) == []


def test_where_no_member_lives_nobody_is_named(caplog: pytest.LogCaptureFixture) -> None:
    unelected = Unelected()
    for now_ms in (0, UNELECTED_MS):
        unelected.look({"a": WaitingReason({}, frozenset({2, 1}), None)}, now_ms)
    (record,) = caplog.records
    assert "enableElectUncleanMaster" in record.__dict__["fields"]["hint"]
    assert told(caplog) == [{"broker": "a", "missing": [1, 2]}]


def test_a_leader_tells_of_the_set_that_waits_and_of_no_other(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(scene: Scene) -> None:
        waits = scene.names[3]
        scene.brokers.hear(1, [name for name in scene.names if name != waits])
        scene.brokers.lose(2, [waits])
        scene.state.apply(ElectMaster(waits, None))
        scene.brokers.hear(2, [waits], may_lack=True)
        scene.lead()
        for _ in range(0, UNELECTED_MS + 2 * LOG_EVERY_MS, LOG_EVERY_MS):
            scene.clock.ms += LOG_EVERY_MS
            scene.guard.changed("unknown")  # the clock of the test wakes nobody
            for _ in range(20):
                await asyncio.sleep(0)

    play(scenario)
    assert [fields["broker"] for fields in told(caplog)] == ["set-3"]
