from __future__ import annotations

from controller.events import (
    AlterSyncStateSet,
    ApplyBrokerId,
    CleanBrokerData,
    ElectMaster,
    UpdateBrokerAddress,
)
from controller.state import ReplicasState
from tests.unit.controller.brokersets import state_of


def applied(broker_id: int, name: str = "a") -> ApplyBrokerId:
    return ApplyBrokerId("c", name, broker_id, f"10.0.0.{broker_id}:10911", f"10.0.0.{broker_id}:10911;1")


def test_the_first_id_creates_both_entries_and_later_ids_are_counted() -> None:
    state = state_of(applied(1), applied(2), applied(2), applied(7))
    assert list(state.replicas["a"].by_id) == [1, 2, 7]
    assert state.replicas["a"].next_broker_id == 4
    sync_state = state.sync_states["a"]
    assert (sync_state.master_id, sync_state.master_epoch) == (None, 0)
    assert (sync_state.members, sync_state.set_epoch) == (frozenset(), 0)


def test_an_elected_master_is_the_only_member_in_a_new_epoch() -> None:
    sync_state = state_of(
        applied(1), ElectMaster("a", 1), AlterSyncStateSet("a", frozenset({1, 2})), ElectMaster("a", 1)
    )
    assert sync_state.sync_states["a"].members == {1}
    assert sync_state.sync_states["a"].master_epoch == 2
    assert sync_state.sync_states["a"].set_epoch == 3


def test_a_failed_election_uses_an_epoch_and_keeps_the_set() -> None:
    sync_state = state_of(applied(1), ElectMaster("a", 1), ElectMaster("a", None)).sync_states["a"]
    assert (sync_state.master_id, sync_state.master_epoch) == (None, 2)
    assert (sync_state.members, sync_state.set_epoch) == ({1}, 1)


def test_events_about_unknown_sets_change_nothing() -> None:
    state = state_of(
        ElectMaster("x", 1),
        AlterSyncStateSet("x", frozenset({1})),
        UpdateBrokerAddress("c", "x", 1, "h:1"),
        CleanBrokerData("x", frozenset({1})),
        CleanBrokerData("x", None),
    )
    assert state == ReplicasState()


def test_a_new_address_keeps_the_check_code_and_needs_a_known_id() -> None:
    state = state_of(
        applied(1), UpdateBrokerAddress("c", "a", 1, "h:2"), UpdateBrokerAddress("c", "a", 9, "h:3")
    )
    assert state.replicas["a"].by_id[1].address == "h:2"
    assert state.replicas["a"].by_id[1].check_code == "10.0.0.1:10911;1"
    assert list(state.replicas["a"].by_id) == [1]


def test_cleaning_ids_removes_them_from_both_entries_and_keeps_epochs() -> None:
    state = state_of(
        applied(1),
        applied(2),
        ElectMaster("a", 1),
        AlterSyncStateSet("a", frozenset({1, 2})),
        CleanBrokerData("a", frozenset({2})),
    )
    assert list(state.replicas["a"].by_id) == [1]
    assert state.replicas["a"].next_broker_id == 3
    assert (state.sync_states["a"].members, state.sync_states["a"].set_epoch) == ({1}, 2)


def test_an_empty_sync_state_is_removed_alone_as_in_upstream() -> None:
    state = state_of(applied(1), applied(2), ElectMaster("a", 1), CleanBrokerData("a", frozenset({1})))
    assert list(state.replicas["a"].by_id) == [2]
    assert state.known("a") is None
    state.apply(applied(3))
    assert list(state.replicas["a"].by_id) == [3]
    assert state.replicas["a"].next_broker_id == 2


def test_cleaning_the_whole_set_forgets_it() -> None:
    assert state_of(applied(1), ElectMaster("a", 1), CleanBrokerData("a", None)) == ReplicasState()
