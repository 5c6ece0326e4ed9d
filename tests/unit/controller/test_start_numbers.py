"""Start numbers distinguish the processes of one broker, in literals."""

from __future__ import annotations

import json

import pytest

from controller.commands import Process, register_broker
from controller.decision import Decision
from controller.elections import waiting
from controller.events import ApplyBrokerId, ElectMaster, UpdateBrokerAddress, decode, encode
from controller.heartbeats import Heartbeat, Heartbeats, Liveness
from controller.holdings import Held
from controller.livebrokers import SURELY_MS
from controller.resync import give_up_replica
from controller.state import ReplicasState
from controller.statemachine import ReplicasStateMachine
from controller.statesnapshot import row_of, take_row
from remoting.codes import ResponseCode
from remoting.headers.controller import (
    BrokerHeartbeatHeader,
    GetReplicaInfoHeader,
    RegisterBrokerToControllerHeader,
)
from tests.support.doubles import ManualClock
from tests.unit.controller.brokersets import NOW, alive, applied, lives, members, of_two, replaced, report
from tests.unit.controller.offsetstable import ONE, Table

KEY = ("c", "a", 2)
SET_BACK = ResponseCode.CONTROLLER_INVALID_REQUEST
COPY = ResponseCode.CONTROLLER_BROKER_ID_INVALID


def started(number: int = 8, incarnation: int = 100, address: str = "h2:1") -> ReplicasState:
    """A state in which broker 2 is registered with these values."""
    return applied(UpdateBrokerAddress("c", "a", 2, address, number, incarnation))


def live(*, lives: bool, heard: int = 0) -> Liveness:
    table = Heartbeats()
    table.heard(KEY, 5, Heartbeat("h2:1", 10_000, report(100)), NOW)
    if not lives:
        table.connection_closed(5, NOW)
    return table.at(NOW, NOW, start_number=lambda key: heard if key == KEY else 0)


def register(
    state: ReplicasState,
    live: Liveness,
    number: int,
    incarnation: int,
    address: str = "h2:1",
    says_code: bool = True,
) -> Decision:
    says_code = says_code and number > 0
    decision = register_broker(
        state, live, cluster_name="c", broker_name="a", broker_id=2, address=address,
        check_code=state.check_code(KEY) if says_code else None, process=Process(number, incarnation, says_code),
    )  # fmt: skip
    for event in decision.events:
        state.apply(event)
    return decision


def test_the_next_start_of_a_disk_and_its_process_are_registered() -> None:
    state = started()
    for _ in range(2):
        assert register(state, live(lives=True), 9, 200).code == 0
    replica = state.replicas["a"].by_id[2]
    assert (replica.start_number, replica.incarnation) == (9, 200)
    assert register(state, live(lives=True), 12, 200).code == 0, "it has drawn higher numbers since"


@pytest.mark.parametrize(("number", "heard", "known"), [(8, 0, 8), (7, 0, 8), (9, 40, 40), (40, 40, 40)])
def test_a_start_number_that_was_used_before_shows_a_restored_disk(
    number: int, heard: int, known: int
) -> None:
    state = started()
    decision = register(state, live(lives=False, heard=heard), number, 200)
    assert decision.code == SET_BACK and decision.events == ()
    assert decision.header is not None
    assert decision.header.to_ext()["knownStartNumber"] == str(known)
    assert register(state, live(lives=False, heard=heard), known + 1, 200).code == 0, (
        "with a number above the known one"
    )


@pytest.mark.parametrize(("number", "address"), [(8, "h2:1"), (8, "h2:2"), (9, "h2:2")])
def test_of_two_live_processes_the_registered_one_counts(number: int, address: str) -> None:
    state = started()
    decision = register(state, live(lives=True), number, 200, address)
    assert decision.code == COPY and decision.events == ()
    assert "h2:1" in (decision.remark or "") and address in (decision.remark or "")
    after = register(state, live(lives=False), number, 200, address)
    assert after.code == (SET_BACK if number == 8 else 0)


