"""How fast an emptied slave catches up with its master and has dispatched its copy, compared with Apache RocketMQ 5.3.3.

    python -m scripts.bench.catchup [--bytes 3g] [--runs 3] [--sides ours-c,java-c] [--skip-java] [--profile]

Each side has a master with that many bytes of log, under our name server and controllers. The log was sent in batches to 8
queues while the master was alone (minInSyncReplicas is 1, and all other settings are as shipped). In each run the sides take
turns: the slave's store is emptied, and the slave is started. "First byte" is the time from the start of the process to the
first byte of its first segment. Speed is measured from there until its log is as long as the master's, and until all its
queues are. CPU is that of the whole process in the same time; anonymous memory is the slave's peak. A probe before each
measurement (scripts.bench.barecopy) copies a segment through a socket from one mapping to another. Figures are also given as
multiples of the probe's. Both include the cost of memory that a virtual machine has given back.

Without Java, or with `--skip-java`, only our side is measured. The exit code is 1 if a median misses its target."""

from __future__ import annotations

import asyncio
import shutil
import socket
import time
from argparse import Namespace
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from localcluster.cluster import Cluster
from mqadmin.admin import AdminClient
from mqadmin.errors import AdminError
from mqruntime.clock import SystemClock
from remoting.codes import RequestCode
from remoting.headers.offsets import GetMaxOffsetHeader, OffsetResponseHeader
from scripts.bench.barecopy import Copy, copy
from scripts.bench.lightclient import Sends, load
from scripts.bench.measured import cpu_seconds, machine, own_mib
from scripts.bench.options import bounded, options
from scripts.bench.replaylog import size
from scripts.bench.sampledbroker import begin_sampling, end_sampling
from scripts.bench.sides import SAMPLED, SEGMENT_BYTES, SIDES, Side, chosen, cluster_of
from scripts.bench.tables import Reach, Table
from scripts.peers.javapeer import broker_missing

TOPIC, QUEUES = "log", 8
MASTER, SLAVE = "broker-0", "broker-1"
BATCH, IN_FLIGHT, FILL_S = 256, 4, 0.5
LOOK_AGAIN_S = 0.02
CATCH_UP_S_MAX = 600.0
WHOLE_MS_MAX = 180_000

LEVEL, DISPATCHED = "level, MB/s", "level and dispatched, MB/s"
MASTER_CPU, SLAVE_CPU = "MB per CPU second of the master", "MB per CPU second of the slave"
FIRST, SERVED_FIRST = "first byte after the start of the process, s", "first byte after it listens, s"
OWN = "anonymous memory of the slave, MiB"
REACHES = (
    Reach(DISPATCHED, least=1000),
    Reach(DISPATCHED, least=3, beside="Java C"),
    Reach(FIRST, most=0.5),
    Reach(OWN, most=150),
    Reach("anonymous memory of the master, MiB", most=150),
)


@dataclass(frozen=True)
class Held:
    """The bytes of a broker's log, and the number of entries in all its queues."""

    log_end: int
    entries: int


async def held(admin: AdminClient, address: str) -> Held:
    """What the broker holds. Raises AdminError while the broker does not answer."""
    end = int((await admin.runtime_info(address))["commitLogMaxOffset"])
    entries = 0
    for queue in range(QUEUES):
        reply = await admin.ask(address, RequestCode.GET_MAX_OFFSET, GetMaxOffsetHeader(TOPIC, queue))
        entries += OffsetResponseHeader.from_ext(reply.ext).offset
    return Held(end, entries)


def listening(address: str) -> bool:
    """Whether a server accepts connections at this address."""
    host, _, port = address.rpartition(":")
    with socket.socket() as asked:
        return asked.connect_ex((host, int(port))) == 0


