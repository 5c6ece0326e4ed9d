"""How long a new cluster of seven processes takes until three replicas hold the first acknowledged message.

    python -m scripts.bench.startup --runs 5

The time begins just before the first process is started. Everything runs on this machine, with shipped settings, in a new
directory each time."""

from __future__ import annotations

import asyncio
import random
import statistics

from localcluster.cluster import Cluster
from mqadmin.admin import AdminClient
from mqadmin.replies import TopicSettings
from mqclient.client import Client
from mqruntime.clock import SystemClock
from scripts.bench.options import options
from scripts.bench.wholecluster import new_cluster

TOPIC = "startup"


async def first_acknowledgement(cluster: Cluster) -> int:
    """Wait for a whole set, create a topic and send one message. Returns the set's size at the acknowledgement."""
    state = await cluster.wait_whole()
    admin = AdminClient(SystemClock())
    assert state.master_address is not None
    await admin.create_topic(state.master_address, TopicSettings(TOPIC, 1, 1))
    await admin.close()
    async with Client(cluster.layout.namesrv, clock=SystemClock(), random=random.Random(1)) as client:
        result = await client.producer("bench").send(TOPIC, b"first")
    assert result.acknowledged, result
    return len(state.in_sync)


def run_once() -> tuple[int, int]:
    """Return (ms until the cluster was whole and the message acknowledged, number of replicas that hold the message)."""
    with new_cluster() as cluster:
        clock = SystemClock()
        began_ms = clock.monotonic_ms()
        cluster.start()
        replicas = asyncio.run(first_acknowledgement(cluster))
        return clock.monotonic_ms() - began_ms, replicas


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--runs", type=int, default=5)
    runs = [run_once() for _ in range(parser.parse_args().runs)]
    times = [ms for ms, _ in runs]
    assert all(replicas == 3 for _, replicas in runs)
    print(
        f"first process to first message acknowledged by three replicas, {len(runs)} runs: "
        f"min {min(times)}, median {statistics.median(times):.0f}, max {max(times)} ms"
    )


if __name__ == "__main__":
    main()
