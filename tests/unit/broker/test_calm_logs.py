"""What brokers log while others are gone for minutes: each trouble at its beginning and now and then, nothing over and over."""

from __future__ import annotations

import logging
from collections import Counter

import pytest

from simulation.world import World
from tests.unit.broker.brokerset import CONTROLLERS, Cluster

OUTAGE_MS = 300_000
REMINDERS_MAX = 11  # at the beginning, and each half minute


def test_an_outage_of_five_minutes_is_told_calmly(caplog: pytest.LogCaptureFixture) -> None:
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
    assert told["master not reached, trying on", None] >= survivors
    assert {line: count for line, count in told.items() if count > survivors * REMINDERS_MAX} == {}


def test_connections_that_nobody_needed_any_more_are_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    with World(32) as world, caplog.at_level(logging.INFO):
        cluster = Cluster(world, 3)
        cluster.start_up()
        caplog.clear()
        world.run_for_ms(OUTAGE_MS)
    assert "connection cut" in {record.getMessage() for record in caplog.records}
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
