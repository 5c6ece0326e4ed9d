"""The election history of one controller, built from the events that it observed."""

from __future__ import annotations

import pytest

from controller.electionhistory import ELECTIONS_MAX, ElectionHistory
from controller.events import ElectMaster
from controller.heartbeats import BrokerLoss
from remoting.bodies.elections import Election, Elections
from remoting.errors import BodyError

ENDED = BrokerLoss("connection lost", heard_ago_ms=400, noticed_ago_ms=5)
SILENT = BrokerLoss("heartbeat lost", heard_ago_ms=10_000)


class Changes:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


@pytest.fixture
def changes() -> Changes:
    return Changes()


@pytest.fixture
def history(changes: Changes) -> ElectionHistory:
    """Broker 1 became master of a in epoch 1 at 1000 and wrote in it at 1050."""
    history = ElectionHistory(changes)
    first = ElectMaster("a", 1)
    history.proposing(first, "first election", 990)
    history.elected(first, 1, None, 1000)
    history.acts("a", 1, 1, 1050)
    return history


def reported(history: ElectionHistory) -> list[Election]:
    return history.elections_of(["a"]).elections_table["a"]


def test_the_leader_reports_the_complete_timeline_of_an_election(history: ElectionHistory) -> None:
    history.proposing(ElectMaster("a", 2), "connection lost", 5_004)
    history.elected(ElectMaster("a", 2), 2, ENDED, 5_010)
    history.notified("a", 2, 5_012)
    history.acts("a", 2, 2, 5_090)
    assert reported(history) == [
        Election(1, None, 1, "first election", proposed_ms=990, elected_ms=1000, writable_ms=1050),
        Election(2, 1, 2, "connection lost", 4_610, 5_005, 5_004, 5_010, 5_012, 5_090),
    ]


def test_a_lost_heartbeat_is_noticed_when_the_leader_proposes(history: ElectionHistory) -> None:
    history.proposing(ElectMaster("a", 2), "heartbeat lost", 15_000)
    history.elected(ElectMaster("a", 2), 2, SILENT, 15_003)
    assert reported(history)[-1].noticed_ms == 15_000
    assert reported(history)[-1].heard_ms == 5_003


def test_a_follower_reports_only_the_times_it_knows(history: ElectionHistory) -> None:
    history.elected(ElectMaster("a", 2), 2, ENDED, 5_020)
    history.elected(ElectMaster("a", 1), 3, None, 6_000)
    assert reported(history)[1:] == [
        Election(2, 1, 2, "connection lost", 4_620, 5_015, elected_ms=5_020),
        Election(3, 2, 1, elected_ms=6_000),
    ]


def test_a_deposed_leaders_reason_is_not_used_for_the_next_election(
    history: ElectionHistory,
) -> None:
    history.proposing(ElectMaster("a", 2), "operator asked", 5_000)
    history.deposed()
    history.elected(ElectMaster("a", 2), 2, None, 9_000)
    assert reported(history)[-1] == Election(2, 1, 2, elected_ms=9_000)


def test_only_the_first_write_and_notice_of_the_new_master_count(
    history: ElectionHistory, changes: Changes
) -> None:
    history.elected(ElectMaster("a", 2), 2, None, 5_000)
    before = reported(history)
    for broker_id, epoch in ((1, 1), (1, 2), (2, 1), (None, 2)):
        history.acts("a", broker_id, epoch, 5_500)
    history.notified("a", 1, 5_500)
    history.acts("b", 2, 2, 5_500)
    assert reported(history) == before
    history.notified("a", 2, 5_600)
    history.notified("a", 2, 5_700)
    history.acts("a", 2, 2, 6_000)
    seen = changes.count
    history.acts("a", 2, 2, 7_000)
    history.notified("a", 2, 7_000)
    assert (reported(history)[-1].notified_ms, reported(history)[-1].writable_ms) == (5_600, 6_000)
    assert changes.count == seen


def test_a_removed_master_is_recorded_as_an_election_without_a_master(history: ElectionHistory) -> None:
    history.proposing(ElectMaster("a", None), "broker restarted", 2_000)
    history.elected(ElectMaster("a", None), 2, None, 2_001)
    history.elected(ElectMaster("a", 1), 3, None, 2_100)
    struck, again = reported(history)[1:]
    assert (struck.old_master_id, struck.new_master_id, struck.reason) == (1, None, "broker restarted")
    assert (again.old_master_id, again.new_master_id, again.reason) == (None, 1, "no master")


def test_replaying_the_log_restores_saved_elections_without_new_times(
    history: ElectionHistory, changes: Changes
) -> None:
    saved = Elections.decode(history.elections_of(["a"]).encode())
    assert saved == history.elections_of(["a"])
    again = ElectionHistory(changes)
    again.restore(saved)
    seen = changes.count
    again.elected(ElectMaster("a", 1), 1, None, None)
    again.elected(ElectMaster("a", 3), 2, ENDED, None)
    again.acts("a", 3, 2, 99_000)
    assert reported(again) == [*reported(history), Election(2, 1, 3)]
    assert changes.count == seen, "there is nothing new to save"


def test_a_saved_election_that_is_not_in_the_log_is_not_reported(
    history: ElectionHistory, changes: Changes
) -> None:
    again = ElectionHistory(changes)
    again.restore(history.elections_of(["a"]))
    again.elected(ElectMaster("a", 2), 1, None, None)
    assert reported(again) == [Election(1, None, 2, "first election")]


def test_the_last_elections_of_each_named_set_are_reported(history: ElectionHistory) -> None:
    for epoch in range(2, 40):
        history.elected(ElectMaster("a", epoch % 3 + 1), epoch, None, epoch * 1000)
    assert [one.epoch for one in reported(history)] == list(range(40 - ELECTIONS_MAX, 40))
    history.elected(ElectMaster("b", 1), 1, None, None)
    assert list(history.elections_of(["b", "c"]).elections_table) == ["b"]


def test_elections_of_a_removed_set_are_forgotten(history: ElectionHistory, changes: Changes) -> None:
    seen = changes.count
    history.forget("a", witnessed=True)
    assert changes.count == seen + 1
    assert history.elections_of(["a"]) == Elections()
    history.elected(ElectMaster("a", 7), 1, None, 9_000)
    assert reported(history) == [Election(1, None, 7, "first election", elected_ms=9_000)]


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"electionsTable":{"a":[{}]}}'])
def test_a_damaged_elections_file_is_rejected(data: bytes) -> None:
    with pytest.raises(BodyError):
        Elections.decode(data)
