"""When a leader that hears no broker hands leadership to another controller."""

from __future__ import annotations

from controller.isolation import PATIENCE_MS_MAX, Hearing

MEMBERS = ["n0", "n1", "n2"]
LIFETIME_MS = 9_000


def leader_at(now_ms: int, interval_ms: int) -> Hearing:
    hearing = Hearing()
    hearing.leads_from(now_ms)
    for beat in range(1, 4):
        hearing.heard(LIFETIME_MS, now_ms + beat * interval_ms)
    return hearing


def test_a_leader_steps_down_after_a_third_of_the_broker_timeout() -> None:
    hearing = leader_at(0, 500)
    assert not hearing.should_give_way(1_500 + 3_000)
    assert hearing.should_give_way(1_500 + 3_001)


def test_with_rare_heartbeats_a_leader_waits_for_three_intervals() -> None:
    hearing = leader_at(0, 2_000)
    assert not hearing.should_give_way(6_000 + 6_000)
    assert hearing.should_give_way(6_000 + 6_001)


def test_a_new_leader_gives_brokers_the_full_time() -> None:
    hearing = leader_at(0, 500)
    hearing.leads_from(100_000)
    assert not hearing.should_give_way(100_000 + LIFETIME_MS // 3)
    assert hearing.should_give_way(100_001 + LIFETIME_MS // 3)


def test_targets_alternate_and_the_wait_grows_while_no_broker_is_heard() -> None:
    hearing, now_ms = leader_at(0, 500), 1_500
    targets, waits = [], []
    for _ in range(12):
        began_ms = now_ms
        while not hearing.should_give_way(now_ms):
            now_ms += 500
        targets.append(hearing.give_way(MEMBERS, "n1", now_ms))
        waits.append(now_ms - began_ms)
    assert targets[:4] == ["n2", "n0", "n2", "n0"]
    assert waits == sorted(waits) and waits[0] < 4_000 and waits[-1] <= PATIENCE_MS_MAX + 500
    hearing.heard(LIFETIME_MS, now_ms)
    assert hearing.should_give_way(now_ms + 10 * 60_000)


def test_a_new_leader_knows_the_heartbeat_interval_from_before() -> None:
    """Otherwise a group whose only broker sends less often than a third of its timeout would change leaders
    for ever."""
    group = {peer: Hearing() for peer in MEMBERS}
    leader, changes_ms = "n0", []
    for now_ms in range(0, 600_000, 500):
        if now_ms % 4_000 == 0:
            for hearing in group.values():
                hearing.heard(LIFETIME_MS, now_ms)
        if group[leader].should_give_way(now_ms):
            leader = group[leader].give_way(MEMBERS, leader, now_ms)
            group[leader].leads_from(now_ms)
            changes_ms.append(now_ms)
    assert len(changes_ms) <= len(MEMBERS) and max(changes_ms, default=0) < 30_000


def test_an_outage_does_not_count_as_a_heartbeat_interval() -> None:
    hearing = leader_at(0, 500)
    hearing.heard(LIFETIME_MS, 60_000)
    assert hearing.should_give_way(60_001 + LIFETIME_MS // 3)


def test_an_isolated_leader_steps_down_as_soon_as_the_first_time() -> None:
    """Others led in between, each time for an hour, so brokers exist."""
    hearing = leader_at(0, 500)
    for now_ms in range(3_600_000, 20 * 3_600_000, 3_600_000):
        hearing.leads_from(now_ms)
        assert hearing.should_give_way(now_ms + LIFETIME_MS // 3 + 1)
        hearing.give_way(MEMBERS, "n1", now_ms + LIFETIME_MS // 3 + 1)


def test_a_leader_that_never_heard_a_broker_waits_for_a_full_timeout() -> None:
    """Brokers apply for ids before they send heartbeats (seed 2000199 of the controllers' world: no master in
    a minute)."""
    hearing = Hearing()
    hearing.leads_from(0)
    assert not hearing.should_give_way(10_000)
    assert hearing.should_give_way(10_001)
