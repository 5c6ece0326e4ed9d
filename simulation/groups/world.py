"""A Raft-mode broker set, a name server and a client in one simulated world: load, faults, every invariant.

Invariant: a run follows from its seed alone. Faults stop in the last part of a run. Then the set must accept sends, all members
must catch up, and the readable messages must be the acknowledged ones.

    python -m simulation.groups.world --seeds 100 --first 1
    python -m simulation.groups.world --seeds 100 --bug waiting-sends-kept    (succeeds when a seed finds it)
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar
from unittest.mock import patch

from broker.app import BrokerApp
from broker.replication.pending import PendingSends, Waiting
from broker.role.membership import ReplicaRole
from dledger.ledger import BACK_OFF_MS_MAX
from dledger.raft.actions import Role as RaftRole
from localcluster.history import Found, MessagePlace, SendOutcome, judge
from messagestore.dispatch import dispatchloop
from mqclient.errors import PullFailed
from mqclient.route import MessageQueue
from namesrv.server import NamesrvApp
from raftstore import member as raftmember
from remoting.codes import ResponseCode
from simulation.checkers.accesscheck import Leading
from simulation.checkers.clientjudge import found_in_queue
from simulation.checkers.loggedbugs import LoggedBugs
from simulation.checkers.service import runs_well
from simulation.cluster.looks import BrokerLook
from simulation.cluster.members import ReaderNotes
from simulation.faults.forgers import RoleForger, is_paused
from simulation.groups import members
from simulation.groups.bounds import GroupBounds
from simulation.groups.check import GroupCheck
from simulation.groups.clients import QUEUES_OF, SINGLE, ClientApp, topic_made
from simulation.groups.copied import COPIES, Copied
from simulation.groups.copied import HOST as COPIER_HOST
from simulation.groups.copied import NAMES as COPIED_NAMES
from simulation.groups.delivered import all_delivered, judge_delayed_ones, messages_in
from simulation.groups.expiring import Expiring
from simulation.groups.faults import GroupFaults
from simulation.groups.halvespast import HalvesPast
from simulation.groups.handedon import HandedOn
from simulation.groups.members import BROKER_PORT, BROKER_SET, FEATURES, HOSTS, Look, broker_on, kind_of
from simulation.groups.mixed import BEFORE, Mixed
from simulation.groups.olddisks import OldDisks
from simulation.groups.retention import GroupRetention
from simulation.groups.rot import BitFlips
from simulation.kernel import seeds
from simulation.kernel.features import NOTHING_ASKED, Asked, named
from simulation.kernel.garbage import seldom_collected
from simulation.kernel.node import Node, SimulatedClock
from simulation.kernel.totals import Totals
from simulation.kernel.violation import Violation
from simulation.kernel.world import World
from simulation.mutants.groups import BUGS, planted
from simulation.workloads.accessclients import AccessClients
from simulation.workloads.dealers import DEALS, Dealers
from simulation.workloads.tableclients import TableClients, look_at

T = TypeVar("T")

RUN_MS = 40_000
LONG_RUN_MS = 100_000
"""A run of this length may see the end of a lease."""
START_LIMIT_MS = 20_000
HEAL_LIMIT_MS = 40_000
DELIVERY_LIMIT_MS = 30_000
REGISTERED_LIMIT_MS = 10_000
"""Limit until a master is registered. It is shorter than the interval at which brokers register without a cause."""
LOOK_MS = 50
GATHER_S = 0.03
"""In sets whose followers are overtaken, so that records wait for dispatch when another member's log comes."""
PACE_MS = (400, 2_500)
SEND_INTERVALS_MS = (40, 90, 150)
ACKNOWLEDGED_MIN = 50
READ_LIMIT_MS = 90_000
COPIED_MS = 10_000
"""Within this time slaves have their master's tables, and waiting requests have ended."""
SLOW_US = 5_000
"""A disk whose syncs take longer is slow."""
CLOCKS_MS = 40_000
"""The largest difference of clocks."""


