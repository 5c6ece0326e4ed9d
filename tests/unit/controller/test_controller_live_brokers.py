from __future__ import annotations

import asyncio
import logging
from typing import ClassVar

import pytest

from controller.events import ApplyBrokerId, ElectMaster
from controller.livebrokers import LiveBrokers
from controller.state import ReplicasState
from remoting.headers.controller import BrokerHeartbeatHeader
from scripts.peers.waits import WAIT_MS
from tests.support.doubles import ManualClock
from tests.unit.controller.brokersets import lives, of_two


def hear(brokers: LiveBrokers, broker_id: int) -> None:
    brokers.heard(BrokerHeartbeatHeader("c", f"h{broker_id}:1", "a", broker_id), broker_id)


def test_a_waiter_is_woken_only_by_its_broker() -> None:
    async def scenario() -> None:
        brokers = of_two()
        waiting = [asyncio.create_task(brokers.wait_alive("a", 1, WAIT_MS)) for _ in range(3)]
        await asyncio.sleep(0)
        hear(brokers, 2)
        for _ in range(3):
            await asyncio.sleep(0)
        assert not any(task.done() for task in waiting)
        hear(brokers, 1)
        await asyncio.gather(*waiting)
        await brokers.wait_alive("a", 1, WAIT_MS)
        assert not brokers._awaited

    asyncio.run(scenario())


def test_waiting_for_a_broker_ends_at_once_if_unknown_and_has_a_timeout() -> None:
    async def scenario() -> None:
        brokers = of_two()
        await brokers.wait_alive("a", 9, WAIT_MS)
        await brokers.wait_alive("b", 1, WAIT_MS)
        await brokers.wait_alive("a", 1, 0)
        assert not brokers._awaited

    asyncio.run(scenario())


def test_a_new_leader_waits_for_a_report_of_each_live_broker() -> None:
    async def scenario() -> None:
        brokers, clock = of_two(), ManualClock()
        brokers._clock = clock
        for broker_id in (1, 2):
            hear(brokers, broker_id)
        await brokers.wait_reported("a", 0)
        clock.ms += 10
        brokers.judge_from_now()
        waiting = asyncio.create_task(brokers.wait_reported("a", WAIT_MS))
        for broker_id in (1, 2):
            await asyncio.sleep(0)
            assert not waiting.done()
            hear(brokers, broker_id)
        await waiting
        await brokers.wait_reported("a", WAIT_MS)
        clock.ms += 10
        brokers.judge_from_now()
        await brokers.wait_reported("a", 0)
        await brokers.wait_reported("b", WAIT_MS)
        assert not brokers._awaited

    asyncio.run(scenario())


def test_a_broker_with_possible_data_loss_is_logged_once_with_a_hint(
    caplog: pytest.LogCaptureFixture,
) -> None:
    brokers = of_two()
    for broker_id in (1, 1, 2):
        may_miss = broker_id == 1
        heartbeat = BrokerHeartbeatHeader(
            "c", f"h{broker_id}:1", "a", broker_id, may_miss_acknowledged=may_miss
        )
        brokers.heard(heartbeat, broker_id)
    [warning] = [each for each in caplog.records if each.levelname == "WARNING"]
    assert "start the others" in warning.__dict__["fields"]["hint"]


def test_an_id_granted_again_is_not_alive_by_its_former_holders_heartbeat() -> None:
    """Seed 3348442105511969 of the controllers' world: it entered the SyncStateSet without a heartbeat."""
    brokers = of_two()
    hear(brokers, 1)
    hear(brokers, 2)
    brokers.applied(ApplyBrokerId("c", "a", 2, "h3:1", "h3:1;8"))
    assert brokers.liveness().is_alive(("c", "a", 1)) and not brokers.liveness().is_alive(("c", "a", 2))
    brokers.connection_closed(2)
    hear(brokers, 2)
    assert brokers.liveness().is_alive(("c", "a", 2))


class Asked(ReplicasState):
    """Records the brokers whose check code is read."""

    keys: ClassVar[list[tuple[str, str, int]]] = []

    def check_code(self, key: tuple[str, str, int]) -> str | None:
        self.keys.append(key)
        return super().check_code(key)


def test_a_loaded_snapshot_is_compared_only_for_brokers_that_were_heard() -> None:
    """The snapshot may have hundreds of thousands of brokers, and the comparison runs in one loop turn."""
    brokers = of_two()
    state, before = brokers._state, Asked()
    for at, code in ((1, "h1:1;7"), (2, "h2:1;8")):
        before.apply(ApplyBrokerId("c", "a", at, f"h{at}:1", code))
    for number in range(3, 50):
        before.apply(ApplyBrokerId("c", "a", number, f"h{number}:1", f"h{number}:1;7"))
        state.apply(ApplyBrokerId("c", "a", number, f"h{number}:1", f"h{number}:1;7"))
    hear(brokers, 1)
    hear(brokers, 2)
    brokers.loaded(before)
    assert brokers.liveness().is_alive(("c", "a", 1)) and not brokers.liveness().is_alive(("c", "a", 2))
    assert sorted(before.keys) == [("c", "a", 1), ("c", "a", 2)]


