"""The cost of a message in a transaction: committed messages per second, as a share of plain sends per second.

    python -m scripts.bench.transactions [--runs 3] [--seconds 10] [--warm-up 20] [--threads 1] [--sides ours-c,java-c]

Each run measures the sides in turn. Each side gets a new cluster of three brokers with shipped settings under our name server
and three of our controllers, everything on this machine. One public Java client (one JVM for all sides) sends messages of
--body bytes, one after the other in each thread. Half of the time it sends plain messages, before and after, and half of the
time messages that it commits at once with TransactionMQProducer. All committed messages must be in the topic soon after, or
the command ends.

Contracts are those of docs/operations.md; ours-raft and java-raft are Raft mode. The exit code is 1 if our median misses its
target. Needs a JDK and scripts/fetch-peers."""

from __future__ import annotations

import asyncio
import tempfile
import time
from argparse import Namespace
from pathlib import Path

from mqclient.client import Client
from scripts.bench.javaload import JavaLoad
from scripts.bench.measured import machine
from scripts.bench.options import bounded, options
from scripts.bench.servers import Servers
from scripts.bench.sides import SIDES, Side, chosen, cluster_of
from scripts.bench.tables import Reach, Table
from scripts.peers.javapeer import broker_missing, missing

PLAIN, DEALS, QUEUES = "plain", "deals", 8
RATE, DEAL_RATE, PART = "plain sends/s", "committed transactions/s", "transactions per plain send"
P50, DEAL_P50 = "plain send, p50 ms", "transaction, p50 ms"
CPU_US = "master's CPU, µs/transaction"
REACHES = (Reach(PART, least=0.4),)
WHOLE_MS_MAX = 180_000
THERE_S_MAX = 60.0
LOOK_AGAIN_S = 0.1


async def committed(namesrv: str) -> int:
    """How many messages consumers can read."""
    async with Client(namesrv) as client:
        consumer = client.consumer("bench")
        return sum([await consumer.max_offset(queue) for queue in await consumer.queues(DEALS)])


def wait_committed(namesrv: str, expected: int) -> None:
    deadline = time.monotonic() + THERE_S_MAX
    while (found := asyncio.run(committed(namesrv))) < expected:
        if time.monotonic() > deadline:
            raise SystemExit(
                f"of {expected:,} committed messages {found:,} are there after {THERE_S_MAX:g} s"
            )
        time.sleep(LOOK_AGAIN_S)
    if found != expected:
        raise SystemExit(f"{expected:,} messages were committed, and {found:,} are there")


def run_once(side: Side, given: Namespace, java: JavaLoad, table: Table) -> None:
    with cluster_of(side, directory=given.directory) as cluster:
        cluster.start()
        asyncio.run(cluster.wait_whole(timeout_ms=WHOLE_MS_MAX))
        for topic in (PLAIN, DEALS):
            asyncio.run(cluster.create_topic(topic, QUEUES))
        servers, namesrv = Servers(cluster), cluster.layout.namesrv

        def plainly(seconds: float) -> tuple[int, float, float]:
            outcome = java.load("sync", namesrv, PLAIN, seconds, given.body, given.threads, 1)
            return outcome.messages, outcome.seconds, outcome.p50_ms

        plainly(given.warm_up / 2)
        sent = java.load("deals", namesrv, DEALS, given.warm_up / 2, given.body, given.threads).messages
        wait_committed(namesrv, sent)
        first = plainly(given.seconds / 4)
        before = servers.settle().spent()
        deals = java.load("deals", namesrv, DEALS, given.seconds / 2, given.body, given.threads)
        wait_committed(namesrv, sent + deals.messages)
        spent = servers.settle().spent().since(before)
        second = plainly(given.seconds / 4)
        java.leave(namesrv)
    if deals.refused:
        print(f"{side.name}: {deals.refused:,} refused, the last: {deals.last_refusal}")
    plain_rate = (first[0] + second[0]) / (first[1] + second[1])
    deal_rate = deals.messages / deals.seconds
    for name, value in (
        (RATE, plain_rate),
        (DEAL_RATE, deal_rate),
        (PART, deal_rate / plain_rate),
        (P50, (first[2] + second[2]) / 2),
        (DEAL_P50, deals.p50_ms),
        (CPU_US, spent.master / deals.messages * 1e6),
    ):
        table.note(name, side.name, value)


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("--runs", type=bounded(1, 100), default=3)
    parser.add_argument("--seconds", type=bounded(1, 600), default=10, help="of load, each side and run")
    parser.add_argument("--warm-up", type=bounded(1, 600), default=20, help="seconds of load before")
    parser.add_argument("--threads", type=bounded(1, 256), default=1)
    parser.add_argument("--body", type=bounded(1, 65_536), default=1024, help="bytes of a message")
    parser.add_argument("--sides", default="ours-c,java-c", help=", ".join(SIDES))
    parser.add_argument("--directory", type=Path, default=None, help="where the temporary stores go")
    given = parser.parse_args()
    if (why := missing()) is not None:
        raise SystemExit(why)
    sides = chosen(parser, given.sides, broker_missing())
    print(machine(), flush=True)
    table = Table()
    with tempfile.TemporaryDirectory() as home, JavaLoad(Path(home)) as java:
        for number in range(given.runs):
            for side in sides:
                run_once(side, given, java, table)
                print(f"run {number + 1}, {side.name} is done", flush=True)
    print("\n".join(table.lines([side.name for side in sides])))
    lines, missed = table.judged(sides[0].name, REACHES)
    print("\n".join(lines))
    print(machine())
    return int(missed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
