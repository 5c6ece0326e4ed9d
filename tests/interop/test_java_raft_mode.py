"""From Raft mode to controller mode: three brokers of Apache RocketMQ 5.3.3 that replicate by DLedger, killed amid their work.

What they acknowledged is read from a set of ours that one of their stores was taken over into. Each test starts three JVMs."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from localcluster.cluster import Cluster
from mqadmin.admin import AdminClient
from mqadmin.errors import AdminError
from mqadmin.replies import TopicSettings
from mqclient.errors import ClientError
from mqruntime.clock import SystemClock
from remoting.errors import RemotingError
from scripts.peers.javapeer import broker_missing
from scripts.peers.javaserver import NO_SPIN
from scripts.peers.waits import NOBODY_IS_LATE, WAIT_MS
from tests.interop.javabroker import java_broker
from tests.realpair import ROOT, SEGMENT_BYTES, TOPIC, RealPair, bodies

pytestmark = [
    pytest.mark.skipif(broker_missing() is not None, reason=str(broker_missing())),
]

MEMBERS = 3
JAVA = {
    "enableDLegerCommitLog": "true",
    "dLegerGroup": "broker-a",
    "brokerRole": "ASYNC_MASTER",
    "timerWheelEnable": "false",
    **NO_SPIN,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
    "sendMessageThreadPoolNums": 2,
}


class RaftBrokers(RealPair):
    """Three Java brokers in Raft mode; the one that leads is the name server's broker 0."""

    def __init__(self, home: Path) -> None:
        super().__init__(home, [java_broker] * MEMBERS, **JAVA)
        ports = {number: int(self.address(number).rpartition(":")[2]) + 5 for number in range(MEMBERS)}
        self._peers = ";".join(f"n{number}-127.0.0.1:{port}" for number, port in ports.items())

    def start_all(self) -> None:
        for number in range(MEMBERS):
            self.start(number, dLegerPeers=self._peers, dLegerSelfId=f"n{number}")

    def end_all(self, number: signal.Signals) -> None:
        """Of the brokers."""
        ended = [self._processes.pop(name) for name in list(self._processes) if name != "namesrv"]
        for process in ended:
            process.send_signal(number)
        for process in ended:
            process.wait()

    def create_topic_at_leader(self) -> None:
        self.wait_for(lambda: any([self._created_at(number) for number in range(MEMBERS)]) and self.leader())

    def _created_at(self, number: int) -> bool:
        async def created() -> bool:
            admin = AdminClient(SystemClock())
            try:
                await admin.create_topic(self.address(number), TopicSettings(TOPIC, 2, 2, 6))
            except AdminError:
                return False
            finally:
                await admin.close()
            return True

        return asyncio.run(created())

    def leader(self) -> int | None:
        """Whom the name server has as the one that leads."""

        async def found() -> int | None:
            admin = AdminClient(SystemClock())
            try:
                route = await admin.topic_route(self.namesrv, TOPIC)
            except AdminError:
                return None
            finally:
                await admin.close()
            leaders = [replicas["brokerAddrs"].get("0") for replicas in route["brokerDatas"]]
            return next((number for number in range(MEMBERS) if self.address(number) in leaders), None)

        number = asyncio.run(found())
        return None if number is None else number + 1  # never 0, which says no


@pytest.mark.long
def test_what_a_raft_mode_set_acknowledged_is_read_from_ours(tmp_path: Path) -> None:
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


def places(pair: RealPair) -> dict[tuple[int, int], bytes]:
    """What can be read; nothing while nobody leads."""
    try:
        return {(message.queue_id, message.queue_offset): message.body for message in pair.read()}
    except (ClientError, RemotingError):
        return {}


def run(module: str, *arguments: str) -> str:
    """What it printed; it has succeeded."""
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_ours_acknowledged_is_read_from_java_in_raft_mode(tmp_path: Path) -> None:
    """The way back, with the same log for each; the one that leads is killed."""
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
