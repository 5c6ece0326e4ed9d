"""mqreplay over several broker sets: each has queues of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.sparkreplay.commandline import mqreplay, two_days


@pytest.fixture
def sets(tmp_path: Path) -> tuple[str, str]:
    """Stores of the broker sets broker-a and broker-b, with queues of the same names."""
    one, other = (two_days(tmp_path / name, count).write() for name, count in (("a", 90), ("b", 60)))
    (tmp_path / "b" / "brokerIdentity").write_bytes(b"DefaultCluster#broker-b#1")
    return one, other


def test_a_scan_names_the_set_of_each_queue(sets: tuple[str, str]) -> None:
    shown = mqreplay("scan", *sets, "--topic", "orders").out
    assert "broker set topic  queue" in shown
    assert "broker-a   orders     0 message            10" in shown
    assert "broker-b   orders     0 message             7" in shown
    alone = mqreplay("scan", sets[0], "--topic", "orders").out
    assert "\ntopic  queue" in alone and "broker-a   orders" not in alone


def test_statistics_count_queues_of_one_name_apart(sets: tuple[str, str]) -> None:
    queues = mqreplay("stats", *sets, "--topic", "orders", "--json").json["queues"]
    assert [(each["broker_name"], each["topic"], each["queue_id"], each["count"]) for each in queues] == [
        ("broker-a", "orders", 0, 10), ("broker-a", "orders", 1, 10), ("broker-a", "orders", 2, 10),
        ("broker-b", "orders", 0, 7), ("broker-b", "orders", 1, 7), ("broker-b", "orders", 2, 6),
    ]  # fmt: skip
    shown = mqreplay("stats", *sets, "--topic", "orders").out
    assert "broker-a: orders/0" in shown and "broker-b: orders/0" in shown
    assert "\norders/0" in mqreplay("stats", sets[0], "--topic", "orders").out


def test_a_verification_says_which_stores_it_compared_with_nothing(sets: tuple[str, str]) -> None:
    shown = mqreplay("verify", *sets).out
    for path, name in zip(sets, ("broker-a", "broker-b"), strict=True):
        assert f"not compared: {path} is the only one of broker set {name}" in shown
    assert "not compared" not in mqreplay("verify", sets[0]).out
