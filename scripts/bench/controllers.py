"""The performance of three controllers: proposals, reads, a thousand broker sets, masters lost together, a leader killed or
replaced.

    python -m scripts.bench.controllers [--runs 3] [--quick] [--slow-sync-ms 5] [--failovers 3]
        [--hand-overs 3]

The configuration is `conf/cluster-3n`, in an empty directory for each run. Everything runs on this machine. One process plays
all brokers, with a connection of each broker to every controller. A proposal is a registration (CONTROLLER_REGISTER_BROKER,
1003) with a new address; proposals in flight are for different sets. A read is CONTROLLER_GET_REPLICA_INFO (1004). Masters are
lost by the end of their connections, and all are elected when the leader names another master for every set. To reconnect,
each broker opens a second connection to the leader, sends over it and closes the first. "Longest wait" shows how long the
leader's loop was held: it is the longest time for an answer from memory (CONTROLLER_GET_METADATA_INFO, 1005), requested again
and again meanwhile. After a kill or a SIGTERM of the leader, or an operator's request to transfer leadership, the time until
the next accepted proposal is measured. For a hundred of these the 99th percentile is printed. With `--slow-sync-ms` the loss
of all masters is measured again while every sync of the controllers takes that much longer.

Prints rows for docs/performance.md. Java's figures in them were measured on another day."""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import signal
import socket
import statistics
import struct
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from mqadmin.admin import AdminClient
from mqadmin.calls.leadership import transfer
from mqruntime.clock import SystemClock
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import RemotingError
from remoting.frame import encode
from remoting.headers.controller import (
    GetReplicaInfoHeader,
    RegisterBrokerToControllerHeader,
)
from scripts.bench.brokersets import CLUSTER, BrokerSets, each
from scripts.bench.controllergroup import ControllerGroup
from scripts.bench.measured import cell, cpu_seconds, high, machine, own_mib, resident_mib, written
from scripts.bench.options import options
from scripts.bench.syncprobe import sync_probe_ms

JAVA = {
    "proposals/s, 1 in flight": "167",
    "proposals/s, 128 in flight": "196",
    "leader killed, to the next accepted write, ms": "8,400–9,200",
}
LOOP_STEPS = 5_000_000
P99_OF = 100
"""From this many values on the 99th percentile is printed."""
STEADY_S = 1.0
TRY_MS = 500
LOOK_AGAIN_S = 0.005
ELECTED_S_MAX = 120.0
PROPOSALS_IN_FLIGHT = (1, 128)
MOVED_BROKER = 2


class Figures:
    """The measurements of all runs, in the order of their first values."""

    def __init__(self) -> None:
        self.values: dict[str, list[float]] = {}

    def note(self, name: str, value: float) -> None:
        self.values.setdefault(name, []).append(value)

    def print(self) -> None:
        print("\n| what | median (min–max) | Java |\n|---|---|---|")
        for name, values in self.values.items():
            p99 = f"; p99 {written(high(values))}" if len(values) >= P99_OF else ""
            print(f"| {name} | {cell(values)}{p99} | {JAVA.get(name, '–')} |")