class FilledCluster:
    """A cluster whose master has a log. `slave_store` is the slave's store."""

    def __init__(self, cluster: Cluster, side: Side, log_bytes: int) -> None:
        self.side = side
        self._cluster = cluster
        cluster.start(["namesrv", *cluster.layout.controller_names, MASTER])
        asyncio.run(cluster.wait_in_sync(1, timeout_ms=WHOLE_MS_MAX))
        asyncio.run(cluster.create_topic(TOPIC, QUEUES))
        self._master, self._slave = cluster.layout.address(MASTER), cluster.layout.address(SLAVE)
        sends = Sends(TOPIC, QUEUES, 1024, BATCH)
        while asyncio.run(self._ask(self._master)).log_end < log_bytes:
            load(self._master, sends, IN_FLIGHT, FILL_S)
        time.sleep(1)  # dispatch catches up with the log
        self.full = asyncio.run(self._ask(self._master))

    async def _ask(self, address: str) -> Held:
        admin = AdminClient(SystemClock())
        try:
            return await held(admin, address)
        finally:
            await admin.close()

    @property
    def master_segment(self) -> Path:
        return self._first_segment(MASTER)

    def _first_segment(self, name: str) -> Path:
        root = Path(self._cluster.layout.properties(name)["storePathRootDir"])
        return root / "commitlog" / f"{0:020}"

    def _pid(self, name: str) -> int:
        identity = self._cluster.states()[name]
        if identity is None:
            raise SystemExit(f"{name} has ended; its log ends with:\n{self._cluster.log_tail(name)}")
        return identity.pid

    def catch_up(self, table: Table, probe: Copy) -> None:
        """Empty and start the slave, and note its progress."""
        self._cluster.kill([SLAVE])
        shutil.rmtree(self._cluster.layout.properties(SLAVE)["storePathRootDir"], ignore_errors=True)
        asyncio.run(self._caught_up(table, probe))

    async def _caught_up(self, table: Table, probe: Copy) -> None:
        admin = AdminClient(SystemClock())
        self._cluster.start([SLAVE])
        began = time.perf_counter()
        try:
            listens = 0.0
            while not self._has_bytes():  # noqa: ASYNC110 - it is a file of another process
                listens = listens or (time.perf_counter() if listening(self._slave) else 0.0)
                if time.perf_counter() - began > CATCH_UP_S_MAX:
                    raise SystemExit(f"no byte of the log came in {CATCH_UP_S_MAX:g} s; look at {SLAVE}.log")
                await asyncio.sleep(LOOK_AGAIN_S)
            first = time.perf_counter()
            pids = self._pid(MASTER), self._pid(SLAVE)
            cpus = [cpu_seconds(pid) for pid in pids]
            level, own = 0.0, 0.0
            while True:
                now = await self._slave_has(admin)
                own = max(own, own_mib(pids[1]))
                level = level or (time.perf_counter() if now.log_end >= self.full.log_end else 0.0)
                if level and now.entries >= self.full.entries:
                    break
                if time.perf_counter() - first > CATCH_UP_S_MAX:
                    raise SystemExit(
                        f"the slave has not caught up after {CATCH_UP_S_MAX:g} s: {now} of {self.full}"
                    )
                await asyncio.sleep(LOOK_AGAIN_S)
            done = time.perf_counter()
        finally:
            await admin.close()
        cpus = [max(cpu_seconds(pid) - before, 0.01) for pid, before in zip(pids, cpus, strict=True)]
        megabytes, name = self.full.log_end / 1e6, self.side.name
        table.note(FIRST, name, first - began)
        table.note(SERVED_FIRST, name, first - (listens or first))
        table.note(LEVEL, name, megabytes / (level - first), probe.mb_per_second)
        table.note(DISPATCHED, name, megabytes / (done - first), probe.mb_per_second)
        table.note(MASTER_CPU, name, megabytes / cpus[0], probe.sender_mb_per_cpu_second)
        table.note(SLAVE_CPU, name, megabytes / cpus[1], probe.receiver_mb_per_cpu_second)
        table.note(OWN, name, own)
        table.note("anonymous memory of the master, MiB", name, own_mib(pids[0]))

    def profile(self) -> str:
        """The functions that used the slave's CPU, from a sampled broker, from the first byte until it has caught up and
        dispatched."""
        return asyncio.run(self._profiled())

    async def _profiled(self) -> str:
        self._cluster.start([SLAVE])
        admin, deadline = AdminClient(SystemClock()), time.monotonic() + CATCH_UP_S_MAX
        try:
            while not self._has_bytes() and time.monotonic() < deadline:  # noqa: ASYNC110 - as above
                await asyncio.sleep(LOOK_AGAIN_S)
            begin_sampling(self._pid(SLAVE))
            while (  # noqa: ASYNC110 - it is asked over the network
                time.monotonic() < deadline and (await self._slave_has(admin)).entries < self.full.entries
            ):
                await asyncio.sleep(LOOK_AGAIN_S)
        finally:
            await admin.close()
        return end_sampling(self._pid(SLAVE), self._cluster.log_file(SLAVE))

    def _has_bytes(self) -> bool:
        self._pid(SLAVE)
        try:
            with self._first_segment(SLAVE).open("rb") as file:
                return any(file.read(4))
        except FileNotFoundError:
            return False

    async def _slave_has(self, admin: AdminClient) -> Held:
        try:
            return await held(admin, self._slave)
        except AdminError:
            self._pid(SLAVE)
            return Held(0, 0)  # no answer yet


