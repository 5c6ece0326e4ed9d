"""Members of two consumer groups, one of them in order, that come, leave, die, pause, fail and take their time, while
faults hit their brokers. A member of the other group behaves as one in Java. Now and then an administrator moves the groups
back to the beginning.

Invariants: those of simulation.checkers.consumed, G1 to G4."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from zlib import crc32

from mqclient.client import Client
from mqclient.groupconsumer import GroupConsumer
from mqclient.message import StoredMessage
from mqclient.received import ReceivedMessage
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.errors import RemotingError
from remoting.headers.offsets import ResetOffsetHeader
from simulation.checkers.consumed import GroupBook, Handling
from simulation.cluster.machines import Machines
from simulation.cluster.members import BROKER_PORT, NAMESRV, TOPIC
from simulation.faults.fault import Fault
from simulation.kernel.node import Node, SimulatedClock
from simulation.kernel.violation import Violation
from simulation.workloads.javamember import JavaMember

NAME = "member of a consumer group"
CREW, IN_ORDER = "crew", "crew-in-order"
TOPICS = tuple(f"{prefix}{group}" for group in (CREW, IN_ORDER) for prefix in ("", "%RETRY%", "%DLQ%"))
"""Topics and groups that exist because of the members."""
JAVA = 3
"""The number of the member that behaves as one in Java."""
EVENT_MS = (1_500, 8_000)
DOWN_MS = (200, 6_000)
PAUSE_MS = (500, 6_000)
SLOW_MS = (300, 2_500)
LIVES_MS = (3_000, 40_000)
MOVES_MAX = 1
LAST_MS_MAX = 400_000
"""Masters keep the locks of a member that died for a minute, and what fails is tried again after 10 s."""
RECONSUME_MAX = 1
GRACE_S = 3.0
QUIET_MS = 4_000
LEAVES_MS = 6_000
FOR_EVER_MS = 1 << 62


class GroupMembers(Fault):
    """The members. They are independent of the fault plan and have their own random generator; what hits them are the events
    here."""

    name = NAME

    def __init__(self, machines: Machines, nodes: list[Node]) -> None:
        super().__init__(machines)
        self.nodes = nodes
        self.random = random.Random(f"{machines.world.seed}/group members")
        self.books = {group: GroupBook(group, TOPIC, group == IN_ORDER) for group in (CREW, IN_ORDER)}
        self.up_at_ms = dict.fromkeys(range(len(nodes)), 0)
        self.event_at_ms = 0
        self.healed = self.stopping = False
        self.moved = 0
        self.names = 0

    # -- events

    def next_step(self) -> None:
        """Raises Violation."""
        for book in self.books.values():
            if book.violation is not None:
                raise book.violation
        if self.stopping:
            return
        now_ms = self.world.now_ms
        for number, node in enumerate(self.nodes):
            if not node.running and now_ms >= self.up_at_ms[number]:
                self.count()
                node.spawn(self.run_java(node) if number == JAVA else self.run(node))
        if not self.healed and now_ms >= self.event_at_ms:
            self.event_at_ms = now_ms + self.random.randint(*EVENT_MS)
            self.happen()

    def happen(self) -> None:
        number = self.random.randrange(len(self.nodes))
        node, drawn = self.nodes[number], self.random.random()
        if not node.running:
            return
        if drawn < 0.25:
            self.up_at_ms[number] = self.world.now_ms + self.random.randint(*DOWN_MS)
            node.kill(power_cut=drawn < 0.05)
        elif drawn < 0.4:
            node.pause(self.random.randint(*PAUSE_MS))
        elif drawn < 0.45 and self.moved < MOVES_MAX:
            self.moved += 1
            self.machines.client.spawn(self.move())

    def heal(self) -> None:
        self.healed = True

    async def move(self) -> None:
        """Move a group back to the beginning."""
        master = self.machines.master()
        if master is None:
            return
        clock = SimulatedClock(self.machines.client)
        client = Client(NAMESRV, clock=clock, credentials=self.machines.credentials)
        header = ResetOffsetHeader(TOPIC, self.random.choice((CREW, IN_ORDER)), 0, is_force=True)
        request = RemotingCommand.request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
        async with client:
            with suppress(RemotingError):
                await client.remoting.call(f"{master.host}:{BROKER_PORT}", request, 3_000)

    # -- members

    async def run(self, node: Node) -> None:
        """Be a member of both groups, again and again, each time as a new client."""
        while not self.stopping:
            chance = random.Random(self.random.getrandbits(32))
            clock = SimulatedClock(node)
            lives_s = self.random.randint(*LIVES_MS) / 1000
            keys = self.machines.credentials
            async with Client(NAMESRV, clock=clock, random=chance, credentials=keys) as client:
                async with (
                    self.subscribed(client, CREW) as crew,
                    self.subscribed(client, IN_ORDER) as in_order,
                    asyncio.TaskGroup() as work,
                ):
                    work.create_task(
                        crew.run(lambda message: self.handle(CREW, node, message), concurrency=3)
                    )
                    work.create_task(
                        in_order.run(lambda message: self.handle(IN_ORDER, node, message), concurrency=3)
                    )
                    work.create_task(self.leave(lives_s, crew, in_order))

    def subscribed(self, client: Client, group: str) -> GroupConsumer:
        return client.subscribe(
            TOPIC,
            group=group,
            ordered=group == IN_ORDER,
            start="first",
            max_reconsume_times=RECONSUME_MAX,
            grace_s=GRACE_S,
        )

    async def leave(self, lives_s: float, *consumers: GroupConsumer) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(lives_s):
                while not self.stopping:  # noqa: ASYNC110 - the world sets it, between two steps
                    await asyncio.sleep(0.2)
        for consumer in consumers:
            consumer.stop()

    async def run_java(self, node: Node) -> None:
        self.names += 1

        async def handle(message: StoredMessage) -> bool:
            handling = self.books[CREW].begins(message, "java", self.living(node))
            await self.take_time(message)
            self.books[CREW].ends(handling, is_done=not fails(message, message.reconsume_times))
            return not fails(message, message.reconsume_times)

        name, keys = f"java@{self.names}", self.machines.credentials
        await JavaMember(node, NAMESRV, name, CREW, TOPIC, handle, keys, RECONSUME_MAX).run()

    async def handle(self, group: str, node: Node, message: ReceivedMessage) -> None:
        stored, book = message.stored, self.books[group]
        handling: Handling = book.begins(stored, f"{node.name}/{node.incarnation}", self.living(node))
        is_done = False
        try:
            await self.take_time(stored)
            is_done = not fails(stored, message.attempt - 1)
            if not is_done:
                raise ApplicationFault
        finally:
            book.ends(handling, is_done=is_done)

    async def take_time(self, message: StoredMessage) -> None:
        drawn = crc32(message.message_id.encode()) % 40
        if drawn == 0 and not self.healed:
            await asyncio.sleep(self.random.randint(*SLOW_MS) / 1000)
        elif drawn < 5:
            await asyncio.sleep(0.01)

    def living(self, node: Node) -> Callable[[], bool]:
        incarnation = node.incarnation
        return lambda: node.running and node.incarnation == incarnation

    # -- the end

    def stop(self, confirmed: Callable[[], list[StoredMessage]]) -> None:
        """End the member in Java, wait until the others have handled what is `confirmed`, and let them leave. Then judge.
        Raises Violation."""
        self.heal()
        self.up_at_ms[JAVA] = FOR_EVER_MS
        self.nodes[JAVA].kill()
        end_ms = self.world.now_ms + LAST_MS_MAX
        while self.world.now_ms < end_ms and any(book.missing(confirmed()) for book in self.books.values()):
            self.world.run_for_ms(1_000)
            self.next_step()
        self.world.run_for_ms(QUIET_MS)
        self.stopping = True
        self.world.run_for_ms(LEAVES_MS)
        for book in self.books.values():
            book.judge(confirmed())
        self.world.run_on(self.nodes[0], self.read_again())

    async def read_again(self) -> None:
        """Raises Violation if a new member gets a message that was acknowledged."""
        clock = SimulatedClock(self.nodes[0])
        async with Client(NAMESRV, clock=clock, credentials=self.machines.credentials) as client:
            for group, book in self.books.items():
                async with self.subscribed(client, group) as consumer:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(QUIET_MS / 1000):
                            while True:
                                stored = (await consumer.take()).stored
                                if stored.topic == TOPIC and stored.message_id in book.done:
                                    place = f"{stored.queue_id}/{stored.queue_offset}"
                                    raise Violation("G4", f"{group}: {place} comes again")

    @property
    def handled(self) -> int:
        return sum(book.handled for book in self.books.values())


class ApplicationFault(Exception):
    """What a handler raises."""


def fails(message: StoredMessage, attempts_before: int) -> bool:
    """Whether a handler fails: one in 13 messages the first time, one in 41 always."""
    drawn = crc32(message.message_id.encode()) // 64
    return drawn % 41 == 0 or (drawn % 13 == 0 and not attempts_before)
