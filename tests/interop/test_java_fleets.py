"""Fleets of Java's servers and ours under one name server; `scripts/interop` does the same at length."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.interop.fleet import Fleet, fleet_missing
from tests.interop.migration import migrated
from tests.interop.mixes import failovers
from tests.waits import WAIT_MS

pytestmark = [pytest.mark.skipif(fleet_missing() is not None, reason=str(fleet_missing()))]


def test_a_java_broker_and_ours_of_one_set_are_masters_in_turn_and_tell_each_other_all(
    tmp_path: Path,
) -> None:
    with Fleet.made(tmp_path / "fleet", java=["broker-0"], contract="B") as fleet:
        fleet.start()
        asyncio.run(fleet.wait_whole(timeout_ms=WAIT_MS))
        outcome = asyncio.run(failovers(fleet, 3, facts=True))
        fleet.kill(["broker-0"])
    assert outcome.verdict.faults == []
    assert outcome.verdict.acknowledged > 100
    assert set(outcome.masters) == {"broker-0", "broker-1"}


def test_a_live_java_set_becomes_ours_and_javas_again_as_the_runbook_says(tmp_path: Path) -> None:
    java = ["namesrv", "controller-0", "broker-0", "broker-1"]
    with Fleet.made(tmp_path / "fleet", java=java, contract="B") as fleet:
        fleet.start()
        verdict, unused = asyncio.run(migrated(fleet))
        fleet.kill(fleet.layout.broker_names)
    assert verdict.faults == []
    assert verdict.acknowledged > 100
    assert unused == set()
