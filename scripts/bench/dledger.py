"""Commits of a DLedger group: three members of `python -m dledger serve`, and three of Java's DLedger 0.3.1.2 for comparison.

    python -m scripts.bench.dledger [--runs 3] [--body 1024] [--seconds 5] [--warm-up 12]

Everything runs on this machine, in a new folder each time. First our client appends over one connection, with that many
entries in flight. Then the sides take turns, at first unmeasured while the JVMs compile. The leader appends in its own
process, like a program that uses the library. Then upstream's DLedgerClient appends over the network, in one JVM for both
sides and with one thread for each entry in flight. Our members answer an append when a majority has synced the entry and the
leader has applied it; Java answers before it syncs. The probes are of the same run and disk. All but the first measurement
need a JDK and scripts/fetch-peers. Prints rows for docs/performance.md."""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from pathlib import Path

from dledger.client import DLedgerClient
from mqruntime.clock import SystemClock
from remoting.client import RemotingClient
from scripts.bench.controllers import Figures, probed, rate
from scripts.bench.ledgerload import LedgerLoad
from scripts.bench.measured import cell, cpu_seconds, machine, own_mib
from scripts.bench.options import bounded, options
from scripts.bench.ownload import OwnLoad, own_outcome
from scripts.ledgergroup import LedgerGroup
from scripts.peers.javapeer import broker_missing, missing

GROUP = "bench"
IN_FLIGHT = (1, 128)
THREADS = max(IN_FLIGHT)
LEADER_MS_MAX = 60_000
SERVED = {"here": ("dledger", "serve"), "Java": ("scripts.bench.javaledger",)}
LOADED = {"here": "scripts.bench.ownmember", "Java": "scripts.bench.javaledger"}
"""The arguments of members: to get requests from others, and to append by themselves."""


async def measure(figures: Figures, group: LedgerGroup, body: bytes, seconds: float) -> None:
    remoting = RemotingClient(clock=SystemClock())
    try:
        client = DLedgerClient(group.peers, GROUP, remoting, LEADER_MS_MAX)
        for in_flight in IN_FLIGHT:
            first = await client.append([body])  # finds the leader and connects
            leader = await leader_of(client)
            cpu = cpu_seconds(group.pid(leader))
            what = f"entries of {len(body)} bytes"
            await rate(figures, what, in_flight, seconds, appending(client, body))
            cpu = cpu_seconds(group.pid(leader)) - cpu
            count = (await client.append([body])).first_index - first.first_index
            figures.note(f"{what}, {in_flight} in flight, CPU of the leader, us an entry", cpu * 1e6 / count)
            figures.note("leader, MiB that no file backs", own_mib(group.pid(leader)))
    finally:
        await remoting.close()


def appending(client: DLedgerClient, body: bytes) -> Callable[[int], Awaitable[object]]:
    async def append(number: int) -> object:
        return await client.append([body])

    return append


async def leader_of(client: DLedgerClient) -> str:
    status = await client.status()
    return next(name for name, each in status.items() if isinstance(each, dict) and each["active"])


def by_itself(figures: Figures, module: str, asked: argparse.Namespace) -> None:
    load = OwnLoad(asked.warm_up, asked.seconds, asked.body, max(IN_FLIGHT))
    with LedgerGroup(module, "--group", GROUP, "--load", *load.words) as group:
        outcome = own_outcome(group, load)
    figures.note(f"by itself: entries/s, {load.in_flight} in flight", outcome.entries / outcome.seconds)
    figures.note("by itself: p50 ms", outcome.p50_ms)
    figures.note("by itself: p99 ms", outcome.p99_ms)
    figures.note("by itself: refused", outcome.refused)
    figures.note("by itself: CPU of the leader, us an entry", outcome.cpu_s * 1e6 / outcome.entries)


def by_client(figures: Figures, group: LedgerGroup, load: LedgerLoad, asked: argparse.Namespace) -> None:
    """Load the group with upstream's client."""
    load.append(GROUP, group.peer_list, asked.warm_up, asked.body, THREADS)
    before = [cpu_seconds(pid) for pid in group.pids.values()]
    outcome = load.append(GROUP, group.peer_list, asked.seconds, asked.body, THREADS)
    took = [cpu_seconds(pid) - cpu for pid, cpu in zip(group.pids.values(), before, strict=True)]
    load.leave(group.peer_list)
    figures.note(f"upstream's client: entries/s, {THREADS} in flight", outcome.entries / outcome.seconds)
    figures.note("upstream's client: p50 ms", outcome.p50_ms)
    figures.note("upstream's client: p99 ms", outcome.p99_ms)
    figures.note("upstream's client: refused", outcome.refused)
    figures.note(
        "upstream's client: CPU of the member that used most, us an entry", max(took) * 1e6 / outcome.entries
    )
    figures.note(
        "upstream's client: CPU of all three members, us an entry", sum(took) * 1e6 / outcome.entries
    )
    figures.note("most memory of a member that no file backs, MiB", max(map(own_mib, group.pids.values())))


def print_sides(sides: dict[str, Figures]) -> None:
    print(f"\n| 3 members | {' | '.join(sides)} |\n|---|{'---|' * len(sides)}")
    measured = [figures.values.keys() for figures in sides.values()]
    for name in filter(measured[-1].__contains__, measured[0]):
        print(f"| {name} | {' | '.join(cell(figures.values[name]) for figures in sides.values())} |")


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--runs", type=bounded(1, 100), default=3)
    parser.add_argument("--body", type=bounded(1, 1 << 20), default=1024, help="bytes of an entry")
    parser.add_argument("--seconds", type=float, default=5, help="how long each rate is measured")
    parser.add_argument("--warm-up", type=float, default=12, help="how long each JVM warms up before")
    asked = parser.parse_args()
    without_java = missing() or broker_missing()
    print(f"three members, {asked.runs} runs; {machine()}")
    if without_java:
        print(f"without Java: {without_java}")
    figures, sides = Figures(), {side: Figures() for side in SERVED}
    with tempfile.TemporaryDirectory() as home:
        try:
            with nullcontext() if without_java else LedgerLoad(Path(home)) as load:
                for _ in range(asked.runs):
                    with LedgerGroup(*SERVED["here"], "--group", GROUP) as group, probed(figures, group.root):
                        asyncio.run(measure(figures, group, bytes(asked.body), asked.seconds))
                    for side, figures_of_side in sides.items():
                        if load is None:
                            break
                        by_itself(figures_of_side, LOADED[side], asked)
                        with LedgerGroup(*SERVED[side], "--group", GROUP) as group:
                            by_client(figures_of_side, group, load, asked)
        finally:
            figures.print()  # even if a later run failed
            if not without_java:
                print_sides(sides)
    print(f"\n{machine()}")


if __name__ == "__main__":
    main()
