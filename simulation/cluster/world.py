"""Three controllers, three brokers, a name server and a client in one simulated world: load, faults, every invariant.

Invariant: a run follows from its seed alone. Faults stop in the last part of a run. Then the cluster must become whole, all
logs must become equal, and the answers to the client must match the messages that can be read.

    python -m simulation.cluster.world --seeds 300 --first 1
    python -m simulation.cluster.world --seeds 300 --bug swap-instead-of-union    (succeeds when a seed finds it)
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import cache, partial
from unittest.mock import patch

from broker.app import BrokerApp
from controller.masterless import Unelected
from controller.state import SyncState
from controller.statemachine import ReplicasStateMachine
from dledger.node.node import DLedgerNode
from dledger.raft.raft import Raft
from ha.epochs import KeptEpochs
from ha.errors import HAError
from ha.master.mastership import Mastership
from localcluster.history import SendAttempt
from messagestore.dispatch import bulkentries as bulk_entries
from messagestore.errors import StoreError
from messagestore.log import commitlog
from messagestore.store.messagestore import MessageStore
from mqclient.message import StoredMessage
from mqruntime.runtime import Runtime
from mqruntime.segments import RESERVE_STEP_BYTES
from nativepath import presence
from simulation.checkers.appends import Appends
from simulation.checkers.blocks import log_has_blocks
from simulation.checkers.check import ClusterCheck
from simulation.checkers.clientjudge import ClientJudge
from simulation.checkers.delaycheck import all_delivered
from simulation.checkers.factcheck import FactCheck
from simulation.checkers.loggedbugs import LoggedBugs
from simulation.checkers.seals import all_sealed
from simulation.checkers.service import Service
from simulation.checkers.shadow import deleted_messages
from simulation.checkers.votes import VotesOnDisk
from simulation.cluster import members
from simulation.cluster.bounds import ClusterBounds
from simulation.cluster.looks import broker_on
from simulation.cluster.machines import Machines
from simulation.cluster.members import FAST, SLAVE_SYNC_MS, ClientApp, Timers
from simulation.cluster.pacing import Pacing
from simulation.cluster.retention import Retention
from simulation.cluster.shape import FEATURES, Shape
from simulation.faults.badsectors import BadSectors
from simulation.faults.copies import Copies
from simulation.faults.crashes import AllLosePower
from simulation.faults.fault import Fault
from simulation.faults.faults import Faults
from simulation.faults.floods import Floods
from simulation.faults.foreignepochs import ForeignEpochFile
from simulation.faults.forgers import Forger
from simulation.faults.fulldisks import FullDisk
from simulation.faults.handovers import CleanHandOvers, HandOverInTrouble
from simulation.faults.hindrances import GreatBurst
from simulation.faults.hostileframes import HostileFrames
from simulation.faults.hostiletables import HostileTables
from simulation.faults.learnerfaults import LearnerTrouble
from simulation.faults.lostforgood import LostForGood
from simulation.faults.masterfirst import MasterFirst
from simulation.faults.olddisks import OldDisks
from simulation.faults.operators import Operator
from simulation.faults.resyncs import Resyncs
from simulation.faults.rot import CorruptSegment
from simulation.faults.rottenqueues import CorruptQueueFiles
from simulation.faults.rottentimes import CorruptStoreTime
from simulation.faults.sickdisks import SickDisks
from simulation.kernel import seeds
from simulation.kernel.features import NOTHING_ASKED, Asked, named
from simulation.kernel.garbage import seldom_collected
from simulation.kernel.inode import PAGE_BYTES
from simulation.kernel.node import Node
from simulation.kernel.totals import Totals
from simulation.kernel.violation import Violation
from simulation.kernel.world import World
from simulation.mutants.cluster import BUGS, planted
from simulation.raft.member import watched
from simulation.workloads import choosers
from simulation.workloads.accessusers import AccessUsers
from simulation.workloads.accounts import OPERATOR
from simulation.workloads.choosers import Choosers
from simulation.workloads.committers import Committers
from simulation.workloads.dealers import SETTINGS
from simulation.workloads.groupmembers import GroupMembers
from simulation.workloads.handlers import Handlers
from simulation.workloads.orderedreaders import OrderedReaders
from simulation.workloads.transactors import Transactors

RUN_MS = 100_000
HEAL_LIMIT_MS = 60_000
DELIVERY_LIMIT_MS = 20_000
RUN_MS_MIN = 120_000
CHECK_MS = 50
WHOLE_MS = 200
COPIED_MS = 2 * SLAVE_SYNC_MS
"""Slaves have their master's offsets within this time."""
LULL_MS = 5_000
"""The length of a lull, which is longer than the limit of `service`."""
FACTS_MIN = 10
ACKNOWLEDGED_MIN = 200
DELAYED_MIN = 5
ROLE_CHANGES_MIN = 2
FAULT_KINDS_MIN = 3


