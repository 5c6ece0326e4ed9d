"""From Raft mode to controller mode: three killed brokers of Apache RocketMQ 5.3.3 that replicate by DLedger.

Their acknowledged messages are read from our set, which adopted one of their stores. Each test starts three
JVMs."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from localcluster.cluster import Cluster
from scripts.peers.javapeer import broker_missing
from scripts.peers.waits import NOBODY_IS_LATE, WAIT_MS
from tests.interop.raftbrokers import MEMBERS, RaftBrokers, places
from tests.support.realpair import ROOT, SEGMENT_BYTES, TOPIC, bodies

pytestmark = [
    pytest.mark.skipif(broker_missing() is not None, reason=str(broker_missing())),
]


@pytest.mark.long
def test_messages_acknowledged_by_a_java_raft_mode_set_are_read_from_ours(tmp_path: Path) -> None:
    with RaftBrokers(tmp_path / "java") as java:
        java.start_all()
        java.create_topic_at_leader()
        first = bodies("first", 60)
        java.send_until_acknowledged(*first)
        leader = java.leader()
        assert leader is not None
        java.kill(f"broker-{leader - 1}")
        second = bodies("second", 20)
        java.send_until_acknowledged(*second)
        for number in {*range(MEMBERS)} - {leader - 1}:
            java.kill(f"broker-{number}")
        stores = [java.store(number) for number in range(MEMBERS)]
    said = run("raftstore", "inspect", *map(str, stores))
    assert "most is held by" in said
    with Cluster.create(
        tmp_path / "cluster", controllers=1, brokers=2, segment_bytes=SEGMENT_BYTES,
        broker_settings={"mappedFileSizeConsumeQueue": "6000", "maxMessageSize": "4096", **NOBODY_IS_LATE},
    ) as cluster:  # fmt: skip
        run("raftstore", "adopt", "-c", str(cluster.directory / "broker-0.conf"), *map(str, stores))
        cluster.start(["namesrv", "controller-0", "broker-0"])
        asyncio.run(cluster.wait_in_sync(1, timeout_ms=WAIT_MS))
        cluster.start(["broker-1"])
        asyncio.run(cluster.wait_whole(timeout_ms=WAIT_MS))
        java.namesrv = cluster.layout.namesrv
        read = java.read()
        assert {message.body for message in read} >= {*first, *second}
        for queue_id in (0, 1):
            offsets = [message.queue_offset for message in read if message.queue_id == queue_id]
            assert offsets == list(range(len(offsets)))


def run(module: str, *arguments: str) -> str:
    """The output of a command that succeeds."""
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_messages_acknowledged_by_ours_are_read_from_java_in_raft_mode(tmp_path: Path) -> None:
    """The way back, with the same log for each member; the leader is killed."""
    with Cluster.create(
        tmp_path / "cluster", controllers=1, brokers=1, segment_bytes=SEGMENT_BYTES,
        broker_settings={"mappedFileSizeConsumeQueue": "6000", "maxMessageSize": "4096", **NOBODY_IS_LATE},
    ) as cluster:  # fmt: skip
        cluster.start()
        asyncio.run(cluster.wait_whole(timeout_ms=WAIT_MS))
        asyncio.run(cluster.create_topic(TOPIC, 2))
        with RaftBrokers(tmp_path / "java") as java:
            theirs, java.namesrv = java.namesrv, cluster.layout.namesrv
            sent = bodies("sent", 60)
            java.send_until_acknowledged(*sent)
            before = places(java)
            assert len(before) == len(sent)
            cluster.stop()
            java.namesrv = theirs
            for number in range(MEMBERS):
                file = tmp_path / "java.conf"
                file.write_text(
                    f"storePathRootDir={java.store(number)}\nmappedFileSizeCommitLog={SEGMENT_BYTES}\n"
                    f"dLegerSelfId=n{number}\n"
                )
                run("raftstore", "give-back", "-c", str(file), str(cluster.directory / "broker-0"))
            java.start_all()
            java.wait_for(lambda: places(java) == before)
            more = bodies("more", 10)
            java.send_until_acknowledged(*more)
            leader = java.leader()
            assert leader is not None
            java.kill(f"broker-{leader - 1}")
            java.wait_for(lambda: {*places(java).values()} >= {*sent, *more})
            assert before.items() <= places(java).items()
