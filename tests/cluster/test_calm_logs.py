"""Logs of brokers in a long outage: each problem is logged at its beginning, then at a bounded rate."""

from __future__ import annotations

import logging
from collections import Counter

import pytest

from remoting.peer import IDLE
from simulation.kernel.world import World
from tests.cluster.brokerset import CONTROLLERS, Cluster

OUTAGE_MS = 150_000  # longer than a connection may be idle
SMALL_FILES_BYTES = 30_000  # less than a segment
REMINDERS_MAX = 6  # at the beginning, and each half minute


def test_a_long_outage_is_logged_at_a_bounded_rate(caplog: pytest.LogCaptureFixture) -> None:
    with World(31) as world, caplog.at_level(logging.INFO):
        cluster = Cluster(world, 3)
        cluster.start_up()
        for node in (
            cluster.master,
            world.nodes["namesrv"],
            *(world.nodes[f"controller-{number}"] for number in range(len(CONTROLLERS))),
        ):
            node.kill()
        caplog.clear()
        world.run_for_ms(OUTAGE_MS)
    survivors = len(cluster.brokers) - 1
    counts = Counter(
        (record.getMessage(), vars(record).get("fields", {}).get("what")) for record in caplog.records
    )
    assert counts["master not reached, retrying", None] >= survivors
    assert {line: count for line, count in counts.items() if count > survivors * REMINDERS_MAX} == {}


def test_closing_idle_connections_logs_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    with World(32) as world, caplog.at_level(logging.INFO):
        cluster = Cluster(world, 3)
        cluster.start_up()
        caplog.clear()
        world.run_for_ms(OUTAGE_MS)
    assert "connection cut" in {record.getMessage() for record in caplog.records}
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def is_of_an_idle_connection(record: logging.LogRecord) -> bool:
    """For example of controllers that rarely send requests to each other."""
    return record.getMessage() == "connection cut" and getattr(record, "fields", {}).get("why") == IDLE


def test_a_slave_whose_disk_stays_full_does_not_reconnect_over_and_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each reconnect would be logged at both ends until an operator frees space."""
    bodies = [bytes([number]) * 4000 for number in range(60)]
    with World(33) as world, caplog.at_level(logging.INFO):
        cluster = Cluster(world, 3)
        cluster.start_up()
        full = cluster.slaves[0]
        cluster.run(cluster.send_all(bodies[:1]))
        full.disk.capacity_bytes = full.disk.used_bytes() + SMALL_FILES_BYTES
        cluster.run(cluster.send_all(bodies))
        caplog.clear()
        world.run_for_ms(OUTAGE_MS)
        counts = Counter(
            record.getMessage() for record in caplog.records if not is_of_an_idle_connection(record)
        )
        assert counts["no segment of the log can be written, retrying; make room on this broker's disk"] >= 4
        assert sum(counts.values()) < 2 * REMINDERS_MAX
        full.disk.capacity_bytes = None
        cluster.wait_in_sync(3, limit_ms=30_000)
        assert cluster.app(full).store.max_offset() == cluster.app(cluster.master).store.max_offset()
