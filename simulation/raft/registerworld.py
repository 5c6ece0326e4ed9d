"""Registers (variables that clients read and write) on a simulated DLedger group. Members die, hang and lose their connections,
and the history that clients saw must be linearizable.

Invariant: a run follows from its seed alone. L1: each register's history, as clients saw it, is linearizable. L2: in the end,
if some members are preferred, one of them leads within ten seconds plus the longest back-off after a failed transfer.

    python -m simulation.raft.registerworld --seeds 50 --first 1
    python -m simulation.raft.registerworld --seeds 300 --bug read-without-round   (succeeds when a seed finds it)
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Mapping
from dataclasses import replace

from dledger import DLedger, DLedgerSettings
from dledger.ledger import BACK_OFF_MS_MAX
from mqruntime.runtime import Runtime
from remoting.client import RemotingClient
from simulation.kernel import seeds
from simulation.kernel.features import NOTHING_ASKED, Asked
from simulation.kernel.node import Node
from simulation.kernel.totals import Totals
from simulation.kernel.world import World
from simulation.mutants.raft import BUGS, planted
from simulation.raft.linearizable import OperationHistory
from simulation.raft.member import PORT
from simulation.raft.registers import Keys, RegisterClient, Registers, RegisterService

MEMBERS = 3
CLIENTS = 5
RUN_MS = 20_000
HEAL_LIMIT_MS = 15_000
PREFERRED_MS = 10_000 + BACK_OFF_MS_MAX
FAULTS = (
    "kill",
    "power",
    "kill-leader",
    "pause",
    "pause-leader",
    "cut",
    "isolate-leader",
    "transfer",
    "reset",
)


class Unordered(AssertionError):
    """No order explains what clients saw (L1)."""


class HeldLock:
    """A lock that does nothing, because the node has locked its disk already."""

    def acquire(self) -> None:
        pass

    def release(self) -> None:
        pass


class RegisterWorld:
    """The world of one seed."""

    def __init__(self, seed: int, totals: Totals) -> None:
        self.world = World(seed)
        self.random = random.Random(f"{seed}/registers")
        self.counts = totals.counts
        self.totals = totals
        kept = random.Random(f"{seed}/snapshots")
        self.settings = DLedgerSettings(
            election_timeout_max_ms=self.random.choice((2000, 1040)),
            data_file_bytes=kept.choice((4096, 65536)),
            index_file_bytes=32 * 64,
            entry_bytes_max=1024,
            recent_bytes_max=self.random.choice((0, 1 << 20)),
            snapshot_entries=kept.choice((0, 0, 20, 100)),
            snapshot_margin_entries=kept.choice((0, 30)),
        )
        self.peers = {f"n{number}": f"10.0.0.{number + 1}:{PORT}" for number in range(MEMBERS)}
        self.nodes = [
            self.world.node(name, address.partition(":")[0]) for name, address in self.peers.items()
        ]
        self.preferred = self.random.choice(((), ("n1",), ("n1", "n2")))
        self.customer = self.world.node("clients", "10.0.9.1")
        self.history = OperationHistory()
        self.clients: list[RegisterClient] = []
        self.back_at_ms: dict[str, int] = {}
        self.kinds = self.random.sample(FAULTS, self.random.randint(2, 5))

    def run(self) -> None:
        """Run load and faults, heal, and judge. Raises Unordered, or the error that a broken member raised."""
        with self.world as world:
            for node in self.nodes:
                self.start(node)
            self.customer.start(self.customers)
            next_fault_ms = world.now_ms + 2500
            end_ms = world.now_ms + RUN_MS
            while world.now_ms < end_ms:
                world.run_for_ms(self.random.randint(5, 60))
                self.restart_some()
                if world.now_ms >= next_fault_ms:
                    self.fault(self.random.choice(self.kinds))
                    next_fault_ms = world.now_ms + self.random.randint(100, 4000)
            self.heal()
        self.totals.simulated_ms += self.world.now_ms
        self.counts.update(seeds=1, **{"linearized": self.history.answered})
        for client in self.clients:
            self.counts.update(client.counts)
        if unexplained := self.history.unexplained():
            operations = "\n".join(each.described() for each in unexplained[-12:])
            raise Unordered(f"L1: no order of the operations explains the last one\n{operations}")

    def heal(self) -> None:
        """End all faults. Then all members run and reach each other, and clients get answers."""
        self.world.network.heal()
        self.back_at_ms.clear()
        before = self.history.answered

        def served() -> bool:
            self.restart_some()
            return all(node.running for node in self.nodes) and self.history.answered > before + CLIENTS

        self.world.run_until(served, HEAL_LIMIT_MS)
        if self.preferred:
            self.world.run_until(self.preferred_leads, PREFERRED_MS)

    def preferred_leads(self) -> bool:
        leader = self.leader()
        return leader is not None and leader.name in self.preferred

    def start(self, node: Node) -> None:
        node.start(lambda runtime: member(node.name, self.peers, runtime, self.settings, self.preferred))

    def restart_some(self) -> None:
        for node in self.nodes:
            if not node.running and self.world.now_ms >= self.back_at_ms.get(node.name, 0):
                self.start(node)

    def customers(self, runtime: Runtime) -> Customers:
        keys = Keys()
        self.clients = [
            RegisterClient(
                number,
                self.peers,
                RemotingClient(clock=runtime.clock),
                self.history,
                keys,
                lambda: self.world.loop.now_us / 1e6,
                random.Random(f"{self.random.random()}/{number}"),
            )
            for number in range(CLIENTS)
        ]
        return Customers(self.clients)

    # Faults

    def leader(self) -> Node | None:
        leading = [node for node in self.nodes if (ledger := ledger_of(node)) and ledger.metadata.is_active]
        return self.random.choice(leading) if leading else None

    def fault(self, kind: str) -> None:
        self.counts[kind] += 1
        network, (node, other) = self.world.network, self.random.sample(self.nodes, 2)
        node = (self.leader() or node) if kind.endswith("-leader") else node
        match kind:
            case "kill" | "power" | "kill-leader":
                node.kill(power_cut=kind == "power")
                self.back_at_ms[node.name] = self.world.now_ms + self.random.choice((1, 500, 3000))
            case "pause" | "pause-leader" if node.running:
                node.pause(self.random.choice((300, 1500, 4000)))
            case "cut":
                network.cut(node.host, other.host)
            case "isolate-leader":
                for each in self.nodes:
                    if each is not node:
                        network.cut(each.host, node.host)
            case "reset":
                network.reset(node.host, other.host)
            case "transfer":
                ledger = ledger_of(leader) if (leader := self.leader()) else None
                if leader is not None and ledger is not None:
                    leader.spawn(ledger.transfer(self.random.choice((None, other.name))))
        if self.random.random() < 0.4:
            network.heal()


class Customers:
    """The process of all clients, each with one operation at a time."""

    def __init__(self, clients: list[RegisterClient]) -> None:
        self.clients = clients
        self.failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        self.tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self.tasks = [loop.create_task(self.go_on(client)) for client in self.clients]

    async def go_on(self, client: RegisterClient) -> None:
        while True:
            await client.operate()
            await asyncio.sleep(client.chance.uniform(0.001, 0.1))

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()

    async def wait_failed(self) -> BaseException:
        return await self.failed


def ledger_of(node: Node) -> DLedger | None:
    return node.app if isinstance(node.app, DLedger) else None


def member(
    name: str,
    peers: Mapping[str, str],
    runtime: Runtime,
    settings: DLedgerSettings,
    preferred: tuple[str, ...],
) -> DLedger:
    registers = Registers()
    ledger = DLedger(
        self_id=name,
        peers=peers,
        group="registers",
        runtime=replace(runtime, lock=HeldLock()),
        state_machine=registers,
        snapshots=registers,
        settings=settings,
        preferred=preferred,
    )
    RegisterService(ledger, registers).register()
    return ledger


def features() -> frozenset[str]:
    """This world has no features."""
    return frozenset()


def run_seed(seed: int, bug: str | None, totals: Totals, asked: Asked = NOTHING_ASKED) -> None:
    """Run one seed. Raises FeatureError for any feature, and what the run finds."""
    asked.check(features())
    with planted(bug):
        RegisterWorld(seed, totals).run()


def main() -> int:
    return seeds.main(__doc__, BUGS, 50, run_seed)


if __name__ == "__main__":
    sys.exit(main())
