"""A set in Raft mode as real processes: operators' actions, and refused ones."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from localcluster.cluster import Cluster
from localcluster.drill import DrillKind, run_drills
from localcluster.layout import BROKER_SET, CLUSTER_NAME, Mode
from localcluster.raftset import transfer
from localcluster.transacting import QUICK_CHECKS
from localcluster.waiting import NotYet, wait_for
from mqclient.client import Client
from mqclient.message import OutgoingMessage, StoredMessage
from mqruntime.clock import SystemClock
from scripts.peers.waits import WAIT_MS
from tests.process.forkedcommands import ForkedCommands, run
from tests.support.longtests import long
from tests.support.waiting import wait_until

TOPIC = "Orders"
FILE_BYTES = 8 << 20
LARGE_BYTES = (4 << 20) - 1024  # maxMessageSize counts properties too


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("raft") / "cluster"
    with Cluster.create(
        folder, mode=Mode.RAFT, segment_bytes=FILE_BYTES, broker_settings=QUICK_CHECKS
    ) as made:
        made.start()
        asyncio.run(made.wait_whole(timeout_ms=WAIT_MS))
        asyncio.run(made.create_topic(TOPIC, 2))
        yield made


def client(cluster: Cluster) -> Client:
    return Client(cluster.layout.namesrv, clock=SystemClock(), random=random.Random(1))


def changed(cluster: Cluster, name: str, **settings: object) -> str:
    """A copy of the broker's file with other settings."""
    lines = cluster.layout.file(name).splitlines() + [f"{key}={value}" for key, value in settings.items()]
    file = cluster.directory / "changed.conf"
    file.write_text("\n".join(dict((line.partition("=")[0], line) for line in lines).values()) + "\n")
    return str(file)


def master_of(cluster: Cluster) -> str:
    state = asyncio.run(cluster.wait_whole(timeout_ms=WAIT_MS))
    return cluster.layout.name_of(state.master_address or "") or ""


async def readable(cluster: Cluster) -> list[StoredMessage]:
    async with client(cluster) as reader:
        consumer = reader.consumer("Readers")
        found: list[StoredMessage] = []
        for queue in await consumer.queues(TOPIC):
            begin, end = await consumer.min_offset(queue), await consumer.max_offset(queue)
            found += [message async for message in consumer.read(queue, begin, end, patience_ms=WAIT_MS)]
        return found


async def lead(cluster: Cluster, name: str) -> None:
    """Transfers the leadership to the broker `name` if needed."""
    number = int(name.rpartition("-")[2])
    state = await cluster.wait_whole(timeout_ms=WAIT_MS)
    if state.master_id != number + 1:
        await transfer(cluster.layout, number + 1)
    state = await cluster.wait_whole(timeout_ms=WAIT_MS)
    assert state.master_id == number + 1


@pytest.mark.parametrize("kind", [DrillKind.KILL, DrillKind.ELECT, *long([DrillKind.TERM, DrillKind.PAUSE])])
def test_no_acknowledged_message_is_lost_in_raft_mode(cluster: Cluster, kind: DrillKind) -> None:
    topic = f"Drill-{kind.value}"
    report = asyncio.run(
        run_drills(
            cluster, kind, 1, seed=5, topic=topic, say=lambda line: None, in_order=True, in_transactions=True
        )
    )
    assert report.passed, report
    assert report.order is not None and report.order.handled
    assert report.ends is not None and report.ends.committed and report.ends.rolled_back
    (result,) = report.drills
    assert result.old_master != result.new_master and result.new_epoch > result.old_epoch


def test_large_batched_and_delayed_messages_are_read_from_the_next_leader(cluster: Cluster) -> None:
    large = b"L" * LARGE_BYTES
    batch = [OutgoingMessage(b"batch %d" % number) for number in range(20)]

    async def send() -> None:
        async with client(cluster) as sender:
            producer = sender.producer("Producers")
            sent = [
                await producer.send(TOPIC, large, timeout_ms=WAIT_MS),
                await producer.send_batch(TOPIC, batch, timeout_ms=WAIT_MS),
                await producer.send(
                    TOPIC, b"delayed", properties={"DELAY": "2"}, timeout_ms=WAIT_MS
                ),  # five seconds
            ]
            assert all(result.acknowledged for result in sent)

    asyncio.run(send())
    former = master_of(cluster)
    cluster.kill([former])
    cluster.start([former])
    assert master_of(cluster) != former
    wanted = sorted([large, b"delayed", *(message.body for message in batch)])

    async def all_there() -> list[StoredMessage]:
        found = await readable(cluster)
        if len(found) < len(wanted):
            raise NotYet(f"{len(found)} of {len(wanted)} messages")
        return found

    found = asyncio.run(wait_for("every message", all_there, WAIT_MS))
    assert sorted(message.plain_body() for message in found) == wanted