def test_a_new_leader_rejects_a_used_number_without_naming_a_copy() -> None:
    state = started()
    unheard = Heartbeats().at(NOW, NOW)
    assert not unheard.is_alive(KEY) and not unheard.is_dead(KEY)
    decision = register(state, unheard, 8, 200)
    assert decision.code == COPY and decision.header is not None
    assert "otherAddress" not in decision.header.to_ext(), "no broker is named as a copy"
    assert register(state, unheard, 9, 200).code == 0, "the next start of its disk need not wait"


def test_an_event_of_an_older_controller_keeps_the_start_number() -> None:
    state = started()
    state.apply(UpdateBrokerAddress("c", "a", 2, "h9:1"))
    replica = state.replicas["a"].by_id[2]
    assert (replica.address, replica.start_number, replica.incarnation) == ("h9:1", 8, 0)


def test_a_broker_without_a_number_is_registered_once_the_numbered_one_is_dead() -> None:
    state = started()
    assert register(state, live(lives=True), 0, 300, "h9:1").code == COPY
    assert state.replicas["a"].by_id[2].address == "h2:1"
    assert register(state, live(lives=False), 0, 300, "h9:1").code == 0
    replica = state.replicas["a"].by_id[2]
    assert (replica.address, replica.start_number, replica.incarnation) == ("h9:1", 8, 0)
    assert register(state, live(lives=False), 8, 400).code == SET_BACK, "a used number stays used"


def test_a_second_process_with_a_used_number_is_refused() -> None:
    brokers = of_two()
    brokers._state.apply(UpdateBrokerAddress("c", "a", 1, "h1:1", 8, 100))
    brokers.heard(BrokerHeartbeatHeader("c", "h1:1", "a", 1, incarnation=100, start_number=9), 5)
    code = brokers._state.check_code(("c", "a", 1))
    request = RegisterBrokerToControllerHeader("a", 1, "h1:1", "c", 0, code, 200, 9)
    refusal = brokers.why_not_this_process(request)
    assert refusal is not None and refusal.code == COPY
    request.start_number = 10
    assert brokers.why_not_this_process(request) is None


FAR = 2**62
"""An implausible start number."""


@pytest.mark.parametrize("lives", [True, False])
@pytest.mark.parametrize(("number", "incarnation"), [(10, 200), (FAR, 200), (FAR, 100), (9, 100), (8, 200)])
def test_a_broker_that_sent_a_check_code_must_keep_sending_it(
    lives: bool, number: int, incarnation: int
) -> None:
    state = started()
    assert register(state, live(lives=False), 9, 100).code == 0
    decision = register(state, live(lives=lives), number, incarnation, says_code=False)
    assert decision.code == COPY and decision.events == () and decision.header is not None
    assert "knownStartNumber" not in decision.header.to_ext()
    assert register(state, live(lives=False), 10, 300).code == 0, "the next start of the broker"


def test_a_broker_without_a_check_code_is_replaced_once_it_is_dead() -> None:
    state = started()
    assert register(state, live(lives=True), 9, 200, says_code=False).code == COPY
    assert register(state, live(lives=True), 9, 100, says_code=False).code == 0, "it is the same process"
    assert register(state, live(lives=False), 10, 200, says_code=False).code == 0
    assert not state.replicas["a"].by_id[2].says_code


def test_an_implausible_start_number_is_rejected() -> None:
    state = started()
    for says_code in (False, True):
        decision = register(state, live(lives=False), FAR, 200, says_code=says_code)
        assert decision.code == COPY and decision.events == ()
    assert register(state, live(lives=False), 8 + 2**31, 200).code == 0, "the largest accepted step"
    brokers = of_two()
    brokers._state.apply(UpdateBrokerAddress("c", "a", 1, "h1:1", 8, 100))
    brokers.heard(BrokerHeartbeatHeader("c", "h1:1", "a", 1, incarnation=100, start_number=FAR), 5)
    assert not lives(brokers) and brokers.liveness().start_number(("c", "a", 1)) == 0


