"""The speed of a resend compared with the producer alone, into one local cluster of seven processes with shipped settings.

    python -m scripts.bench.resend [--runs 3] [--messages 20000] [--queues 8]

The measurements take turns, each in a separate process. The producer sends generated messages of 1 KiB, once with one request
per queue under way, which keeps a queue's order, and once with --in-flight. Then a resend reads a slave's copy of these
messages and sends it to another topic, in each queue's order. The exit code is 1 if the resend's median is below that of the
ordered producer."""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import statistics
import time

import uvloop

from mqclient.client import Client
from mqruntime.clock import SystemClock
from scripts.bench.measured import machine, spread
from scripts.bench.options import options
from scripts.bench.wholecluster import whole_cluster
from sparkreplay.read.options import read_options
from sparkreplay.read.reader import plan_read
from sparkreplay.resend.job import ResendJob, prepare, send_share

BODY = random.Random(1).randbytes(1024)


async def produce(namesrv: str, topic: str, count: int, in_flight: int) -> float:
    """Messages per second, from the first send to the last acknowledgement."""
    async with Client(namesrv, clock=SystemClock(), random=random.Random(1)) as client:
        producer = client.producer("bench")
        left = count

        async def sender() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                result = await producer.send(topic, BODY, keys="order-1", tags="paid")
                assert result.acknowledged, result

        began = time.perf_counter()
        async with asyncio.TaskGroup() as senders:
            for _ in range(in_flight):
                senders.create_task(sender())
        return count / (time.perf_counter() - began)


def produce_here(namesrv: str, topic: str, count: int, in_flight: int) -> float:
    return uvloop.run(produce(namesrv, topic, count, in_flight))


def resend_here(namesrv: str, store: str, topic: str, count: int, folder: str) -> float:
    """Messages per second, including the planning."""
    began = time.perf_counter()
    read = plan_read(read_options({"path": store, "topic": topic}))
    job = ResendJob(read, topic, "DefaultCluster", f"{topic}-copy", namesrv, f"{folder}/{topic}.ledger")
    counts = send_share(prepare(job, force=False))
    assert (counts.acknowledged, counts.maybe_twice) == (count, 0), counts
    return count / (time.perf_counter() - began)


def wait_committed(store: str, topic: str, count: int) -> None:
    """Wait until the slave's saved bound, which is saved once a second, covers all messages."""
    from sparkreplay.read.reader import read_all

    deadline = time.monotonic() + 30
    while True:
        read = plan_read(read_options({"path": store, "topic": topic, "columns": "queue_id"}))
        rows = sum(batch.num_rows for batch in read_all(read))
        if rows == count:
            return
        if time.monotonic() > deadline:
            raise SystemExit(f"{store} has {rows} of {count} messages committed after 30 s")
        time.sleep(0.2)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--queues", type=int, default=8)
    parser.add_argument("--in-flight", type=int, default=64)
    given = parser.parse_args()
    print(machine())
    ordered, alone, again = [], [], []
    with (
        whole_cluster() as cluster,
        multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as process,
    ):
        state = asyncio.run(cluster.wait_whole())
        slave = next(
            name
            for name in cluster.layout.broker_names
            if name != cluster.layout.name_of(state.master_address or "")
        )
        store = cluster.layout.properties(slave)["storePathRootDir"]
        namesrv = cluster.layout.namesrv
        for run in range(given.runs):
            topic = f"bench{run}"
            for name in (topic, f"{topic}-ordered", f"{topic}-copy"):
                asyncio.run(cluster.create_topic(name, given.queues))
            ordered.append(
                process.apply(produce_here, (namesrv, f"{topic}-ordered", given.messages, given.queues))
            )
            alone.append(process.apply(produce_here, (namesrv, topic, given.messages, given.in_flight)))
            wait_committed(store, topic, given.messages)
            again.append(
                process.apply(
                    resend_here, (namesrv, store, topic, given.messages, str(cluster.directory.parent))
                )
            )
            shown = f"{ordered[-1]:,.0f} in order, {alone[-1]:,.0f} with {given.in_flight} under way"
            print(f"run {run + 1}: producer {shown}; resend {again[-1]:,.0f} messages/s", flush=True)
    print(f"producer, {given.queues:>3} under way  {spread(ordered, 'messages/s', 0)}")
    print(f"producer, {given.in_flight:>3} under way  {spread(alone, 'messages/s', 0)}")
    print(f"resend                   {spread(again, 'messages/s', 0)}")
    median = statistics.median(again)
    for name, figures in (("in order", ordered), (f"with {given.in_flight} under way", alone)):
        print(f"resend / producer {name}, medians: {median / statistics.median(figures):.2f}")
    if median < statistics.median(ordered):
        raise SystemExit("the resend is slower than a producer that keeps the order")


if __name__ == "__main__":
    main()
