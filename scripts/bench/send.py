"""The cost of sends and reads: our brokers at contract C, and those of Apache RocketMQ 5.3.3 at A, which promises nothing, and
at C.

    python -m scripts.bench.send [--runs 3] [--seconds 10] [--warm-up 30] [--sides ours-c,java-a,java-c] [--only pull,push]
        [--profile]

Each run measures the sides in turn. Each side gets a new cluster of three brokers with shipped settings under our name server
and three of our controllers, everything on this machine, with messages of --body bytes in topics of 8 queues. Two clients load
the master: the public Java client, in one JVM for all runs, and our light client (scripts.bench.lightclient). CPU is that of
the whole process, including sockets, until all slaves have caught up and dispatched. Before and after each side a probe
(scripts.bench.bareloop) measures the least cost in Python at that time, and figures are also given as multiples of the probe's
mean. Every side is warmed up with the same load. Anonymous memory is that at the end.

With `--only` there are only the loads whose names begin with these words, and, before the warm-up, as many seconds of single
sends by the light client.

Contracts are those of docs/operations.md. Other sides are ours-a, ours-b and java-b, and ours-raft and java-raft for brokers
in Raft mode, without controllers. With `--profile` our last run shows which functions use the master's CPU. Without Java, or
with `--skip-java`, only our side and the light client are measured. The exit code is 1 if a median misses its target."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from scripts.bench.bareloop import Probe, mean, probe
from scripts.bench.javaload import JavaLoad, JavaOutcome
from scripts.bench.lightclient import LoadOutcome, Pulls, Sends, load
from scripts.bench.measured import high, machine
from scripts.bench.options import bounded, options
from scripts.bench.sampledbroker import begin_sampling, end_sampling
from scripts.bench.servers import Servers
from scripts.bench.sides import SAMPLED, SIDES, Side, chosen, cluster_of
from scripts.bench.tables import Reach, Table
from scripts.peers.javapeer import broker_missing, missing

IN_FLIGHT, BATCH, BATCHES_IN_FLIGHT, QUEUES = 256, 32, 8, 8
SINGLE, BATCHED = "single", "batched"
RATE, CPU_US, P50_MS, P99_MS, MIB = "messages/s", "CPU, µs/message", "p50 ms", "p99 ms", "MiB"
ASYNC, ALONE = f"{IN_FLIGHT} in flight", "one at a time"
BATCH_ALONE, BATCHES = (
    f"batches of {BATCH}, one under way",
    f"batches of {BATCH}, {BATCHES_IN_FLIGHT} under way",
)
PULL, PUSH, ORDER = "pull from page cache", "push from page cache", "push in order from page cache"
JAVA_CLIENT, LIGHT_CLIENT = "Java client", "light client"
WHOLE_MS_MAX = 180_000


def row(what: str, client: str, unit: str) -> str:
    return f"{what}, {client}, {unit}"


def cpu_row(what: str, client: str, who: str) -> str:
    return row(what, client, f"{who} {CPU_US}")


REACHES = (
    Reach(row(ASYNC, JAVA_CLIENT, RATE), least=1.2, beside="Java A"),
    Reach(row(ASYNC, JAVA_CLIENT, RATE), least=1.2, beside="Java Raft"),
    Reach(cpu_row(ASYNC, LIGHT_CLIENT, "master"), most=3, of_probe=True),
    Reach(cpu_row(ASYNC, LIGHT_CLIENT, "each slave"), most=1, of_probe=True),
    Reach(row(ASYNC, LIGHT_CLIENT, RATE), least=60_000),
    Reach(row(ALONE, JAVA_CLIENT, P50_MS), most=1.0, beside="Java A"),
    Reach(row(ALONE, JAVA_CLIENT, P99_MS), most=0.4, beside="Java A"),
    Reach(row(BATCH_ALONE, JAVA_CLIENT, RATE), least=1.5, beside="Java A"),
    Reach(row(BATCHES, JAVA_CLIENT, RATE), least=1.5, beside="Java A"),
    Reach(row(PULL, JAVA_CLIENT, RATE), least=1, beside="Java A"),
    Reach(row(PUSH, JAVA_CLIENT, RATE), least=1, beside="Java A"),
    Reach(row(ORDER, JAVA_CLIENT, RATE), least=1, beside="Java A"),
    Reach(row(ORDER, JAVA_CLIENT, RATE), least=0.8, beside_row=row(PUSH, JAVA_CLIENT, RATE)),
    Reach(f"anonymous memory of the master, {MIB}", most=150),
    Reach(f"anonymous memory of a slave, {MIB}", most=150),
)


Load = tuple[str, str, float, Callable[[float], LoadOutcome | JavaOutcome]]
"""The load, the client, the share of the time, and the function that runs the load for so many seconds."""
ANY = ("",)


class SideRun:
    """One side in one run. `measured` notes the outcome of a load. Without `table` the side is only warmed up."""

    def __init__(
        self, servers: Servers, namesrv: str, body: int, java: JavaLoad | None, only: tuple[str, ...]
    ) -> None:
        self._only = only
        self._servers = servers
        self._namesrv = namesrv
        self._body = body
        self._java = java

    def loads(self) -> Iterator[Load]:
        """The loads that are wanted."""
        return (each for each in self._loads() if each[0].startswith(self._only))

    def _loads(self) -> Iterator[Load]:
        single, batched = Sends(SINGLE, QUEUES, self._body), Sends(BATCHED, QUEUES, self._body, BATCH)
        if self._java is not None:
            yield ASYNC, JAVA_CLIENT, 1, self._by_java("async", SINGLE, self._body, IN_FLIGHT)
        yield ASYNC, LIGHT_CLIENT, 1, self._light(single, IN_FLIGHT)
        if self._java is not None:
            yield ALONE, JAVA_CLIENT, 0.5, self._by_java("sync", SINGLE, self._body, 1, 1)
        yield ALONE, LIGHT_CLIENT, 0.5, self._light(single, 1)
        if self._java is not None:
            yield BATCH_ALONE, JAVA_CLIENT, 0.5, self._by_java("sync", BATCHED, self._body, 1, BATCH)
            by_threads = self._by_java("sync", BATCHED, self._body, BATCHES_IN_FLIGHT, BATCH)
            yield BATCHES, JAVA_CLIENT, 0.5, by_threads
        yield BATCHES, LIGHT_CLIENT, 0.5, self._light(batched, BATCHES_IN_FLIGHT)
        if self._java is not None:
            yield PULL, JAVA_CLIENT, 0.5, self._by_java("pull", SINGLE)
        yield PULL, LIGHT_CLIENT, 0.5, lambda seconds: self._light(Pulls(SINGLE, QUEUES), QUEUES)(seconds)
        if self._java is not None:
            yield PUSH, JAVA_CLIENT, 0.5, self._by_java("push", SINGLE)
            yield ORDER, JAVA_CLIENT, 0.5, self._by_java("order", SINGLE)

    def _by_java(self, what: str, topic: str, *more: int) -> Callable[[float], JavaOutcome]:
        java = self._java
        assert java is not None
        return lambda seconds: java.load(what, self._namesrv, topic, seconds, *more)

    def _light(self, requests: Sends | Pulls, in_flight: int) -> Callable[[float], LoadOutcome]:
        return lambda seconds: load(self._servers.address, requests, in_flight, seconds)

    def warm_up(self, seconds: float) -> None:
        """Warm up, half of the time with many requests in flight, because a JVM then has most to compile."""
        if self._only != ANY:
            self._light(Sends(SINGLE, QUEUES, self._body), IN_FLIGHT)(seconds)
        loads = [(what, work) for what, client, _, work in self.loads() if client == self._warming_client]
        for what, work in loads:
            work(seconds / 2 if what == ASYNC else seconds / 2 / max(1, len(loads) - 1))
        self._servers.settle()

    @property
    def _warming_client(self) -> str:
        return JAVA_CLIENT if self._java is not None else LIGHT_CLIENT

    def measure(self, seconds: float) -> Iterator[tuple[str, str, float]]:
        """Measure (row, the row's unit, value)."""
        for what, client, share, work in self.loads():
            before = self._servers.spent()
            outcome = work(share * seconds)
            spent = self._servers.settle().spent().since(before)
            if outcome.refused:
                print(f"{what}, {client}: {outcome.refused:,} refused, the last: {outcome.last_refusal}")
            if what == ALONE:
                yield row(what, client, P50_MS), P50_MS, p50(outcome)
                yield row(what, client, P99_MS), P99_MS, p99(outcome)
            else:
                yield row(what, client, RATE), RATE, outcome.messages / outcome.seconds
            yield cpu_row(what, client, "master"), CPU_US, spent.master / outcome.messages * 1e6
            if what not in (PULL, PUSH, ORDER):
                yield cpu_row(what, client, "each slave"), CPU_US, spent.slave / outcome.messages * 1e6
        master, slave = self._servers.own_mib()
        yield f"anonymous memory of the master, {MIB}", MIB, master
        yield f"anonymous memory of a slave, {MIB}", MIB, slave


def p50(outcome: LoadOutcome | JavaOutcome) -> float:
    return outcome.p50_ms if isinstance(outcome, JavaOutcome) else statistics.median(outcome.took_ms)


def p99(outcome: LoadOutcome | JavaOutcome) -> float:
    return outcome.p99_ms if isinstance(outcome, JavaOutcome) else high(outcome.took_ms)


def of_probe(unit: str, measured: Probe) -> float | None:
    """The probe's value for this unit."""
    return {
        RATE: measured.per_second,
        CPU_US: measured.cpu_us,
        P50_MS: measured.p50_ms,
        P99_MS: measured.p99_ms,
    }.get(unit)


@contextmanager
def loaded(side: Side, given: Namespace, java: JavaLoad | None) -> Iterator[tuple[Servers, SideRun]]:
    """A whole cluster of that side, with its topics and warmed up."""
    with cluster_of(side, directory=given.directory) as cluster:
        cluster.start()
        asyncio.run(cluster.wait_whole(timeout_ms=WHOLE_MS_MAX))
        for topic in (SINGLE, BATCHED):
            asyncio.run(cluster.create_topic(topic, QUEUES))
        servers, namesrv = Servers(cluster), cluster.layout.namesrv
        side_run = SideRun(servers, namesrv, given.body, java, given.only)
        side_run.warm_up(given.warm_up)
        yield servers, side_run
        if java is not None:
            java.leave(namesrv)


def run_once(side: Side, given: Namespace, java: JavaLoad | None, table: Table) -> None:
    def probed() -> Probe:
        return probe(given.directory, given.body, IN_FLIGHT, max(1.0, given.seconds / 5))

    with loaded(side, given, java) as (servers, side_run):
        before = probed()
        noted = list(side_run.measure(given.seconds))
        probe_mean = mean(before, probed())
    for name, unit, value in noted:
        table.note(name, side.name, value, of_probe(unit, probe_mean))
    for unit in (RATE, CPU_US, P50_MS, P99_MS):
        table.note(f"probe, {unit}", side.name, of_probe(unit, probe_mean) or 0.0)


def profile(side: Side, given: Namespace, java: JavaLoad | None) -> None:
    """The functions that use the master's CPU while the light client sends."""
    sampled = replace(side, module=SAMPLED)
    single, batched = Sends(SINGLE, QUEUES, given.body), Sends(BATCHED, QUEUES, given.body, BATCH)
    with loaded(sampled, given, java) as (servers, _):
        for what, sends, in_flight in (
            (ASYNC, single, IN_FLIGHT),
            (ALONE, single, 1),
            (BATCHES, batched, BATCHES_IN_FLIGHT),
        ):
            begin_sampling(servers.pid(servers.master))
            load(servers.address, sends, in_flight, given.seconds)
            print(f"\nmaster of {side.name}, {what}, {LIGHT_CLIENT}:")
            print(end_sampling(servers.pid(servers.master), servers.log(servers.master)))


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("--runs", type=bounded(1, 100), default=3)
    parser.add_argument(
        "--seconds", type=bounded(1, 600), default=10, help="of each load with many in flight"
    )
    parser.add_argument(
        "--warm-up", type=bounded(1, 600), default=30, help="seconds of load before, each side"
    )
    parser.add_argument("--body", type=bounded(1, 65_536), default=1024, help="bytes of a message")
    parser.add_argument("--sides", default="ours-c,java-a,java-c", help=", ".join(SIDES))
    parser.add_argument(
        "--only",
        type=lambda text: tuple(text.split(",")),
        default=ANY,
        help="first words of loads, as pull,push",
    )
    parser.add_argument("--skip-java", action="store_true", help="neither its brokers nor its client")
    parser.add_argument("--profile", action="store_true", help="also where the master's CPU goes")
    parser.add_argument("--directory", type=Path, default=None, help="where the temporary stores go")
    given = parser.parse_args()
    why = "as requested" if given.skip_java else missing() or broker_missing()
    sides = chosen(parser, given.sides, why)
    print(machine(), flush=True)
    table = Table()
    with ExitStack() as stack:
        home = stack.enter_context(tempfile.TemporaryDirectory())
        java = stack.enter_context(JavaLoad(Path(home))) if why is None else None
        try:
            for number in range(given.runs):
                for side in sides:
                    run_once(side, given, java, table)
                    print(f"run {number + 1} of {side.name} is done; {machine()}", flush=True)
        finally:
            for line in table.lines([side.name for side in sides]):
                print(line)  # even if a later run failed
        if given.profile:
            profile(sides[0], given, java)
    lines, missed = table.judged(sides[0].name, REACHES)
    print("\n".join(lines))
    print(f"\n{machine()}")
    return int(missed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
