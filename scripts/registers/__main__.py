"""Test whether a DLedger group of real processes is linearizable while its members are killed, paused, restarted and cut off.

    scripts/linearizable --seconds 60 --seed 1
    scripts/linearizable --strikes 200

A relay on loopback between the members cuts their connections. Clients reach all members, even a leader that is cut off.
Clients read, write and swap registers concurrently. At the end, each register's history must be linearizable. Faults and
operations follow from the seed, but the timing of processes does not. If a history is not linearizable, the exit code is 1,
and the operations that no order explains are printed."""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterable

from localcluster.partitions import CLIENT
from localcluster.peers import Address, inode_of, owner_of
from localcluster.relay import Order, Relay
from mqruntime.clock import SystemClock
from remoting.client import RemotingClient
from scripts.ledgergroup import LedgerGroup
from simulation.raft.linearizable import OperationHistory
from simulation.raft.registers import Keys, RegisterClient

CLIENTS = 6
PAUSE_S = 0.02
SERVED_S_MAX = 120.0
BETWEEN_S = (0.1, 2.5)
CUTS = ("cut", "cut-one-way", "isolate", "mute")
STRIKES = ("kill", "kill-two", "kill-all", "pause", "pause-two", "restart", *CUTS)
BEHIND_HOST = "127.0.0.2"
"""Members listen at this host. A relay listens at the addresses in the members' list."""


class Behind:
    """The members of a group, for a relay."""

    bind_host = BEHIND_HOST

    def __init__(self, group: LedgerGroup) -> None:
        self._group = group

    @property
    def names(self) -> Iterable[str]:
        return self._group.peers

    def ports_of(self, name: str) -> Iterable[int]:
        return [int(self._group.peers[name].rpartition(":")[2])]

    def who(self, theirs: Address, ours: Address) -> str | None:
        inode = inode_of(theirs, ours)
        return None if inode is None else owner_of(inode, self._group.pids) or CLIENT


class Run:
    """Load and faults on one group. `counts` has the numbers of operations and faults."""

    def __init__(self, group: LedgerGroup, seed: int) -> None:
        self.group = group
        self.random = random.Random(seed)
        self.history = OperationHistory()
        self.counts = Counter[str]()
        self.clients: list[RegisterClient] = []
        behind = Behind(group)
        self.relay = Relay(behind, behind.who)

    async def play(self, goes_on: Callable[[int], bool]) -> None:
        """Cause faults while `goes_on(number of faults)` returns True. At the end all members run and serve."""
        loop, keys = asyncio.get_running_loop(), Keys()
        await self.relay.start()
        remotings = [RemotingClient(clock=SystemClock(), connect_timeout_ms=1000) for _ in range(CLIENTS)]
        self.clients = [
            RegisterClient(
                number,
                self.group.peers,
                remoting,
                self.history,
                keys,
                loop.time,
                random.Random(self.random.random()),
            )
            for number, remoting in enumerate(remotings)
        ]
        operating = [loop.create_task(self.operate(client)) for client in self.clients]
        try:
            await self.served()
            struck = 0
            while goes_on(struck):
                await self.strike(self.random.choice(STRIKES))
                struck += 1
                await asyncio.sleep(self.random.uniform(*BETWEEN_S))
            await self.served()
        finally:
            for task in operating:
                task.cancel()
            await asyncio.gather(*operating, return_exceptions=True)
            for remoting in remotings:
                await remoting.close()
            await self.relay.close()
        for client in self.clients:
            self.counts.update(client.counts)

    async def operate(self, client: RegisterClient) -> None:
        while True:
            await client.operate()
            await asyncio.sleep(client.chance.uniform(0, PAUSE_S))

    async def served(self) -> None:
        """Return once operations are answered again. Otherwise raise an error with the members' output."""
        wanted = self.history.answered + CLIENTS
        try:
            async with asyncio.timeout(SERVED_S_MAX):
                while True:
                    await asyncio.sleep(PAUSE_S)
                    if self.history.answered >= wanted:
                        return
        except TimeoutError:
            raise SystemExit(
                f"nothing is answered for {SERVED_S_MAX:g} s; members said\n{self.group.said()}"
            ) from None

    async def strike(self, kind: str) -> None:
        self.counts[kind] += 1
        names = self.random.sample(sorted(self.group.peers), 2)
        if kind in CUTS:
            await self.cut(kind, *names)
            return
        names = sorted(self.group.peers) if kind.endswith("-all") else names
        names = names if "-" in kind else names[:1]
        if kind.startswith("pause"):
            for name in names:
                self.group.send(name, signal.SIGSTOP)
            await asyncio.sleep(self.random.choice((0.3, 1.5, 3)))
            for name in names:
                self.group.send(name, signal.SIGCONT)
            return
        number = signal.SIGTERM if kind == "restart" else signal.SIGKILL
        for name in names:
            await asyncio.to_thread(self.group.end, name, number)
        await asyncio.sleep(self.random.choice((0, 0.5, 2.5)))
        for name in names:
            self.group.start(name)

    async def cut(self, kind: str, one: str, other: str) -> None:
        """Silence ways between members for a while. Then held data continues, or is lost with its connection."""
        others = [other] if kind.startswith("cut") else sorted(self.group.peers.keys() - {one})
        ways = {(one, each) for each in others}
        if kind in ("cut", "isolate"):
            ways |= {(each, one) for each in others}
        self.relay.obey(Order(frozenset(ways), reset=False))
        await asyncio.sleep(self.random.choice((0.3, 1.5, 4)))
        self.relay.obey(Order(frozenset(), reset=self.random.random() < 0.5))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60, help="how long it is struck (%(default)s)")
    parser.add_argument("--strikes", type=int, help="how often, whatever time that takes")
    parser.add_argument("--seed", type=int, default=1, help="draws strikes and operations (%(default)s)")
    arguments = parser.parse_args()

    async def played(run: Run) -> None:
        end = asyncio.get_running_loop().time() + arguments.seconds
        if arguments.strikes is not None:
            await run.play(lambda struck: struck < arguments.strikes)
        else:
            await run.play(lambda struck: asyncio.get_running_loop().time() < end)

    with LedgerGroup("scripts.registers.member", "--listens-on", BEHIND_HOST) as group:
        run = Run(group, arguments.seed)
        asyncio.run(played(run))
    unexplained = run.history.unexplained()
    print(" ".join(f"{name}={count}" for name, count in sorted(run.counts.items())))
    print(f"{run.history.answered} operations on {len(run.history.by_key)} registers, seed {arguments.seed}")
    if unexplained:
        print("NOT LINEARIZABLE: no order explains")
        print("\n".join(operation.described() for operation in unexplained))
        return 1
    print("each register's history has an order")
    return 0


if __name__ == "__main__":
    sys.exit(main())
