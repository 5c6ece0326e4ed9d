"""What brokers log while others are gone for long: each trouble at its beginning and now and then, nothing over and over."""

from __future__ import annotations

import logging
from collections import Counter

import pytest

from remoting.peer import IDLE
from simulation.kernel.world import World
from tests.unit.broker.brokerset import CONTROLLERS, Cluster

OUTAGE_MS = 150_000  # longer than a connection may be idle
SMALL_FILES_BYTES = 30_000  # less than a segment
REMINDERS_MAX = 6  # at the beginning, and each half minute


def test_a_long_outage_is_told_calmly(caplog: pytest.LogCaptureFixture) -> None:
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
    told = Counter(
        (record.getMessage(), vars(record).get("fields", {}).get("what")) for record in caplog.records
    )
    assert told["master not reached, retrying", None] >= survivors
    assert {line: count for line, count in told.items() if count > survivors * REMINDERS_MAX} == {}


def test_connections_that_nobody_needed_any_more_are_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    with World(32) as world, caplog.at_level(logging.INFO):
        cluster = Cluster(world, 3)
        cluster.start_up()
        caplog.clear()
        world.run_for_ms(OUTAGE_MS)
    assert "connection cut" in {record.getMessage() for record in caplog.records}
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def is_of_an_idle_connection(record: logging.LogRecord) -> bool:
    """Of controllers, say, that ask each other seldom."""
    return record.getMessage() == "connection cut" and getattr(record, "fields", {}).get("why") == IDLE


def test_a_slave_whose_disk_stays_full_does_not_come_back_in_vain(caplog: pytest.LogCaptureFixture) -> None:
    """Each visit would be logged at both ends, for as long as nobody makes room."""
    bodies = [bytes([number]) * 4000 for number in range(60)]
    with World(33) as world, caplog.at_level(logging.INFO):
        cluster = Cluster(world, 3)
        cluster.start_up()
        full = next(node for node in cluster.brokers if node is not cluster.master)
        cluster.run(cluster.send_all(bodies[:1]))
        full.disk.capacity_bytes = full.disk.used_bytes() + SMALL_FILES_BYTES
        cluster.run(cluster.send_all(bodies))
        caplog.clear()
        world.run_for_ms(OUTAGE_MS)
        told = Counter(
            record.getMessage() for record in caplog.records if not is_of_an_idle_connection(record)
        )
        assert told["no segment of the log can be written, trying on; make room on this broker's disk"] >= 4
        assert sum(told.values()) < 2 * REMINDERS_MAX
        full.disk.capacity_bytes = None
        cluster.wait_in_sync(3, limit_ms=30_000)
        assert cluster.app(full).store.max_offset() == cluster.app(cluster.master).store.max_offset()
