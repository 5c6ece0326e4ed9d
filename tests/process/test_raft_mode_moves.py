"""From Raft mode to controller mode and back with our stores: every message keeps its queue offset."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

from localcluster.cluster import Cluster
from localcluster.layout import Mode
from localcluster.waiting import NotYet, wait_for
from mqclient.client import Client
from mqruntime.clock import SystemClock
from raftstore.folder import read_log
from scripts.peers.waits import NOBODY_IS_LATE, WAIT_MS
from tests.process.forkedcommands import ForkedCommands, run
from tests.unit.raftstore import raftstores

TOPIC = "Orders"
FILE_BYTES = 64 * 1024


def raft_mode(folder: Path) -> Cluster:
    return Cluster.create(
        folder, mode=Mode.RAFT, segment_bytes=FILE_BYTES, broker_settings={"maxMessageSize": "4096"}
    )


def client(cluster: Cluster) -> Client:
    return Client(cluster.layout.namesrv, clock=SystemClock(), random=random.Random(1))


async def send(cluster: Cluster, name: str, count: int) -> None:
    async with client(cluster) as sender:
        producer = sender.producer("Producers")
        for number in range(count):
            result = await producer.send(
                TOPIC, f"{name} {number} ".encode().ljust(900, b"."), timeout_ms=WAIT_MS
            )
            assert result.acknowledged


async def places(cluster: Cluster, count: int) -> dict[tuple[int, int], bytes]:
    """Waits for `count` messages; returns the body by queue and offset."""

    async def probe() -> dict[tuple[int, int], bytes]:
        async with client(cluster) as reader:
            consumer = reader.consumer("Readers")
            found: dict[tuple[int, int], bytes] = {}
            for queue in await consumer.queues(TOPIC):
                end = await consumer.max_offset(queue)
                begin = await consumer.min_offset(queue)
                async for message in consumer.read(queue, begin, end, patience_ms=WAIT_MS):
                    found[message.queue_id, message.queue_offset] = message.plain_body()
        if len(found) < count:
            raise NotYet(f"{len(found)} of {count} messages")
        return found

    return await wait_for("all messages", probe, WAIT_MS)


def whole(cluster: Cluster) -> None:
    asyncio.run(cluster.wait_whole(timeout_ms=WAIT_MS))


def test_a_set_moves_to_controller_mode_and_back(tmp_path: Path, commands: ForkedCommands) -> None:
    with raft_mode(tmp_path / "raft") as raft:
        raft.start()
        whole(raft)
        asyncio.run(raft.create_topic(TOPIC, 2))
        asyncio.run(send(raft, "in Raft mode", 150))
        first = asyncio.run(places(raft, 150))
        raft.stop()
        stores = [str(raft.directory / name) for name in raft.layout.broker_names]
    with Cluster.create(
        tmp_path / "set", controllers=1, brokers=2, segment_bytes=FILE_BYTES,
        broker_settings={"maxMessageSize": "4096", **NOBODY_IS_LATE},
    ) as moved:  # fmt: skip
        run(commands, "raftstore", "adopt", "-c", str(moved.directory / "broker-0.conf"), *stores)
        moved.start(["namesrv", "controller-0", "broker-0"])
        asyncio.run(moved.wait_in_sync(1, timeout_ms=WAIT_MS))
        moved.start(["broker-1"])
        whole(moved)
        assert asyncio.run(places(moved, 150)) == first
        asyncio.run(send(moved, "under controllers", 50))
        second = asyncio.run(places(moved, 200))
        state = asyncio.run(moved.wait_whole(timeout_ms=WAIT_MS))
        last = moved.layout.name_of(state.master_address or "") or ""
        moved.stop([name for name in moved.layout.broker_names if name != last])
        moved.stop([last])
        held = str(moved.directory / last)
    with raft_mode(tmp_path / "again") as again:
        for name in again.layout.broker_names:
            run(commands, "raftstore", "give-back", "-c", str(again.directory / f"{name}.conf"), held)
        again.start()
        whole(again)
        assert first.items() <= second.items()
        assert asyncio.run(places(again, 200)) == second
        asyncio.run(send(again, "in Raft mode again", 20))
        assert second.items() <= asyncio.run(places(again, 220)).items()


def test_a_java_raft_store_is_opened_continued_and_reopened(tmp_path: Path, commands: ForkedCommands) -> None:
    with Cluster.create(
        tmp_path / "raft", mode=Mode.RAFT, brokers=1, segment_bytes=raftstores.FILE_BYTES,
        broker_settings={"maxMessageSize": "4096", "mappedFileSizeConsumeQueue": "6000"},
    ) as cluster:  # fmt: skip
        store = raftstores.lay_out("killed", cluster.directory / "broker-0")
        log = read_log(store)
        held = [message for message in log.messages() if message.facts.topic == TOPIC.encode()]
        assert not log.census.damage and held
        cluster.start()
        whole(cluster)
        before = asyncio.run(places(cluster, len(held)))
        assert len(before) == len(held)
        asyncio.run(send(cluster, "ours", 30))
        cluster.kill(["broker-0"])
        cluster.start()
        whole(cluster)
        after = asyncio.run(places(cluster, len(held) + 30))
        assert before.items() <= after.items() and len(after) == len(held) + 30
        cluster.stop()  # so its saved bound covers all sent messages
        said = run(commands, "sparkreplay", "verify", str(store), "--workers", "1")
        assert "nothing is wrong" in said and " above it" not in said