def heard_of(brokers: LiveBrokers, incarnation: int, connection: int) -> None:
    header = BrokerHeartbeatHeader("c", "h1:1", "a", 1, incarnation=incarnation)
    brokers.heard(header, connection)


@pytest.mark.parametrize("heard_before", [True, False])
def test_a_late_heartbeat_of_a_dead_process_is_ignored_after_a_restart(
    heard_before: bool,
) -> None:
    brokers = of_two()
    if heard_before:
        heard_of(brokers, 100, connection=5)
    assert brokers.restarted("a", 1, 7, 200)
    heard_of(brokers, 100, connection=5)
    assert not lives(brokers), "it arrives late, over the connection of the process before"
    heard_of(brokers, 200, connection=7)
    assert lives(brokers)
    brokers.connection_closed(7)
    heard_of(brokers, 100, connection=5)
    assert not lives(brokers)


def test_a_replayed_heartbeat_of_a_dead_process_does_not_make_a_restart_late() -> None:
    """Controllers' world, seed 2000098."""
    brokers = of_two()
    heard_of(brokers, 100, connection=9)
    assert brokers.restarted("a", 1, 7, 200), "only the process before it was heard over 9"
    heard_of(brokers, 200, connection=7)
    assert lives(brokers)
    assert not brokers.restarted("a", 1, 5, 200), "its own registration, and it was heard since"


def test_a_late_registration_of_a_dead_process_does_not_block_its_successor() -> None:
    brokers = of_two()
    assert brokers.restarted("a", 1, 7, 200)
    assert not brokers.restarted("a", 1, 5, 100), "late"
    assert brokers.restarted("a", 1, 9, 100), "a repeated registration counts as a restart"
    heard_of(brokers, 200, connection=7)
    assert lives(brokers)


def test_a_process_with_a_lower_or_no_incarnation_is_heard_after_a_restart() -> None:
    brokers = of_two()
    heard_of(brokers, 200, connection=5)
    assert brokers.restarted("a", 1, 7, 100)
    heard_of(brokers, 100, connection=7)
    assert lives(brokers)
    brokers.connection_closed(7)
    assert brokers.restarted("a", 1, 8, 0)
    heard_of(brokers, 0, connection=8)
    assert lives(brokers)


@pytest.mark.parametrize("eligible", [True, False])
def test_an_eligible_broker_with_an_older_log_is_missing_data(eligible: bool) -> None:
    """Seed 837259387470403 of the controllers' world: it counted as complete and was elected."""
    brokers = of_two()
    state = brokers._state
    for event in (ElectMaster("a", 1), ElectMaster("a", 2), ElectMaster("a", 1, frozenset({2}))):
        state.apply(event)
    held = BrokerHeartbeatHeader("c", "h2:1", "a", 2, epoch=2, max_offset=900, confirm_offset=900)
    brokers.heard(held, 2)
    if not eligible:
        state.apply(ElectMaster("a", 1))
    brokers.connection_closed(2)
    restored = BrokerHeartbeatHeader("c", "h2:1", "a", 2, epoch=1, max_offset=400, confirm_offset=400)
    brokers.heard(restored, 3)
    assert brokers.liveness().incomplete == (frozenset({("c", "a", 2)}) if eligible else frozenset())


def test_a_former_holder_of_an_id_does_not_block_the_new_holder() -> None:
    """Seed 3733224131920579 of the controllers' world: the former holder started later and used a newer
    connection, so the current holder, which led, counted as dead for ever."""
    brokers = of_two()
    assert brokers.restarted("a", 1, 9, 200, "h7:1;3"), "it is refused because of its check code"
    brokers.heard(BrokerHeartbeatHeader("c", "h7:1", "a", 1, incarnation=200), 9)
    assert not lives(brokers)
    assert brokers.restarted("a", 1, 5, 100, "h1:1;7")
    heard_of(brokers, 100, connection=5)
    assert lives(brokers)
    brokers.heard(BrokerHeartbeatHeader("c", "h7:1", "a", 1, incarnation=200), 9)
    brokers.connection_closed(9)
    assert lives(brokers)


def test_each_silent_broker_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    brokers, clock = of_two(), ManualClock()
    brokers._clock = clock
    caplog.set_level(logging.INFO, "controller.livebrokers")
    hear(brokers, 1)
    clock.ms = 10_000
    hear(brokers, 2)
    for clock.ms in (10_000, 10_001, 10_002):
        brokers.log_silent("a")
        brokers.log_silent("stranger")
    silent = [record for record in caplog.records if record.getMessage() == "broker silent"]
    assert [getattr(record, "fields", {}) for record in silent] == [{"cluster": "c", "broker": "a", "id": 1}]
