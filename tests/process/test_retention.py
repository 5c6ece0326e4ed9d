"""Real brokers with a retention of seconds during sends: disk, mappings and descriptors stay small, and
leased files stay readable."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from localcluster.cluster import Cluster
from localcluster.history import SendOutcome
from localcluster.load import SteadyLoad
from mqclient.client import Client
from mqclient.message import StoredMessage
from mqruntime.clock import SystemClock
from scripts.peers.waits import NOBODY_IS_LATE, WAIT_MS, WAIT_S
from sparkreplay.store.hold import LogHold

SEGMENT = 1 << 20
KEPT_S = 3
ROUNDS, BURST = 6, 2_000  # of about 1 KiB
BROKERS = ("broker-0", "broker-1", "broker-2")
READER = "reader"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    settings = {
        "fileReservedSeconds": str(KEPT_S),
        "deleteWhen": ";".join(f"{hour:02}" for hour in range(24)),
        "cleanResourceInterval": "200",
        **NOBODY_IS_LATE,
    }
    directory = tmp_path / "cluster"
    with Cluster.create(directory, controllers=1, segment_bytes=SEGMENT, broker_settings=settings) as made:
        made.start()
        asyncio.run(made.wait_whole(timeout_ms=WAIT_MS))
        yield made


def segments(cluster: Cluster, name: str) -> list[int]:
    return sorted(
        int(path.name) for path in (cluster.directory / name / "commitlog").iterdir() if path.name.isdigit()
    )


def deleted_files_held(cluster: Cluster, name: str) -> int:
    """Mappings and descriptors of deleted segments."""
    process = cluster.states()[name]
    assert process is not None
    maps = Path(f"/proc/{process.pid}/maps").read_text().splitlines()
    mapped = sum("/commitlog/" in line and line.endswith("(deleted)") for line in maps)
    opened = 0
    for link in Path(f"/proc/{process.pid}/fd").iterdir():
        try:
            opened += "/commitlog/" in (target := str(link.readlink())) and target.endswith("(deleted)")
        except FileNotFoundError:
            continue
    return mapped + opened


def holds_nothing_deleted(cluster: Cluster, name: str) -> bool:
    return deleted_files_held(cluster, name) == 0


def keeps_little(cluster: Cluster, name: str) -> bool:
    """The newest segment, the next one, which is made ahead, and one that is not old enough."""
    found = segments(cluster, name)
    return found[0] > 0 and len(found) <= 3


def says(cluster: Cluster, name: str, words: str) -> bool:
    return words in cluster.log_file(name).read_text()


async def until(cluster: Cluster, holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not holds():
            cluster.check_alive()
            await asyncio.sleep(0.1)


async def kept(client: Client) -> list[StoredMessage]:
    """All readable messages, from the beginning of each queue."""
    consumer, found = client.consumer("CG"), []
    for queue in await consumer.queues("Rolling"):
        end = await consumer.max_offset(queue)
        offset = (await consumer.pull(queue, 0)).next_offset
        assert offset == await consumer.min_offset(queue) > 0
        found += [message async for message in consumer.read(queue, offset, end, patience_ms=WAIT_MS)]
    return found


def test_a_log_with_short_retention_stays_small_on_every_replica(cluster: Cluster) -> None:
    async def scenario() -> None:
        clock = SystemClock()
        await cluster.create_topic("Rolling", 4)
        async with Client(cluster.layout.namesrv, clock=clock, random=random.Random(3)) as client:
            load = SteadyLoad(
                client.producer("PG"),
                "Rolling",
                queues=4,
                clock=clock,
                random=random.Random(4),
                timeout_ms=WAIT_MS,
            )
            for _ in range(ROUNDS):
                await load.send_burst(BURST, in_flight=100, progress=lambda ended: None)
                for name in BROKERS:
                    await until(cluster, partial(keeps_little, cluster, name))
            acknowledged = [each for each in load.attempts if each.outcome is SendOutcome.ACKNOWLEDGED]
            assert len(acknowledged) > ROUNDS * BURST * 0.9  # the answer may still be "unknown"
            for name in BROKERS:
                assert len(segments(cluster, name)) < 10
                await until(cluster, partial(holds_nothing_deleted, cluster, name))
            asked = ["deleteExpiredCommitLog", "-n", cluster.layout.namesrv, "-c", "DefaultCluster"]
            done = await asyncio.to_thread(
                subprocess.run,
                [sys.executable, "-m", "mqadmin", *asked],
                capture_output=True,
                text=True,
                check=False,
            )
            assert (done.returncode, done.stdout) == (0, "success\n"), done.stderr
            for name in BROKERS:
                LogHold(str(cluster.directory / name), READER, 0).take()
            await load.send_burst(BURST, in_flight=100, progress=lambda ended: None)
            for name in BROKERS:  # a clean-up that began before the lease may still run
                await until(cluster, partial(says, cluster, name, f"read by {READER}"))
            await load.send_burst(50, in_flight=10, progress=lambda ended: None)
            newest = {
                each.message_id for each in load.attempts[-50:] if each.outcome is SendOutcome.ACKNOWLEDGED
            }
            assert newest <= {message.properties["KEYS"] for message in await kept(client)}
        assert all("Traceback" not in cluster.log_file(name).read_text() for name in cluster.layout.names)

    asyncio.run(scenario())
