"""Three controllers, three brokers, a name server and a client in one simulated world: load, faults, every invariant.

Invariant: a run follows from its seed alone. Faults stop in the last part of a run; then the cluster must become whole, every
log equal, and what the client was told must be what can be read.

    python -m simulation.cluster.world --seeds 300 --first 1
    python -m simulation.cluster.world --seeds 300 --bug swap-instead-of-union    (succeeds when a seed finds it)
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Coroutine
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar
from unittest.mock import patch

from broker.role.membership import Role
from controller.state import SyncState
from controller.statemachine import ReplicasStateMachine
from dledger.node import DLedgerNode
from dledger.raft import Raft
from ha.errors import HAError
from localcluster.history import Attempt, Outcome, judge
from localcluster.load import as_found
from messagestore.errors import StoreError
from mqclient.route import MessageQueue
from simulation.cluster import members
from simulation.cluster.bugs import BUGS
from simulation.cluster.check import ClusterCheck
from simulation.cluster.delaycheck import all_delivered, judge_delayed, waiting
from simulation.cluster.faults import Faults
from simulation.cluster.loggedbugs import LoggedBugs
from simulation.cluster.looks import BrokerLook, broker_on, controller_on
from simulation.cluster.members import FAST, ClientApp, ReaderNotes, Timers
from simulation.cluster.violation import Violation
from simulation.cluster.votes import VotesOnDisk
from simulation.kernel import seeds
from simulation.kernel.node import Node
from simulation.kernel.world import World
from simulation.raft.member import watched

T = TypeVar("T")

RUN_MS = 100_000
HEAL_LIMIT_MS = 60_000
READ_LIMIT_MS = 60_000
DELIVERY_LIMIT_MS = 20_000
RUN_MS_MIN = 120_000
CHECK_MS = 50
WHOLE_MS = 200
COPIED_MS = 6_000
"""A new topic reaches the slaves' tables within this time; only then may its master die."""
ACKNOWLEDGED_MIN = 200
DELAYED_MIN = 5
ROLE_CHANGES_MIN = 2
FAULT_KINDS_MIN = 3


@dataclass
class Totals:
    """What runs did; adds up over seeds."""

    counts: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    simulated_ms: int = 0

    def lines(self) -> list[str]:
        return [
            " · ".join(f"{name} {count}" for name, count in sorted(self.counts.items())),
            "faults: " + " · ".join(f"{name} {count}" for name, count in sorted(self.faults.items())),
        ]