def test_events_and_snapshots_record_that_a_broker_sends_its_check_code() -> None:
    said = UpdateBrokerAddress("c", "a", 2, "h2:1", 8, 100, True)
    assert b'"brokerSaysCheckCode":true' in encode(said) and decode(encode(said)) == said
    state = applied(said, UpdateBrokerAddress("c", "a", 2, "h9:1"))
    row = row_of(state, "a")
    assert row["sayingCodes"] == [2], "an event of a Java controller does not clear the flag"
    again = ReplicasState()
    take_row(again, row)
    assert again == state and again.replicas["a"].by_id[2].says_code


def test_resigning_and_reporting_a_copy_require_the_check_code() -> None:
    state = applied(UpdateBrokerAddress("c", "a", 2, "h2:1", 8, 100, True))
    refused = give_up_replica(
        state, live(lives=True), broker_name="a", broker_id=2, check_code=None, dry_run=True
    )
    assert refused.code == ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
    brokers = of_two()
    brokers._state.apply(UpdateBrokerAddress("c", "a", 1, "h1:1", 8, 100, True))
    brokers.heard(BrokerHeartbeatHeader("c", "h1:1", "a", 1, incarnation=100, start_number=9), 5)
    brokers._clock = clock = ManualClock()
    code = brokers._state.check_code(("c", "a", 1))
    for said, named in ((None, None), (code, "h6:6")):
        for _ in range(3):
            brokers.polled(GetReplicaInfoHeader("a", 1, said, "h6:6", 666))
            clock.ms += SURELY_MS
        assert brokers.polled(GetReplicaInfoHeader("a", 1, code, "h1:1", 100)) == named


def test_a_heartbeat_without_a_number_is_ignored_for_a_numbered_broker() -> None:
    brokers = of_two()
    brokers._state.apply(UpdateBrokerAddress("c", "a", 1, "h1:1", 8, 100))
    brokers.heard(BrokerHeartbeatHeader("c", "h1:1", "a", 1, max_offset=1 << 60, incarnation=1 << 60), 6)
    assert not lives(brokers), "an unknown process"
    brokers.heard(BrokerHeartbeatHeader("c", "h1:1", "a", 1, incarnation=100, start_number=8), 5)
    brokers.connection_closed(6)
    assert lives(brokers)
    brokers._state.apply(UpdateBrokerAddress("c", "a", 1, "h1:1", 8, 0))
    brokers.heard(BrokerHeartbeatHeader("c", "h1:1", "a", 1), 7)
    brokers.connection_closed(5)
    assert lives(brokers), "another version has registered with this store"


def test_only_the_registered_process_is_heard() -> None:
    brokers = of_two()
    brokers._state.apply(UpdateBrokerAddress("c", "a", 1, "h1:1", 8, 100))
    brokers.heard(BrokerHeartbeatHeader("c", "h1:1", "a", 1, incarnation=200, start_number=50), 5)
    assert not lives(brokers)
    assert brokers.liveness().start_number(("c", "a", 1)) == 0
    brokers.heard(BrokerHeartbeatHeader("c", "h1:1", "a", 1, incarnation=100, start_number=9), 6)
    assert lives(brokers)
    assert brokers.liveness().start_number(("c", "a", 1)) == 9
    brokers.connection_closed(6)
    brokers.heard(BrokerHeartbeatHeader("c", "h1:1", "a", 1, incarnation=300), 7)
    assert not lives(brokers)
    brokers._state.apply(UpdateBrokerAddress("c", "a", 1, "h1:1", 9, 0))
    brokers.heard(BrokerHeartbeatHeader("c", "h1:1", "a", 1, incarnation=300), 7)
    assert lives(brokers), "an older version has registered, and does not say its number"


