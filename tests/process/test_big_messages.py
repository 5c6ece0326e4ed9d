"""One client sends more than its connection may buffer: real brokers store every message once."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

from localcluster.cluster import Cluster
from mqclient.client import Client
from mqruntime.clock import SystemClock
from remoting.limits import Limits
from scripts.peers.waits import WAIT_MS

TOPIC = "BigTopic"
BODY_BYTES = (4 << 20) - 1024  # maxMessageSize counts properties too
COUNT = 30


async def send_at_once_and_read(namesrv: str) -> None:
    async with Client(namesrv, clock=SystemClock(), random=random.Random(1)) as client:
        producer, consumer = client.producer("BigProducers"), client.consumer("BigConsumers")
        sends = (
            producer.send(TOPIC, bytes([number]) * BODY_BYTES, timeout_ms=WAIT_MS) for number in range(COUNT)
        )
        results = await asyncio.gather(*sends)
        assert all(result.acknowledged for result in results)
        [queue] = await consumer.queues(TOPIC)
        assert await consumer.max_offset(queue) == COUNT
        found = [message async for message in consumer.read(queue, 0, COUNT, patience_ms=WAIT_MS)]
        assert sorted(message.body[0] for message in found) == list(range(COUNT))
        assert {message.body.count(message.body[0]) for message in found} == {BODY_BYTES}


def test_thirty_concurrent_messages_of_four_mebibytes_are_stored_once(tmp_path: Path) -> None:
    assert Limits().unsent_bytes_max < COUNT * BODY_BYTES
    with Cluster.create(tmp_path / "cluster") as cluster:
        cluster.start()
        asyncio.run(cluster.wait_whole(timeout_ms=WAIT_MS))
        asyncio.run(cluster.create_topic(TOPIC, 1))
        asyncio.run(send_at_once_and_read(cluster.layout.namesrv))