class ClusterWorld:
    """One seed: its timers, segment size, faults and load are all drawn from it."""

    def __init__(self, seed: int, totals: Totals | None = None) -> None:
        self.world = World(seed)
        self.random = random.Random(f"{seed}/cluster")
        self.totals = totals or Totals()
        self.check = ClusterCheck()
        self.errors = LoggedBugs()
        self.look_at_us = 0
        self.timers = self.random.choice((FAST, FAST, Timers()))
        self.raft_slowness = self.random.choice((1, 2, 2))
        self.segment_bytes = self.random.choice((16_384, 65_536, 1 << 20))
        node = self.world.node
        self.namesrv = node("namesrv", members.NAMESRV_HOST)
        self.controllers = [node(f"controller-{i}", host) for i, host in enumerate(members.CONTROLLER_HOSTS)]
        self.brokers = [node(f"broker-{i}", host) for i, host in enumerate(members.BROKER_HOSTS)]
        self.client = node("client", members.CLIENT_HOST)
        self.notes = ReaderNotes()
        self.votes = VotesOnDisk({f"n{i}": node for i, node in enumerate(self.controllers)})
        others = [self.namesrv, self.client]
        self.faults = Faults(
            self.world, self.random, self.controllers, self.brokers, others, self.client, self.check
        )
        self.send_interval_ms = self.random.choice((250, 300, 400))
        self.pace_ms = self.random.choice((2_000, 5_000, 9_000))

    def run(self) -> None:
        """Raises Violation, or what the world raises for a bug."""
        watching = patch.object(DLedgerNode, "core_class", watched(Raft, self.votes))
        granting = patch.object(ReplicasStateMachine, "apply", self.check.grants.noting())
        with watching, granting, self.errors.attached(), self.world as world:
            world.after_each_step(self.each_step)
            self.start_all()
            world.run_until(lambda: self.master() is not None, 10_000)
            self.client.start(lambda runtime: ClientApp(runtime, self.send_interval_ms, self.notes))
            self.world.run_for_ms(COPIED_MS)
            self.under_faults()
            self.heal()
            self.judge()
        self.count()

    # Members

    def start_all(self) -> None:
        self.namesrv.start(members.namesrv_app)
        for node in (*self.controllers, *self.brokers):
            self.start(node)

    def start(self, node: Node) -> None:
        if self.faults.damage.cured(node):
            node.failure = None
        typed = (OSError, StoreError, HAError) if node.disk.failures else OSError
        if isinstance(node.failure, Exception) and not isinstance(node.failure, typed):
            raise Violation("V2", f"{node.name} ended by itself: {node.failure!r}")
        if node in self.controllers:
            number = self.controllers.index(node)
            node.start(partial(members.controller_app, number, raft_slowness=self.raft_slowness))
        else:
            number = self.brokers.index(node)
            node.start(
                partial(members.broker_app, number, timers=self.timers, segment_bytes=self.segment_bytes)
            )

    def broker_looks(self) -> list[BrokerLook]:
        return [look for node in self.brokers if (look := broker_on(node)) is not None]

    def sync_states(self) -> list[SyncState]:
        """As each controller that runs applied it."""
        looks = [look for node in self.controllers if (look := controller_on(node)) is not None]
        return [look.state for look in looks if look.state is not None]

    def master(self) -> Node | None:
        """The broker that acts as master in the newest epoch, if one does."""
        masters = [look for look in self.broker_looks() if look.role is Role.MASTER]
        newest = max(masters, key=lambda look: look.master_epoch, default=None)
        return self.world.nodes[newest.name] if newest is not None else None

    def leader(self) -> Node | None:
        for node in self.controllers:
            look = controller_on(node)
            if look is not None and look.raft.is_active:
                return node
        return None

    # The run

    def each_step(self) -> None:
        """Each CHECK_MS of virtual time: every invariant, and whoever is due to come back."""
        now_us = self.world.loop.now_us
        if now_us >= self.look_at_us:
            self.look_at_us = now_us + 1000 * CHECK_MS
            self.watch()
            self.faults.next_steps(self.master())
            self.restart_due()

    def watch(self) -> None:
        self.check.look(self.sync_states(), self.broker_looks())
        self.votes.look_at_all()
        if self.notes.contradictions:
            raise Violation("Q2", self.notes.contradictions[0])
        if self.errors.bugs:
            raise Violation("bug", self.errors.bugs[0])

    def restart_due(self) -> None:
        for node in (*self.controllers, *self.brokers):
            if self.faults.due_for_restart(node):
                self.start(node)

    def under_faults(self) -> None:
        end_ms = self.world.now_ms + RUN_MS
        planned = list(self.faults.kinds)
        self.random.shuffle(planned)
        planned.insert(0, "kill master")
        while self.world.now_ms < end_ms:
            self.world.run_for_ms(self.random.randint(self.pace_ms // 3, self.pace_ms))
            kind = planned.pop(0) if planned else self.random.choice(self.faults.kinds)
            self.faults.strike(kind, self.master(), self.leader())
            if self.random.random() < 0.4:
                self.world.network.heal()

    def heal(self) -> None:
        """No faults any more: whole again within the limit, also when the master changes twice more."""
        self.faults.heal()
        self.become_whole()
        while (
            len(self.check.masters) < 1 + ROLE_CHANGES_MIN
            or self.world.now_ms < RUN_MS_MIN
            or self.acknowledged() < ACKNOWLEDGED_MIN
            or self.client_app.delayed.acknowledged() < DELAYED_MIN
        ):
            self.world.run_for_ms(3000)
            if len(self.check.masters) < 1 + ROLE_CHANGES_MIN:
                self.faults.strike("kill master", self.master(), self.leader())
                self.faults.heal()
            self.become_whole()

    def become_whole(self) -> None:
        deadline_ms = self.world.now_ms + HEAL_LIMIT_MS
        while not self.whole():
            if self.world.now_ms > deadline_ms:
                raise Violation("V2", f"not whole {HEAL_LIMIT_MS} ms after the last fault: {self.shown()}")
            self.world.run_for_ms(WHOLE_MS)

    def whole(self) -> bool:
        brokers = self.broker_looks()
        if len(brokers) < len(self.brokers) or self.leader() is None or self.master() is None:
            return False
        return all(broker.master_epoch and broker.broker_id in self.check.members for broker in brokers)

    def judge(self) -> None:
        """The client stops; logs become equal; what it was told is compared with what is there."""
        client = self.client_app
        self.world.run(self.as_client(client.stop_sending()), limit_ms=READ_LIMIT_MS)

        def level() -> bool:
            brokers = self.broker_looks()
            stores = [broker.store for broker in brokers]
            ends = {end for store in stores for end in (store.max_offset(), store.confirm_offset())}
            return len(ends) == 1 and len({broker.history for broker in brokers}) == 1

        def delivered() -> bool:
            node = self.master()
            master = broker_on(node) if node is not None else None
            return master is not None and all_delivered(master)

        self.world.run_until(delivered, DELIVERY_LIMIT_MS)
        self.world.run_until(level, HEAL_LIMIT_MS)
        self.watch()
        brokers = self.broker_looks()
        self.check.at_the_end(brokers)
        found = self.world.run(self.as_client(client.read_everything()), limit_ms=READ_LIMIT_MS)
        late = self.world.run(self.as_client(client.delayed.delivered()), limit_ms=READ_LIMIT_MS)
        if self.notes.contradictions:
            raise Violation("Q2", self.notes.contradictions[0])
        verdict = judge(client.load.attempts, found)
        if not verdict.holds:
            raise Violation("C6", f"{len(verdict.faults)} broken promises, first: {verdict.faults[0]}")
        scheduled = waiting(brokers[0], self.check.confirmed)
        again = judge_delayed(client.delayed.attempts, late, scheduled, self.faults.spread_ms)
        self.totals.counts["delivered again"] += again
        for message in late:
            queue = MessageQueue(message.topic, members.BROKER_SET, message.queue_id)
            found.append(as_found(queue, message))
        unread = set(self.notes.seen) - {message.place for message in found}
        if unread:
            raise Violation("C6", f"{len(unread)} messages were read once and are gone: {sorted(unread)[0]}")

    async def as_client(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine of the client app within the client's process."""
        results: list[T] = []

        async def run() -> None:
            results.append(await coroutine)

        await self.client.spawn(run())
        return results[0]

    def shown(self) -> str:
        running = [node.name for node in (*self.controllers, *self.brokers) if node.running]
        roles = [
            (look.name, look.role.name, look.master_epoch, look.store.max_offset())
            for look in self.broker_looks()
        ]
        return f"running {running}; controllers: {self.sync_states()}; brokers: {roles}"

    def count(self) -> None:
        attempts, acknowledged = self.attempts, self.acknowledged()
        role_changes = len(self.check.masters) - 1
        assert acknowledged >= ACKNOWLEDGED_MIN and role_changes >= ROLE_CHANGES_MIN, "heal waits for both"
        if len(self.faults.done) < FAULT_KINDS_MIN:
            raise Violation("V2", f"only {len(self.faults.done)} kinds of fault")
        self.totals.faults.update(self.faults.done)
        self.totals.simulated_ms += self.world.now_ms
        self.totals.counts.update(
            {
                "seeds": 1,
                "role changes": role_changes,
                "acknowledged": acknowledged,
                "attempts": len(attempts),
                "delayed or handed back": self.client_app.delayed.acknowledged(),
                "simulated seconds": self.world.now_ms // 1000,
            }
        )

    @property
    def client_app(self) -> ClientApp:
        assert isinstance(self.client.app, ClientApp)
        return self.client.app

    @property
    def attempts(self) -> list[Attempt]:
        return self.client_app.load.attempts

    def acknowledged(self) -> int:
        return sum(attempt.outcome is Outcome.ACKNOWLEDGED for attempt in self.attempts)


def run_seed(seed: int, bug: str | None, totals: Totals) -> None:
    """One run, with `bug` planted if there is one."""
    with BUGS[bug]() if bug else nullcontext():
        ClusterWorld(seed, totals).run()


def main() -> int:
    totals = Totals()
    started = time.process_time()

    def told() -> list[str]:
        seconds = time.process_time() - started
        simulated_s = totals.simulated_ms / 1000
        speed = f"{simulated_s / max(seconds, 0.001):.0f} x real time"
        return [*totals.lines(), f"{simulated_s:.0f} simulated s in {seconds:.1f} s of CPU: {speed}"]

    return seeds.main(__doc__, BUGS, 20, lambda seed, bug: run_seed(seed, bug, totals), told)


if __name__ == "__main__":
    sys.exit(main())
