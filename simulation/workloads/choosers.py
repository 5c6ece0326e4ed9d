"""Consumers that select messages by SQL92 expressions, and administrators who reset the consumers' offsets.

These clients are independent of the fault plan, have their own random generator, and run on a host without faults. A consumer
that is notified of a reset commits its former offset once more, as real clients do. Late commits by other consumers happen all
the time.

Invariants: F1 each pull returns exactly the confirmed messages in its range that match its expression, which the check
evaluates itself; F2 the master keeps each group's expression when the consumers stop; V1 after a reset is confirmed, the
master of the newest epoch has the group at the new offset until the group continues from there; V2 no other offset is sent to
the group."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from mqadmin.admin import AdminClient
from mqadmin.errors import AdminError
from mqadmin.replies import TopicSettings
from mqclient.client import Client
from mqclient.consumer import PullStatus
from mqclient.errors import PullFailed, SendOutcomeUnknown, SendRefused
from mqclient.message import StoredMessage
from mqclient.route import MessageQueue
from remoting.bodies.groups import SubscriptionGroupConfig
from remoting.bodies.heartbeats import ConsumerData, HeartbeatData, SubscriptionData
from remoting.bodies.queues import ResetOffsetBody
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import RemotingError
from remoting.header import Header
from remoting.headers.admin import CloneGroupOffsetHeader
from remoting.headers.offsets import ResetOffsetHeader
from simulation.cluster.looks import BrokerLook
from simulation.cluster.machines import Machines
from simulation.cluster.members import BROKER_PORT, BROKER_SET, CONTROLLERS, NAMESRV
from simulation.faults.fault import Fault
from simulation.kernel.node import Node, SimulatedClock
from simulation.kernel.violation import Violation
from simulation.workloads.expressions import NUMBER, NUMBERS, WORD, WORDS, Expression, drawn
from simulation.workloads.mastertrouble import MasterTrouble

NAME = "group moved"
CHOSEN = "chosen"
QUEUE = MessageQueue(CHOSEN, BROKER_SET, 0)
SETTINGS: dict[str, object] = {"enablePropertyFilter": True}
"""Settings of brokers."""
GROUPS = 3
NAMES = 1 + 2 * (GROUPS + 1)
"""A topic; groups and their retry topics."""
SEND_EACH_MS = 400
READ_EACH_MS = (300, 2_500)
LATE_EACH_MS = (100, 1_500)
MOVE_EACH_MS = (1_000, 4_000)
UNKNOWN_MS = 15_000
"""After this time a request without an answer can no longer take effect."""
CALL_MS = 2_500
MASTER_DIES = 0.2
SPARED_MS = 15_000
PULLS_MAX = 2
"""How many pulls may be notified of a reset before the reset is over, whatever happens to the answers."""


class NotKnownToAll(Exception):
    """The master answered that not all members have the change yet, so its outcome is open."""


class Pulled(NamedTuple):
    """The queue offsets that a pull from `start` to `end` returned."""

    start: int
    end: int
    found: frozenset[int]


class Group:
    """One consumer group. `moved_to` is the offset of a confirmed reset from which the group has not continued yet; None while
    that is unknown."""

    def __init__(self, name: str, chance: random.Random) -> None:
        self.name = name
        self.expression: Expression = drawn(chance)
        self.at = 0
        self.pulled: list[Pulled] = []
        self.moved_to: int | None = None
        self.moving = False
        self.pulls = 0
        """How many pulls there were since a reset was requested."""


class Choosers(Fault):
    name = NAME

    def __init__(self, machines: Machines, node: Node) -> None:
        super().__init__(machines)
        self.node = node
        self.random = random.Random(f"{machines.world.seed}/choosers")
        self.groups = [Group(f"chooser-{number}", self.random) for number in range(GROUPS)]
        self.violation: Violation | None = None
        self.begun = self.healed = self.stopping = False
        self.working = 0
        self.epoch = 0
        self.trouble = MasterTrouble(
            machines.world, self.random, master=machines.master, kill=machines.kill, spared_ms=SPARED_MS
        )

    def next_step(self) -> None:
        """Raises Violation."""
        if self.violation is not None:
            raise self.violation
        if not self.begun:
            self.begun = True
            self.node.spawn(self.begin())
        self.look(self.machines.broker_looks())

    def heal(self) -> None:
        self.healed = self.trouble.healed = True

    def look(self, looks: list[BrokerLook]) -> None:
        """Raises Violation."""
        self.epoch = max([self.epoch, *(look.master_epoch for look in looks)])
        for look in looks:
            if not look.accepts_sends or look.master_epoch != self.epoch or look.tables is None:
                continue
            for group in self.groups:
                at = look.tables.offsets.find(group.name, CHOSEN, 0)
                if group.moved_to not in (None, at):
                    raise Violation(
                        "V1", f"{group.name} was reset to {group.moved_to}, {look.name} has it at {at}"
                    )

    # -- clients

    async def begin(self) -> None:
        admin = AdminClient(SimulatedClock(self.node), signer=self.machines.signer)
        while True:
            try:
                state = (await admin.sync_states(CONTROLLERS, [BROKER_SET]))[BROKER_SET]
                await admin.create_topic(state.master_address or "", TopicSettings(CHOSEN, 1, 1))
                await admin.topic_route(NAMESRV, CHOSEN)
                break
            except (AdminError, KeyError):
                await asyncio.sleep(0.2)
        await admin.close()
        works = [self.send(), self.move(), self.commit_late(), *(self.read(group) for group in self.groups)]
        self.working = len(works)
        for work in works:
            self.node.spawn(work)

    async def pause(self, low_ms: int, high_ms: int) -> None:
        await asyncio.sleep(self.random.randint(low_ms, high_ms) / 1000)

    def client(self) -> Client:
        chance = random.Random(self.random.getrandbits(32))
        clock = SimulatedClock(self.node)
        return Client(NAMESRV, clock=clock, random=chance, credentials=self.machines.credentials)

    async def send(self) -> None:
        async with self.client() as client:
            producer = client.producer("choosing")
            while not self.healed:
                properties: dict[str, str] = {}
                if self.random.random() < 0.8:
                    properties[NUMBER] = str(self.random.choice(NUMBERS))
                if self.random.random() < 0.8:
                    properties[WORD] = self.random.choice(WORDS)
                with suppress(SendRefused, SendOutcomeUnknown):
                    await producer.send(CHOSEN, b"x", properties=properties, timeout_ms=CALL_MS)
                await asyncio.sleep(SEND_EACH_MS / 1000)
        self.working -= 1

    async def read(self, group: Group) -> None:
        """Read with the group's expression, which the consumer also sends in heartbeats."""
        async with self.client() as client:
            consumer = client.consumer(group.name)
            while not self.stopping:
                await self.pause(*READ_EACH_MS)
                with suppress(RemotingError, PullFailed, NotKnownToAll):
                    await self.beat(client, group)
                    before = group.at
                    group.pulls += 1
                    if group.pulls > PULLS_MAX or group.at == group.moved_to:
                        group.moved_to = None
                    result = await consumer.pull(QUEUE, group.at, sql=group.expression.text)
                    if result.status is PullStatus.OFFSET_ILLEGAL:
                        self.sent_to(group, result.next_offset)
                        await consumer.commit(QUEUE, before)
                        continue
                    found = frozenset(message.queue_offset for message in result.messages)
                    if result.next_offset > group.at:
                        group.pulled.append(Pulled(group.at, result.next_offset, found))
                        group.at = result.next_offset
                    await consumer.commit(QUEUE, group.at)
        self.working -= 1

    def sent_to(self, group: Group, offset: int) -> None:
        """Note that a pull was answered with an offset to continue from."""
        if group.moved_to not in (None, offset) and self.violation is None:
            self.violation = Violation("V2", f"{group.name}, reset to {group.moved_to}, is sent to {offset}")
        group.at = offset

    async def beat(self, client: Client, group: Group) -> None:
        subscription = SubscriptionData(CHOSEN, group.expression.text, expression_type="SQL92", sub_version=1)
        body = HeartbeatData(
            f"{group.name}@1",
            consumer_data_set=[ConsumerData(group.name, subscription_data_set=[subscription])],
        ).encode()
        await self.ask(client, RequestCode.HEART_BEAT, None, body)

    async def commit_late(self) -> None:
        async with self.client() as client:
            while not self.healed:
                group = self.random.choice(self.groups)
                with suppress(PullFailed):
                    await client.consumer(group.name).commit(QUEUE, self.random.randint(0, group.at))
                await self.pause(*LATE_EACH_MS)
        self.working -= 1

    # -- administrators

    async def move(self) -> None:
        async with self.client() as client:
            while not self.healed:
                await self.pause(*MOVE_EACH_MS)
                group, other = self.random.sample(self.groups, 2)
                group.moved_to, group.pulls, group.moving = None, 0, True
                try:
                    moved_to = await self.moved(client, group, other)
                except (RemotingError, NotKnownToAll):
                    await asyncio.sleep(UNKNOWN_MS / 1000)
                    continue
                if moved_to is not None and group.pulls <= PULLS_MAX:
                    self.count()
                    group.moved_to = moved_to
                    if self.trouble.dies(MASTER_DIES):
                        self.machines.done["master dies behind a move"] += 1
        self.working -= 1

    async def moved(self, client: Client, group: Group, other: Group) -> int | None:
        """Reset the group, and return the new offset if the reset was confirmed. Raises RemotingError and NotKnownToAll if it
        may still take effect."""
        kind = self.random.randrange(4)
        if kind == 0:
            header = CloneGroupOffsetHeader(other.name, group.name, CHOSEN, offline=True)
            reply = await self.ask(client, RequestCode.CLONE_GROUP_OFFSET, header)
            return None if reply is None else self.reset_on_master(group)
        config = SubscriptionGroupConfig(group.name).encode()
        await self.ask(client, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, config)
        at = self.random.randint(0, group.at) if kind < 3 else None
        time_ms = SimulatedClock(self.node).now_ms() - self.random.randint(0, 60_000)
        wanted = ResetOffsetHeader(CHOSEN, group.name, time_ms, is_force=True, queue_id=0, offset=at)
        reply = await self.ask(client, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, wanted)
        if reply is None:
            return None
        return next(iter(ResetOffsetBody.decode(reply.body or b"").offset_table.values()))

    def reset_on_master(self, group: Group) -> int | None:
        """The offset that a clone has set, which only the brokers know."""
        master = self.machines.master()
        for look in self.machines.broker_looks():
            if master is not None and look.name == master.name and look.tables is not None:
                return look.tables.resets.find(group.name, CHOSEN, 0)
        return None

    async def ask(
        self, client: Client, code: RequestCode, header: Header | None, body: bytes | None = None
    ) -> RemotingCommand | None:
        """Send a request to the master; None if it was rejected. Raises RemotingError, NotKnownToAll."""
        master = self.machines.master()
        if master is None:
            return None
        request = RemotingCommand.request(code, header, body)
        reply = await client.remoting.call(f"{master.host}:{BROKER_PORT}", request, CALL_MS)
        if reply.code == ResponseCode.FLUSH_SLAVE_TIMEOUT:
            raise NotKnownToAll
        return reply if reply.code == ResponseCode.SUCCESS else None

    # -- judgement

    def stop(self) -> None:
        """End the load when the cluster is whole. Raises Violation."""
        self.world.run_for_ms(10_000)
        self.stopping = True
        self.world.run_until(lambda: self.working <= 0, 60_000)
        self.next_step()
        self.judge_filters(self.machines.broker_looks())

    def judge_filters(self, looks: Iterable[BrokerLook]) -> None:
        """Check F2. A later master gets no heartbeat of these consumers. Raises Violation."""
        for look in looks:
            if not look.accepts_sends or look.tables is None:
                continue
            for group in self.groups:
                known = look.tables.filters.find(group.name, CHOSEN)
                if known is None or known.expression != group.expression.text:
                    raise Violation(
                        "F2", f"{look.name} keeps {known} of {group.name}, expected {group.expression.text}"
                    )

    def at_the_end(self, ever: Iterable[StoredMessage]) -> None:
        """Check the rest. `ever` are all messages ever confirmed. Raises Violation."""
        messages = [message for message in ever if message.topic == CHOSEN]
        for group in self.groups:
            taken = {
                message.queue_offset for message in messages if group.expression.takes(message.properties)
            }
            for start, end, found in group.pulled:
                wanted = {offset for offset in taken if start <= offset < end}
                if wanted != found:
                    what = f"{group.name}, {group.expression.text}, pull from {start} to {end}"
                    raise Violation("F1", f"{what} returned {sorted(found)}, expected {sorted(wanted)}")
            if not group.pulled:
                raise Violation("F1", f"{group.name} never pulled anything")
