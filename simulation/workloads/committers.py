"""Consumer groups that commit rising offsets and query them. After a rebalance, former members still send older offsets
one-way to a former master, as Java's clients do.

Invariants: O4 within one master epoch a confirmed offset never goes back; O5 if an offset was confirmed while the cluster was
whole, and long enough before a change of master for slaves to copy it, the next master has it, and in the end all brokers have
it.

Invariant of the check: its expectations come from the requests and answers that it saw. An answer belongs to an epoch if the
same process led that epoch before and after the answer. A master accepts a commit of a lower offset. So if such a commit was
sent to a broker and may still wait there, the check expects less of that broker, but not of others."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from mqclient.client import Client
from mqclient.errors import RouteUnknown
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import NotSent, RemotingError
from remoting.headers.offsets import (
    OffsetResponseHeader,
    QueryConsumerOffsetHeader,
    UpdateConsumerOffsetHeader,
)
from simulation.cluster.looks import BrokerLook, broker_on
from simulation.cluster.machines import Machines
from simulation.cluster.members import BROKER_PORT, BROKER_SET, NAMESRV, QUEUES, SLAVE_SYNC_MS, TOPIC
from simulation.faults.fault import Fault
from simulation.faults.handovers import elect
from simulation.kernel.node import Node, SimulatedClock
from simulation.kernel.violation import Violation
from simulation.workloads.mastertrouble import MasterTrouble

NAME = "offset committed"
OLDER = "older offset said to a former master"
WAS_PAUSED = "master stands still before a commit"
EACH_MS = (200, 1_200)
CALL_MS = 1_500
NAMES = 40
"""The greatest number of group names."""
FORMER_MS = 35_000
"""How long a former master forwards requests."""
SAYS_OLDER = 0.5
"""The chance that an older offset is sent first, if there is a former master."""
BY_ROUTE = 0.3
"""The chance that a commit goes to the broker that the client takes for the master."""
ONE_WAY = 0.2
MASTER_IS_PAUSED = 0.05
SPARED_MS = 15_000
COPIED_MS = 3 * SLAVE_SYNC_MS
"""Slaves have their master's offsets within this time, even if one poll fails."""
ANSWERS_MIN = 20
LAST_COMMITS = 3
CHANGE_LIMIT_MS = 20_000


class Leading(NamedTuple):
    """A process that is master of an epoch."""

    node: str
    incarnation: int
    epoch: int


@dataclass
class Group:
    """One consumer group in one queue."""

    name: str
    queue_id: int
    said: int = 0
    """The highest offset that was sent so far."""
    floors: dict[int, int] = field(default_factory=dict)
    """Master epoch -> the highest offset that was confirmed in it."""
    waiting: dict[str, list[int]] = field(default_factory=dict)
    """Node -> offsets that were sent to it and may still take effect there."""
    copied: int = 0
    """The next master has at least this offset."""

    def least(self, leading: Leading) -> float:
        """The lowest offset that this process may have."""
        return min([self.floors.get(leading.epoch, self.copied), *self.waiting.get(leading.node, [])])

    def answered(self, leading: Leading, offset: int) -> None:
        self.floors[leading.epoch] = max(self.floors.get(leading.epoch, 0), offset)


