"""All brokers lose power at once: only their disks remain (contract D).

The disk is a file system in a file, which is copied while the brokers are stopped. Unsynced data is in memory
only and not in the copy."""

from __future__ import annotations

import asyncio
import random
import shutil
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from localcluster.cluster import Cluster
from mqclient.client import Client
from mqclient.errors import SendOutcomeUnknown, SendRefused
from mqclient.producer import SendStatus
from mqruntime.clock import SystemClock
from scripts.peers.waits import NOBODY_IS_LATE, WAIT_MS
from tests.process.smalldisk import made_image, mounted_image

IMAGE_BYTES = 192 << 20
BROKERS = ("broker-0", "broker-1", "broker-2")
ON_DISK = {"allFlushInSyncStateSet": "true", "flushDiskType": "SYNC_FLUSH"}
IN_MEMORY = {"flushIntervalCommitLog": "3600000", "flushIntervalConsumeQueue": "3600000"}
"""Contract C: acknowledged data is in the memory of all members."""
IN_FLIGHT, ACKNOWLEDGED = 16, 200
TOPIC = "Powered"


class Brokers:
    """Three brokers with their stores on the disk at `place`."""

    def __init__(self, home: Path, place: Path, settings: dict[str, str]) -> None:
        self.place = place
        self.cluster = Cluster.create(
            home, controllers=1, segment_bytes=1 << 20, broker_settings={**settings, **NOBODY_IS_LATE}
        )
        for name in BROKERS:
            file = self.cluster.directory / f"{name}.conf"
            store = str(self.cluster.directory / name)
            assert f"storePathRootDir={store}\n" in file.read_text()
            file.write_text(file.read_text().replace(store, str(place / name)))

    def stand_still(self) -> None:
        """Stops the brokers; on return every thread is stopped, so no write is in flight."""
        for name in BROKERS:
            self.cluster.pause(name)
        for identity in (self.cluster.states()[name] for name in BROKERS):
            assert identity is not None
            while any(state != "T" for state in thread_states(identity.pid)):
                pass

    async def send(self, acknowledged: list[bytes]) -> None:
        """Sends many at a time until enough are acknowledged; then stops the brokers while others are in
        flight."""
        clock = SystemClock()
        async with Client(self.cluster.layout.namesrv, clock=clock, random=random.Random(1)) as client:
            producer, numbers = client.producer("Producers"), iter(range(1 << 20))

            async def go_on() -> None:
                while len(acknowledged) < ACKNOWLEDGED:
                    body = b"fact %06d " % next(numbers) * 20
                    try:
                        result = await producer.send(TOPIC, body, timeout_ms=WAIT_MS)
                    except (SendRefused, SendOutcomeUnknown):
                        continue
                    if result.status is SendStatus.SEND_OK:
                        acknowledged.append(body)

            senders = [asyncio.create_task(go_on()) for _ in range(IN_FLIGHT)]
            await asyncio.wait(senders, return_when=asyncio.FIRST_COMPLETED)
            self.stand_still()
            for sender in senders:
                sender.cancel()

    async def read(self) -> set[bytes]:
        clock = SystemClock()
        async with Client(self.cluster.layout.namesrv, clock=clock, random=random.Random(2)) as client:
            consumer = client.consumer("Consumers")
            found: set[bytes] = set()
            for queue in await consumer.queues(TOPIC):
                end = await consumer.max_offset(queue)
                read = consumer.read(queue, 0, end, patience_ms=WAIT_MS)
                found |= {message.body async for message in read}
            return found

    def logs(self) -> list[bytes]:
        """The log of each broker on the disk."""
        folders = [self.place / name / "commitlog" for name in BROKERS]
        return [b"".join(file.read_bytes() for file in sorted(folder.iterdir())) for folder in folders]


def thread_states(pid: int) -> Iterator[str]:
    for task in Path(f"/proc/{pid}/task").iterdir():
        yield (task / "stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.parametrize("contract", ["D", "C"])
def test_no_acknowledged_message_is_missing_on_any_disk_after_a_power_loss(
    tmp_path: Path, contract: str
) -> None:
    """A run under contract C proves that the copy is missing data that is only in memory."""
    image, left = made_image(tmp_path / "image", IMAGE_BYTES), tmp_path / "left"
    place = tmp_path / "disk"
    with ExitStack() as stack:
        disk = ExitStack()
        disk.enter_context(mounted_image(image, place))
        stack.callback(disk.close)
        brokers = Brokers(tmp_path / "cluster", place, ON_DISK if contract == "D" else IN_MEMORY)
        cluster = stack.enter_context(brokers.cluster)
        cluster.start()
        asyncio.run(cluster.wait_whole(timeout_ms=WAIT_MS))
        asyncio.run(cluster.create_topic(TOPIC, 4))
        asyncio.run(cluster.wait_whole(timeout_ms=WAIT_MS))
        acknowledged: list[bytes] = []
        asyncio.run(brokers.send(acknowledged))
        shutil.copyfile(image, left)
        cluster.kill(BROKERS, signal.SIGKILL)
        disk.close()
        disk.enter_context(mounted_image(left, place))
        missing = [sum(body not in log for body in acknowledged) for log in brokers.logs()]
        if contract == "C":
            assert max(missing) > 0, "the copy contains unsynced data"
            return
        assert missing == [0, 0, 0]
        cluster.start(BROKERS)
        asyncio.run(cluster.wait_whole(timeout_ms=WAIT_MS))
        assert asyncio.run(brokers.read()) >= set(acknowledged)