class GroupWorld:
    """The world of one seed. Its kind, faults and load are all drawn from the seed."""

    def __init__(self, seed: int, totals: Totals | None = None, asked: Asked = NOTHING_ASKED) -> None:
        """Raises FeatureError."""
        asked.check(FEATURES)
        self.world = World(seed)
        self.random = random.Random(f"{seed}/groups")
        self.kind = kind_of(seed, asked)
        self.totals = totals or Totals()
        self.errors = LoggedBugs()
        self.namesrv = self.world.node("namesrv", members.NAMESRV_HOST)
        hosts = HOSTS[: self.kind.brokers]
        self.nodes = [self.world.node(f"broker-{number}", host) for number, host in enumerate(hosts)]
        self.client_node = self.world.node("client", members.CLIENT_HOST)
        self.check = GroupCheck(self.kind, self.nodes)
        self.retention = GroupRetention(self.kind.kept_s, self.check.committed)
        self.halves_past = HalvesPast(self.check.committed)
        self.mixed = self.made_mixed() if self.kind.mixed else None
        self.notes = ReaderNotes()
        self.faults = GroupFaults(
            self.world,
            self.nodes,
            leader=self.leader,
            caught_up=self.caught_up,
            depose=self.depose,
            overtakes=self.kind.overtaken,
        )
        self.bit_flips = (Expiring if self.kind.expires else BitFlips)(
            self.world, self.nodes,
            entries=lambda: self.check.committed.entries, looks=self.looks, 
            caught_up=lambda: self.caught_up(None), flipped=self.check.flipped, leader=self.leader, lags=self.kind.lags,
            segment_bytes=self.kind.segment_bytes, any_byte=self.kind.lags or self.kind.expires,
            end=lambda node, power_cut: self.faults.end(node, power_cut=power_cut),
        )  # fmt: skip
        self.old_disks = self.made_old_disks() if self.kind.sets_back else None
        self.tables = self.table_clients() if self.kind.has_facts else None
        self.users = self.access_clients() if self.kind.is_guarded else None
        self.handed_on = self.made_handed_on() if self.kind.hands_on else None
        self.copied = self.made_copied() if self.kind.copies else None
        self.bounds = GroupBounds(
            self.world,
            [*self.nodes, self.namesrv],
            self.names_asked_for,
            deals=lambda: len(self.dealers.deals) if self.dealers else COPIES * self.kind.copies,
            has_deals=self.kind.has_deals or self.kind.copies,
            users=lambda: self.users.names if self.users else 0,
        )
        self.dealers = self.made_dealers() if self.kind.has_deals else None
        self.forger = self.made_forger() if self.kind.has_forger else None
        self.known_looks: dict[str, Look] = {}
        self.looked_us = 0

    def made_forger(self) -> RoleForger:
        def known(target: Node) -> tuple[dict[int, str], int, int] | None:
            looks = self.looks()
            if target.name not in [look.name for look in looks] or is_paused(target):
                return None
            ids = {look.app.membership.broker_id or 0: look.app.membership.address for look in looks}
            term = max(look.raft.term for look in looks)
            return ids, term, term

        node = self.world.node("forger", members.FORGER_HOST)
        return RoleForger(self.world, node, self.nodes, known, self.faults.done)

    def made_mixed(self) -> Mixed:
        node = self.world.node("client before", members.FORMER_CLIENT_HOST)
        return Mixed(self.world, self.kind, self.nodes, self.check.committed, node)

    def made_copied(self) -> Copied:
        return Copied(
            self.bit_flips,
            self.check.committed,
            self.world.node("copier", COPIER_HOST),
            master_address=self.master_address,
            start=lambda node: node.start(partial(broker_of, self.nodes.index(node), self.kind)),
            restart_at_ms=self.faults.restart_at_ms,
            credentials=self.kind.credentials,
        )

    def made_handed_on(self) -> HandedOn:
        def end(node: Node, back_ms: int) -> None:
            self.faults.end(node)
            self.faults.restart_at_ms[node.name] = self.world.now_ms + back_ms

        return HandedOn(
            self.world, self.nodes,
            master=self.leader, master_address=self.master_address, end=end,
            caught_up=lambda: self.serves() and self.caught_up(None), done=self.faults.done,
            credentials=self.kind.credentials,
        )  # fmt: skip

    def names_asked_for(self) -> int:
        handed_on = len(self.handed_on.facts.all) if self.handed_on else 0
        copied = COPIED_NAMES * self.kind.copies
        return (self.tables.names if self.tables else 0) + handed_on + copied + (self.mixed is not None)

    def made_dealers(self) -> Dealers:
        node = self.world.node("dealers", members.DEALERS_HOST)
        return Dealers(
            node,
            self.nodes,
            seed=self.world.seed,
            namesrv=members.NAMESRV,
            master=self.leader,
            kill=self.faults.end,
            create_topic=lambda: topic_made(
                DEALS, self.master_address, SimulatedClock(node), self.kind.credentials
            ),
            done=self.faults.done,
            keeps=self.kind.kept_s is None,
            credentials=self.kind.credentials,
        )

    def run(self) -> None:
        """Raises Violation, or what the world raises for a bug."""
        tapped = patch.object(PendingSends, "_answer", self.noting())
        small = patch.object(raftmember, "ledger_settings", members.small_ledger(self.kind))
        gathers = patch.object(
            dispatchloop, "GATHER_S", GATHER_S if self.kind.overtaken else dispatchloop.GATHER_S
        )
        with seldom_collected(), tapped, small, gathers, self.errors.attached(), self.world as world:
            self.namesrv.start(partial(members.namesrv_app, access=self.kind.access))
            if self.mixed is not None:
                self.mixed.prepare()
                self.retention.known.add(self.mixed.end)
            world.after_each_step(self.each_step)
            if self.mixed is not None:
                self.mixed.put_right(self.looks)
            world.run_until(self.serves, START_LIMIT_MS)
            interval_ms = self.random.choice(SEND_INTERVALS_MS)
            self.client_node.start(
                lambda runtime: ClientApp(
                    runtime, interval_ms, self.notes, self.master_address, self.kind.credentials
                )
            )
            world.run_until(self.client_is_ready, START_LIMIT_MS)
            end_ms = world.now_ms + (LONG_RUN_MS if self.tables else RUN_MS)
            while world.now_ms < end_ms:
                world.run_for_ms(self.random.randint(*PACE_MS))
                self.faults.strike()
                if self.random.random() < 0.4:
                    world.network.heal()
            self.heal()
            self.judge()
        self.count()

    def made_old_disks(self) -> OldDisks:
        return OldDisks(
            self.world,
            self.nodes,
            self.faults,
            leader=self.leader,
            is_whole=lambda: self.serves() and self.caught_up(None),
        )

    def table_clients(self) -> TableClients:
        return TableClients(
            self.world,
            [MessageQueue(SINGLE, BROKER_SET, number) for number in range(QUEUES_OF[SINGLE])],
            members.NAMESRV,
            master=self.leader,
            master_address=self.master_address,
            kill=self.faults.end,
            done=self.faults.done,
            credentials=self.kind.credentials,
        )

    def access_clients(self) -> AccessClients:
        def hand_over() -> None:
            leader = self.leader()
            if leader is not None:
                self.depose(leader)

        return AccessClients(
            self.world, lambda: self.nodes, BROKER_PORT, BROKER_SET,
            master=self.leader, calm=self.calm, kill=self.faults.end, hand_over=hand_over, done=self.faults.done,
        )  # fmt: skip

    def calm(self) -> Leading | None:
        """The leader, if nothing is broken."""
        if not (self.world.network.is_whole() and all(map(runs_well, self.nodes)) and self.serves()):
            return None
        if any(node.disk.sync_us[1] > SLOW_US for node in self.nodes) or not self.caught_up(None):
            return None
        look = next(look for look in self.looks() if look.leads)
        return Leading(look.name, look.key[1], look.raft.term)

    # Brokers

    def start(self, node: Node) -> None:
        full = node.name in self.faults.felt_full
        if node.failure is not None and not (full and isinstance(node.failure, Exception)):
            raise Violation("V2", f"{node.name} ended by itself: {node.failure!r}")
        if node.disk.capacity_bytes is None:
            self.faults.felt_full.discard(node.name)
        node.start(partial(broker_of, self.nodes.index(node), self.kind))

    def looks(self) -> list[Look]:
        looks = (self.look_on(number, node) for number, node in enumerate(self.nodes))
        return [look for look in looks if look is not None]

    def looks_at_stirred(self) -> list[Look]:
        """Looks at brokers that may have changed in the last turn."""
        looks = (self.look_on(number, node) for number, node in enumerate(self.nodes) if node.is_stirred)
        return [look for look in looks if look is not None]

    def look_on(self, number: int, node: Node) -> Look | None:
        known = self.known_looks.get(node.name)
        if known is None or known.app is not node.app or not known.is_open:
            known = broker_on(node, number)
        if known is not None:
            self.known_looks[node.name] = known
        return known

    def broker_looks(self) -> list[BrokerLook]:
        return [look_at(look.name, look.key[1], look.app) for look in self.looks()]

    def leader(self) -> Node | None:
        """The newest leader, if several believe to lead."""
        leading = [look for look in self.looks() if look.leads]
        newest = max(leading, key=lambda look: look.raft.term, default=None)
        return None if newest is None else self.nodes[newest.number]

    def master_address(self) -> str | None:
        leader = self.leader()
        return None if leader is None else f"{leader.host}:{BROKER_PORT}"

    def depose(self, node: Node) -> None:
        """An operator transfers the node's leadership to another member."""
        look = next((look for look in self.looks() if look.name == node.name), None)
        if look is not None and node.running:
            node.spawn(look.raft.transfer_leadership())

    def caught_up(self, down: Node | None) -> bool:
        """Whether all but `down` run and vote, one of them serves, and they show all that was ever committed."""
        looks = [look for look in self.looks() if down is None or look.name != down.name]
        wanted = self.kind.brokers - (down is not None)
        return (
            len(looks) == wanted
            and any(look.leads for look in looks)
            and all(look.votes for look in looks)
            and all(look.app.store.confirm_offset() >= self.check.committed.end for look in looks)
        )

    def serves(self) -> bool:
        """Whether all members run with their roles, and one of them is the master of the newest term."""
        looks = self.looks()
        roles = [look.app.membership.role for look in looks]
        leaders = [look for look in looks if look.leads]
        if len(looks) < self.kind.brokers or len(leaders) != 1 or roles.count(ReplicaRole.MASTER) != 1:
            return False
        term = leaders[0].raft.term
        return ReplicaRole.NONE not in roles and all(
            look.app.membership.master_epoch == term for look in looks
        )

    # The run

    def each_step(self) -> None:
        now_us = self.world.loop.now_us
        at_all = now_us >= self.looked_us + 1000 * LOOK_MS
        for look in self.looks() if at_all else self.looks_at_stirred():
            self.check.look(look)
        if not at_all:
            return
        self.looked_us = now_us
        self.faults.look_at_ends()
        self.watch()
        if self.old_disks is not None:
            self.old_disks.next_step()
        for node in self.faults.due():
            self.start(node)

    def noting(self) -> Callable[[PendingSends, Sequence[Waiting]], None]:
        """Replaces the method that answers sends, and checks each OK first."""
        answer = PendingSends._answer  # noqa: SLF001 - a tap

        def noted(pending: PendingSends, sends: Sequence[Waiting]) -> None:
            look = next((look for look in self.looks() if look.app.requests.pending is pending), None)
            for send in (each for waiting in sends for each in waiting.each()):
                if look is not None and send.response_code == ResponseCode.SUCCESS:
                    self.check.acknowledges(look, send.end_offset, dict(send.reply.ext or {}))
            answer(pending, sends)

        return noted

    def watch(self) -> None:
        self.bounds.look()
        for look in self.looks():
            self.check.look_at_role(look)
            self.check.look_at_queues(look)
            self.halves_past.look(look)
            if self.mixed is not None:
                self.mixed.look(look)
        self.retention.look(
            [look for look in self.looks() if self.mixed is None or not self.mixed.is_apart(look)]
        )
        if self.dealers is not None and self.client_is_ready():
            self.dealers.look()
        if self.tables is not None and self.client_is_ready():
            self.tables.look(self.broker_looks())
        if self.users is not None and self.client_is_ready():
            self.users.next_step(self.broker_looks())
        if self.handed_on is not None:
            self.handed_on.look(self.broker_looks())
        if self.forger is not None and self.client_is_ready():
            self.forger.next_step()
        if self.check.broken is not None:
            raise self.check.broken
        if self.notes.contradictions:
            raise Violation("G1", self.notes.contradictions[0])
        if self.errors.bugs:
            raise Violation("bug", self.errors.bugs[0])

    def heal(self) -> None:
        """End all faults. Check that the set serves within the limit, and again after its leader is killed once more."""
        self.faults.heal()
        if self.old_disks is not None:
            self.old_disks.heal()
        if self.forger is not None:
            self.forger.heal()
        if self.dealers is not None:
            self.dealers.healed = True
        if self.tables is not None:
            self.tables.heal()
        if self.users is not None:
            self.users.heal()
        self.become_whole()
        leader = self.leader()
        assert leader is not None
        self.faults.end(leader)
        self.world.run_for_ms(self.random.choice((1_000, 3_000)))
        self.become_whole()
        if self.handed_on is not None:
            self.handed_on.play()
            self.become_whole()
        if self.copied is not None:
            self.copied.play()
            self.become_whole()
        if self.kind.rots or self.kind.lags or self.kind.expires:
            self.bit_flips.play()
            self.become_whole()

    def become_whole(self) -> None:
        limit_ms = HEAL_LIMIT_MS + (BACK_OFF_MS_MAX if self.kind.preferred else 0)
        deadline_ms = self.world.now_ms + limit_ms
        before, end = self.acknowledged(), self.check.committed.end
        while not (self.whole(end) and self.acknowledged() >= max(before + 10, ACKNOWLEDGED_MIN)):
            if self.world.now_ms > deadline_ms:
                raise Violation(
                    "G6", f"expected a whole set {limit_ms} ms after the last fault: {self.shown()}"
                )
            self.world.run_for_ms(200)
        self.world.run_for_ms(REGISTERED_LIMIT_MS)
        known, wanted = self.known_master(), self.master_address()
        if known != wanted:
            raise Violation("G7", f"the name server names {known} as the master, expected {wanted}")

    def whole(self, end: int) -> bool:
        """Whether all members vote and show the log up to `end`, and a preferred leader leads."""
        leader = self.leader()
        return (
            self.serves()
            and all(look.votes for look in self.looks())
            and all(look.app.store.dispatched_offset() >= end for look in self.looks())
            and leader is not None
            and (not self.kind.preferred or f"n{self.nodes.index(leader)}" in self.kind.preferred)
        )

    def known_master(self) -> str | None:
        """The master in the name server's route."""
        app = self.namesrv.app
        assert isinstance(app, NamesrvApp)
        group = app.table.groups.get(BROKER_SET)
        return None if group is None else group.broker_addrs.get(0)

    def shown(self) -> str:
        running = [
            (
                look.name, look.app.membership.role.value, look.app.membership.master_epoch, look.raft.term,
                look.raft.role is RaftRole.LEADER, look.raft.log_begin(), look.app.store.dispatched_offset(),
                look.app.store.confirm_offset(), look.raft.log_end(),
            )
            for look in self.looks()
        ]  # fmt: skip
        ended = [(node.name, node.serving, node.failure) for node in self.nodes if not node.running]
        return f"{running}, {ended}, {self.check.committed.end} committed, {self.acknowledged()} acknowledged"

    # The end

    @property
    def client(self) -> ClientApp:
        assert isinstance(self.client_node.app, ClientApp)
        return self.client_node.app

    def client_is_ready(self) -> bool:
        app = self.client_node.app
        return isinstance(app, ClientApp) and app.is_ready

    def acknowledged(self) -> int:
        attempts = (attempt for asked in self.client.attempts().values() for attempt in asked)
        return sum(attempt.outcome is SendOutcome.ACKNOWLEDGED for attempt in attempts)

    def judge(self) -> None:
        self.ask(self.client.stop_sending())
        if self.users is not None:
            self.users.stop()
        if self.tables is not None:
            self.tables.at_the_end(self.broker_looks)
            self.totals.counts["locks of queues answered"] += self.tables.locks.answered
            self.totals.counts["facts"] += self.tables.facts.answers
        if self.handed_on is not None:
            self.handed_on.lease()
        if self.dealers is not None:
            self.dealers.settle(self.world)
        self.retention.stop(self.looks())

        def delivered() -> bool:
            leader = next((look for look in self.looks() if look.leads), None)
            return leader is not None and all_delivered(leader.app)

        def caught_up() -> bool:
            stores = [look.app.store for look in self.looks()]
            ends = [end for one in stores for end in (one.dispatched_offset(), one.confirm_offset())]
            return len(stores) == self.kind.brokers and set(ends) == {self.check.committed.end}

        self.world.run_until(delivered, DELIVERY_LIMIT_MS)
        self.world.run_until(caught_up, HEAL_LIMIT_MS)
        self.world.run_for_ms(500)
        self.watch()
        for look in self.looks():
            self.check.all_listed(look)
        if self.handed_on is not None:
            self.handed_on.lose_links()
        self.world.run_for_ms(COPIED_MS)
        self.bounds.at_the_end()
        if self.users is not None:
            self.users.at_the_end(self.broker_looks())
            self.totals.counts.update(self.users.counts())
        if self.dealers is not None:
            self.dealers.judge(messages_in(self.check.committed))
            self.totals.counts["transactions"] += len(self.dealers.deals)
        self.ask(self.client.finds_master(BROKER_SET))
        ever = self.ever_committed()
        strange = [found for found in self.notes.seen.values() if ever.get(found.place) != found]
        if strange:
            raise Violation("G1", f"{len(strange)} messages were read and never committed, as {strange[0]}")
        attempts = self.client.attempts() | ({} if self.mixed is None else {BEFORE: self.mixed.attempts})
        for topic in attempts:
            found = self.read(topic)
            places = {message.place for message in found}
            found += [message for message in self.gone(topic) if message.place not in places]
            verdict = judge(attempts[topic], found)
            if not verdict.holds:
                raise Violation("G1", f"{len(verdict.faults)} broken promises, first: {verdict.faults[0]}")
        again = judge_delayed_ones(self.ask, self.client, self.check.committed, CLOCKS_MS)
        self.totals.counts["delivered again"] += again

    def read(self, topic: str) -> list[Found]:
        try:
            return self.ask(self.client.read_topic(topic))
        except PullFailed as failure:
            raise Violation("G1", f"{topic} cannot be read: {failure}") from failure

    def ever_committed(self) -> dict[MessagePlace, Found]:
        """All messages that were ever committed, from the check's copy."""
        found = (found_in_queue(message) for message in messages_in(self.check.committed))
        return {message.place: message for message in found}

    def gone(self, topic: str) -> list[Found]:
        """The messages that retention deleted on the master."""
        begins = next(look.app.store.min_offset() for look in self.looks() if look.leads)
        messages = (message for message in messages_in(self.check.committed) if message.topic == topic)
        return [found_in_queue(message) for message in messages if message.physical_offset < begins]

    def ask(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.world.run_on(self.client_node, coroutine, limit_ms=READ_LIMIT_MS)

    def count(self) -> None:
        self.totals.faults.update(self.faults.done)
        self.totals.simulated_ms += self.world.now_ms
        self.totals.counts.update(
            {
                "seeds": 1,
                "seeds with five brokers": int(self.kind.brokers == 5),
                "acknowledged": self.acknowledged(),
                "masters": len(self.check.served),
                "beginnings moved up": self.retention.deleted,
                "seeds behind a plain log": int(self.mixed is not None),
                "logs begun anew": self.retention.restarted,
                "rotten records mended": self.bit_flips.mended,
            }
        )


def broker_of(number: int, kind: members.GroupsKind, runtime: Any) -> BrokerApp:
    return members.broker_app(number, kind, runtime)


def features() -> frozenset[str]:
    """The names of all features that a seed may play."""
    return frozenset(FEATURES)


def run_seed(seed: int, bug: str | None, totals: Totals, asked: Asked = NOTHING_ASKED) -> None:
    """One run, with `bug` planted if there is one. Raises FeatureError, and what the run finds."""
    with planted(bug):
        world = GroupWorld(seed, totals, asked)
        with named(world.kind.played):
            world.run()


def main() -> int:
    return seeds.main(__doc__, BUGS, 20, run_seed)


if __name__ == "__main__":
    sys.exit(main())
