from __future__ import annotations

import asyncio
import logging
from typing import ClassVar

import pytest

from controller.events import ApplyBrokerId, ElectMaster
from controller.holdings import Holdings
from controller.livebrokers import LiveBrokers
from controller.state import ReplicasState
from remoting.headers.controller import BrokerHeartbeatHeader
from scripts.peers.waits import WAIT_MS
from tests.unit.doubles import ManualClock


def of_two() -> LiveBrokers:
    state = ReplicasState()
    for broker_id in (1, 2):
        state.apply(ApplyBrokerId("c", "a", broker_id, f"h{broker_id}:1", f"h{broker_id}:1;7"))
    return LiveBrokers(state, Holdings(state.check_code, lambda: None), ManualClock(), lambda name: None)


def hear(brokers: LiveBrokers, broker_id: int) -> None:
    brokers.heard(BrokerHeartbeatHeader("c", f"h{broker_id}:1", "a", broker_id), broker_id)


def test_who_waits_for_a_broker_is_woken_by_that_one_alone() -> None:
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


def test_nobody_waits_for_a_stranger_or_for_ever() -> None:
    async def scenario() -> None:
        brokers = of_two()
        await brokers.wait_alive("a", 9, WAIT_MS)
        await brokers.wait_alive("b", 1, WAIT_MS)
        await brokers.wait_alive("a", 1, 0)
        assert not brokers._awaited

    asyncio.run(scenario())


def test_a_new_leader_waits_for_the_next_word_of_all_that_live() -> None:
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


def test_who_watches_controllers_reads_whose_machine_went_down(caplog: pytest.LogCaptureFixture) -> None:
    brokers = of_two()
    for broker_id in (1, 1, 2):
        may_lack = broker_id == 1
        heartbeat = BrokerHeartbeatHeader(
            "c", f"h{broker_id}:1", "a", broker_id, may_lack_acknowledged=may_lack
        )
        brokers.heard(heartbeat, broker_id)
    [told] = [each for each in caplog.records if each.levelname == "WARNING"]
    assert "start the others" in told.__dict__["fields"]["hint"]


def test_an_id_that_is_granted_again_is_not_alive_by_what_its_former_holder_said() -> None:
    """Seed 3348442105511969 of the controllers' world: it entered the SyncStateSet unheard."""
    brokers = of_two()
    hear(brokers, 1)
    hear(brokers, 2)
    brokers.applied(ApplyBrokerId("c", "a", 2, "h3:1", "h3:1;8"))
    assert brokers.liveness().is_alive(("c", "a", 1)) and not brokers.liveness().is_alive(("c", "a", 2))
    brokers.connection_closed(2)
    hear(brokers, 2)
    assert brokers.liveness().is_alive(("c", "a", 2))


class Asked(ReplicasState):
    """Notes of whom it is asked."""

    keys: ClassVar[list[tuple[str, str, int]]] = []

    def check_code(self, key: tuple[str, str, int]) -> str | None:
        self.keys.append(key)
        return super().check_code(key)


def test_a_state_that_a_snapshot_replaced_is_compared_for_those_who_were_heard_alone() -> None:
    """It may have hundreds of thousands of others, and they are looked at in one turn."""
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


def lives(brokers: LiveBrokers) -> bool:
    return brokers.liveness().is_alive(("c", "a", 1))


@pytest.mark.parametrize("heard_before", [True, False])
def test_a_heartbeat_of_a_dead_process_revives_nobody_once_its_successor_registered(
    heard_before: bool,
) -> None:
    brokers = of_two()
    if heard_before:
        heard_of(brokers, 100, connection=5)
    assert brokers.restarted("a", 1, 7, 200)
    heard_of(brokers, 100, connection=5)
    assert not lives(brokers), "it comes late, over the connection of the process before"
    heard_of(brokers, 200, connection=7)
    assert lives(brokers)
    brokers.connection_closed(7)
    heard_of(brokers, 100, connection=5)
    assert not lives(brokers)


def test_words_of_a_dead_process_that_come_again_over_a_newer_connection_make_no_restart_late() -> None:
    """Controllers' world, seed 2000098."""
    brokers = of_two()
    heard_of(brokers, 100, connection=9)
    assert brokers.restarted("a", 1, 7, 200), "nobody but the process before it was heard over 9"
    heard_of(brokers, 200, connection=7)
    assert lives(brokers)
    assert not brokers.restarted("a", 1, 5, 200), "its own word, and it was heard since"


def test_a_late_registration_of_a_dead_process_shuts_its_successor_out_neither_way() -> None:
    brokers = of_two()
    assert brokers.restarted("a", 1, 7, 200)
    assert not brokers.restarted("a", 1, 5, 100), "late"
    assert brokers.restarted("a", 1, 9, 100), "sent again by somebody: as any restart"
    heard_of(brokers, 200, connection=7)
    assert lives(brokers)


def test_a_process_after_the_clock_was_set_back_is_heard_and_so_is_one_that_does_not_tell() -> None:
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
def test_who_is_eligible_and_comes_back_with_an_older_log_lacks_what_it_held(eligible: bool) -> None:
    """Controllers 837259387470403: it was held for whole, and elected."""
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
    assert brokers.liveness().lacking == (frozenset({("c", "a", 2)}) if eligible else frozenset())


def test_a_former_holder_of_an_id_shuts_its_new_one_out_neither_by_a_registration_nor_by_heartbeats() -> None:
    """Controllers 3733224131920579: its process began later and spoke over a newer connection, so the id's own broker,
    which led, counted as dead for good."""
    brokers = of_two()
    assert brokers.restarted("a", 1, 9, 200, "h7:1;3"), "it is refused for its code"
    brokers.heard(BrokerHeartbeatHeader("c", "h7:1", "a", 1, incarnation=200), 9)
    assert not lives(brokers)
    assert brokers.restarted("a", 1, 5, 100, "h1:1;7")
    heard_of(brokers, 100, connection=5)
    assert lives(brokers)
    brokers.heard(BrokerHeartbeatHeader("c", "h7:1", "a", 1, incarnation=200), 9)
    brokers.connection_closed(9)
    assert lives(brokers)


def test_an_operator_reads_once_of_each_broker_that_fell_silent(caplog: pytest.LogCaptureFixture) -> None:
    brokers, clock = of_two(), ManualClock()
    brokers._clock = clock
    caplog.set_level(logging.INFO, "controller.livebrokers")
    hear(brokers, 1)
    clock.ms = 10_000
    hear(brokers, 2)
    for clock.ms in (10_000, 10_001, 10_002):
        brokers.log_silent("a")
        brokers.log_silent("stranger")
    told = [record for record in caplog.records if record.getMessage() == "broker silent"]
    assert [getattr(record, "fields", {}) for record in told] == [{"cluster": "c", "broker": "a", "id": 1}]