def test_an_emptied_member_comes_back_and_leads(cluster: Cluster) -> None:
    before = {
        (message.queue_id, message.queue_offset): message.body for message in asyncio.run(readable(cluster))
    }
    name = next(each for each in cluster.layout.broker_names if each != master_of(cluster))
    cluster.stop([name])
    shutil.rmtree(cluster.directory / name)
    cluster.start([name])
    asyncio.run(lead(cluster, name))
    after = {
        (message.queue_id, message.queue_offset): message.body for message in asyncio.run(readable(cluster))
    }
    assert after == before


def test_the_store_of_a_running_member_is_not_opened_twice(
    cluster: Cluster, commands: ForkedCommands
) -> None:
    name = master_of(cluster)
    assert "another process" in run(commands, "broker", "-c", changed(cluster, name, listenPort=0), code=2)
    assert master_of(cluster) == name


def test_settings_that_do_not_fit_the_store_are_refused_without_a_change(
    cluster: Cluster, commands: ForkedCommands
) -> None:
    name = next(each for each in cluster.layout.broker_names if each != master_of(cluster))
    cluster.stop([name])
    two = ";".join(f"{member}-{address}" for member, address in list(cluster.layout.members.items())[:2])
    other = next(member for member in cluster.layout.members if member != f"n{name[-1]}")
    for settings, said in (
        ({"mappedFileSizeCommitLog": FILE_BYTES // 2}, f"this file has {FILE_BYTES}"),
        ({"dLegerSelfId": other}, f"no dledger-{other}"),
        ({"dLegerPeers": two, "dLegerSelfId": f"n{name[-1]}"}, "dLegerPeers"),
        ({"enableDLegerCommitLog": "false", "enableControllerMode": "true", "controllerAddr": "127.0.0.1:9"}, "Raft mode"),
    ):  # fmt: skip
        assert said in run(commands, "broker", "-c", changed(cluster, name, **settings), code=1), settings
    cluster.start([name])
    asyncio.run(cluster.wait_whole(timeout_ms=WAIT_MS))


def test_admin_tools_show_the_raft_mode_set(cluster: Cluster, commands: ForkedCommands) -> None:
    master = master_of(cluster)
    layout = cluster.layout
    namesrv = ("-n", layout.namesrv)
    assert layout.address(master) in run(commands, "mqadmin", "clusterList", *namesrv)
    assert "#InSyncSlaveNum\t2" in run(commands, "mqadmin", "haStatus", *namesrv, "-c", CLUSTER_NAME)
    assert "Epoch: EpochEntry{epoch=" in run(
        commands, "mqadmin", "getBrokerEpoch", *namesrv, "-b", BROKER_SET
    )
    assert "earliestMessageTimeStamp" in run(
        commands, "mqadmin", "brokerStatus", *namesrv, "-b", layout.address(master)
    )
    assert TOPIC in run(commands, "mqadmin", "topicList", *namesrv)
    watched = run(commands, "mqadmin", "watch", *namesrv, "-b", BROKER_SET, "--once")
    assert "Raft mode, caught up [1, 2, 3] of 3" in watched and f"{layout.address(master)}, epoch" in watched
    refused = run(
        commands, "mqadmin", "getSyncStateSet", "-a", layout.address(master), "-b", BROKER_SET, code=1
    )
    assert "elects its master itself" in refused
    peers = ";".join(f"{member}-{address}" for member, address in layout.members.items())
    group = ("--group", BROKER_SET, "--peers", peers)
    assert "LEADER" in run(commands, "dledger", "status", *group)
    assert "leads" in run(commands, "dledger", "members", *group)


def test_the_stores_of_a_running_set_are_read(cluster: Cluster, commands: ForkedCommands) -> None:
    master_of(cluster)
    stores = [str(cluster.directory / name) for name in cluster.layout.broker_names]
    checkpoints = [next(Path(store).rglob("dledger-*")) / "checkpoint" for store in stores]
    wait_until("each has a checkpoint", lambda: all(file.is_file() for file in checkpoints))
    assert "most is held by" in run(commands, "raftstore", "inspect", *stores)
    assert "nothing is wrong" in run(commands, "sparkreplay", "verify", stores[0], "--workers", "1")
