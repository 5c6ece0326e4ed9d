"""The state in a snapshot equals the replayed state, and the election history continues from it."""

from __future__ import annotations

import json
from collections.abc import Coroutine
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.electionhistory import ElectionHistory
from controller.events import (
    AlterSyncStateSet,
    ApplyBrokerId,
    CleanBrokerData,
    ElectMaster,
    Event,
    UpdateBrokerAddress,
    encode,
)
from controller.formerstate import let_go
from controller.state import Replica, Replicas, ReplicasState, SyncState
from controller.statemachine import ReplicasStateMachine
from controller.statesnapshot import NAMES_AT_ONCE, SLICE_BYTES
from dledger.raft.errors import SnapshotUnknown
from remoting.bodies.elections import Election

NAMES = st.sampled_from(["a", "b", "broker \u2028\ud800\n"])
IDS = st.integers(1, 4)
SETS = st.frozensets(IDS, max_size=4)
EVENTS = st.one_of(
    st.builds(AlterSyncStateSet, NAMES, SETS, SETS),
    st.builds(
        ApplyBrokerId, st.sampled_from(["c", "d"]), NAMES, IDS, st.text(max_size=3), st.text(max_size=3)
    ),
    st.builds(ElectMaster, NAMES, st.none() | IDS, SETS),
    st.builds(CleanBrokerData, NAMES, st.none() | SETS),
    st.builds(
        UpdateBrokerAddress,
        st.just("c"),
        NAMES,
        IDS,
        st.text(max_size=3),
        st.integers(0, 2),
        st.integers(0, 2),
    ),
)


def after(events: list[Event]) -> ReplicasStateMachine:
    machine = ReplicasStateMachine()
    for event in events:
        machine.state.apply(event)
    return machine


def saved(machine: ReplicasStateMachine) -> bytes:
    return b"".join(machine.snapshot_save())


def loaded(data: bytes) -> ReplicasStateMachine:
    machine = ReplicasStateMachine()
    for _ in machine.snapshot_load(data):
        assert machine.state == ReplicasState()
    return machine


@given(st.lists(EVENTS, max_size=40), st.lists(EVENTS, max_size=10))
def test_a_loaded_state_equals_the_replayed_one_and_stays_equal(
    before: list[Event], then: list[Event]
) -> None:
    replayed, resumed = after(before), loaded(saved(after(before)))
    assert resumed.state == replayed.state and saved(resumed) == saved(replayed)
    for index, event in enumerate(then):
        replayed.state.apply(event)
        resumed.state.apply(event)
        assert resumed.state == replayed.state, index


def test_loading_replaces_the_state_in_place_and_notifies_listeners_once() -> None:
    data = saved(after([ApplyBrokerId("c", "a", 1, "h:1", "code"), ElectMaster("a", 1)]))
    machine, heard = after([ApplyBrokerId("c", "b", 1, "h:2", "other")]), list[ReplicasState]()
    state = machine.state
    machine.on_loaded(heard.append)
    for _ in machine.snapshot_load(data):
        assert not heard and state.replicas.keys() == {"b"}
    assert machine.state is state and state.replicas.keys() == {"a"}
    assert [before.replicas.keys() for before in heard] == [{"b"}]
    machine.apply(7, encode(AlterSyncStateSet("a", frozenset({1, 2}))))
    assert state.sync_states["a"].members == {1, 2}


@pytest.mark.parametrize(
    "data",
    [b'{"sets":0,"version":2}\n', b'{"sets":2,"version":1}\n', b"[]\n"],
    ids=["newer", "short", "other"],
)
def test_a_snapshot_of_an_unknown_version_is_rejected(data: bytes) -> None:
    machine = after([ApplyBrokerId("c", "b", 1, "h:2", "other")])
    with pytest.raises(SnapshotUnknown):
        list(machine.snapshot_load(data))
    assert machine.state.replicas.keys() == {"b"}


