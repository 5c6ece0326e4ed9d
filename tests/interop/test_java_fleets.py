"""A complete fleet of Java servers is migrated to ours and back; `scripts/interop` runs longer."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from scripts.peers.fleet import Fleet, fleet_missing
from scripts.peers.migration import migrated

pytestmark = [pytest.mark.skipif(fleet_missing() is not None, reason=str(fleet_missing()))]


@pytest.mark.long
def test_a_live_java_set_is_migrated_to_ours_and_back_by_the_runbook(tmp_path: Path) -> None:
    java = ["namesrv", "controller-0", "broker-0", "broker-1"]
    with Fleet.made(tmp_path / "fleet", java=java, contract="B") as fleet:
        fleet.start()
        verdict, unused = asyncio.run(migrated(fleet))
        fleet.kill(fleet.layout.broker_names)
    assert verdict.faults == []
    assert verdict.acknowledged > 100
    assert unused == set()