class ClusterWorld:
    """The world of one seed. Timers, segment size, faults and load are all drawn from the seed."""

    def __init__(self, seed: int, totals: Totals | None = None, asked: Asked = NOTHING_ASKED) -> None:
        """Raises FeatureError."""
        self.world = World(seed)
        self.random = random.Random(f"{seed}/cluster")
        self.totals = totals or Totals()
        self.check = ClusterCheck()
        self.errors = LoggedBugs()
        self.look_at_us = 0
        self.timers = self.random.choice((FAST, FAST, Timers()))
        self.raft_slowness = self.random.choice((1, 2, 2))
        self.segment_bytes = self.random.choice((16_384, 65_536, 1 << 20))
        self.shape = Shape.of(seed, asked)
        self.contract = self.shape.contract
        self.in_bulk = self.shape.has("bulk")
        self.appends = Appends(elected_incomplete=self.check.grants.elected_incomplete)
        self.check.members_min = self.contract.members_min
        self.check.grants.acks_wait = self.contract.waits
        self.check.holders.on_disk = self.contract.on_disk
        self.check.grants.unclean_allowed = self.shape.has("unclean")
        self.operator: Operator | None = None
        self.machines = Machines(
            self.world,
            self.random,
            self.check,
            has_learner=self.shape.has("learner"),
            credentials=OPERATOR if self.shape.has("access") else None,
        )
        self.check.grants.is_incomplete = self.machines.elected_though_incomplete
        self.check.grants.may_have_lost_memory = self.machines.may_have_lost_memory
        self.fact_check = FactCheck(self.machines.facts)
        self.bounds = ClusterBounds(self.machines, self.deals, self.user_names)
        self.lulls = random.Random(f"{seed}/lulls")
        self.service = Service(self.machines, self.timers, self.contract.members_min)
        self.client = ClientJudge(self.world, self.machines.client)
        self.votes = VotesOnDisk({f"n{i}": node for i, node in enumerate(self.machines.controllers)})
        self.retention = Retention(self.machines, on=self.shape.has("retention"))
        self.pacing = Pacing(self.machines, on=self.shape.has("catch-up limits"))
        self.resyncs: Resyncs | None = None
        self.readers: OrderedReaders | None = None
        self.transactors: Transactors | None = None
        self.choosers: Choosers | None = None
        self.handlers: Handlers | None = None
        self.group_members: GroupMembers | None = None
        self.committers: Committers | None = None
        self.users: AccessUsers | None = None
        self.copies: list[Node] = []
        self.lost_for_good = LostForGood(self.machines)
        self.faults = Faults(self.machines, asked, *self.besides())
        self.features = frozenset([*FEATURES, *self.faults.drawn_from])
        asked.check(self.features)
        self.played = self.shape.played | self.faults.drawn
        self.hand_overs = CleanHandOvers(self.machines, seed)
        self.send_interval_ms = self.random.choice((250, 300, 400))
        self.pace_ms = self.random.choice((2_000, 5_000, 9_000))

    def run(self) -> None:
        """Raises Violation, or what the world raises for a bug."""
        paging = patch.object(commitlog, "RESERVE_STEP_BYTES", self.reserve_step_bytes)
        watching = patch.object(DLedgerNode, "core_class", watched(Raft, self.votes))
        granting = patch.object(ReplicasStateMachine, "apply", self.check.grants.noting())
        holding = patch.object(Mastership, "acked", self.check.holders.noting(self.machines.brokers))
        reporting = patch.object(Unelected, "log", self.lost_for_good.noting())
        logged = self.errors.attached()
        with (
            paging,
            watching,
            granting,
            holding,
            reporting,
            self.retention.watched(),
            self.pacing.watched(),
            self.appended(),
            self.bulk(),
            logged,
            self.world as world,
        ):
            world.after_each_step(self.each_step)
            self.start_all()
            world.run_until(lambda: self.machines.master() is not None, 10_000)
            self.machines.client.start(
                lambda runtime: ClientApp(
                    runtime,
                    self.send_interval_ms,
                    self.client.notes,
                    self.machines.facts,
                    self.machines.credentials,
                )
            )
            self.under_faults()
            self.heal()
            self.judge()
        self.count()

    # Members

    def start_all(self) -> None:
        self.machines.namesrv.start(partial(members.namesrv_app, access=self.shape.access))
        for node in self.machines.servers:
            self.start(node)

    def start(self, node: Node) -> None:
        if self.machines.damaged.cured(node):
            node.failure = None
        typed = (OSError, StoreError, HAError) if node.disk.failures else OSError
        if isinstance(node.failure, Exception) and not isinstance(node.failure, typed):
            raise Violation("V2", f"{node.name} ended by itself: {node.failure!r}")
        if node in self.machines.controllers:
            number = self.machines.controllers.index(node)
            node.start(
                partial(
                    members.controller_app,
                    number,
                    raft_slowness=self.raft_slowness,
                    unclean=self.shape.has("unclean"),
                    access=self.shape.access,
                )
            )
        else:
            node.start(self.broker_at(node.host))

    def broker_at(self, host: str) -> Callable[[Runtime], BrokerApp]:
        return partial(
            members.broker_app,
            host,
            timers=self.timers,
            segment_bytes=self.segment_bytes,
            contract=self.contract,
            besides=self.additional_settings(),
        )

    def additional_settings(self) -> dict[str, object]:
        transacting = {} if self.transactors is None else SETTINGS
        choosing = {} if self.choosers is None else choosers.SETTINGS
        besides = self.retention.settings() | self.pacing.settings() | self.shape.settings()
        guarding = {} if self.users is None else self.shape.access | self.users.settings()
        return besides | transacting | choosing | guarding

    @contextmanager
    def appended(self) -> Iterator[None]:
        """Note records when they are written, if elections may lose them."""
        if not self.shape.may_lose:
            yield
            return
        appending = patch.object(MessageStore, "append", self.appends.noting(self.machines.brokers))
        plainly = patch.object(MessageStore, "append_plain", self.appends.noting_plain(self.machines.brokers))
        with appending, plainly, patch.object(KeptEpochs, "store", self.appends.beginning()):
            yield

    def bulk(self) -> AbstractContextManager[object]:
        """Make stores list records in bulk, however few there are, and without the compiled module."""
        if not self.in_bulk:
            return nullcontext()
        ways = ExitStack()
        ways.enter_context(patch.multiple(bulk_entries, RECORDS_MIN=1, QUEUE_ROWS_MIN=0))
        ways.enter_context(patch.object(presence, "native", None))
        return ways

    @property
    def reserve_step_bytes(self) -> int:
        return PAGE_BYTES if self.shape.has("blocks in steps") else RESERVE_STEP_BYTES

    def besides(self) -> Iterator[Fault]:
        """The additional faults of this seed's shape."""
        yield FullDisk(self.machines, on=self.shape.has("full disk"))
        yield ForeignEpochFile(self.machines, on=self.shape.has("foreign epoch file"))
        yield CorruptSegment(self.machines, on=self.shape.has("rotten segment"))
        yield HandOverInTrouble(self.machines, on=self.shape.has("hand-over in trouble"))
        yield self.retention
        yield self.lost_for_good
        if self.shape.has("rotten store times"):
            yield CorruptStoreTime(self.machines, kept_ms=self.retention.kept_ms)
        if self.shape.has("catch-up limits"):
            yield self.pacing
        if not self.contract.waits:
            yield MasterFirst(self.machines)
        if self.contract.on_disk:
            yield AllLosePower(self.machines)
        if self.shape.has("learner"):
            yield LearnerTrouble(self.machines)
        if self.shape.has("harsh"):
            yield HostileFrames(self.machines, self.world.node("hostile", members.HOSTILE_HOST))
            yield GreatBurst(self.machines)
        if self.shape.has("copies"):
            node = self.world.node("copy", members.COPY_HOST)
            self.copies.append(node)
            yield Copies(self.machines, node, self.broker_at)
        if self.shape.has("old disks"):
            yield OldDisks(self.machines)
        if self.shape.has("strangers"):
            yield HostileTables(self.machines, self.world.node("strangers", members.HOSTILE_TABLES_HOST))
        if self.shape.has("forger"):
            yield Forger(self.machines, self.world.node("forger", members.FORGER_HOST))
        if self.shape.has("bad sectors"):
            yield BadSectors(self.machines)
        if self.shape.has("lost queues"):
            yield CorruptQueueFiles(self.machines)
        if self.shape.has("resync"):
            self.resyncs = Resyncs(self.machines, self.world.node("resyncs", members.RESYNC_HOST))
            yield self.resyncs
        if self.shape.has("ordered readers"):
            node = self.world.node("readers", members.READERS_HOST)
            self.readers = OrderedReaders(self.machines, node, is_hasty=self.shape.has("hasty readers"))
            yield self.readers
        if self.shape.has("transactions"):
            node = self.world.node("transactors", members.TRANSACTIONS_HOST)
            self.transactors = Transactors(
                self.machines,
                node,
                kept_ms=self.retention.kept_ms,
                some_abandon=self.shape.has("abandoned transactions"),
            )
            yield self.transactors
        if self.shape.has("filters"):
            node = self.world.node("choosers", members.CHOOSERS_HOST)
            self.choosers = Choosers(self.machines, node)
            yield self.choosers
        if self.shape.has("handlers"):
            self.handlers = Handlers(self.machines, self.world.node("handlers", members.HANDLERS_HOST))
            yield self.handlers
        if self.shape.has("group members"):
            nodes = [self.world.node(f"member-{host}", host) for host in members.MEMBER_HOSTS]
            self.group_members = GroupMembers(self.machines, nodes)
            yield self.group_members
        if self.shape.has("committers"):
            self.committers = Committers(
                self.machines, self.world.node("committers", members.COMMITTERS_HOST)
            )
            yield self.committers
        if self.shape.has("access"):
            self.users = AccessUsers(self.machines, self.copies)
            yield self.users
        if self.shape.has("operator"):
            self.operator = Operator(self.machines, self.world.node("operator", members.OPERATOR_HOST))
            yield self.operator

    def sync_states(self) -> list[SyncState]:
        """The state as each running controller applied it."""
        return [look.state for look in self.machines.controller_looks() if look.state is not None]

    # The run

    def each_step(self) -> None:
        """Each CHECK_MS of virtual time, check every invariant and restart nodes that are due."""
        now_us = self.world.loop.now_us
        if now_us >= self.look_at_us:
            self.look_at_us = now_us + 1000 * CHECK_MS
            self.watch()
            self.faults.next_steps()
            for node in self.machines.servers:
                if self.faults.due_for_restart(node):
                    self.start(node)

    def watch(self) -> None:
        looks = self.machines.broker_looks()
        self.check.look(self.sync_states(), looks)
        if not self.check.forked:
            self.fact_check.look(looks)
        for node in self.machines.brokers:
            log_has_blocks(node)
        self.votes.look_at_all()
        self.bounds.look()
        self.service.look(looks)
        if not self.check.forked:
            self.client.look()
        if self.errors.bugs:
            raise Violation("bug", self.errors.bugs[0])

    def under_faults(self) -> None:
        end_ms = self.world.now_ms + RUN_MS
        lull_ms = end_ms - RUN_MS // 2 if self.shape.has("lulls") else end_ms
        self.faults.plan()
        while self.world.now_ms < end_ms:
            self.world.run_for_ms(self.random.randint(self.pace_ms // 3, self.pace_ms))
            self.faults.strike()
            if self.random.random() < 0.4:
                self.world.network.heal()
            if lull_ms <= self.world.now_ms < end_ms:
                began_ms = self.world.now_ms
                self.lull()
                end_ms += self.world.now_ms - began_ms
                lull_ms = end_ms

    def lull(self) -> None:
        """A period in which one broker and one controller are down, and no other fault begins, except independent ones. It is
        long enough for a master to be elected and to serve, which `service` checks."""
        machines, lasts_ms = self.machines, self.service.limit_ms + LULL_MS
        self.world.network.heal()
        self.world.network.usual_delays()
        acting = [machines.master(), machines.leader()]
        for leading, nodes in zip(acting, (machines.brokers, machines.controllers), strict=True):
            node = leading if leading is not None and self.lulls.random() < 0.5 else self.lulls.choice(nodes)
            if node.running:
                machines.kill(node)
                machines.restart_at_ms[node.name] = self.world.now_ms + lasts_ms
        self.world.run_for_ms(lasts_ms)
        self.totals.counts["lulls"] += 1

    def heal(self) -> None:
        """End all faults, and check that the cluster becomes whole within the limit. The master then changes twice more, once
        without any client noticing it."""
        self.faults.heal()
        self.become_whole()
        self.hand_overs.hold(self.client.app, self.whole)
        self.become_whole()
        while (
            len(self.check.masters) < 1 + ROLE_CHANGES_MIN
            or self.world.now_ms < RUN_MS_MIN
            or self.client.acknowledged() < ACKNOWLEDGED_MIN
            or self.machines.facts.answers < FACTS_MIN
            or self.client.app.delayed.acknowledged() < DELAYED_MIN
        ):
            self.world.run_for_ms(3000)
            if len(self.check.masters) < 1 + ROLE_CHANGES_MIN:
                self.faults.strike(self.faults.kill_master)
                self.faults.heal()
            self.become_whole()
        if self.shape.has("harsh"):
            SickDisks(self.machines, self.become_whole).run()
        if self.shape.has("floods"):
            Floods(self.machines, self.world.node("floods", members.FLOODS_HOST), self.become_whole).run()

    def become_whole(self) -> None:
        deadline_ms = self.world.now_ms + HEAL_LIMIT_MS
        while not self.whole():
            if self.world.now_ms > deadline_ms:
                raise Violation("V2", f"not whole {HEAL_LIMIT_MS} ms after the last fault: {self.shown()}")
            self.world.run_for_ms(WHOLE_MS)
        if self.check.forked:
            self.client.run(self.client.app.create_lost_topics())

    def deals(self) -> int:
        """How many transactions began."""
        return 0 if self.transactors is None else len(self.transactors.dealers.deals)

    def user_names(self) -> int:
        """How many users were ever requested."""
        return 0 if self.users is None else self.users.clients.names

    def whole(self) -> bool:
        machines, looks = self.machines, self.machines.broker_looks()
        brokers = [look for look in looks if not look.is_learner]
        if (
            machines.damaged.flipped
            or len(looks) < len(machines.brokers) + len(machines.learners)
            or machines.leader() is None
            or machines.master() is None
        ):
            return False
        return all(broker.master_epoch and broker.broker_id in self.check.members for broker in brokers)

    def judge(self) -> None:
        """Stop the client, wait until logs are equal, and compare the answers to the client with the messages that are
        there."""
        self.client.run(self.client.app.stop_sending())
        if self.transactors is not None:
            self.transactors.settle()
        if self.choosers is not None:
            self.choosers.stop()
        if self.committers is not None:
            self.committers.stop()
        if self.handlers is not None:
            self.handlers.stop()
        if self.group_members is not None:
            self.group_members.stop(self.confirmed_messages)
            self.totals.counts["handled by members"] += self.group_members.handled
        if self.users is not None:
            self.users.stop()
        self.retention.stop()
        machines = self.machines

        def delivered() -> bool:
            node = machines.master()
            master = broker_on(node) if node is not None else None
            return master is not None and all_delivered(master)

        def caught_up() -> bool:
            brokers = machines.broker_looks()
            stores = [broker.store for broker in brokers]
            ends = {end for store in stores for end in (store.max_offset(), store.confirm_offset())}
            begins = max((store.min_offset() for store in stores), default=0)
            return len(ends) == 1 and len({broker.history.truncate_prefix(begins) for broker in brokers}) == 1

        self.world.run_until(delivered, DELIVERY_LIMIT_MS)
        self.world.run_until(caught_up, HEAL_LIMIT_MS)
        self.watch()
        brokers = machines.broker_looks()
        self.check.at_the_end(brokers)
        if self.shape.has("record CRCs") and not self.check.forked:
            sealed = all_sealed(self.check.confirmed, brokers[0].store.segment_size_bytes)
            self.totals.counts["records with their own CRC"] += sealed
        if self.transactors is not None:
            self.transactors.at_the_end(self.check.confirmed, brokers[0].store.segment_size_bytes)
            self.totals.counts["transactions"] += self.deals()
        self.world.run_for_ms(COPIED_MS)
        self.bounds.at_the_end()
        begins = max(broker.store.min_offset() for broker in brokers)
        if not self.check.forked:
            self.fact_check.at_the_end(machines.broker_looks())
        if self.committers is not None:
            self.committers.at_the_end(machines.broker_looks())
            self.totals.counts["commits answered"] += self.committers.answers
        if self.users is not None:
            self.users.at_the_end()
            self.totals.counts.update(self.users.clients.counts())
        if self.operator is not None:
            self.operator.at_the_end()
        if self.resyncs is not None:
            self.resyncs.at_the_end()
        if self.choosers is not None:
            ever = deleted_messages(
                self.check.confirmed, len(self.check.confirmed), brokers[0].store.segment_size_bytes
            )
            self.choosers.at_the_end(ever)
        if self.readers is not None:
            self.readers.at_the_end()
            self.totals.counts["locks of queues answered"] += self.readers.answered
        if self.handlers is not None:
            self.totals.counts["handled in order"] += self.handlers.at_the_end()
        again = self.client.judge(
            brokers[0],
            self.check.confirmed,
            begins,
            machines.spread_ms,
            self.promised,
            readers_keep=not self.check.forked,
        )
        self.totals.counts["delivered again"] += again

    def confirmed_messages(self) -> list[StoredMessage]:
        """All messages that were ever confirmed."""
        confirmed = self.check.confirmed
        return list(deleted_messages(confirmed, len(confirmed), self.segment_bytes))

    def promised(self, topic: str, attempts: list[SendAttempt]) -> list[SendAttempt]:
        """The client's attempts, as the contract judges them."""
        if not (self.check.forked or not self.contract.waits):
            return attempts
        kept = self.appends.promised(topic, attempts, self.check.grants.master_of)
        self.totals.counts["acknowledged, may be gone"] += sum(
            one.outcome is not other.outcome for one, other in zip(attempts, kept, strict=True)
        )
        return kept

    def shown(self) -> str:
        running = [node.name for node in self.machines.servers if node.running]
        roles = [
            (look.name, look.broker_id, look.role.name, look.master_epoch, look.store.max_offset())
            for look in self.machines.broker_looks()
        ]
        unrepaired = f"; never repaired: {found}" if (found := self.machines.damaged.flipped) else ""
        return f"running {running}; controllers: {self.sync_states()}; brokers: {roles}{unrepaired}"

    def count(self) -> None:
        acknowledged, role_changes = self.client.acknowledged(), len(self.check.masters) - 1
        assert acknowledged >= ACKNOWLEDGED_MIN and role_changes >= ROLE_CHANGES_MIN, "heal waits for both"
        if len(self.machines.done) < FAULT_KINDS_MIN:
            raise Violation("V2", f"only {len(self.machines.done)} kinds of fault happened")
        self.totals.faults.update(self.machines.done)
        self.totals.simulated_ms += self.world.now_ms
        self.totals.counts.update(
            {
                "seeds": 1,
                f"seeds of contract {self.contract.name}": 1,
                "seeds with records in bulk": int(self.in_bulk),
                "role changes": role_changes,
                "acknowledged": acknowledged,
                "facts": self.machines.facts.answers,
                "attempts": len(self.client.app.load.attempts),
                "delayed or handed back": self.client.app.delayed.acknowledged(),
                "simulated seconds": self.world.now_ms // 1000,
                "beginnings moved up": self.retention.deleted,
            }
        )


@cache
def features() -> frozenset[str]:
    """The names of all features that a seed may play."""
    cluster = ClusterWorld(0)
    with cluster.world:
        return cluster.features


def run_seed(seed: int, bug: str | None, totals: Totals, asked: Asked = NOTHING_ASKED) -> None:
    """One run, with `bug` planted if there is one. Raises FeatureError, and what the run finds."""
    with seldom_collected(), planted(bug):
        world = ClusterWorld(seed, totals, asked)
        with named(world.played):
            world.run()


def main() -> int:
    return seeds.main(__doc__, BUGS, 20, run_seed)


if __name__ == "__main__":
    sys.exit(main())
