"""A whole fleet of Java's servers that becomes ours and Java's again; `scripts/interop` does the same at length."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from scripts.peers.fleet import Fleet, fleet_missing
from scripts.peers.migration import migrated

pytestmark = [pytest.mark.skipif(fleet_missing() is not None, reason=str(fleet_missing()))]


@pytest.mark.long
def test_a_live_java_set_becomes_ours_and_javas_again_as_the_runbook_says(tmp_path: Path) -> None:
    java = ["namesrv", "controller-0", "broker-0", "broker-1"]
    with Fleet.made(tmp_path / "fleet", java=java, contract="B") as fleet:
        fleet.start()
        verdict, unused = asyncio.run(migrated(fleet))
        fleet.kill(fleet.layout.broker_names)
    assert verdict.faults == []
    assert verdict.acknowledged > 100
    assert unused == set()
