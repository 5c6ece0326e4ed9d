"""Load for some of the pairs: producers of messages in transactions, and a consumer that reads committed messages from master
and slaves.

Invariants: E1 to E4 (simulation.workloads.dealers) of the history that is left in the end. When a slave takes its master's
place, only the log that it held counts. E3 also says that every message that any broker ever shows to a consumer was
committed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from contextlib import suppress

from mqadmin.admin import AdminClient
from mqclient.client import Client
from mqclient.message import StoredMessage, decode_messages
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import RemotingError
from remoting.headers.pull import SYS_FLAG_SUBSCRIPTION, PullMessageHeader, PullMessageResponseHeader
from simulation.checkers.shadow import records_below
from simulation.kernel.node import Node, SimulatedClock
from simulation.kernel.violation import Violation
from simulation.kernel.world import World
from simulation.pairs.faults import PairFaults
from simulation.pairs.members import BROKER_PORT, BROKER_SET, NAMESRV, topic_made
from simulation.workloads.dealers import DEALS, Dealers

DEALERS_HOST, READERS_HOST = "10.0.3.3", "10.0.3.4"
READER_GROUP = "deal-readers"
READ_EACH_MS = 300
CALL_MS = 1_500


class PairDealing:
    """`leads()` is the node of a master that takes messages."""

    def __init__(
        self, world: World, faults: PairFaults, *, leads: Callable[[], Node | None], keeps: bool
    ) -> None:
        dealing = world.node("dealers", DEALERS_HOST)
        self.world = world
        self.reading = world.node("deal readers", READERS_HOST)
        self.read = 0
        self.dealers = Dealers(
            dealing,
            faults.nodes,
            seed=world.seed,
            namesrv=NAMESRV,
            master=leads,
            kill=faults.end_master,
            create_topic=lambda: self._create_topic(SimulatedClock(dealing)),
            done=faults.done,
            keeps=keeps,
        )
        self._faults = faults
        self._stops = False

    async def _create_topic(self, clock: SimulatedClock) -> None:
        admin = AdminClient(clock)
        await topic_made(admin, DEALS, 1, lambda: f"{self._faults.master.host}:{BROKER_PORT}")
        await admin.close()

    def look(self) -> None:
        """Called often. Raises Violation."""
        if not self.dealers.begun:
            for node in self._faults.nodes:
                self.reading.spawn(self._read_along(node.host))
        self.dealers.look()

    def heal(self) -> None:
        self.dealers.healed = True

    def settle(self) -> None:
        """Wait until the transactions of a whole pair are ended. Raises Violation."""
        self.dealers.settle(self.world)
        self._stops = True

    def judge(self, log: bytearray, begins: int, segment_bytes: int, found: list[StoredMessage]) -> None:
        """Judge all transactions. `log` is the history that is left, and `found` are the messages that consumers find above
        its first `begins` bytes. Raises Violation."""
        self.look()

        def ever() -> Iterator[StoredMessage]:
            for content in records_below(log, len(log), segment_bytes):
                yield from decode_messages(content)

        self.dealers.judge(ever())
        there = {message.physical_offset for message in found}
        for message in ever():
            at = message.physical_offset
            if message.topic == DEALS and at >= begins and at not in there:
                raise Violation("E2", f"the committed message at {at} cannot be read: {message.properties}")

    # -- the consumer

    def _client(self) -> Client:
        return Client(NAMESRV, clock=SimulatedClock(self.reading), random=random.Random(self.world.seed))

    async def _read_along(self, host: str) -> None:
        """Read from one broker, master or slave, until the end."""
        at = 0
        async with self._client() as client:
            while not self._stops:
                with suppress(RemotingError):
                    at = await self._read_on(client, f"{host}:{BROKER_PORT}", at)
                await asyncio.sleep(READ_EACH_MS / 1000)

    async def _read_on(self, client: Client, address: str, at: int) -> int:
        header = PullMessageHeader(
            READER_GROUP, DEALS, 0, at, 32, SYS_FLAG_SUBSCRIPTION, 0, 0, 0,
            subscription="*", expression_type="TAG", broker_name=BROKER_SET,
        )  # fmt: skip
        request = RemotingCommand.request(RequestCode.PULL_MESSAGE, header)
        reply = await client.remoting.call(address, request, CALL_MS)
        if reply.code == ResponseCode.SUCCESS:
            messages = decode_messages(reply.body or b"")
            self.read += len(messages)
            for message in messages:
                self.dealers.note_read(message)
        elif reply.code not in (ResponseCode.PULL_OFFSET_MOVED, ResponseCode.PULL_RETRY_IMMEDIATELY):
            return at
        return PullMessageResponseHeader.from_ext(reply.ext).next_begin_offset
