"""A copied store that runs while its original runs: two brokers with one id connect to a master in turns."""

from __future__ import annotations

import pytest

from ha.master.duplicateids import REPLACED_MAX, WINDOW_MS, DuplicateIds
from ha.slave.follower import LASTING_WAITS, wait_after
from tests.unit.ha.hascene import SETTINGS, Node, in_step, played_by, until

SAID = "two brokers replicate under one id"


def test_a_replaced_lost_connection_is_no_duplicate(caplog: pytest.LogCaptureFixture) -> None:
    ids = DuplicateIds()
    for turn in range(10 * REPLACED_MAX):
        ids.replaced(2, "10.0.0.2:1", "10.0.0.2:2", turn * (WINDOW_MS + 1))
    assert SAID not in caplog.text


def test_two_brokers_with_one_id_are_logged_every_half_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ids = DuplicateIds()
    for turn in range(60):
        ids.replaced(2, "10.0.0.2:1", "10.0.0.3:1", turn * 1_000)
    assert caplog.text.count(SAID) == 2
    assert all("delete its brokerIdentity" in line.__dict__["fields"]["hint"] for line in caplog.records)


@played_by(1, 2, 2)
async def test_a_master_logs_a_slave_and_its_copy(
    master: Node, slave: Node, copy: Node, caplog: pytest.LogCaptureFixture
) -> None:
    await in_step(master, slave)
    await copy.follow(master, 1)
    await until(lambda: SAID in caplog.text)


def test_only_a_lasting_connection_resets_the_reconnect_wait() -> None:
    """Otherwise two brokers with one id would close each other's connections 20 times a second."""
    good_ms = LASTING_WAITS * SETTINGS.reconnect_ms_max + 1
    assert wait_after(1, good_ms, SETTINGS) == SETTINGS.reconnect_ms_min
    assert wait_after(1, good_ms - 1, SETTINGS) is None
    assert wait_after(0, good_ms, SETTINGS) is None
