"""Drills. In a drill the master is killed, ended, frozen, replaced or cut off, while a client sends messages.

Invariant: a drill begins and ends with a whole cluster. At the end of a run, all replies to the client are compared with the
messages that can be read.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from itertools import repeat

from localcluster.cluster import Cluster
from localcluster.ends import EndsVerdict
from localcluster.history import (
    Found,
    Verdict,
    first_acknowledgement,
    judge,
    longest_outage,
    longest_wait_ms,
)
from localcluster.inorder import InOrderReaders
from localcluster.layout import BROKER_SET, CLUSTER_NAME
from localcluster.load import SteadyLoad, read_back
from localcluster.logs import MARKS, WRITABLE, marks, read_lines
from localcluster.order import OrderVerdict
from localcluster.partitions import ELECTION_MS_MAX, NetworkPartition, Roles, Shape, draw, shapes
from localcluster.raftset import HandOverFailed, transfer
from localcluster.relayprocess import RelayProcess
from localcluster.secured import admin_of, context_of, credentials_of
from localcluster.transacting import Transacting
from mqadmin.errors import AdminError
from mqadmin.replies import ReplicaInfo, SyncStateInfo
from mqclient.client import Client
from mqruntime.clock import SystemClock

QUEUES = 4
STEADY_ACKNOWLEDGEMENTS = 50
RECOVERY_TIMEOUT_MS = 60_000
ENDS_MS_MAX = 120_000
"""This is enough for some rounds in which brokers check transactions, at default settings."""
LOCKS_MS_MAX = 90_000
"""One and a half leases. After a failover a queue may have to wait for the lock of a reader whose release reached no master."""


class DrillKind(StrEnum):
    """The fault of a drill. Unless stated otherwise, it happens to the master."""

    KILL = "kill"
    TERM = "term"
    PAUSE = "pause"
    ELECT = "elect"
    PARTITION = "partition"
    """Links between processes are cut, see `partitions.Shape`."""


WIDTHS = (7, 20, 10, 9, 8, 9, 9, 10, 7, 7, 8)


def _columns(cells: Sequence[str]) -> str:
    return "  ".join(f"{cell:<{width}}" for cell, width in zip(cells, WIDTHS, strict=True)).rstrip()


HEADING = _columns(
    (
        "drill",
        "master",
        "epoch",
        "detected",
        "elected",
        "notified",
        "writable",
        "first ack",
        "whole",
        "client",
        "set",
    )
)

Strike = Callable[[SyncStateInfo, str], Awaitable[NetworkPartition | None]]
"""Carries out a drill's fault, given the set and the master's name. A partition has ended when this returns."""


class DrillFailed(Exception):
    """The cluster did not recover in time. Sent messages are checked nevertheless."""


@dataclass(frozen=True, slots=True)
class DrillResult:
    """One drill. Times of marks, and of the first acknowledgement after the new master takes messages, count from the fault.
    `outage_ms` is the longest time without acknowledgement until the cluster is whole. `unserved_ms` is the longest time
    without an acknowledging master while the set had to have one; `unserved_ms_max` is its limit."""

    kind: DrillKind
    old_master: str
    new_master: str
    old_epoch: int
    new_epoch: int
    marks_ms: dict[str, int]
    first_ack_ms: int | None
    outage_ms: int | None
    whole_ms: int
    unserved_ms: int = 0
    unserved_ms_max: int = ELECTION_MS_MAX
    partition: NetworkPartition | None = None

    @property
    def served(self) -> bool:
        return self.unserved_ms <= self.unserved_ms_max

    def timeline(self) -> str:
        """The timeline as `fault 0 · detected +3 · ... ms`. A mark is left out if no log has it: for example `detected`, if no
        broker was lost."""
        steps = [f"{mark} {self.marks_ms[mark]:+d}" for mark in MARKS if mark in self.marks_ms]
        steps += [f"first ack {_signed(self.first_ack_ms)}", f"whole {_signed(self.whole_ms)}"]
        return " · ".join(["fault 0", *steps]) + " ms"

    def row(self, number: int, count: int) -> str:
        """A line under HEADING."""
        marks = (self.marks_ms.get(mark) for mark in MARKS)
        times = (*marks, self.first_ack_ms, self.whole_ms, self.outage_ms, self.unserved_ms)
        cells = [
            f"{number}/{count}",
            f"{self.old_master} -> {self.new_master}",
            f"{self.old_epoch} -> {self.new_epoch}",
            *("-" if each is None else str(each) for each in times),
        ]
        cuts = f"  {self.partition.description}" if self.partition else ""
        return _columns(cells) + cuts


@dataclass(slots=True)
class DrillReport:
    """All drills of a run, and the verdict on the messages sent during them."""

    drills: list[DrillResult] = field(default_factory=list)
    verdict: Verdict | None = None
    failure: str | None = None
    order: OrderVerdict | None = None
    """The verdict on ordered readers, if there were any."""
    ends: EndsVerdict | None = None
    """The verdict on transactions, if there were any."""

    @property
    def passed(self) -> bool:
        return (
            self.failure is None
            and self.verdict is not None
            and self.verdict.holds
            and (self.order is None or self.order.holds)
            and (self.ends is None or self.ends.holds)
            and all(result.served for result in self.drills)
        )


async def run_drills(
    cluster: Cluster,
    kind: DrillKind,
    count: int,
    *,
    seed: int,
    topic: str,
    say: Callable[[str], None],
    settle_ms: int = 500,
    interval_ms: int = 5,
    read: Callable[[Client, str], Awaitable[list[Found]]] | None = None,
    relay: RelayProcess | None = None,
    only: Shape | None = None,
    asks_after_failures: bool = True,
    in_order: bool = False,
    in_transactions: bool = False,
) -> DrillReport:
    """Run `count` drills of one kind under load on `topic`, which is created. Then read everything back, with a consumer or
    with `read`.

    `seed` decides bodies, pauses between drills, the elected master, and the cuts unless `only` names their shape. Partitions
    need the cluster's `relay`. With `asks_after_failures` the client asks for routes after failures, else only every 30 s.
    With `in_order` a group of readers with locks reads too; with `in_transactions` there are transactions on another topic.
    Before the first drill this raises what `Cluster.wait_whole` raises. Later failures are in the report.
    """
    chance = random.Random(seed)
    report = DrillReport()
    clock = SystemClock()
    await cluster.wait_whole()
    await cluster.create_topic(topic, QUEUES)
    strike: Strike
    if relay is not None:
        cutting = random.Random(seed)  # separate: the number of the load's draws varies
        among = shapes(cutting, controllers=not cluster.layout.in_raft_mode)
        drawn = repeat(only) if only is not None else among
        strike = partial(_partition, cluster, relay, drawn, cutting)
    else:
        strike = partial(_strike, cluster, kind, chance)
    tls, credentials = context_of(cluster.layout), credentials_of(cluster.layout)
    async with Client(
        cluster.layout.namesrv,
        clock=clock,
        random=chance,
        asks_after_failures=asks_after_failures,
        tls=tls,
        credentials=credentials,
    ) as client:
        load = SteadyLoad(
            client.producer("drill"),
            topic,
            queues=QUEUES,
            clock=clock,
            random=chance,
            interval_ms=interval_ms,
        )
        readers = InOrderReaders(client, topic, clock) if in_order else None
        transacting = await _transacting(cluster, client, topic, seed) if in_transactions else None
        if readers is not None:
            await readers.start()
        load.start()
        try:
            for number in range(count):
                quiet_ms = round(settle_ms * (0.6 + 0.8 * chance.random()))
                result = await drill_once(cluster, kind, load, quiet_ms, strike)
                report.drills.append(result)
                if number == 0:
                    say(
                        f"{kind}; milliseconds after it, and how long the client and the set had no acknowledgement:"
                    )
                    say(HEADING)
                say(result.row(number + 1, count))
        except (DrillFailed, TimeoutError) as error:
            report.failure = str(error)
        finally:
            await load.stop()
        if transacting is not None:
            report.ends = await transacting.stop(ENDS_MS_MAX)
        if readers is not None:
            report.order = await readers.stop(LOCKS_MS_MAX)
        if read is not None:
            found = await read(client, topic)
    if read is None:
        async with Client(
            cluster.layout.namesrv, clock=clock, random=chance, tls=tls, credentials=credentials
        ) as reader:
            consumer = reader.consumer("drill-check")
            found = await read_back(consumer, topic, load.attempts, RECOVERY_TIMEOUT_MS)
    report.verdict = judge(load.attempts, found)
    return report


async def _transacting(cluster: Cluster, client: Client, topic: str, seed: int) -> Transacting:
    """Transactions on a separate topic, with a separate random generator."""
    own_topic = f"{topic}_transactions"
    await cluster.create_topic(own_topic, QUEUES)
    transacting = Transacting(client, own_topic, random.Random(seed))
    await transacting.start()
    return transacting


async def drill_once(
    cluster: Cluster,
    kind: DrillKind,
    load: SteadyLoad,
    quiet_ms: int,
    strike: Strike,
) -> DrillResult:
    """Run one drill: wait until the cluster is whole and acknowledges, let `strike` carry out `kind`, and wait until the
    cluster is whole again, including the old master. Raises `DrillFailed` or `TimeoutError`."""
    clock = SystemClock()
    before = await cluster.wait_whole(timeout_ms=RECOVERY_TIMEOUT_MS)
    begun_ms = clock.now_ms()
    if not await load.acknowledged_after(begun_ms + quiet_ms, RECOVERY_TIMEOUT_MS, STEADY_ACKNOWLEDGEMENTS):
        raise DrillFailed(f"the client gets no acknowledgements from a whole cluster; {_last_answer(load)}")
    old = _name(cluster, before)
    fault_ms = clock.now_ms()
    partition = await strike(before, old)
    struck_ms = clock.now_ms()
    acknowledged = await load.acknowledged_after(struck_ms + 1, RECOVERY_TIMEOUT_MS)
    if kind is DrillKind.KILL:
        cluster.start([old])
    elif kind is DrillKind.TERM:
        await asyncio.to_thread(cluster.restart, [old])  # waits for the end of `old`
    elif kind is DrillKind.PAUSE:
        cluster.resume(old)
    if not acknowledged:
        raise DrillFailed(
            f"no acknowledgement within {RECOVERY_TIMEOUT_MS} ms after {kind} of {old}; {_last_answer(load)}"
        )
    after = await cluster.wait_whole(timeout_ms=RECOVERY_TIMEOUT_MS)
    whole_ms = clock.now_ms()
    lines = [
        line
        for name in cluster.layout.names
        if cluster.log_file(name).exists()
        for line in read_lines(name, cluster.log_file(name).read_text(errors="replace"))
    ]
    seen = marks(lines, fault_ms, before.master_epoch)
    outage = longest_outage(load.attempts, fault_ms, whole_ms)
    first_ack = first_acknowledgement(load.attempts, seen.get(WRITABLE, struck_ms))
    excused = partition is not None and partition.serving_ms_max is None
    unserved_ms = longest_wait_ms(load.attempts, struck_ms if excused else fault_ms, whole_ms)
    return DrillResult(
        kind=kind,
        old_master=old,
        new_master=_name(cluster, after),
        old_epoch=before.master_epoch,
        new_epoch=after.master_epoch,
        marks_ms={mark: moment_ms - fault_ms for mark, moment_ms in seen.items()},
        first_ack_ms=None if first_ack is None else first_ack - fault_ms,
        outage_ms=outage.length_ms if outage else None,
        whole_ms=whole_ms - fault_ms,
        unserved_ms=unserved_ms,
        unserved_ms_max=(partition and partition.serving_ms_max) or ELECTION_MS_MAX,
        partition=partition,
    )


async def _strike(
    cluster: Cluster, kind: DrillKind, chance: random.Random, state: SyncStateInfo, master: str
) -> None:
    if kind is DrillKind.KILL:
        cluster.kill([master])
    elif kind is DrillKind.TERM:
        cluster.kill([master], signal.SIGTERM)
    elif kind is DrillKind.PAUSE:
        cluster.pause(master)
    else:
        await elect_another(cluster, chance.choice(other_members(state)))


def other_members(state: SyncStateInfo) -> list[ReplicaInfo]:
    """The members of the SyncStateSet (in Raft mode, those that have caught up) without the master. Raises `DrillFailed` if
    there is none."""
    others = [replica for replica in state.in_sync if replica.broker_id != state.master_id]
    if not others:
        raise DrillFailed("there is no other broker in sync to elect")
    return others


async def elect_another(cluster: Cluster, chosen: ReplicaInfo) -> None:
    """Transfer the mastership to `chosen`. Raises `DrillFailed`."""
    if cluster.layout.in_raft_mode:
        try:
            await transfer(cluster.layout, chosen.broker_id)
        except HandOverFailed as error:
            raise DrillFailed(str(error)) from error
        return
    admin = admin_of(cluster.layout)
    try:
        await admin.elect_master(cluster.layout.controller_list, CLUSTER_NAME, BROKER_SET, chosen.broker_id)
    except AdminError as error:
        raise DrillFailed(f"electMaster of broker {chosen.broker_id}: {error}") from error
    finally:
        await admin.close()


async def _partition(
    cluster: Cluster,
    relay: RelayProcess,
    drawn: Iterator[Shape],
    chance: random.Random,
    state: SyncStateInfo,
    master: str,
) -> NetworkPartition:
    return await cut_ways(cluster, relay, next(drawn), chance, master)


async def cut_ways(
    cluster: Cluster, relay: RelayProcess, shape: Shape, chance: random.Random, master: str
) -> NetworkPartition:
    """Cut the links of the shape, for the time and the number of rounds that were drawn."""
    layout = cluster.layout
    leader = None if layout.in_raft_mode else layout.name_of(await cluster.wait_leader()) or ""
    roles = Roles(
        master=master,
        slaves=[name for name in layout.broker_names if name != master],
        leader=leader,
        followers=[name for name in layout.controller_names if name != leader],
    )
    partition = draw(shape, roles, chance)
    for number in range(partition.rounds):
        if number:
            await asyncio.sleep(partition.open_ms / 1000)
        relay.cut(partition.cuts)
        try:
            await asyncio.sleep(partition.hold_ms / 1000)
        finally:
            relay.heal(reset=partition.reset)
    return partition


def _name(cluster: Cluster, state: SyncStateInfo) -> str:
    assert state.master_address is not None, "a whole cluster has a master"
    return cluster.layout.name_of(state.master_address) or state.master_address


def _last_answer(load: SteadyLoad) -> str:
    return f"its last answer: {load.attempts[-1].why}" if load.attempts else "it sent nothing"


def _signed(value: int | None) -> str:
    return "?" if value is None else f"{value:+d}"
