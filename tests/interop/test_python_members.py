"""Members in Python and Java in one consumer group, against our cluster in real processes; and Java's mqadmin about them.

java/Consumers.java documents each line to the JVM."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from localcluster.cluster import Cluster
from localcluster.layout import CLUSTER_NAME
from mqclient import Client, GroupConsumer, ReceivedMessage, SendOutcomeUnknown
from scripts.peers.fleet import Fleet, fleet_missing
from scripts.peers.javapeer import NEWER, OLDER, missing
from tests.interop.javaclient import JavaClient

pytestmark = [
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
]

QUEUES = 4
WAIT_S = 300


class Member:
    """A member in Python, and what it got."""

    def __init__(self, consumer: GroupConsumer, fails: int) -> None:
        self.consumer = consumer
        self.keys: list[int] = []
        self.tries: Counter[int] = Counter()
        self.offsets: dict[int, list[int]] = {}
        self.busy: Counter[int] = Counter()
        self.overlaps = 0
        self._fails = fails

    async def handle(self, message: ReceivedMessage) -> None:
        key, queue_id = int(message.keys), message.queue.queue_id
        self.tries[key] += 1
        self.busy[queue_id] += 1
        self.overlaps += self.busy[queue_id] > 1
        try:
            await asyncio.sleep(0.001)
            if self.tries[key] <= self._fails:
                raise ValueError(key)
        finally:
            self.busy[queue_id] -= 1
        self.keys.append(key)
        self.offsets.setdefault(queue_id, []).append(message.offset)

    async def assigned(self, topic: str, count: int) -> None:
        await until(lambda: sum(queue.topic == topic for queue in self.consumer.assigned) == count)

    async def seen(self, count: int) -> None:
        await until(lambda: len(self.keys) >= count)


async def until(met: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not met():  # noqa: ASYNC110 - others change it, also in a JVM
            await asyncio.sleep(0.05)


@asynccontextmanager
async def member(
    cluster: Cluster, topic: str, group: str, *, fails: int = 0, **how: Any
) -> AsyncIterator[Member]:
    async with (
        Client(cluster.layout.namesrv) as client,
        client.subscribe(topic, group=group, **how) as consumer,
        asyncio.TaskGroup() as work,
    ):
        found = Member(consumer, fails)
        work.create_task(consumer.run(found.handle, concurrency=8))
        yield found
        consumer.stop()


class Java:
    """The JVM, asked from a thread."""

    def __init__(self, java: JavaClient, cluster: Cluster) -> None:
        self._java = java
        self._namesrv = cluster.layout.namesrv

    async def ask(self, *line: object) -> Any:
        return await asyncio.to_thread(self._java.ask, *line)

    async def admin(self, *arguments: object) -> str:
        return await asyncio.to_thread(self._java.admin, arguments[0], "-n", self._namesrv, *arguments[1:])

    async def create_topic(self, topic: str) -> None:
        options = ("-c", CLUSTER_NAME, "-t", topic, "-r", QUEUES, "-w", QUEUES)
        assert "success" in await self.admin("updateTopic", *options)

    async def send(self, topic: str, count: int) -> None:
        assert await self.ask("sync", topic, count, 100, "Tag") == {"acked": count, "failed": 0}

    async def acked(self, topic: str) -> list[int]:
        return sorted((await self.ask("acked", topic))["keys"])


@pytest.fixture
def jvm(java: JavaClient, cluster: Cluster) -> Java:
    return Java(java, cluster)


def test_members_in_python_and_java_share_the_queues_of_a_group(jvm: Java, cluster: Cluster) -> None:
    topic, group = "SharedWithPython", "InteropPython"

    async def play() -> None:
        await jvm.create_topic(topic)
        await jvm.ask("consume", "java", topic, group, "CLUSTERING", "*", 0, -1)
        await jvm.ask("assigned", "java", QUEUES)
        async with member(cluster, topic, group, start="first") as ours:
            await ours.assigned(topic, QUEUES // 2)
            await jvm.ask("assigned", "java", QUEUES // 2)
            await jvm.send(topic, 100)
            await ours.seen(50)
            half = await jvm.ask("seen", "java", 50)
            assert sorted([*half["keys"], *ours.keys]) == await jvm.acked(topic)
            connections = await jvm.admin("consumerConnection", "-g", group)
            assert "PYTHON" in connections and "JAVA" in connections
            (client_id,) = re.findall(r"python@\w+", connections)
            state = await jvm.admin("consumerStatus", "-g", group, "-i", client_id)
            assert topic in state and "PROP_CONSUME_TYPE" in state, state
            first = await jvm.ask("close", "java")
            await ours.assigned(topic, QUEUES)
            await jvm.send(topic, 20)
            await ours.seen(70)
        assert sorted([*first["keys"], *ours.keys]) == await jvm.acked(topic)
        progress = await jvm.admin("consumerProgress", "-g", group)
        assert "Consume Diff Total: 0" in progress, "what Python acknowledged is committed"

    asyncio.run(play())


def test_what_a_member_in_python_hands_back_comes_to_the_group_again(jvm: Java, cluster: Cluster) -> None:
    """To either member, and as often as it is handed back. Then it is a dead letter, as one of Java's."""
    topic, group = "RetriedWithPython", "InteropPythonRetries"

    async def play() -> None:
        await jvm.create_topic(topic)
        await jvm.ask("consume", "retrying", topic, group, "CLUSTERING", "*", 0, 2)
        async with member(cluster, topic, group, fails=1, max_reconsume_times=2, start="first") as ours:
            await ours.assigned(topic, QUEUES // 2)
            await jvm.ask("assigned", "retrying", QUEUES // 2)
            await jvm.send(topic, 40)
            seen = await jvm.ask("seen", "retrying", 20)
            while len({*ours.keys, *seen["keys"]}) < 40:
                seen = await jvm.ask("seen", "retrying", 0)
            theirs = await jvm.ask("close", "retrying")
        assert sorted({*ours.keys, *theirs["keys"]}) == await jvm.acked(topic)
        async with member(cluster, topic, group, fails=99, max_reconsume_times=1) as failing:
            await failing.assigned(topic, QUEUES)
            await jvm.send(topic, 4)
            async with member(cluster, f"%DLQ%{group}", "InteropPythonUndertaker", start="first") as dead:
                await until(lambda: len(set(dead.keys)) == 4)
        assert min(failing.tries.values()) >= 2, "more if an answer was late, so that it came here again, too"

    asyncio.run(play())


def test_members_in_order_in_python_and_java_never_read_one_queue(jvm: Java, cluster: Cluster) -> None:
    topic, group = "OrderedWithPython", "InteropPythonOrder"

    async def play() -> None:
        await jvm.create_topic(topic)
        await jvm.ask("order", "ordering", topic, group, 0)
        async with member(cluster, topic, group, ordered=True, start="first") as ours:
            await ours.assigned(topic, QUEUES // 2)
            await jvm.ask("assigned", "ordering", QUEUES // 2)
            await jvm.send(topic, 200)
            await ours.seen(100)
            await jvm.ask("ordered", topic, 100)
            await jvm.ask("close", "ordering")
            await ours.assigned(topic, QUEUES)
            await jvm.send(topic, 40)
            await ours.seen(140)
            java = await jvm.ask("ordered", topic, 100)
        assert (ours.overlaps, java["overlaps"]) == (0, 0)
        for queue_id in range(QUEUES):
            theirs = java["offsets"].get(str(queue_id), [])
            taken = [*theirs, *ours.offsets.get(queue_id, [])]
            assert taken == sorted(taken) == list(range(len(taken))), f"queue {queue_id} in order, once each"

    asyncio.run(play())


@pytest.mark.long
@pytest.mark.parametrize("version", [OLDER, NEWER])
def test_a_group_in_python_reads_on_when_a_master_in_java_dies(tmp_path: Path, version: str) -> None:
    """Name server, controller and brokers are Java's, so the client can rely on nothing but upstream's rules."""
    if (why := fleet_missing(version)) is not None:
        pytest.skip(why)
    topic, group = "orders", "InteropPythonOnJava"
    java = ["namesrv", "controller-0", "broker-0", "broker-1"]

    async def play(fleet: Fleet) -> None:
        await fleet.begin()
        await fleet.create_topic(topic, QUEUES)

        async def send(client: Client, keys: range) -> None:
            producer = client.producer("PG")
            for key in keys:
                try:
                    await producer.send(topic, b"x", keys=str(key), patience_ms=1_000 * WAIT_S)
                except SendOutcomeUnknown:
                    await send(client, range(key, key + 1))

        async with (
            Client(fleet.layout.namesrv) as client,
            member(fleet, topic, group, fails=1, start="first") as one,
            member(fleet, topic, group, start="first") as two,
        ):
            await one.assigned(topic, QUEUES // 2)
            await two.assigned(topic, QUEUES // 2)
            await send(client, range(40))
            await until(lambda: len({*one.keys, *two.keys}) == 40)
            assert one.tries and two.tries, "the retries go to either of them"
            master = fleet.layout.name_of((await fleet.wait_whole()).master_address or "")
            assert master is not None
            fleet.kill([master])
            await send(client, range(40, 80))
            await until(lambda: len({*one.keys, *two.keys}) == 80)

    with Fleet.made(tmp_path / "fleet", java=java, contract="B", version=version) as fleet:
        asyncio.run(play(fleet))
