"""A master, one or two slaves, a name server and a client in one simulated world: load, faults, every invariant.

Invariant: a run follows from its seed alone. Faults stop in the last part of a run. Then the pair must become whole, every
slave's log must be a part of its master's log, and the readable messages must be those that a SYNC_MASTER answered OK.

    python -m simulation.pairs.world --seeds 100 --first 1
    python -m simulation.pairs.world --seeds 100 --bug logs-not-compared    (succeeds when a seed finds it)
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, TypeVar
from unittest.mock import patch

from broker.app import BrokerApp
from broker.replication.pending import PendingSends, Waiting
from ha.errors import HAError
from localcluster.history import Found, SendOutcome, judge
from messagestore.errors import StoreError
from mqclient.errors import PullFailed
from mqclient.route import MessageQueue
from remoting.codes import ResponseCode
from simulation.checkers.clientjudge import found_in_queue
from simulation.checkers.loggedbugs import LoggedBugs
from simulation.checkers.shadow import deleted_messages
from simulation.cluster.looks import BrokerLook
from simulation.faults.forgers import RoleForger, is_paused
from simulation.kernel import seeds
from simulation.kernel.features import NOTHING_ASKED, Asked, named
from simulation.kernel.node import Node
from simulation.kernel.totals import Totals
from simulation.kernel.violation import Violation
from simulation.kernel.world import World
from simulation.mutants.pairs import BUGS, planted
from simulation.pairs import members
from simulation.pairs.check import PairCheck
from simulation.pairs.dealing import PairDealing
from simulation.pairs.delaying import PairDelaying
from simulation.pairs.faults import PairFaults
from simulation.pairs.members import (
    BROKER_HOSTS,
    BROKER_PORT,
    BROKER_SET,
    FEATURES,
    QUEUES,
    TOPIC,
    ClientApp,
    kind_of,
)
from simulation.pairs.retention import PairRetention
from simulation.workloads.dealers import DEALS
from simulation.workloads.delays import LATER
from simulation.workloads.tableclients import TableClients, look_at

T = TypeVar("T")

RUN_MS = 60_000
LONG_RUN_MS = 100_000
"""A run of this length may see the end of a lease."""
HEAL_LIMIT_MS = 60_000
LOOK_MS = 50
ONE_EPOCH = 1
"""The epoch of the one role that a member of a pair ever takes."""
PACE_MS = (700, 4_000)
SEND_INTERVAL_MS = 60
ACKNOWLEDGED_MIN = 50
READ_LIMIT_MS = 60_000


class PairWorld:
    """The world of one seed. Its kind, faults and load are all drawn from the seed."""

    def __init__(self, seed: int, totals: Totals | None = None, asked: Asked = NOTHING_ASKED) -> None:
        """Raises FeatureError."""
        asked.check(FEATURES)
        self.world = World(seed)
        self.kind = kind_of(seed, asked)
        self.totals = totals or Totals()
        self.check = PairCheck()
        self.errors = LoggedBugs()
        self.namesrv = self.world.node("namesrv", members.NAMESRV_HOST)
        hosts = BROKER_HOSTS[: 1 + self.kind.slaves]
        self.nodes = [self.world.node(f"broker-{number}", host) for number, host in enumerate(hosts)]
        self.client_node = self.world.node("client", members.CLIENT_HOST)
        self.retention = PairRetention(
            seed, self.nodes, lambda slave: self.faults.empty(slave), on=self.kind.has_retention
        )
        self.faults = PairFaults(
            self.world,
            self.nodes,
            # with retention, a log's beginning does not show whether its slave may take the master's place
            loses_masters=self.kind.sync and not self.retention.on,
            held_end=lambda: self.check.held_end,
            whole=self.whole,
        )
        self.tables = self.table_clients() if self.kind.has_facts else None
        self.dealing = self.made_dealing() if self.kind.has_deals else None
        self.delaying = self.made_delaying() if self.kind.has_delays else None
        self.forger = self.made_forger() if self.kind.has_forger else None
        self.looked_us = 0
        self.answering = self.faults.master.name  # the node that answers administrators and clients
        self.led: tuple[str, int] | None = None  # the process whose log is the present history

    def run(self) -> None:
        """Raises Violation, or what the world raises for a bug."""
        tapped = patch.object(PendingSends, "_answer", self.noting()) if self.kind.sync else nullcontext()
        with tapped, self.retention.watched(), self.errors.attached(), self.world as world:
            world.after_each_step(self.each_step)
            self.namesrv.start(members.namesrv_app)
            world.run_until(self.whole, 30_000)
            self.client_node.start(lambda runtime: ClientApp(runtime, SEND_INTERVAL_MS))
            end_ms = world.now_ms + (LONG_RUN_MS if self.tables else RUN_MS)
            while world.now_ms < end_ms:
                world.run_for_ms(self.faults_pace())
                self.faults.strike()
                if self.faults.done.total() % 3 == 0:
                    world.network.heal()
            self.faults.heal()
            if self.forger is not None:
                self.forger.heal()
            if self.tables is not None:
                self.tables.heal()
            if self.dealing is not None:
                self.dealing.heal()
            if self.delaying is not None:
                self.delaying.heal()
            self.become_whole()
            self.judge()
        self.count()

    def faults_pace(self) -> int:
        return PACE_MS[self.faults.done.total() % len(PACE_MS)]

    def table_clients(self) -> TableClients:
        return TableClients(
            self.world,
            [MessageQueue(TOPIC, BROKER_SET, number) for number in range(QUEUES)],
            members.NAMESRV,
            master=lambda: self.faults.master if self.master() is not None else None,
            master_address=lambda: f"{self.faults.master.host}:{BROKER_PORT}",
            kill=self.faults.end,
            done=self.faults.done,
        )

    def made_forger(self) -> RoleForger:
        def known(target: Node) -> tuple[dict[int, str], int, int] | None:
            addresses = {self.faults.ids[node.name]: f"{node.host}:{BROKER_PORT}" for node in self.nodes}
            receives = target.running and not is_paused(target)
            return (addresses, ONE_EPOCH, ONE_EPOCH) if receives else None

        node = self.world.node("forger", members.FORGER_HOST)
        return RoleForger(self.world, node, self.nodes, known, self.faults.done)

    def made_dealing(self) -> PairDealing:
        return PairDealing(
            self.world,
            self.faults,
            leads=lambda: self.faults.master if self.master() is not None else None,
            keeps=not self.retention.on,
        )

    def made_delaying(self) -> PairDelaying:
        return PairDelaying(self.world, self.faults, self.master, goes_on=self.kind.goes_on)

    def look_at_tables(self) -> None:
        """Check the tables. A slave copies them from time to time, and only its copy is left when the operator promotes it.
        Until then the master's answers hold. Raises Violation T1, O1."""
        if self.tables is None or not self.is_loaded():
            return
        if self.faults.master.name != self.answering:
            self.answering = self.faults.master.name
            self.tables.forget()
        self.tables.look(self.master_look())

    def is_loaded(self) -> bool:
        """Whether the client has found its topic."""
        app = self.client_node.app
        return isinstance(app, ClientApp) and app.is_ready

    def master_look(self) -> list[BrokerLook]:
        master, node = self.master(), self.faults.master
        return [] if master is None else [look_at(node.name, node.incarnation, master)]

    # Brokers

    def start(self, node: Node) -> None:
        typed = (OSError, StoreError, HAError)
        if isinstance(node.failure, Exception) and not isinstance(node.failure, typed):
            raise Violation("V2", f"{node.name} ended by itself: {node.failure!r}")
        broker_id = self.faults.ids[node.name]
        node.start(partial(broker_of, node.host, broker_id, self.kind, self.retention.settings()))

    def master(self) -> BrokerApp | None:
        app = self.faults.master.app
        return app if isinstance(app, BrokerApp) and app.membership.accepts_sends else None

    def slaves(self) -> list[tuple[str, BrokerApp]]:
        apps = [(node.name, node.app) for node in self.faults.slaves]
        return [(name, app) for name, app in apps if isinstance(app, BrokerApp) and app.membership.is_slave]

    # The run

    def each_step(self) -> None:
        """Check at each step what slaves hold, and everything else each LOOK_MS of virtual time."""
        self.follow_the_logs()
        now_us = self.world.loop.now_us
        if now_us < self.looked_us + 1000 * LOOK_MS:
            return
        self.looked_us = now_us
        self.watch()
        self.retention.next_step(self.world.now_ms)
        for node in self.faults.due():
            self.start(node)

    def follow_the_logs(self) -> None:
        master = self.master()
        if master is not None:
            node = self.faults.master
            if self.led != (node.name, node.incarnation):
                self.led = node.name, node.incarnation
                histories = len(self.check.histories)
                self.check.leads(master.store)
                forgot = len(self.check.histories) > histories and not self.kind.sync
                if forgot and self.dealing is not None:
                    self.dealing.dealers.memory_lost()
                # a master may be killed in the same turn in which it appended
                master.store.on_append(partial(self.check.wrote, master.store))
            self.check.wrote(master.store)
        for _, slave in self.slaves():
            self.check.holds(slave.store)

    def noting(self) -> Callable[[PendingSends, Sequence[Waiting]], None]:
        """Replaces the method that answers sends, and checks each OK first."""
        answer = PendingSends._answer  # noqa: SLF001 - a tap

        def noted(pending: PendingSends, sends: Sequence[Waiting]) -> None:
            for send in sends:
                if send.response_code == ResponseCode.SUCCESS:
                    self.check.answered(send.end_offset)
            answer(pending, sends)

        return noted

    def watch(self) -> None:
        if (master := self.master()) is not None:
            self.check.shows("the master", master.store)
        for name, slave in self.slaves():
            self.check.shows(name, slave.store)
            self.check.is_of_one_log(name, slave.store)
        self.look_at_tables()
        if self.dealing is not None and self.is_loaded():
            self.dealing.look()
        if self.delaying is not None and self.is_loaded():
            self.delaying.look()
        if self.forger is not None and self.is_loaded():
            self.forger.next_step()
        if self.check.broken is not None:
            raise self.check.broken
        if self.errors.bugs:
            raise Violation("bug", self.errors.bugs[0])

    def whole(self) -> bool:
        master, slaves = self.master(), self.slaves()
        if master is None or len(slaves) < self.kind.slaves or self.faults.operator_at_ms is not None:
            return False
        return master.ha.in_sync_count() == 1 + self.kind.slaves and all(
            slave.ha.follows for _, slave in slaves
        )

    def become_whole(self) -> None:
        deadline_ms = self.world.now_ms + HEAL_LIMIT_MS
        before = self.acknowledged()
        while not self.whole() or self.acknowledged() < max(before + 10, ACKNOWLEDGED_MIN):
            if self.world.now_ms > deadline_ms:
                raise Violation(
                    "V2", f"expected a whole pair {HEAL_LIMIT_MS} ms after the last fault: {self.shown()}"
                )
            self.world.run_for_ms(200)

    def shown(self) -> str:
        slaves = [
            (name, slave.store.min_offset(), slave.store.max_offset(), slave.ha.follows)
            for name, slave in self.slaves()
        ]
        master = self.master()
        ends = None if master is None else (master.store.max_offset(), master.ha.in_sync_count())
        return f"master {self.faults.master.name} {ends}, slaves {slaves}, {self.acknowledged()} acknowledged"

    # The end

    @property
    def client(self) -> ClientApp:
        assert isinstance(self.client_node.app, ClientApp)
        return self.client_node.app

    def acknowledged(self) -> int:
        app = self.client_node.app
        if not isinstance(app, ClientApp):
            return 0
        return sum(attempt.outcome is SendOutcome.ACKNOWLEDGED for attempt in app.load.attempts)

    def judge(self) -> None:
        self.ask(self.client.load.stop())
        if self.tables is not None:
            self.tables.at_the_end(self.master_look)
            self.totals.counts["locks of queues answered"] += self.tables.locks.answered
            self.totals.counts["facts"] += self.tables.facts.answers
        if self.dealing is not None:
            self.dealing.settle()
        if self.delaying is not None:
            self.delaying.settle()
        self.retention.stop()

        def caught_up() -> bool:
            master = self.master()
            assert master is not None
            stores = [master.store, *(slave.store for _, slave in self.slaves())]
            return (
                len({end for store in stores for end in (store.max_offset(), store.dispatched_offset())}) == 1
            )

        self.world.run_until(caught_up, HEAL_LIMIT_MS)
        self.watch()
        if self.dealing is not None:
            self.judge_deals(self.dealing)
        if self.delaying is not None:
            self.judge_delays(self.delaying)
        found = self.read_everything()
        verdict = judge(self.client.load.attempts, [*self.deleted(), *found])
        faults = [fault for fault in verdict.faults if not (self.kind.goes_on and fault in verdict.lost)]
        if faults:
            raise Violation("P4", f"{len(faults)} broken promises, first: {faults[0]}")

    def judge_deals(self, dealing: PairDealing) -> None:
        """Raises Violation."""
        found = self.read_settled(lambda: self.client.read_messages(DEALS))
        master = self.master()
        assert master is not None
        log, begins = self.check.histories[-1], master.store.min_offset()
        dealing.judge(log, begins, master.store.segment_size_bytes, found)
        self.totals.counts["transactions"] += len(dealing.dealers.deals)
        self.totals.counts["commits read"] += dealing.read

    def judge_delays(self, delaying: PairDelaying) -> None:
        """Raises Violation."""
        found = self.read_settled(lambda: self.client.read_messages(LATER))
        master = self.master()
        assert master is not None
        log, begins = self.check.histories[-1], master.store.min_offset()
        again = delaying.judge(log, begins, master.store.segment_size_bytes, found)
        self.totals.counts["delayed"] += delaying.work.acknowledged()
        self.totals.counts["delivered again"] += again

    def read_everything(self) -> list[Found]:
        return self.read_settled(self.client.read_everything)

    def read_settled(self, read: Callable[[], Coroutine[Any, Any, list[T]]]) -> list[T]:
        """Read while retention deletes nothing, because a message that is deleted while it is read is no finding."""
        master = self.master()
        assert master is not None
        while True:
            begins = master.store.min_offset()
            try:
                found = self.ask(read())
            except PullFailed:
                if master.store.min_offset() == begins:
                    raise
                continue
            if master.store.min_offset() == begins:
                return found

    def deleted(self) -> list[Found]:
        """The readable messages that were deleted with old segments, from the check's copy of the log."""
        master = self.master()
        assert master is not None
        log, begins = self.check.histories[-1], master.store.min_offset()
        gone = deleted_messages(log, begins, master.store.segment_size_bytes)
        return [found_in_queue(message) for message in gone if message.topic == members.TOPIC]

    def ask(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.world.run_on(self.client_node, coroutine, limit_ms=READ_LIMIT_MS)

    def count(self) -> None:
        self.totals.faults.update(self.faults.done)
        self.totals.simulated_ms += self.world.now_ms
        self.totals.counts.update(
            {
                "seeds": 1,
                "seeds with a SYNC_MASTER": int(self.kind.sync),
                "acknowledged": self.acknowledged(),
                "attempts": len(self.client.load.attempts),
                "histories": len(self.check.histories),
                "beginnings moved up": self.retention.deleted,
                "slaves left behind": self.retention.left_behind,
            }
        )


def broker_of(
    host: str, broker_id: int, kind: members.PairsKind, retention: dict[str, object], runtime: Any
) -> BrokerApp:
    return members.broker_app(host, broker_id, runtime, kind, retention)


def features() -> frozenset[str]:
    """The names of all features that a seed may play."""
    return frozenset(FEATURES)


def run_seed(seed: int, bug: str | None, totals: Totals, asked: Asked = NOTHING_ASKED) -> None:
    """One run, with `bug` planted if there is one. Raises FeatureError, and what the run finds."""
    with planted(bug):
        world = PairWorld(seed, totals, asked)
        with named(world.kind.played):
            world.run()


def main() -> int:
    return seeds.main(__doc__, BUGS, 20, run_seed)


if __name__ == "__main__":
    sys.exit(main())
