from __future__ import annotations

from controller.electpolicy import LiveReport
from controller.heartbeats import FORGET_AFTER_MS, UNHEARD_TIMEOUT_MS, BrokerLoss, Heartbeat, Heartbeats

KEY = ("c", "a", 1)


def beat(max_offset: int = 0, timeout_ms: int = 10_000) -> Heartbeat:
    return Heartbeat("10.0.0.1:10911", timeout_ms, LiveReport(1, max_offset, 2**31 - 1))


def test_a_broker_is_alive_until_its_announced_timeout_has_passed() -> None:
    table = Heartbeats()
    assert table.heard(KEY, 1, beat(timeout_ms=10), 100)
    assert table.at(110, 0).is_alive(KEY)
    assert not table.at(111, 0).is_alive(KEY)
    assert not table.heard(KEY, 1, beat(timeout_ms=10), 105)
    assert table.heard(KEY, 1, beat(timeout_ms=10), 200), "back to life"


def test_a_silent_broker_is_reported_once_until_it_is_heard_again() -> None:
    table = Heartbeats()
    table.heard(KEY, 1, beat(timeout_ms=10), 100)
    assert not table.fell_silent(KEY, 110, 0)
    assert not table.fell_silent(KEY, 111, 105), "its silence was not observed for that long"
    assert table.fell_silent(KEY, 116, 105)
    assert not table.fell_silent(KEY, 117, 105)
    table.heard(KEY, 1, beat(timeout_ms=10), 120)
    assert table.fell_silent(KEY, 131, 105)


def test_a_closed_connection_is_not_reported_as_silence() -> None:
    table = Heartbeats()
    table.heard(KEY, 1, beat(timeout_ms=10), 100)
    table.connection_closed(1, 101)
    assert not table.fell_silent(KEY, 111, 0)


def test_a_broker_is_dead_at_once_when_its_connection_closes() -> None:
    table = Heartbeats()
    table.heard(KEY, 1, beat(), 0)
    assert table.connection_closed(1, 1) == [KEY]
    assert not table.at(1, 0).is_alive(KEY)
    assert table.at(1, 1).is_dead(KEY)
    assert table.connection_closed(1, 1) == []


def test_the_late_close_of_an_older_connection_is_ignored() -> None:
    table = Heartbeats()
    table.heard(KEY, 1, beat(), 0)
    table.heard(KEY, 2, beat(), 5)
    assert table.connection_closed(1, 1) == []
    assert table.at(6, 0).is_alive(KEY)
    assert table.connection_closed(2, 9) == [KEY]


def test_a_late_heartbeat_of_an_older_connection_is_ignored() -> None:
    table = Heartbeats()
    table.heard(KEY, 2, beat(max_offset=7), 0)
    table.heard(KEY, 1, beat(max_offset=3), 1)
    assert table.at(1, 0).reports("c", "a", [1])[1].max_offset == 7
    assert table.connection_closed(1, 1) == []
    assert table.at(2, 0).is_alive(KEY)


def test_a_broker_may_continue_on_its_older_connection() -> None:
    table = Heartbeats()
    table.heard(KEY, 2, beat(), 0)
    table.connection_closed(2, 9)
    assert table.heard(KEY, 1, beat(), 1)
    assert table.connection_closed(1, 1) == [KEY]


def test_the_newest_report_counts_also_when_the_log_got_shorter() -> None:
    table = Heartbeats()
    table.heard(KEY, 1, beat(max_offset=100), 0)
    table.heard(KEY, 1, beat(max_offset=60), 1)
    assert table.at(1, 0).reports("c", "a", [1, 2]) == {1: LiveReport(1, 60, 2**31 - 1)}


def test_liveness_is_per_cluster_set_and_id() -> None:
    table = Heartbeats()
    table.heard(KEY, 1, beat(), 0)
    live = table.at(0, 0)
    assert live.is_alive(KEY)
    assert not any(live.is_alive(key) for key in [("x", "a", 1), ("c", "x", 1), ("c", "a", 2)])


def test_a_broker_never_heard_is_dead_only_after_a_timeout() -> None:
    table = Heartbeats()
    since = 50_000
    assert not table.at(since + UNHEARD_TIMEOUT_MS, since).is_dead(KEY)
    assert table.at(since + UNHEARD_TIMEOUT_MS + 1, since).is_dead(KEY)


def test_silence_counts_only_since_this_controller_leads() -> None:
    table = Heartbeats()
    table.heard(KEY, 1, beat(timeout_ms=10), 0)
    live = table.at(1_005, 1_000)
    assert not live.is_alive(KEY)
    assert not live.is_dead(KEY)
    assert table.at(1_011, 1_000).is_dead(KEY)


def test_heartbeats_from_before_a_restart_no_longer_count() -> None:
    table = Heartbeats()
    table.heard(KEY, 1, beat(), 0)
    table.restarted(KEY, 1, 20)
    assert table.at(0, 0).is_alive(KEY), "the same connection, so the same process"
    table.restarted(KEY, 2, 20)
    assert table.at(0, 0).is_dead(KEY)
    assert table.heard(KEY, 2, beat(), 1)


def test_the_dead_are_forgotten_after_a_long_silence() -> None:
    table = Heartbeats()
    table.heard(KEY, 1, beat(), 0)
    table.connection_closed(1, 1)
    table.forget_silent(FORGET_AFTER_MS)
    assert table.at(FORGET_AFTER_MS, FORGET_AFTER_MS).is_dead(KEY)
    table.forget_silent(FORGET_AFTER_MS + 1)
    assert not table.at(FORGET_AFTER_MS, FORGET_AFTER_MS).is_dead(KEY), "unknown, not known to be dead"


def test_the_loss_of_a_dead_broker_is_reported_with_its_times() -> None:
    table = Heartbeats()
    table.heard(KEY, 1, beat(timeout_ms=10), 100)
    assert table.at(110, 0).loss(KEY) is None
    assert table.at(115, 0).loss(KEY) == BrokerLoss("heartbeat lost", heard_ago_ms=15)
    table.connection_closed(1, 130)
    assert table.at(150, 0).loss(KEY) == BrokerLoss("connection lost", 50, 20)
    never_heard = table.at(UNHEARD_TIMEOUT_MS + 1, 0)
    assert never_heard.loss(("c", "a", 2)) == BrokerLoss("never heard")


def test_the_loss_of_a_restarted_broker_is_noticed_at_its_registration() -> None:
    table = Heartbeats()
    table.heard(KEY, 1, beat(), 100)
    table.restarted(KEY, 2, 300)
    assert table.at(301, 0).loss(KEY) == BrokerLoss("connection lost", 201, 1)


def test_a_closed_connection_ends_exactly_the_brokers_heard_over_it() -> None:
    table = Heartbeats()
    for broker_id, connection in ((1, 7), (2, 7), (3, 8)):
        table.heard(("c", "a", broker_id), connection, beat(), 0)
    table.heard(("c", "a", 2), 9, beat(), 0)
    assert table.connection_closed(7, 0) == [("c", "a", 1)]
    assert table.connection_closed(7, 0) == []
    table.heard(("c", "a", 1), 8, beat(), 0)
    assert table.connection_closed(8, 0) == [("c", "a", 3), ("c", "a", 1)]
    table.forget_silent(10**9)
    assert table.connection_closed(9, 0) == [] and not table._of_connection