# Elections


def test_a_restored_disk_is_not_elected_without_an_unclean_election() -> None:
    old = report(50, may_miss=True, set_back=True)
    state = applied(members(1), ElectMaster("a", None))
    assert replaced(state, alive(b1=old)) is None
    assert replaced(state, alive(b1=report(50, may_miss=True))) == ElectMaster("a", 1), "only memory was lost"
    assert replaced(state, alive(b1=old), unclean=True) == ElectMaster("a", 1)
    state = applied(members(1, 2), ElectMaster("a", None))
    assert replaced(state, alive(b1=old, b2=report(70, may_miss=True))) is None, (
        "its newer disk may hold more"
    )
    assert replaced(state, alive(b1=old, b2=report(40))) == ElectMaster("a", 2, frozenset({1}))


def test_a_set_that_waits_for_a_newer_disk_names_the_other_brokers() -> None:
    state = applied(members(1), ElectMaster("a", None))
    live = alive(b1=report(50, may_miss=True, set_back=True), b2=report(90), b3=report(80))
    found = waiting(state, live, broker_name="a")
    assert found is not None
    assert (found.set_back, found.best, found.outside) == (frozenset({1}), 1, {2: 90, 3: 80})


# Events, snapshots and recorded offsets


def test_a_registration_event_without_a_number_has_upstreams_bytes() -> None:
    plain = UpdateBrokerAddress("c", "a", 2, "h:1")
    assert json.loads(encode(plain)[2:]) == {
        "brokerAddress": "h:1",
        "brokerId": 2,
        "brokerName": "a",
        "clusterName": "c",
        "eventType": "UPDATE_BROKER_ADDRESS",
    }
    numbered = UpdateBrokerAddress("c", "a", 2, "h:1", 8, 100)
    assert decode(encode(numbered)) == numbered and decode(encode(plain)) == plain


def test_a_snapshot_keeps_the_start_numbers() -> None:
    machine, loaded = ReplicasStateMachine(), ReplicasStateMachine()
    machine.state.apply(ApplyBrokerId("c", "a", 1, "h1:1", "h1:1;7"))
    machine.state.apply(ApplyBrokerId("c", "a", 2, "h2:1", "h2:1;7"))
    machine.state.apply(UpdateBrokerAddress("c", "a", 2, "h2:1", 8, 100))
    for _ in loaded.snapshot_load(b"".join(machine.snapshot_save())):
        pass
    assert loaded.state == machine.state


def hear(table: Table, connection: int, end: int, confirmed: int, number: int) -> Held | None:
    report = Table.report(end, confirmed, number)
    return table.holdings.heard(ONE, connection, report, member=True)


def test_with_a_start_number_no_confirmed_byte_may_be_missing() -> None:
    table = Table()
    hear(table, 1, 1_000, 900, 7)
    assert hear(table, 2, 900, 900, 8) is None
    assert hear(table, 3, 899, 800, 9) == Held(1, 900)


def test_without_a_start_number_a_log_may_end_within_a_record() -> None:
    table = Table()
    hear(table, 1, 1_000, 1_000, 0)
    assert hear(table, 2, 930, 930, 7) is None
    assert hear(table, 3, 930, 930, 8) is None
    assert hear(table, 4, 929, 929, 9) == Held(1, 930)


def test_the_next_process_restores_the_start_number() -> None:
    table, after = Table(), Table()
    hear(table, 1, 900, 900, 7)
    rows = list(table.holdings.rows(table.holdings.keys()))
    assert rows == [b'["c", "a", 1, "h1:1;7", 1, 900, 7]']
    after.holdings.restore(b"[" + rows[0] + b"]")
    assert after.holdings.start_number(ONE) == 7
    after.check_codes[ONE] = "h9:1;8"
    assert after.holdings.start_number(ONE) == 0, "the id belongs to another broker"
