"""How long Java producers with default settings (routes each 30 s) get no acknowledgement when their master changes.

    python -m scripts.bench.handover [--runs 3] [--sets 1,2] [--only elect,term,kill] [--clients 5.3.3,4.9.8] [--seed 1]
                                     [--sides ours-c,java-c]

Sets of three of our brokers with shipped settings are measured; with --sides, those of each side, one after the other, under
our controllers and name server. `elect` is a planned switchover, `term` is SIGTERM to a master, and `kill` is SIGKILL, also
with clients that ask for routes each second, which is the cure. With two sets, the fault hits the master of the first set. An
outage is the longest time without an acknowledgement until the client asked for routes or, after a kill, until an
acknowledgement came. There are three producers and consumers: one with default settings (two retries), one without retries,
and one in transactions. At the end of each case, and of each side's faults of a kind with default settings, the outages of all
three are printed together. Needs a JDK and scripts/fetch-peers. The exit code is 1 if the first producer misses a target with
our brokers: 0.5 s and no error for `elect` and `term`, 3 s for `kill` with two sets."""

from __future__ import annotations

import asyncio
import random
import signal
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from localcluster.cluster import Cluster
from localcluster.drill import elect_another, other_members
from localcluster.layout import Mode
from localcluster.waiting import NotYet, wait_for
from mqadmin.admin import AdminClient
from mqadmin.errors import AdminError
from mqadmin.replies import TopicSettings
from mqruntime.clock import SystemClock
from scripts.bench.measured import high, machine, spread
from scripts.bench.options import bounded, options
from scripts.bench.sides import SIDES, Side, chosen, cluster_of
from scripts.peers.javapeer import (
    JARS,
    OLD_CLIENT,
    OLD_CLIENT_JARS,
    broker_missing,
    default_clients,
    missing,
    old_client_missing,
)
from scripts.peers.peerprocess import PeerProcess

TOPIC = "handover"
SECOND_SET = "broker-b"
CLIENTS = {"5.3.3": JARS, OLD_CLIENT: OLD_CLIENT_JARS}
PRODUCERS = {"retries": "as it comes", "once": "without retries", "transactions": "in transactions"}
STRIKES = ("elect", "term", "kill")
FORWARD_S = 35  # the default; local clusters stop at once
POLLS_MS = 36_000
"""In this time every client has asked for routes, and a stopping master has ended."""
CALM_MS = 2_000
CURE_POLL_MS = 1_000
BROKERS = 3
WHOLE_MS_MAX = 120_000
TARGET_MS = {("elect", 1): 500, ("elect", 2): 500, ("term", 1): 500, ("term", 2): 500, ("kill", 2): 3_000}


@dataclass(frozen=True)
class Case:
    """One case. `side` is None for our brokers with shipped settings."""

    side: Side | None
    strike: str
    sets: int
    client: str
    poll_ms: int | None

    def described(self) -> str:
        asks = "default settings" if self.poll_ms is None else f"pollNameServerInterval={self.poll_ms}"
        sets = f"{self.sets} broker set{'s' * (self.sets > 1)}"
        return f"{named(self.side)}{self.strike}, {sets}, {self.client}, {asks}"

    @property
    def target_ms(self) -> int | None:
        """The target; None if there is none."""
        if self.poll_ms is not None or (self.side is not None and self.side.is_java):
            return None
        return TARGET_MS.get((self.strike, self.sets))


def named(side: Side | None) -> str:
    return f"{side.name}, " if side is not None else ""


@dataclass
class Seen:
    """What producers saw of faults: how long each had no acknowledgement, and how many errors."""

    outages_ms: list[int] = field(default_factory=list)
    errors: int = 0

    def add(self, roles: Iterable[dict[str, Any]]) -> None:
        for each in roles:
            self.outages_ms.append(each["silence"])
            self.errors += each["errors"]

    def __str__(self) -> str:
        longest = max(self.outages_ms)
        return f"{len(self.outages_ms)} outages, p99 {high(self.outages_ms):g} ms, longest {longest:g} ms, {self.errors} errors"


def made(side: Side | None, folder: Path, **settings: str) -> AbstractContextManager[Cluster]:
    """Make the cluster without starting it."""
    if side is None:
        return Cluster.create(folder, brokers=BROKERS, broker_settings=settings)
    folder.mkdir()
    return cluster_of(side, brokers=BROKERS, directory=folder, authority=None, **settings)


@contextmanager
def brokers(side: Side | None, sets: int) -> Iterator[Cluster]:
    """The whole cluster of the first set, with the topic on all sets."""
    with tempfile.TemporaryDirectory(prefix="autoswitch-mq-bench-") as folder, ExitStack() as opened:
        shipped = {"shutdownForwardSeconds": str(FORWARD_S)}
        first = opened.enter_context(made(side, Path(folder) / "first", **shipped))
        opened.callback(first.kill, first.layout.broker_names)  # else each would first forward
        first.start()
        asyncio.run(first.wait_whole())
        asyncio.run(first.create_topic(TOPIC))
        if sets > 1:
            shared = {"controllerAddr": first.layout.controller_list, "namesrvAddr": first.layout.namesrv}
            second = opened.enter_context(
                made(side, Path(folder) / "second", **shipped, **shared, brokerName=SECOND_SET)
            )
            opened.callback(second.kill, second.layout.broker_names)
            second.start(second.layout.broker_names)
            asyncio.run(second_whole(first))
        yield first


