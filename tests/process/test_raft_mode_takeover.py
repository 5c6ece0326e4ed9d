"""From Raft mode to controller mode: a broker on a Java broker's store leads our set, and its successor has
all messages.

The stores are kept files of Java brokers; tests/interop uses a running Java broker."""

from __future__ import annotations

import asyncio
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from localcluster.cluster import Cluster
from localcluster.layout import BROKER_SET, CLUSTER_NAME
from localcluster.load import read_messages
from localcluster.waiting import NotYet, wait_for
from mqadmin.admin import AdminClient
from mqclient.client import Client
from mqclient.message import StoredMessage
from mqclient.producer import SendStatus
from mqruntime.clock import SystemClock
from scripts.peers.waits import NOBODY_IS_LATE, WAIT_MS
from tests.unit.raftstore.raftstores import FILE_BYTES, lay_out

ROOT = Path(__file__).parents[2]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster.create(
        tmp_path / "cluster", controllers=1, brokers=2, segment_bytes=FILE_BYTES,
        broker_settings={"mappedFileSizeConsumeQueue": "6000", "maxMessageSize": "4096", **NOBODY_IS_LATE},
    ) as made:  # fmt: skip
        yield made


def take_over(cluster: Cluster, store: Path) -> None:
    said = run("raftstore", "adopt", "-c", str(cluster.directory / "broker-0.conf"), str(store))
    assert "start its broker first" in said


def run(module: str, *arguments: str) -> str:
    """The output of a command that succeeds."""
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


async def readable(cluster: Cluster) -> list[StoredMessage]:
    async with Client(cluster.layout.namesrv, clock=SystemClock(), random=random.Random(1)) as client:
        read = read_messages(client.consumer("Readers"), "Orders", WAIT_MS)
        return [message async for _, message in read]


async def send(cluster: Cluster, body: bytes) -> SendStatus:
    async with Client(cluster.layout.namesrv, clock=SystemClock(), random=random.Random(2)) as client:
        return (await client.producer("Producers").send("Orders", body, timeout_ms=WAIT_MS)).status


async def led_by(cluster: Cluster, name: str) -> None:
    admin = AdminClient(SystemClock())

    async def leads() -> None:
        if (await cluster.sync_state(admin)).master_address != cluster.layout.address(name):
            raise NotYet(f"{name} does not lead")

    try:
        await wait_for(f"{name} as master", leads, WAIT_MS)
    finally:
        await admin.close()


def places(messages: list[StoredMessage]) -> dict[tuple[int, int], bytes]:
    return {(message.queue_id, message.queue_offset): message.body for message in messages}


def test_a_broker_on_a_java_store_leads_and_its_successor_has_every_message(
    cluster: Cluster, tmp_path: Path
) -> None:
    take_over(cluster, lay_out("mixed", tmp_path / "java"))
    cluster.start(["namesrv", "controller-0", "broker-0"])
    asyncio.run(cluster.wait_in_sync(1, timeout_ms=WAIT_MS))
    before = places(asyncio.run(readable(cluster)))
    assert len(before) == 84 and before[0, 0] == b"old 0 ".ljust(200, b".")
    cluster.start(["broker-1"])
    asyncio.run(cluster.wait_whole(timeout_ms=WAIT_MS))
    assert asyncio.run(send(cluster, b"after")) is SendStatus.SEND_OK
    cluster.kill(["broker-0"], signal.SIGKILL)
    asyncio.run(led_by(cluster, "broker-1"))
    cluster.start(["broker-0"])
    asyncio.run(cluster.wait_whole(timeout_ms=WAIT_MS))
    after = places(asyncio.run(readable(cluster)))
    assert before.items() <= after.items()
    assert sorted(after.keys() - before.keys()) in ([(0, 44)], [(1, 40)])


def test_an_empty_broker_that_leads_does_not_take_over_a_java_store(cluster: Cluster, tmp_path: Path) -> None:
    """As when the others are started first: the adopted store is kept unused, and the log says so. After
    cleaning the set the takeover can be repeated."""
    store = lay_out("killed", tmp_path / "java")
    take_over(cluster, store)
    log = cluster.directory / "broker-0" / "commitlog"
    held = {file.name: file.read_bytes() for file in log.iterdir()}
    cluster.start(["namesrv", "controller-0", "broker-1"])
    asyncio.run(cluster.wait_in_sync(1, timeout_ms=WAIT_MS))
    cluster.start(["broker-0"])

    async def stays_out() -> None:
        cluster.check_alive()
        if "no epoch in common" not in cluster.log_file("broker-0").read_text():
            raise NotYet("it has not said so")

    asyncio.run(wait_for("a slave that stays out", stays_out, WAIT_MS))
    assert {name: (log / name).read_bytes() for name in held} == held
    cluster.stop(["broker-0", "broker-1"])
    run(
        *(
            "mqadmin",
            "cleanBrokerMetadata",
            "-a",
            cluster.layout.controller_list,
            "-bn",
            BROKER_SET,
            "-c",
            CLUSTER_NAME,
        )
    )
    for name in cluster.layout.broker_names:
        shutil.rmtree(cluster.directory / name)
    take_over(cluster, store)
    cluster.start(["broker-0"])
    asyncio.run(led_by(cluster, "broker-0"))
    cluster.start(["broker-1"])
    asyncio.run(cluster.wait_whole(timeout_ms=WAIT_MS))
    assert len(asyncio.run(readable(cluster))) == 43
