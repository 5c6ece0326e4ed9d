"""A machine freezes with all its processes and resumes: no broker counts as silent, so no master is
deposed."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from localcluster.cluster import Cluster
from scripts.peers.waits import WAIT_MS

FROZEN_S = 12  # longer than the heartbeat timeout of brokers, 10 s


def test_one_controller_frozen_with_its_brokers_deposes_no_master(tmp_path: Path) -> None:
    with Cluster.create(tmp_path / "cluster", controllers=1, brokers=2) as cluster:
        cluster.start()
        before = asyncio.run(cluster.wait_whole(timeout_ms=WAIT_MS))
        for name in cluster.layout.names:
            cluster.pause(name)
        time.sleep(FROZEN_S)
        for name in cluster.layout.names:
            cluster.resume(name)
        asyncio.run(cluster.create_topic("T"))
        after = asyncio.run(cluster.wait_whole(timeout_ms=WAIT_MS))
        assert "this controller stood still" in cluster.log_file("controller-0").read_text()
        assert (after.master_id, after.master_epoch) == (before.master_id, before.master_epoch)