def sets_of(sets: int, brokers: int) -> ReplicasStateMachine:
    """`sets` sets with `brokers` brokers each, all of them in the SyncStateSet."""
    machine = ReplicasStateMachine()
    for number in range(sets):
        replicas = Replicas("c", {at: Replica("10.0.0.1:1", f"h:{at};1") for at in range(brokers)}, brokers)
        machine.state.replicas[f"set{number}"] = replicas
        machine.state.sync_states[f"set{number}"] = SyncState(1, 1, frozenset(range(brokers)), 1)
    return machine


@pytest.mark.parametrize(("sets", "brokers"), [(4_000, 3), (60, 1_000), (600, 30)])
def test_snapshot_slices_have_the_same_size_for_few_large_and_many_small_sets(
    sets: int, brokers: int
) -> None:
    machine = sets_of(sets, brokers)
    pieces = list(machine.snapshot_save())
    data = b"".join(pieces)
    lines = data.splitlines(keepends=True)
    assert len(lines) == 1 + sets
    longest_line = max(map(len, lines))
    assert max(map(len, pieces)) <= SLICE_BYTES + longest_line
    steps = sum(1 for _ in machine.snapshot_load(data))
    assert len(data) / (SLICE_BYTES + longest_line) <= steps <= len(data) / SLICE_BYTES + 1


class CountedName(str):
    """A name that counts comparisons."""

    comparisons = 0

    def __lt__(self, other: str) -> bool:
        CountedName.comparisons += 1
        return str.__lt__(self, other)


def test_no_slice_sorts_the_names_of_all_sets() -> None:
    machine = ReplicasStateMachine()
    for number in range(3 * NAMES_AT_ONCE):
        machine.state.sync_states[CountedName(number * 7919 % 100_003)] = SyncState(1, 1, frozenset({1}), 1)
    CountedName.comparisons = 0
    pieces, most, before = [], 0, 0
    for piece in machine.snapshot_save():
        pieces.append(piece)
        most, before = max(most, CountedName.comparisons - before), CountedName.comparisons
    names = [json.loads(line)["name"] for line in b"".join(pieces).splitlines()[1:]]
    assert names == sorted(names)
    assert len(names) == 3 * NAMES_AT_ONCE
    assert NAMES_AT_ONCE < most <= NAMES_AT_ONCE * NAMES_AT_ONCE.bit_length()


def turns_of(work: Coroutine[Any, Any, None]) -> int:
    """The number of loop turns that `work` takes."""
    for number in count(1):
        try:
            work.send(None)
        except StopIteration:
            return number
    raise AssertionError("it never ends")


@pytest.mark.parametrize(("sets", "brokers", "turns"), [(3, 3, 1), (600, 10, 7), (6, 1_000, 7), (0, 0, 1)])
def test_a_replaced_state_is_freed_a_thousand_brokers_per_loop_turn(
    sets: int, brokers: int, turns: int
) -> None:
    state = sets_of(sets, brokers).state
    assert turns_of(let_go(state)) == turns
    assert state == ReplicasState()


def test_saved_elections_are_known_after_a_snapshot() -> None:
    history = ElectionHistory(lambda: None)
    history.elected(ElectMaster("a", 1), 1, None, 1000)
    history.elected(ElectMaster("a", 2), 2, None, 2000)
    kept = history.elections_of(["a"])
    again = ElectionHistory(lambda: None)
    again.restore(kept)
    again.resumed("a", 2, 2)
    assert again.elections_of(["a"]) == kept
    again.resumed("a", 7, 3)
    assert again.elections_of(["a"]).elections_table["a"][-1] == Election(7, 2, 3, None)
    again.resumed("b", 4, 1)
    again.elected(ElectMaster("b", 2), 5, None, 3000)
    assert [(one.epoch, one.old_master_id) for one in again.elections_of(["b"]).elections_table["b"]] == [
        (4, None),
        (5, 1),
    ]
