"""The public Java client of Apache RocketMQ 5.3.3 against our Raft-mode set: followers serve readers for a
while, and the leader is killed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from localcluster.cluster import Cluster
from localcluster.layout import CLUSTER_NAME, Mode
from scripts.peers.javapeer import missing
from scripts.peers.waits import WAIT_MS
from tests.interop.javaclient import JavaClient, everything
from tests.interop.slavereads import reads_old_messages_from_a_slave_and_new_ones_from_the_master

pytestmark = [
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
]


@pytest.fixture
def raft_set(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster.create(tmp_path / "cluster", mode=Mode.RAFT) as made:
        made.start()
        yield made


def master_of(cluster: Cluster) -> str:
    state = asyncio.run(cluster.wait_whole(timeout_ms=WAIT_MS))
    name = cluster.layout.name_of(state.master_address or "")
    assert name is not None
    return name


def test_a_java_client_reads_from_followers_and_survives_a_killed_leader(
    raft_set: Cluster, tmp_path: Path
) -> None:
    leader = master_of(raft_set)
    home = tmp_path / "home"
    home.mkdir()
    with JavaClient(raft_set.layout.namesrv, home) as java:
        reads_old_messages_from_a_slave_and_new_ones_from_the_master(java, raft_set, "FarBack")
        java.admin(
            "updateTopic", "-n", raft_set.layout.namesrv, "-c", CLUSTER_NAME, "-t", "Led", "-r", 4, "-w", 4
        )
        assert java.ask("sync", "Led", 100, 100) == {"acked": 100, "failed": 0}
        assert java.ask("async", "Led", 200, 1024) == {"acked": 200, "failed": 0}
        assert java.ask("batch", "Led", 320, 100) == {"acked": 320, "failed": 0}
        java.ask("subscribe", "Led", "RaftSurvivor")
        java.ask("stream", "Led")
        java.ask("await", 50)
        assert java.ask("reading")["read"] > 0
        raft_set.kill([leader])
        java.ask("await", 50)
        sent = java.ask("finish")
        assert sent["acked"] >= 100 and sent["given up"] == []
        consumed = java.ask("drained")  # an offset that was lost with the leader repeats messages
        assert consumed == everything(consumed["read"]) | {"repeated": consumed["repeated"]}
        raft_set.start([leader])
        assert master_of(raft_set) != leader
        reading = java.ask("pull", "Led")
        acked = 620 + sent["acked"]
        assert acked <= reading["read"] <= acked + sent["failed"]
        assert reading == everything(reading["read"])