class Committers(Fault):
    """The groups. They are independent of the fault plan, have their own random generator, and run on a host without faults."""

    name = NAME

    def __init__(self, machines: Machines, node: Node) -> None:
        super().__init__(machines)
        self.node = node
        self.random = random.Random(f"{machines.world.seed}/committers")
        self.trouble = MasterTrouble(
            machines.world, self.random, master=machines.master, kill=machines.kill, spared_ms=SPARED_MS
        )
        self.nodes = {f"{each.host}:{BROKER_PORT}": each for each in machines.brokers}
        self.last_led_ms: dict[str, int] = {}
        """Address -> when a broker there was last seen as the newest master."""
        self.groups: list[Group] = []
        self.violation: Violation | None = None
        self.answers = 0
        self.working = 0
        self.begun = self.stopping = False

    def next_step(self) -> None:
        """Raises Violation."""
        if self.violation is not None:
            raise self.violation
        if not self.begun:
            self.begun = True
            self.working = QUEUES
            for queue_id in range(QUEUES):
                self.node.spawn(self.work(queue_id))
        if (master := self.machines.master()) is not None:
            self.last_led_ms[f"{master.host}:{BROKER_PORT}"] = self.world.now_ms

    def heal(self) -> None:
        self.trouble.healed = True

    # -- members of the groups

    async def work(self, queue_id: int) -> None:
        """Work with one group after the other, as long as there are names."""
        while not self.stopping:
            async with self.client() as client:
                group = self.new_group(queue_id)
                while not self.stopping and not self.is_spoiled(group):
                    await self.turn(client, group)
                    await asyncio.sleep(self.random.randint(*EACH_MS) / 1000)
        self.working -= 1

    def client(self) -> Client:
        chance = random.Random(self.random.getrandbits(32))
        clock = SimulatedClock(self.node)
        return Client(NAMESRV, clock=clock, random=chance, credentials=self.machines.credentials)

    def new_group(self, queue_id: int) -> Group:
        group = Group(f"committer-{len(self.groups)}", queue_id)
        self.groups.append(group)
        return group

    def is_spoiled(self, group: Group) -> bool:
        """Whether little can still be expected of the present master."""
        leading = self.leading()
        return (
            leading is not None
            and bool(group.waiting.get(leading.node))
            and len(self.groups) < NAMES - QUEUES
        )

    async def turn(self, client: Client, group: Group) -> None:
        """Commit and query. Now and then the member that had the queue before commits an older offset."""
        former = self.former()
        if former is not None and group.said > 1 and self.random.random() < SAYS_OLDER:
            await self.say(client, group, former, self.random.randint(1, group.said - 1))
            self.machines.done[OLDER] += 1
        group.said += 1
        if self.trouble.is_paused(MASTER_IS_PAUSED) is not None:
            self.machines.done[WAS_PAUSED] += 1
        address = await self.address(client)
        if address is None:
            return
        if self.random.random() < ONE_WAY:
            await self.say(client, group, address, group.said)
        else:
            await self.commit(client, group, address)
        await self.ask(client, group)

    async def address(self, client: Client) -> str | None:
        """The address of the master, or of the broker that the client takes for it."""
        if self.random.random() < BY_ROUTE:
            with suppress(RouteUnknown):
                return (await client.routes.get(TOPIC)).master(BROKER_SET)
            return None
        master = self.machines.master()
        return None if master is None else f"{master.host}:{BROKER_PORT}"

    def former(self) -> str | None:
        """A running broker that led a while ago."""
        master, since_ms = self.machines.master(), self.world.now_ms - FORMER_MS
        formers = [
            address
            for address, led_ms in self.last_led_ms.items()
            if led_ms >= since_ms and self.nodes[address].running and self.nodes[address] is not master
        ]
        return self.random.choice(formers) if formers else None

    async def say(self, client: Client, group: Group, address: str, offset: int) -> None:
        """Send a commit one-way."""
        self.waits(group, address, offset)
        with suppress(RemotingError):
            await client.remoting.one_way(address, self.update(group, offset))

    async def commit(self, client: Client, group: Group, address: str) -> None:
        offset = group.said
        self.waits(group, address, offset)
        before = self.leading()
        try:
            reply = await client.remoting.call(address, self.update(group, offset), CALL_MS)
        except NotSent:
            self.waits_no_more(group, address, offset)
            return
        except RemotingError:
            return
        self.waits_no_more(group, address, offset)
        if reply.code == ResponseCode.SUCCESS and (leading := self.same_leads(before, address)) is not None:
            group.answered(leading, offset)
            self.answers += 1
            self.count()

    async def ask(self, client: Client, group: Group) -> None:
        """Query the master for the offset of the group."""
        before, master = self.leading(), self.machines.master()
        if before is None or master is None:
            return
        address = f"{master.host}:{BROKER_PORT}"
        header = QueryConsumerOffsetHeader(group.name, TOPIC, group.queue_id)
        request = RemotingCommand.request(RequestCode.QUERY_CONSUMER_OFFSET, header)
        try:
            reply = await client.remoting.call(address, request, CALL_MS)
        except RemotingError:
            return
        leading = self.same_leads(before, address)
        if leading is None or reply.code not in (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND):
            return
        is_there = reply.code == ResponseCode.SUCCESS
        offset = OffsetResponseHeader.from_ext(reply.ext).offset if is_there else 0
        if offset < (least := group.least(leading)) and self.violation is None:
            rule = "O4" if leading.epoch in group.floors else "O5"
            said = f"{group.name} at {self.world.now_ms} ms: expected {least} or more, {leading} answers {offset}"
            self.violation = Violation(rule, said)
        group.answered(leading, offset)
        if offset in group.waiting.get(leading.node, []):
            self.waits_no_more(group, address, offset)

    def update(self, group: Group, offset: int) -> RemotingCommand:
        header = UpdateConsumerOffsetHeader(group.name, TOPIC, group.queue_id, offset)
        return RemotingCommand.request(RequestCode.UPDATE_CONSUMER_OFFSET, header)

    def waits(self, group: Group, address: str, offset: int) -> None:
        group.waiting.setdefault(self.nodes[address].name, []).append(offset)

    def waits_no_more(self, group: Group, address: str, offset: int) -> None:
        group.waiting[self.nodes[address].name].remove(offset)

    def leading(self) -> Leading | None:
        master = self.machines.master()
        look = broker_on(master) if master is not None else None
        return None if look is None else Leading(look.name, look.incarnation, look.master_epoch)

    def same_leads(self, before: Leading | None, address: str) -> Leading | None:
        """The process that led before and leads now, if it got the request."""
        now = self.leading()
        return now if now is not None and now == before and now.node == self.nodes[address].name else None

    # -- judgement

    def stop(self) -> None:
        """Called when the cluster is whole and stays whole: elect another broker after slaves had time to copy. Raises
        Violation."""
        if self.answers < ANSWERS_MIN:
            raise Violation("O4", f"{self.answers} commits were answered, expected {ANSWERS_MIN}")
        self.stopping = True
        self.world.run_until(lambda: self.working == 0, CHANGE_LIMIT_MS)
        self.act(self.commit_once_more)
        before = self.leading()
        assert before is not None, "a whole cluster has a master"
        for group in self.groups:
            least = group.floors.get(before.epoch, 0)
            group.copied = 0 if group.waiting.get(before.node) else least
        self.world.run_for_ms(COPIED_MS)
        if self.leading() != before:
            for group in self.groups:
                group.copied = 0
            return
        master = self.machines.master()
        ids = [
            look.broker_id
            for look in self.machines.broker_looks()
            if not look.is_learner and look.broker_id and master is not None and look.name != master.name
        ]
        elect(self.machines, self.random.choice(ids))
        self.world.run_until(lambda: self.leading() not in (None, before), CHANGE_LIMIT_MS)
        self.act(self.ask_all)

    def act(self, work: Callable[[Client], Awaitable[None]]) -> None:
        """Run `work` with a client to its end. Raises Violation."""
        done = asyncio.Event()

        async def acted() -> None:
            async with self.client() as client:
                await work(client)
            done.set()

        self.node.spawn(acted())
        self.world.run_until(done.is_set, CHANGE_LIMIT_MS + CALL_MS * len(self.groups))
        self.next_step()

    async def commit_once_more(self, client: Client) -> None:
        """Commit for new groups, which have no request waiting anywhere."""
        master = self.machines.master()
        assert master is not None, "a whole cluster has one"
        for queue_id in range(QUEUES):
            group = self.new_group(queue_id)
            for _ in range(LAST_COMMITS):
                group.said += 1
                await self.commit(client, group, f"{master.host}:{BROKER_PORT}")

    async def ask_all(self, client: Client) -> None:
        for group in self.groups:
            await self.ask(client, group)

    def at_the_end(self, brokers: Iterable[BrokerLook]) -> None:
        """Check all brokers after slaves have copied everything. Raises Violation."""
        for broker in brokers:
            for group in self.groups:
                found = (
                    None
                    if broker.tables is None
                    else broker.tables.offsets.find(group.name, TOPIC, group.queue_id)
                )
                least = min([group.copied, *group.waiting.get(broker.name, [math.inf])])
                if not broker.is_learner and (found or 0) < least:
                    raise Violation(
                        "O5", f"{group.name}: expected {least} or more, {broker.name} has {found}"
                    )
