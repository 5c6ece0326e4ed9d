"""The quickstart: a cluster under load loses its master, elects another, and changes its master again on command. Spark reads
the committed messages.

Invariant: the quickstart ends at the first failed comparison, with ComparisonFailed."""

from __future__ import annotations

import asyncio
import json
import random
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dledger.raft.membership import peer_list
from localcluster.cli import electors
from localcluster.cluster import Cluster
from localcluster.drill import DrillKind, DrillResult, drill_once
from localcluster.history import Found, MessagePlace, SendOutcome, Verdict, judge
from localcluster.layout import BROKER_SET, CLUSTER_NAME, Layout
from localcluster.load import SteadyLoad, as_found, read_messages
from localcluster.narrator import Narrator
from localcluster.secured import context_of, credentials_of
from localcluster.waiting import NotYet, wait_for
from mqadmin.replies import SyncStateInfo
from mqclient.client import Client
from mqclient.route import MessageQueue
from mqruntime.clock import SystemClock
from sparkreplay.engine.engine import missing_for_spark
from sparkreplay.store.bound import checkpoint_bound
from sparkreplay.store.files import LocalFiles

TOPIC = "quickstart"
QUEUES = 8
IN_FLIGHT = 64
QUIET_MS = 800
BOUND_LIMIT_MS = 15_000
CHILD_LIMIT_S = 300
COMPARISONS_SHOWN = 5


class ComparisonFailed(Exception):
    """Two results that must be equal are not."""


