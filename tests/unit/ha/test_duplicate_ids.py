"""A store that was copied and started beside its original: two brokers with one id, which a master meets in turns."""

from __future__ import annotations

import pytest

from ha.master.duplicateids import REPLACED_MAX, WINDOW_MS, DuplicateIds
from ha.slave.follower import LASTING_WAITS, wait_after
from tests.unit.ha.hascene import SETTINGS, Node, in_step, played_by, until

SAID = "two brokers replicate under one id"


def test_a_lost_connection_that_is_replaced_makes_no_duplicate(caplog: pytest.LogCaptureFixture) -> None:
    ids = DuplicateIds()
    for turn in range(10 * REPLACED_MAX):
        ids.replaced(2, "10.0.0.2:1", "10.0.0.2:2", turn * (WINDOW_MS + 1))
    assert SAID not in caplog.text


def test_two_brokers_of_one_id_are_told_of_once_and_again_after_half_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ids = DuplicateIds()
    for turn in range(60):
        ids.replaced(2, "10.0.0.2:1", "10.0.0.3:1", turn * 1_000)
    assert caplog.text.count(SAID) == 2
    assert all("delete its brokerIdentity" in line.__dict__["fields"]["hint"] for line in caplog.records)


@played_by(1, 2, 2)
async def test_a_master_tells_of_a_slave_and_its_copy(
    master: Node, slave: Node, copy: Node, caplog: pytest.LogCaptureFixture
) -> None:
    await in_step(master, slave)
    await copy.follow(master, 1)
    await until(lambda: SAID in caplog.text)


def test_only_a_connection_that_lasted_shortens_the_wait_for_the_next() -> None:
    """Or two brokers of one id would end each other's connections 20 times a second."""
    good_ms = LASTING_WAITS * SETTINGS.reconnect_ms_max + 1
    assert wait_after(1, good_ms, SETTINGS) == SETTINGS.reconnect_ms_min
    assert wait_after(1, good_ms - 1, SETTINGS) is None
    assert wait_after(0, good_ms, SETTINGS) is None
