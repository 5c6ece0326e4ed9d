"""Clients that consume in order. They lock queues, renew, unlock, fall silent and come back, while faults hit their brokers.
Now and then the master dies just when it confirms a lock.

Invariant O1: two clients never hold one queue. A client that gets a lock holds the queue from its request on, until it unlocks
the queue, is answered that it does not hold the queue, or has trusted the lock for its time (mqclient.queuelocks.TRUST_MS). O2:
once the cluster is whole, any client gets every queue that nobody renews, after a lease."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress

from mqclient.client import Client
from mqclient.errors import LockFailed, RouteUnknown
from mqclient.queuelocks import TRUST_MS, QueueLocks
from mqclient.route import MessageQueue
from remoting.bodies.queues import LockQueuesBody
from remoting.bodies.queues import MessageQueue as WireQueue
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.errors import RemotingError
from remoting.signing import Credentials
from simulation.kernel.node import Node, SimulatedClock
from simulation.kernel.violation import Violation
from simulation.kernel.world import World
from simulation.workloads.mastertrouble import MasterTrouble

GROUP = "in-order"
READERS = 4
ASKS_MS = (200, 4_000)
SILENT_MS = (1_000, 40_000)
LEASE_MS = 60_000
"""The time that masters promise upstream's clients."""
ASKED_MS = 2_000
STAYS = (0.9, 0.99)
"""The chance that a reader asks once more."""
MASTER_DIES = 0.15
SPARED_MS = 12_000
"""The next master is spared for this time after each death, because there are other faults."""
MASTER_IS_PAUSED = 0.3
"""The chance that a master is paused when a hasty client unlocks queues, so that the request waits in the master's socket."""
READ = "reader in order"
DIED = "master dies behind a lock"
WAS_PAUSED = "master stands still before an unlock"


class LockingClients:
    """The clients on `node`, a host without faults. `kill` ends the process of the `master()`. Hasty clients unlock queues
    one-way and lock them again at once, as Java's clients do."""

    def __init__(
        self,
        world: World,
        node: Node,
        queues: Sequence[MessageQueue],
        name_server: str,
        *,
        master: Callable[[], Node | None],
        kill: Callable[[Node], object],
        done: Counter[str],
        is_hasty: bool = False,
        credentials: Credentials | None = None,
    ) -> None:
        self.is_hasty = is_hasty
        self.world = world
        self.node = node
        self.all = list(queues)
        self.done = done
        self.random = random.Random(f"{world.seed}/ordered readers")
        self.held: dict[MessageQueue, dict[str, int]] = {queue: {} for queue in self.all}
        """By queue: the clients that trust that they hold it, and until when."""
        self.answered = 0
        self.violation: Violation | None = None
        self.names = 0
        self.healed = False
        self.begun = False
        self.trouble = MasterTrouble(world, self.random, master=master, kill=kill, spared_ms=SPARED_MS)
        self._name_server = name_server
        self._credentials = credentials

    def next_step(self) -> None:
        """Raises Violation."""
        if self.violation is not None:
            raise self.violation
        if not self.begun:
            self.begun = True
            for _ in range(READERS):
                self.node.spawn(self.read())

    def heal(self) -> None:
        self.healed = self.trouble.healed = True

    def forget(self) -> None:
        """Drop all answers until now, because what they relied on is lost, as the contract allows."""
        for holders in self.held.values():
            holders.clear()

    async def read(self) -> None:
        """Run one reader after the other, each with its own name."""
        while not self.healed:
            async with self.client() as client:
                await self.live(client, client.locks(GROUP, self.new_name()))
            await asyncio.sleep(self.random.randint(*SILENT_MS) / 1000)

    async def live(self, client: Client, locks: QueueLocks) -> None:
        """Run one reader until it falls silent, or the unlock of a queue fails. The queue may then still be locked for it."""
        stays = self.random.choice(STAYS)
        while not self.healed and self.random.random() < stays:
            if self.random.random() < 0.15:
                given_up = self.random.sample(self.all, self.random.randint(1, len(self.all)))
                for queue in given_up:
                    self.held[queue].pop(locks.client_id, None)
                if self.is_hasty:
                    if self.trouble.is_paused(MASTER_IS_PAUSED) is not None:
                        self.done[WAS_PAUSED] += 1
                    await self.say_unlock(client, locks.client_id, given_up)
                else:
                    try:
                        await locks.unlock(given_up)
                    except LockFailed:
                        return
            with suppress(LockFailed):
                await self.ask(locks, self.random.sample(self.all, self.random.randint(1, len(self.all))))
            await asyncio.sleep(self.random.randint(*ASKS_MS) / 1000)

    async def say_unlock(self, client: Client, client_id: str, queues: list[MessageQueue]) -> None:
        """Send a one-way unlock to the broker that the reader takes for the master."""
        wire = [WireQueue(queue.topic, queue.broker_name, queue.queue_id) for queue in queues]
        body = LockQueuesBody(GROUP, client_id, wire).encode()
        with suppress(RouteUnknown, RemotingError):
            address = (await client.routes.get(queues[0].topic)).master(queues[0].broker_name)
            if address is not None:
                unlock = RemotingCommand.request(RequestCode.UNLOCK_BATCH_MQ, body=body)
                await client.remoting.one_way(address, unlock)

    async def ask(self, locks: QueueLocks, queues: list[MessageQueue]) -> set[MessageQueue]:
        """Call `locks.lock`, and judge the answer. Raises LockFailed."""
        asked_ms = self.world.now_ms
        granted = await locks.lock(queues)
        now_ms = self.world.now_ms
        self.answered += 1
        for queue in queues:
            holders = self.held[queue]
            is_new = holders.pop(locks.client_id, None) is None
            if queue not in granted:
                continue
            others = {name: until_ms for name, until_ms in holders.items() if until_ms > now_ms}
            if others and asked_ms + TRUST_MS > now_ms and self.violation is None:
                said = f"{queue} is granted to {locks.client_id} at {now_ms} ms, and trusted by {others} (until ms)"
                self.violation = Violation("O1", said)
            holders[locks.client_id] = asked_ms + TRUST_MS
            self.done[READ] += 1
            if is_new and self.trouble.dies(MASTER_DIES):
                self.done[DIED] += 1
        return granted

    def new_name(self) -> str:
        self.names += 1
        return f"reader-{self.names}"

    def client(self) -> Client:
        return Client(
            self._name_server,
            clock=SimulatedClock(self.node),
            random=random.Random(self.random.getrandbits(32)),
            credentials=self._credentials,
        )

    def at_the_end(self) -> None:
        """Check that a client gets every queue of a whole cluster. Raises Violation."""
        self.heal()
        self.world.run_for_ms(LEASE_MS + max(ASKS_MS))
        self.next_step()
        done = asyncio.Event()
        missing = set(self.all)

        async def take_all() -> None:
            async with self.client() as client:
                locks = client.locks(GROUP, self.new_name())
                for _ in range(3):
                    with suppress(LockFailed):
                        missing.difference_update(await self.ask(locks, self.all))
                        break
            done.set()

        self.node.spawn(take_all())
        self.world.run_until(done.is_set, 4 * ASKED_MS)
        self.next_step()
        if missing:
            raise Violation(
                "O2",
                f"a new client does not get {sorted(map(str, missing))}, which nobody has renewed for a lease",
            )