async def second_whole(cluster: Cluster) -> None:
    """Wait until the second set has its three members and the topic."""
    admin = AdminClient(SystemClock())

    async def probe() -> None:
        try:
            states = await admin.sync_states(cluster.layout.controller_list, [SECOND_SET])
            state = states.get(SECOND_SET)
            if state is None or state.master_address is None or len(state.in_sync) < cluster.layout.brokers:
                raise NotYet(str(state))
            await admin.create_topic(state.master_address, TopicSettings(TOPIC, 4, 4))
            route = await admin.topic_route(cluster.layout.namesrv, TOPIC)
        except AdminError as error:
            raise NotYet(str(error)) from error
        if len(route["brokerDatas"]) < 2:
            raise NotYet(f"routes name {route['brokerDatas']}")

    try:
        await wait_for(SECOND_SET, probe, WHOLE_MS_MAX)
    finally:
        await admin.close()


def struck(cluster: Cluster, clients: PeerProcess, strike: str) -> dict[str, Any]:
    """Cause one fault, and return what each client saw of it. The set is whole again afterwards."""
    state = asyncio.run(cluster.wait_whole())
    master = cluster.layout.name_of(state.master_address or "")
    assert master is not None
    clients.ask("mark")
    if strike == "elect":
        asyncio.run(elect_another(cluster, other_members(state)[0]))
        return clients.ask("watch", POLLS_MS)
    if strike == "term":
        cluster.kill([master], signal.SIGTERM)
        seen = clients.ask("watch", POLLS_MS)
        cluster.stop([master])
    else:
        cluster.kill([master])
        time.sleep(CALM_MS / 1000)  # wait for late answers of the former master
        seen = clients.ask("watch", 2 * CALM_MS)
    cluster.start([master])
    asyncio.run(cluster.wait_whole())
    return seen


def measured(cluster: Cluster, case: Case, runs: int, chance: random.Random, together: Seen) -> bool:
    """Measure, and return whether the target was reached. What the producers saw is added to `together`."""
    seen: list[dict[str, Any]] = []
    home = cluster.directory.parent / case.client
    with default_clients(CLIENTS[case.client], cluster.layout.namesrv, TOPIC, home, case.poll_ms) as clients:
        for _ in range(runs):
            clients.ask("mark")
            clients.ask("watch", CALM_MS)
            time.sleep(10 * chance.random())  # a random moment of the clients' period
            seen.append(struck(cluster, clients, case.strike))
    print(case.described())
    producers = Seen()
    for each in seen:
        producers.add(each[role] for role in PRODUCERS)
        together.add(each[role] for role in PRODUCERS)
    for role, what in PRODUCERS.items():
        outages = [each[role]["silence"] for each in seen]
        errors = sum(each[role]["errors"] for each in seen)
        print(f"  producer {what}: {spread(outages, 'ms', 0)}; {errors} errors")
    print(f"  producers: {producers}")
    for role in ("push", "orderly", "pull"):
        silences = [each[role]["silence"] for each in seen]
        print(f"  consumer, {role}: {spread(silences, 'ms', 0)} without a message", flush=True)
    target_ms = case.target_ms
    if target_ms is None:
        return True
    longest = max(each["retries"]["silence"] for each in seen)
    failed = sum(each["retries"]["errors"] for each in seen)
    reached = longest <= target_ms and (case.strike == "kill" or not failed)
    print(
        f"  target {target_ms} ms for the producer as it comes: {'reached' if reached else 'MISSED'}",
        flush=True,
    )
    return reached


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("--runs", type=bounded(1, 100), default=3)
    parser.add_argument("--sets", default="1,2")
    parser.add_argument("--only", default=",".join(STRIKES))
    parser.add_argument("--clients", default=",".join(CLIENTS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sides", help=f"instead of our brokers as shipped: {', '.join(SIDES)}")
    arguments = parser.parse_args()
    why = missing() or old_client_missing()
    if why is not None:
        raise SystemExit(why)
    known_of = {"--only": STRIKES, "--sets": ("1", "2"), "--clients": tuple(CLIENTS)}
    picked = {name: getattr(arguments, name[2:]).split(",") for name in known_of}
    for name, known in known_of.items():
        unknown = [each for each in picked[name] if each not in known]
        if unknown:
            parser.error(f"{name}: no {unknown[0]!r}; there are {', '.join(known)}")
    sides: list[Side | None] = [None]
    if arguments.sides is not None:
        sides = [*chosen(parser, arguments.sides, broker_missing())]
        if any(side is not None and side.mode is Mode.RAFT for side in sides):
            parser.error("--sides: of controller mode only")
    chance = random.Random(arguments.seed)
    print(machine())
    reached = True
    for side in sides:
        together = {strike: Seen() for strike in picked["--only"]}
        for sets in map(int, picked["--sets"]):
            with brokers(side, sets) as cluster:
                for strike in picked["--only"]:
                    for client in picked["--clients"]:
                        for poll_ms in [None, CURE_POLL_MS] if strike == "kill" else [None]:
                            case = Case(side, strike, sets, client, poll_ms)
                            counted = together[strike] if poll_ms is None else Seen()
                            reached &= measured(cluster, case, arguments.runs, chance, counted)
        for strike, seen in together.items():
            print(f"{named(side)}{strike}, all producers with default settings: {seen}", flush=True)
    print(machine())
    return int(not reached)


if __name__ == "__main__":
    raise SystemExit(main())
