"""What a DLedger group commits: three members of `python -m dledger serve`, entries appended by a client to the leader.

    python -m scripts.bench.dledger [--runs 3] [--body 1024] [--seconds 5]

Everything on this machine, a fresh folder each run. An append is answered once a majority has synced the entry and the leader
has applied it; the client asks over one connection, with so many appends in flight. The probes are of the same run and disk.
Prints rows for docs/performance.md."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from dledger.client import DLedgerClient
from mqruntime.clock import SystemClock
from remoting.client import RemotingClient
from scripts.bench.controllers import Figures, probed, rate
from scripts.bench.measured import cpu_seconds, machine, own_mib
from scripts.bench.options import bounded, options
from scripts.ledgergroup import LedgerGroup

GROUP = "bench"
IN_FLIGHT = (1, 128)
LEADER_MS_MAX = 60_000


async def measure(figures: Figures, group: LedgerGroup, body: bytes, seconds: float) -> None:
    remoting = RemotingClient(clock=SystemClock())
    try:
        client = DLedgerClient(group.peers, GROUP, remoting, LEADER_MS_MAX)
        for in_flight in IN_FLIGHT:
            first = await client.append([body])  # whoever leads is known, and its connection is open
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
    told = await client.status()
    return next(name for name, each in told.items() if isinstance(each, dict) and each["active"])


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--runs", type=bounded(1, 100), default=3)
    parser.add_argument("--body", type=bounded(1, 1 << 20), default=1024, help="bytes of an entry")
    parser.add_argument("--seconds", type=float, default=5, help="how long each rate is measured")
    arguments = parser.parse_args()
    print(f"three members, {arguments.runs} runs; {machine()}")
    figures = Figures()
    try:
        for _ in range(arguments.runs):
            with (
                LedgerGroup("dledger", "serve", "--group", GROUP) as group,
                probed(figures, group.root),
            ):
                asyncio.run(measure(figures, group, bytes(arguments.body), arguments.seconds))
    finally:
        figures.print()  # also of the runs before one that failed
    print(f"\n{machine()}")


if __name__ == "__main__":
    main()