def profile(given: Namespace, side: Side) -> None:
    sampled = replace(side, module=SAMPLED)
    with cluster_of(sampled, brokers=2, directory=given.directory, minInSyncReplicas="1") as cluster:
        print(f"\nslave of {side.name}:\n{FilledCluster(cluster, sampled, given.bytes).profile()}")


def measure(given: Namespace, sides: list[Side], table: Table) -> None:
    with ExitStack() as stack:
        clusters = []
        for side in sides:
            made = cluster_of(side, brokers=2, directory=given.directory, minInSyncReplicas="1")
            clusters.append(FilledCluster(stack.enter_context(made), side, given.bytes))
            full = clusters[-1].full
            print(
                f"{side.name}: {full.log_end / 1e6:,.0f} MB, {full.entries:,} messages; {machine()}",
                flush=True,
            )
        for _ in range(given.runs):
            for cluster in clusters:
                count = min(cluster.full.log_end, SEGMENT_BYTES)
                probe = copy(cluster.master_segment, count, given.directory)
                cluster.catch_up(table, probe)
                table.note("probe, MB/s", cluster.side.name, probe.mb_per_second)
                table.note(
                    "probe, MB per CPU second, sender", cluster.side.name, probe.sender_mb_per_cpu_second
                )
                table.note("probe, the same, receiver", cluster.side.name, probe.receiver_mb_per_cpu_second)
                print(f"a slave of {cluster.side.name} has caught up; {machine()}", flush=True)


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("--bytes", type=size, default=3_000_000_000, help="of log, for example 300m")
    parser.add_argument("--runs", type=bounded(1, 100), default=3)
    parser.add_argument("--sides", default="ours-c,java-c", help=", ".join(SIDES))
    parser.add_argument("--skip-java", action="store_true")
    parser.add_argument("--profile", action="store_true", help="also where the slave's CPU goes")
    parser.add_argument("--directory", type=Path, default=None, help="where the temporary stores go")
    given = parser.parse_args()
    why = "as requested" if given.skip_java else broker_missing()
    sides = chosen(parser, given.sides, why)
    print(machine(), flush=True)
    table = Table()
    try:
        measure(given, sides, table)
    finally:
        for line in table.lines([side.name for side in sides]):
            print(line)  # even if a later run failed
    if given.profile:
        profile(given, sides[0])
    lines, missed = table.judged(sides[0].name, REACHES)
    print("\n".join(lines))
    print(f"\n{machine()}")
    return int(missed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