class Quickstart:
    """One run of steps 2 to 7. scripts/quickstart runs the step before them, and `main` the steps after them."""

    def __init__(self, directory: Path, messages: int, seed: int, narrator: Narrator) -> None:
        self.directory = directory
        self.messages = messages
        self.random = random.Random(seed)
        self.say = narrator
        self.clock = SystemClock()
        self.spark_missing = missing_for_spark()
        self.consumed: list[tuple[Found, int]] = []
        """Each message that a consumer read, with the physical offset of its end."""
        self.verdicts: dict[str, Verdict] = {}
        self.outages_ms: dict[str, int | None] = {}

    async def run(self, cluster: Cluster) -> None:
        """Raises ComparisonFailed, and the errors of starting or waiting for a cluster."""
        await self.bring_up(cluster)
        async with Client(
            cluster.layout.namesrv,
            clock=self.clock,
            random=self.random,
            tls=context_of(cluster.layout),
            credentials=credentials_of(cluster.layout),
        ) as client:
            load = SteadyLoad(
                client.producer("quickstart"),
                TOPIC,
                queues=QUEUES,
                clock=self.clock,
                random=self.random,
                timeout_ms=3000,
            )
            await self.send(cluster, load)
            load.start()
            try:
                await self.lose_the_master(cluster, load)
                await self.hand_over(cluster, load)
            finally:
                await load.stop()
            await self.consume(client, load)
            await self.read_by_spark(cluster, load)

    async def bring_up(self, cluster: Cluster) -> None:
        layout = cluster.layout
        others = "" if layout.in_raft_mode else ", three controllers"
        self.say.step(2, f"One name server{others}, three brokers of one set")
        started_ms = self.clock.monotonic_ms()
        cluster.start()
        leader = None if layout.in_raft_mode else await cluster.wait_leader()
        state = await cluster.wait_whole()
        self.say.good(f"whole after {self.clock.monotonic_ms() - started_ms} ms")
        self.say.line(f"name server {layout.namesrv}, {electors(layout)}")
        if leader is not None:
            self.say.line(f"leading controller: {layout.name_of(leader)} ({leader})")
        self.show(cluster, state)

    def show(self, cluster: Cluster, state: SyncStateInfo) -> None:
        members = ", ".join(name_of(cluster, replica.address) for replica in state.in_sync)
        master = name_of(cluster, state.master_address or "")
        if cluster.layout.in_raft_mode:
            self.say.line(f"master: {master} in term {state.master_epoch}; caught up: {members}")
            return
        self.say.line(
            f"master: {master} in epoch {state.master_epoch}; SyncStateSet: {members} (set epoch {state.sync_state_set_epoch})"
        )

    async def send(self, cluster: Cluster, load: SteadyLoad) -> None:
        raft = cluster.layout.in_raft_mode
        how = "once a majority's disks have it" if raft else "by every member of the set (contract C)"
        self.say.step(3, f"Send {self.messages:,} messages; each is acknowledged {how}")
        await cluster.create_topic(TOPIC, QUEUES)
        began_ms = self.clock.monotonic_ms()
        with self.say.meter("sent", self.messages) as meter:
            await load.send_burst(self.messages, in_flight=IN_FLIGHT, progress=meter.advance)
        seconds = max(0.001, (self.clock.monotonic_ms() - began_ms) / 1000)
        acknowledged = sum(attempt.outcome is SendOutcome.ACKNOWLEDGED for attempt in load.attempts)
        self.say.good(f"{acknowledged:,} of {self.messages:,} acknowledged in {seconds:.1f} s")
        if acknowledged < self.messages:
            why = next(
                attempt.why for attempt in load.attempts if attempt.outcome is not SendOutcome.ACKNOWLEDGED
            )
            raise ComparisonFailed(f"without any fault, a send was not acknowledged: {why}")

    async def lose_the_master(self, cluster: Cluster, load: SteadyLoad) -> None:
        self.say.step(4, "Kill the master with SIGKILL while sending continues, then start it again")
        marks: dict[str, int] = {}

        async def strike(state: SyncStateInfo, master: str) -> None:
            marks[master] = cluster.log_file(master).stat().st_size
            cluster.kill([master])

        result = await drill_once(cluster, DrillKind.KILL, load, QUIET_MS, strike)
        self.show_drill(result)
        self.say.line(f"{result.old_master} came back as a slave; its log:")
        for line in story(cluster, result.old_master, marks[result.old_master]):
            self.say.line(f"  {line}", style="dim")
        self.outages_ms["SIGKILL of the master"] = result.outage_ms
        self.show(cluster, await cluster.wait_whole())

    async def hand_over(self, cluster: Cluster, load: SteadyLoad) -> None:
        command = "dledger transfer" if cluster.layout.in_raft_mode else "mqadmin electMaster"
        self.say.step(5, f"Hand the mastership over by {command} while sending continues")

        async def strike(state: SyncStateInfo, master: str) -> None:
            chosen = next(replica for replica in state.in_sync if replica.broker_id != state.master_id)
            module, *arguments = hand_over_command(cluster.layout, chosen.broker_id)
            name = name_of(cluster, chosen.address)
            self.say.line(f"{shlex.join([module, *arguments])}    # to {name}")
            await run_child([sys.executable, "-P", "-m", module, *arguments])

        result = await drill_once(cluster, DrillKind.ELECT, load, QUIET_MS, strike)
        self.show_drill(result)
        self.outages_ms[command] = result.outage_ms
        self.show(cluster, await cluster.wait_whole())

    def show_drill(self, result: DrillResult) -> None:
        self.say.line(
            f"{result.old_master} (epoch {result.old_epoch}) -> {result.new_master} (epoch {result.new_epoch})"
        )
        self.say.line(result.timeline())
        self.say.good(f"the client was without an acknowledgement for {result.outage_ms} ms")

    async def consume(self, client: Client, load: SteadyLoad) -> None:
        self.say.step(6, "Consume everything and compare with what was acknowledged")
        consumer = client.consumer("quickstart-check")
        with self.say.meter("read", len(load.attempts)) as meter:
            async for queue, message in read_messages(consumer, TOPIC):
                self.consumed.append((as_found(queue, message), message.physical_offset + message.size_bytes))
                meter.advance(len(self.consumed))
        self.compare("consumed", judge(load.attempts, [found for found, _ in self.consumed]))

    async def read_by_spark(self, cluster: Cluster, load: SteadyLoad) -> None:
        engine = "reader" if self.spark_missing else "spark"
        name = "the reader without Spark" if self.spark_missing else "Spark"
        self.say.step(7, f"Read a slave's segments with {name}, up to its committed bound, and compare again")
        if self.spark_missing:
            self.say.line(f"Spark cannot run here: {self.spark_missing}", style="yellow")
        slave = await self.a_slave(cluster)
        store = Path(cluster.layout.properties(slave)["storePathRootDir"])
        last = max(end for _, end in self.consumed)
        bound = await wait_for(
            f"the committed bound of {slave}", lambda: bound_at_least(store, last), BOUND_LIMIT_MS
        )
        self.say.line(f"{slave}: {store}")
        self.say.line(f"committed bound {bound}, from its checkpoint")
        parquet = self.directory / "parquet"
        command = [
            sys.executable,
            "-P",
            "-m",
            "localcluster.sparkjob",
            str(store),
            TOPIC,
            str(bound),
            str(parquet),
            engine,
        ]
        answer: dict[str, Any] = json.loads(await run_child(command, self.directory / "logs" / "spark.log"))
        rows = [
            Found(key, body_hash, MessagePlace(str(MessageQueue(TOPIC, BROKER_SET, queue_id)), offset))
            for key, queue_id, offset, body_hash in answer["rows"]
        ]
        self.say.table(("queue", "rows", "first", "last", "body bytes"), answer["summary"])
        self.say.line(f"{len(rows):,} rows; Parquet: {parquet}")
        self.compare(f"read by {name}", judge(load.attempts, rows))
        consumed = {found for found, end in self.consumed if end <= bound}
        if consumed != set(rows):
            raise ComparisonFailed(f"{len(consumed ^ set(rows))} messages differ between consumer and {name}")
        self.say.good("equal to what was consumed up to that bound")

    async def a_slave(self, cluster: Cluster) -> str:
        state = await cluster.wait_whole()
        return next(
            name_of(cluster, replica.address)
            for replica in state.in_sync
            if replica.broker_id != state.master_id
        )

    def compare(self, what: str, verdict: Verdict) -> None:
        self.verdicts[what] = verdict
        for line in verdict.faults[:COMPARISONS_SHOWN]:
            self.say.bad(line)
        if not verdict.holds:
            raise ComparisonFailed(f"{what}: {len(verdict.faults)} promises were broken")
        self.say.good(
            f"{verdict.acknowledged:,} acknowledged messages are there, each once, at its offset, with its hash"
        )
        self.say.line(
            f"{verdict.unknown_present} more belong to the {verdict.unknown} sends whose outcome was unknown; "
            f"{verdict.refused} sends were refused and none of them is there"
        )

    def summarize(self, seconds: float) -> None:
        self.say.step(8, "Summary")
        for what, verdict in self.verdicts.items():
            self.say.good(f"{what}: {verdict.read:,} messages, {verdict.acknowledged:,} acknowledged, 0 lost")
        for what, outage_ms in self.outages_ms.items():
            self.say.good(f"client outage at {what}: {outage_ms} ms")
        self.say.good(f"everything held, in {seconds:.0f} s")