class LongestWait:
    """A thread that sends requests to a controller again and again, which the controller answers from memory. `ms` is the
    longest time for an answer."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.ms = 0.0
        self._connection = socket.create_connection((host, int(port)))
        self._ending = False
        self._thread = threading.Thread(target=self._ask, name="longest wait")

    def _ask(self) -> None:
        question = b"".join(encode(RemotingCommand.request(RequestCode.CONTROLLER_GET_METADATA_INFO)))
        while not self._ending:
            began = time.perf_counter()
            self._connection.sendall(question)
            (length,) = struct.unpack(">I", self._connection.recv(4, socket.MSG_WAITALL))
            self._connection.recv(length, socket.MSG_WAITALL)
            self.ms = max(self.ms, (time.perf_counter() - began) * 1000)
            time.sleep(LOOK_AGAIN_S)

    def __enter__(self) -> LongestWait:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ending = True
        self._thread.join()
        self._connection.close()


async def rate(
    figures: Figures, what: str, in_flight: int, seconds: float, call: Callable[[int], Awaitable[object]]
) -> None:
    """Run `call(number)` again and again by `in_flight` callers."""
    took: list[float] = []
    end = time.perf_counter() + seconds

    async def caller(number: int) -> None:
        while (began := time.perf_counter()) < end:
            await call(number)
            took.append((time.perf_counter() - began) * 1000)

    began = time.perf_counter()
    await asyncio.gather(*(caller(number) for number in range(in_flight)))
    per_second = len(took) / (time.perf_counter() - began)
    took.sort()
    figures.note(f"{what}/s, {in_flight} in flight", per_second)
    figures.note(f"{what}, {in_flight} in flight, p50 ms", statistics.median(took))
    figures.note(f"{what}, {in_flight} in flight, p99 ms", took[len(took) * 99 // 100])


def moves(sets: BrokerSets) -> Callable[[int], Awaitable[object]]:
    """A proposal for set `number`: its second broker reports a new address."""
    turns: dict[int, Iterator[bool]] = {}

    async def move(number: int) -> object:
        broker = sets.names[number], MOVED_BROKER
        moved = next(turns.setdefault(number, itertools.cycle((True, False))))
        header = RegisterBrokerToControllerHeader(*broker, sets.address(broker, moved=moved), CLUSTER)
        return await sets.patiently(RequestCode.CONTROLLER_REGISTER_BROKER, header)

    return move


async def all_elected(sets: BrokerSets) -> None:
    """Wait until every set has a master again that is not the lost one (broker 1, or its successor)."""
    last = sets.names[-1]
    async with asyncio.timeout(ELECTED_S_MAX):
        while (await sets.master_of(last)) in (None, sets.lost[last]):  # noqa: ASYNC110 - it is asked over the network
            await asyncio.sleep(LOOK_AGAIN_S)
        while True:
            masters = await sets.masters()
            if all(masters[name] not in (None, sets.lost[name]) for name in sets.names):
                return
            await asyncio.sleep(LOOK_AGAIN_S * 4)


async def lose_masters(figures: Figures, sets: BrokerSets, what: str) -> None:
    """Lose all masters at once. Afterwards every set is whole again."""
    masters: dict[str, int | None] = {}
    while None in masters.values() or not masters:  # an earlier measurement may have ended a master
        await each(sets.names, sets.fill)
        masters = await sets.masters()
    sets.lost = {name: master for name, master in masters.items() if master is not None}
    with LongestWait(sets.leader) as wait:
        began = time.perf_counter()
        sets.disconnect(sets.lost.items())
        await all_elected(sets)
        figures.note(f"{what}, all elected, ms", (time.perf_counter() - began) * 1000)
    figures.note(f"{what}, longest wait, ms", wait.ms)
    sets.connect(sets.lost.items())


async def of_sets(
    figures: Figures,
    group: ControllerGroup,
    count: int,
    seconds: float,
    wanted: argparse.Namespace,
    chance: random.Random,
) -> int:
    """Measure with `count` registered sets. Returns the port of their brokers."""
    leader = await group.agreed_leader()
    fresh = own_mib(group.pid(leader))
    sets = BrokerSets(group.addresses.values(), group.addresses[leader], count)
    try:
        with LongestWait(sets.leader) as wait:
            began = time.perf_counter()
            await sets.register()
            figures.note(f"{count} sets registered, s", time.perf_counter() - began)
        figures.note(f"{count} sets registered, longest wait, ms", wait.ms)
        for in_flight in PROPOSALS_IN_FLIGHT:
            await rate(figures, "proposals", in_flight, seconds, moves(sets))
        await sets.at_home((name, MOVED_BROKER) for name in sets.names[: max(PROPOSALS_IN_FLIGHT)])
        for in_flight in (1, 64):
            await rate(figures, "reads", in_flight, seconds, reads(sets))
        await rate(figures, "no-op requests (1005)", 1, seconds, lambda number: asked(sets))
        await reconnect(figures, sets, group.pid(leader))
        await heartbeats(figures, sets, group.pid(leader), seconds)
        await lose_masters(figures, sets, f"{count} masters lost")
        figures.note(f"leader with {count} sets, MiB", resident_mib(group.pid(leader)))
        figures.note("of which no file backs, MiB", own_mib(group.pid(leader)))
        figures.note("no file backs, before any set, MiB", fresh)
        for _ in range(wanted.failovers):
            await lead_by_another(figures, group, sets, signal.SIGKILL, "killed", chance)
            await lead_by_another(figures, group, sets, signal.SIGTERM, "told to end (SIGTERM)", chance)
        for _ in range(wanted.hand_overs):
            await hand_over(figures, group, sets, chance)
        return sets.port
    finally:
        await sets.close()


async def reconnect(figures: Figures, sets: BrokerSets, leader_pid: int) -> None:
    """Every broker opens a second connection and sends over it, and then the first ones end."""
    what = f"{len(sets.brokers)} brokers reconnect"
    cpu = cpu_seconds(leader_pid)
    with LongestWait(sets.leader) as wait:
        before = sets.connect(sets.brokers, [sets.leader])
        await asked(sets)
        await asyncio.sleep(STEADY_S)
        for connection in before:
            connection.close()
        await asyncio.sleep(STEADY_S)
        await sets.master_of(sets.names[-1])
    figures.note(f"{what}, CPU of the leader, ms", (cpu_seconds(leader_pid) - cpu) * 1000)
    figures.note(f"{what}, longest wait, ms", wait.ms)


async def heartbeats(figures: Figures, sets: BrokerSets, leader_pid: int, seconds: float) -> None:
    """Send heartbeats of every broker to the leader each second."""
    cpu, began = cpu_seconds(leader_pid), time.perf_counter()
    for second in range(1, round(seconds) + 1):
        sets.beat(sets.brokers, sets.leader)
        await asyncio.sleep(began + second - time.perf_counter())
    took = time.perf_counter() - began
    share = (cpu_seconds(leader_pid) - cpu) / took * 100
    figures.note(f"{len(sets.brokers)} heartbeats a second, CPU of the leader, % of a core", share)


def reads(sets: BrokerSets) -> Callable[[int], Awaitable[object]]:
    async def read(number: int) -> object:
        header = GetReplicaInfoHeader(sets.names[number])
        return await sets.patiently(RequestCode.CONTROLLER_GET_REPLICA_INFO, header)

    return read


async def asked(sets: BrokerSets) -> object:
    request = RemotingCommand.request(RequestCode.CONTROLLER_GET_METADATA_INFO)
    return await sets.client.call(sets.leader, request)


async def of_slow_disks(
    figures: Figures, group: ControllerGroup, count: int, port: int, sync_ms: float
) -> None:
    """Measure the loss of masters on controllers with slow syncs. The sets are registered already."""
    leader = await group.agreed_leader()
    sets = BrokerSets(group.addresses.values(), group.addresses[leader], count, port)
    try:
        sets.connect(sets.brokers)
        await lose_masters(figures, sets, f"{count} masters lost, syncs {sync_ms:g} ms longer")
    finally:
        await sets.close()


async def accepted(client: RemotingClient, group: ControllerGroup, address: str) -> None:
    """Return once a controller has accepted a proposal: broker 2 of the first set is at `address`."""
    header = RegisterBrokerToControllerHeader("set-0000", MOVED_BROKER, address, CLUSTER)
    for controller in itertools.cycle(group.addresses.values()):
        request = RemotingCommand.request(RequestCode.CONTROLLER_REGISTER_BROKER, header)
        try:
            reply = await client.call(controller, request, TRY_MS)
        except RemotingError:
            continue
        if reply.code == ResponseCode.SUCCESS:
            return
        await asyncio.sleep(LOOK_AGAIN_S)


async def lead_by_another(
    figures: Figures,
    group: ControllerGroup,
    sets: BrokerSets,
    number: signal.Signals,
    what: str,
    chance: random.Random,
) -> None:
    """Measure the time from the signal to the leader until a proposal is accepted. All brokers stay, and reconnect to the old
    leader after its restart."""
    leader = await group.agreed_leader()
    client = RemotingClient(clock=SystemClock())
    try:
        await asyncio.sleep(STEADY_S + chance.random())
        await accepted(client, group, f"127.0.0.1:{chance.randint(1024, 65535)}")
        began = time.perf_counter()
        group.signal(leader, number)
        await accepted(client, group, f"127.0.0.2:{chance.randint(1024, 65535)}")
        figures.note(f"leader {what}, to the next accepted write, ms", (time.perf_counter() - began) * 1000)
        await sets.at_home([("set-0000", MOVED_BROKER)])
    finally:
        await client.close()
    group.wait_gone(leader)
    group.start(leader)
    await group.agreed_leader()
    for connection in sets.connect(sets.brokers, [group.addresses[leader]]):
        connection.close()


async def hand_over(
    figures: Figures, group: ControllerGroup, sets: BrokerSets, chance: random.Random
) -> None:
    """Measure the time from `mqadmin leadershipTransfer` until the next leader accepts a proposal."""
    client, admin = RemotingClient(clock=SystemClock()), AdminClient(SystemClock())
    try:
        await asyncio.sleep(STEADY_S + chance.random())
        await accepted(client, group, f"127.0.0.1:{chance.randint(1024, 65535)}")
        began = time.perf_counter()
        await transfer(admin, ";".join(group.addresses.values()), "")
        await accepted(client, group, f"127.0.0.2:{chance.randint(1024, 65535)}")
        figures.note(
            "leadership handed over, to the next accepted write, ms", (time.perf_counter() - began) * 1000
        )
        await sets.at_home([("set-0000", MOVED_BROKER)])
    finally:
        await client.close()
        await admin.close()
    await group.agreed_leader()


@contextmanager
def probed(figures: Figures, root: Path) -> Iterator[None]:
    """Measure with a probe before and after, which shows how much the machine itself varied."""
    for moment in ("before", "after"):
        middle, late = sync_probe_ms(root)
        figures.note("probe: 4 KiB and fdatasync, p50 ms", middle)
        figures.note("probe: 4 KiB and fdatasync, p99 ms", late)
        began = time.perf_counter()
        for _ in range(LOOP_STEPS):
            pass
        figures.note("probe: bare loop, million steps/s", LOOP_STEPS / (time.perf_counter() - began) / 1e6)
        if moment == "before":
            yield


def run_once(
    figures: Figures, count: int, seconds: float, wanted: argparse.Namespace, chance: random.Random
) -> None:
    with ControllerGroup() as group, probed(figures, group.root):
        group.start_all()
        port = asyncio.run(of_sets(figures, group, count, seconds, wanted, chance))
        if wanted.slow_sync_ms:
            group.stop()
            group.start_all(wanted.slow_sync_ms)
            asyncio.run(of_slow_disks(figures, group, count, port, wanted.slow_sync_ms))


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--sets", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=5, help="how long each rate is measured")
    parser.add_argument("--slow-sync-ms", type=float, default=5, help="0: not measured")
    parser.add_argument("--failovers", type=int, default=3, help="kills, and SIGTERMs, a run (%(default)s)")
    parser.add_argument("--hand-overs", type=int, default=3, help="a run (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="300 sets, rates of one second")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    count, seconds = (300, 1.0) if arguments.quick else (arguments.sets, arguments.seconds)
    if count < max(PROPOSALS_IN_FLIGHT):
        raise SystemExit("--sets: at least 128, one for each proposal in flight")
    print(f"{count} sets of three, {arguments.runs} runs; {machine()}")
    figures, chance = Figures(), random.Random(arguments.seed)
    try:
        for _ in range(arguments.runs):
            run_once(figures, count, seconds, arguments, chance)
    finally:
        figures.print()  # even if a later run failed
    print(f"\n{machine()}")


if __name__ == "__main__":
    main()
