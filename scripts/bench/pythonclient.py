"""A consumer group of the Python client next to Java's push consumer: messages a second and CPU for each.

    python -m scripts.bench.pythonclient [--runs 3] [--seconds 10] [--members 4] [--skip-java]

Three brokers with shipped settings have a topic of eight queues, which is filled with messages of 1 KiB for --seconds before
the runs. A run is a new group that reads the topic from its first message on: in turn --members processes with one member of
the Python client each, whose handler does nothing, and one JVM with Java's push consumer. The rate is that from the first
message of any member to the last one. CPU is that of the members' processes in the same time. The page cache has all messages.

The exit code is 1 if a median misses its target."""

from __future__ import annotations

import asyncio
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path

import uvloop

from localcluster.cluster import Cluster
from mqclient import Client, ReceivedMessage
from scripts.bench.javaload import JavaLoad
from scripts.bench.lightclient import Sends, load
from scripts.bench.measured import cell, cpu_seconds, machine
from scripts.bench.options import bounded, options
from scripts.bench.wholecluster import whole_cluster
from scripts.peers.javapeer import missing

TOPIC, QUEUES, BODY_BYTES, IN_FLIGHT = "bench", 8, 1024, 256
CONCURRENCY = 32
RATE_MIN = 100_000
CPU_TIMES_MAX = 1.5
LOOK_S = 0.05
SETTLE_S = 3.0


def member(namesrv: str, group: str, questions: Connection) -> None:
    """Be a member of the group. Each question is answered with the number of messages, and the times of the first and the last
    one; None ends the member."""
    seen, first, last = 0, 0.0, 0.0

    async def handle(message: ReceivedMessage) -> None:
        nonlocal seen, first, last
        last = time.perf_counter()
        first = first or last
        seen += 1

    async def main() -> None:
        loop, ended = asyncio.get_running_loop(), asyncio.Event()

        def asked() -> None:
            if questions.recv() is None:
                ended.set()
            else:
                questions.send((seen, first, last))

        loop.add_reader(questions.fileno(), asked)
        async with Client(namesrv) as client, client.subscribe(TOPIC, group=group, start="first") as consumer:
            running = asyncio.create_task(consumer.run(handle, concurrency=CONCURRENCY))
            await ended.wait()
            consumer.stop()
            await running

    uvloop.run(main())


class Members:
    """The processes of one run."""

    def __init__(self, namesrv: str, group: str, count: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._ends: list[Connection] = []
        self._processes: list[SpawnProcess] = []
        for _ in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(target=member, args=(namesrv, group, theirs))
            process.start()
            self._ends.append(ours)
            self._processes.append(process)

    def state(self) -> tuple[int, float, float]:
        """The number of all messages, and the times of the first and the last one."""
        for end in self._ends:
            end.send("state")
        states = [end.recv() for end in self._ends]
        firsts = [first for _, first, _ in states if first]
        return sum(seen for seen, _, _ in states), min(firsts, default=0.0), max(last for *_, last in states)

    def cpu_seconds(self) -> float:
        return sum(cpu_seconds(process.pid or 0) for process in self._processes)

    def end(self) -> None:
        for end in self._ends:
            end.send(None)
        for process in self._processes:
            process.join(30)


def run_ours(namesrv: str, group: str, count: int, total: int) -> tuple[float, float]:
    """Messages a second, and CPU in us for each message."""
    members = Members(namesrv, group, count)
    try:
        while not members.state()[0]:
            time.sleep(LOOK_S)
        begun_s = members.cpu_seconds()
        while members.state()[0] < total:
            time.sleep(LOOK_S)
        seen, first, last = members.state()
        return seen / (last - first), (members.cpu_seconds() - begun_s) / seen * 1e6
    finally:
        members.end()


def run_java(java: JavaLoad, namesrv: str) -> tuple[float, float]:
    """The same for the push consumer of the JVM."""
    begun_s = cpu_seconds(java.pid)
    outcome = java.load("push", namesrv, TOPIC, 60)
    return outcome.messages / outcome.seconds, (cpu_seconds(java.pid) - begun_s) / outcome.messages * 1e6


def filled(cluster: Cluster, seconds: float) -> int:
    """Fill the topic, and return the number of its messages."""
    state = asyncio.run(cluster.wait_whole())
    asyncio.run(cluster.create_topic(TOPIC, QUEUES))
    load(state.master_address or "", Sends(TOPIC, QUEUES, BODY_BYTES), IN_FLIGHT, seconds)
    time.sleep(SETTLE_S)

    async def count() -> int:
        async with Client(cluster.layout.namesrv) as client:
            return sum(map(len, (await client.admin().describe_topic(TOPIC)).values()))

    return asyncio.run(count())


def row(name: str, rates: Sequence[float], costs: Sequence[float]) -> str:
    return f"| {name} | {cell(rates)} | {cell(costs)} |"


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("--runs", type=bounded(1, 100), default=3)
    parser.add_argument("--seconds", type=bounded(1, 600), default=10)
    parser.add_argument("--members", type=bounded(1, 64), default=4)
    parser.add_argument("--skip-java", action="store_true")
    given = parser.parse_args()
    why = "as requested" if given.skip_java else missing()
    print(machine(), flush=True)
    ours: list[tuple[float, float]] = []
    javas: list[tuple[float, float]] = []
    with whole_cluster() as cluster, tempfile.TemporaryDirectory() as home, ExitStack() as stack:
        namesrv = cluster.layout.namesrv
        total = filled(cluster, given.seconds)
        print(f"{total:,} messages of {BODY_BYTES} bytes in {QUEUES} queues", flush=True)
        java = None if why else stack.enter_context(JavaLoad(Path(home)))
        for number in range(given.runs):
            ours.append(run_ours(namesrv, f"bench-{number}", given.members, total))
            if java is not None:
                javas.append(run_java(java, namesrv))
            print(f"run {number + 1} is done; {machine()}", flush=True)
    print("\n| group | messages/s | CPU, µs/message |\n|---|---|---|")
    print(row(f"{given.members} in Python", *zip(*ours, strict=True)))
    rate, cost = (statistics.median(values) for values in zip(*ours, strict=True))
    missed = rate < RATE_MIN
    if javas:
        print(row("1 JVM, push", *zip(*javas, strict=True)))
        missed = missed or cost > CPU_TIMES_MAX * statistics.median(cost for _, cost in javas)
    elif why:
        print(f"without Java: {why}")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