def hand_over_command(layout: Layout, broker_id: int) -> list[str]:
    """The module and arguments that make that broker the master."""
    if layout.in_raft_mode:
        member = list(layout.members)[broker_id - 1]
        return ["dledger", "transfer", "--group", BROKER_SET, "--peers", peer_list(layout.members), member]
    which = ["-bn", BROKER_SET, "-c", CLUSTER_NAME]
    return ["mqadmin", "electMaster", "-a", layout.controller_list, "-b", str(broker_id), *which]


async def bound_at_least(store: Path, end: int) -> int:
    bound = checkpoint_bound(LocalFiles(str(store)))
    if bound < end:
        raise NotYet(f"{bound}, the last message read ends at {end}")
    return bound


def name_of(cluster: Cluster, address: str) -> str:
    return cluster.layout.name_of(address) or address or "none"


def story(cluster: Cluster, name: str, log_start: int) -> list[str]:
    """Log lines of a broker, since `log_start`, about its return into the set."""
    text = cluster.log_file(name).read_bytes()[log_start:].decode(errors="replace")
    words = ("store recovered", "role taken", "connected to master", "truncat", "epoch")
    lines = [line for line in text.splitlines() if any(word in line for word in words)]
    return [line[:160] for line in lines[:6]]


async def run_child(command: Sequence[str], log: Path | None = None) -> bytes:
    """The standard output of a child that must succeed. The child is killed if this task is cancelled or the time is over."""
    errors = log.open("ab") if log is not None else subprocess.DEVNULL
    child = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, stderr=errors)
    try:
        async with asyncio.timeout(CHILD_LIMIT_S):
            output, _ = await child.communicate()
    except TimeoutError:
        raise ComparisonFailed(f"{' '.join(command[3:5])} did not end within {CHILD_LIMIT_S} s") from None
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
        if log is not None:
            errors.close()  # type: ignore[union-attr]
    if child.returncode != 0:
        hint = f"; see {log}" if log is not None else ""
        raise ComparisonFailed(f"{' '.join(command[3:5])} ended with {child.returncode}{hint}")
    return output
