"""RocketMQ 5.5 (client, tools and name server 5.5.0, the newest published; brokers and controllers 5.5.1)
with ours.

`scripts/interop` runs the longer ones. Other tests of this layer run with it under
AUTOSWITCH_PEERS_VERSION=5.5.1."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from localcluster.cluster import Cluster
from localcluster.drill import elect_another
from localcluster.layout import BROKER_SET, CLUSTER_NAME
from localcluster.waiting import NotYet, wait_for
from mqadmin.admin import AdminClient
from mqadmin.calls.messages import by_key
from mqclient.client import Client
from mqclient.errors import ClientError
from mqclient.producer import SendStatus
from mqruntime.clock import SystemClock
from scripts.peers.fleet import Fleet, fleet_missing
from scripts.peers.javapeer import NEWER, OLDER, newer_missing, peers_of
from scripts.peers.waits import WAIT_MS
from tests.interop.javaclient import JavaClient, everything
from tests.support.longtests import long
from tests.unit.mqadmin.adminpage import NEWER as NEWER_COMMANDS
from tests.unit.mqadmin.adminpage import UPSTREAMS

pytestmark = [pytest.mark.skipif(newer_missing() is not None, reason=str(newer_missing()))]

TOPIC = "Newer"
GROUP = "NewerPush"


@pytest.fixture(scope="module")
def newer(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaClient]:
    jars = peers_of(NEWER) / "jars"
    with JavaClient(cluster.layout.namesrv, tmp_path_factory.mktemp("newer"), jars) as client:
        yield client


def test_newer_java_consumers_read_messages_of_the_newer_producer(
    newer: JavaClient, cluster: Cluster
) -> None:
    namesrv = cluster.layout.namesrv
    said = newer.admin("updateTopic", "-n", namesrv, "-c", CLUSTER_NAME, "-t", TOPIC, "-r", 4, "-w", 4)
    assert "success" in said
    assert newer.ask("sync", TOPIC, 50, 100) == {"acked": 50, "failed": 0}
    assert newer.ask("async", TOPIC, 100, 1024) == {"acked": 100, "failed": 0}
    assert newer.ask("batch", TOPIC, 50, 100) == {"acked": 50, "failed": 0}
    newer.ask("subscribe", TOPIC, GROUP)
    assert newer.ask("drained") == everything(200)
    assert newer.ask("pull", TOPIC) == everything(200)


def progress(newer: JavaClient, namesrv: str, group: str) -> int:
    said = newer.admin("consumerProgress", "-n", namesrv, "-g", group)
    found = re.search(r"^Consume Diff Total: (\d+)$", said, re.MULTILINE)
    assert found is not None, said
    return int(found[1])


def test_the_newer_tool_reads_maps_keyed_by_queues(newer: JavaClient, cluster: Cluster) -> None:
    """fastjson2 reads objects as keys, and no strings that contain them."""
    namesrv = cluster.layout.namesrv
    state = asyncio.run(cluster.wait_whole(timeout_ms=WAIT_MS))
    rows = [line.split() for line in newer.admin("topicStatus", "-n", namesrv, "-t", TOPIC).splitlines()]
    ends = [int(row[3]) for row in rows if row and row[0] == BROKER_SET]
    assert len(ends) == 4 and sum(ends) == 200
    assert progress(newer, namesrv, GROUP) == 0
    stats = newer.admin("brokerConsumeStats", "-b", state.master_address)
    assert [line.split()[:3] for line in stats.splitlines()].count([TOPIC, GROUP, BROKER_SET]) == 4
    clone = ("cloneGroupOffset", "-n", namesrv, "-s", GROUP, "-d", "NewerClone", "-t", TOPIC)
    assert "clone group offset success" in newer.admin(*clone)
    moved = ("-n", namesrv, "-t", TOPIC, "-g", GROUP)
    assert newer.admin("resetOffsetByTime", *moved, "-s", "now").count(BROKER_SET) == 4
    assert newer.admin("skipAccumulatedMessage", *moved).count(BROKER_SET) == 4


def test_the_newer_tool_finds_messages_by_their_tag(newer: JavaClient, cluster: Cluster) -> None:
    namesrv = cluster.layout.namesrv
    asked = ("queryMsgByKey", "-n", namesrv, "-t", TOPIC, "-p", "T")

    async def found() -> None:
        async with Client(namesrv, clock=SystemClock(), random=random.Random(3)) as client:
            producer = client.producer("NewerTags")
            results = [await producer.send(TOPIC, b"%d" % each, tags=f"tag{each % 3}") for each in range(9)]

        async def shown() -> None:
            rows = [
                line.split()[0] for line in newer.admin(*asked, "-k", "tag1").splitlines() if line.strip()
            ]
            if rows[1:] and set(rows[1:]) == {results[each].message_ids[0] for each in (1, 4, 7)}:
                return
            raise NotYet(f"{rows}")

        await wait_for("messages with tag1", shown, WAIT_MS)

    asyncio.run(found())


def test_each_command_of_the_newer_tool_is_known(newer: JavaClient) -> None:
    listed = re.findall(r"^ {3,}(\w+) ", newer.admin(), re.MULTILINE)
    assert set(listed) == {*UPSTREAMS, *NEWER_COMMANDS}


BODIES = 20


async def sent(fleet: Fleet, name: str) -> list[bytes]:
    """Sends messages with tag `name` until the set has acknowledged them under contract C."""
    bodies = [f"{name}-{number}".encode() for number in range(BODIES)]
    async with Client(fleet.layout.namesrv, clock=SystemClock(), random=random.Random(1)) as client:
        producer = client.producer("NewerProducers")

        async def one(body: bytes) -> None:
            try:
                result = await producer.send(TOPIC, body, tags=name)
            except ClientError as error:
                raise NotYet(str(error)) from error
            if result.status is not SendStatus.SEND_OK:
                raise NotYet(result.status.name)

        for body in bodies:
            await wait_for("a send", partial(one, body), WAIT_MS)
    return bodies


async def read(fleet: Fleet, due: set[bytes]) -> None:
    """Waits until all of them can be read from the current master."""
    async with Client(fleet.layout.namesrv, clock=SystemClock(), random=random.Random(2)) as client:
        consumer = client.consumer("NewerReaders")

        async def all_there() -> None:
            found = set[bytes]()
            try:
                for queue in await consumer.queues(TOPIC):
                    at = await consumer.min_offset(queue)
                    while (batch := await consumer.pull(queue, at)).messages:
                        found |= {message.body for message in batch.messages}
                        at = batch.next_offset
            except ClientError as error:
                raise NotYet(str(error)) from error
            if due - found:
                raise NotYet(f"{len(due - found)} of {len(due)} are missing")

        await wait_for("everything acknowledged", all_there, WAIT_MS)


async def found_by_tag(fleet: Fleet, tag: str, due: set[bytes]) -> None:
    """Checks that the current master finds exactly `due` by this tag, without a note that some may be
    missing."""
    master = (await fleet.wait_whole(timeout_ms=WAIT_MS)).master_address
    assert master is not None
    admin = AdminClient(SystemClock())

    async def all_there() -> None:
        missed: list[str] = []
        found = await by_key(admin, master, TOPIC, tag, count_max=64, by_tag=True, note=missed.append)
        if {message.body for message in found} != due or missed:
            raise NotYet(f"{len(found)} of {len(due)} with tag {tag}; {missed}")

    try:
        await wait_for(f"messages with tag {tag}", all_there, WAIT_MS)
    finally:
        await admin.close()


async def elected(fleet: Fleet, name: str) -> None:
    state = await fleet.wait_whole(timeout_ms=WAIT_MS)
    address = fleet.layout.address(name)
    if state.master_address == address:
        return
    [chosen] = [replica for replica in state.in_sync if replica.address == address]
    await elect_another(fleet, chosen)

    async def leads() -> None:
        if (now := await fleet.wait_whole(timeout_ms=WAIT_MS)).master_address != address:
            raise NotYet(f"{now.master_address} leads")

    await wait_for(f"{name} leads a whole set", leads, WAIT_MS)


async def lived(fleet: Fleet) -> set[bytes]:
    await fleet.wait_whole(timeout_ms=WAIT_MS)
    await fleet.create_topic(TOPIC, 2)
    await elected(fleet, "broker-0")
    due = set(await sent(fleet, "first"))
    await elected(fleet, "broker-1")
    await elected(fleet, "broker-0")  # no message was sent since, so Java's broker does not record this epoch
    due |= set(await sent(fleet, "behind"))
    await elected(fleet, "broker-1")
    due |= set(await sent(fleet, "ours"))
    await read(fleet, due)
    return due


@pytest.mark.parametrize("version", [NEWER, *long([OLDER])])
def test_a_java_master_elected_without_messages_in_between_is_followed(tmp_path: Path, version: str) -> None:
    """With a minimum of two, no send succeeds before it is followed. Finally ours continues its store and
    finds messages by tag."""
    if (why := fleet_missing(version)) is not None:
        pytest.skip(why)
    with Fleet.made(tmp_path / "fleet", java=["broker-0"], contract="C", version=version) as fleet:
        fleet.start()
        due = asyncio.run(lived(fleet))
        newer = version == NEWER
        (fleet.stop if newer else fleet.kill)(["broker-0"])
        index = fleet.store(0) / "index"
        left = {path: path.read_bytes() for path in index.iterdir()}
        fleet.become(["broker-0"], java=False)
        fleet.start(["broker-0"])
        asyncio.run(elected(fleet, "broker-0"))
        asyncio.run(read(fleet, due))
        for name in ("first", "behind", "ours"):
            asyncio.run(found_by_tag(fleet, name, {body for body in due if body.startswith(name.encode())}))
        # after a stop by Java's own entries; after a kill the index is rebuilt from the log
        assert left and ({path: path.read_bytes() for path in index.iterdir()} == left) is newer
