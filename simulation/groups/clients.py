"""The client of a simulated Raft-mode set. It sends single messages to two topics, batches to a third topic, and delayed
messages, and reads all the time.

Invariant: every message has its own key and is sent once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from localcluster.history import Found, MessagePlace, SendAttempt, SendOutcome
from localcluster.load import SteadyLoad, as_found, body_hash, read_back
from mqadmin.admin import AdminClient
from mqadmin.errors import AdminError
from mqadmin.replies import TopicSettings
from mqclient.client import Client
from mqclient.errors import PullFailed, RouteUnknown, SendOutcomeUnknown, SendRefused
from mqclient.message import OutgoingMessage
from mqruntime.clock import Clock
from mqruntime.runtime import Runtime
from remoting.signing import Credentials
from simulation.cluster.members import ReaderNotes
from simulation.groups.members import NAMESRV
from simulation.workloads.accounts import signer_of
from simulation.workloads.delays import GROUP, LATER, DelayedWork

SINGLE, SELDOM, BATCHES = "single", "seldom", "batches"
QUEUES_OF = {SINGLE: 3, SELDOM: 2, BATCHES: 2, LATER: 1}
PLAIN = (SINGLE, SELDOM, BATCHES)
SEND_TIMEOUT_MS = 2_500
SELDOM_MS, BATCH_MS, READ_MS = 450, 300, 700


class Batches:
    """Sends a batch now and then, until `stop`."""

    def __init__(self, client: Client, chance: random.Random) -> None:
        self.attempts: list[SendAttempt] = []
        self._client = client
        self._producer = client.producer("batcher")
        self._random = chance
        self._count = 0
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._work(), name="batches")

    async def stop(self) -> None:
        """Returns when the attempt under way has ended."""
        self._stopping.set()
        if self._task is not None:
            await self._task

    async def _work(self) -> None:
        while not self._stopping.is_set():
            await self._send()
            await asyncio.sleep(BATCH_MS / 1000)

    async def _send(self) -> None:
        bodies = [
            self._random.randbytes(self._random.randint(1, 900)) for _ in range(self._random.randint(1, 4))
        ]
        keys = [f"batch-{self._count}-{nth}" for nth in range(len(bodies))]
        self._count += 1
        began_ms, outcome, why, first = self._client.clock.now_ms(), SendOutcome.ACKNOWLEDGED, "", None
        messages = [OutgoingMessage(body, {"KEYS": key}) for key, body in zip(keys, bodies, strict=True)]
        try:
            result = await self._producer.send_batch(
                BATCHES, messages, queue_id=self._count % QUEUES_OF[BATCHES], timeout_ms=SEND_TIMEOUT_MS
            )
            first = result.queue, result.queue_offset
            if not result.acknowledged:
                outcome, why = SendOutcome.UNKNOWN, result.status.name
        except SendRefused as error:
            outcome, why = SendOutcome.REFUSED, str(error)
        except SendOutcomeUnknown as error:
            outcome, why = SendOutcome.UNKNOWN, str(error)
        ended_ms = self._client.clock.now_ms()
        for nth, (key, body) in enumerate(zip(keys, bodies, strict=True)):
            place = None if first is None else MessagePlace(str(first[0]), first[1] + nth)
            self.attempts.append(SendAttempt(key, body_hash(body), outcome, began_ms, ended_ms, place, why))


async def made(admin: AdminClient, topic: str, queues: int, master_address: Callable[[], str | None]) -> None:
    """Make the topic on the master, and return once the name server has its route."""
    while True:
        try:
            await admin.create_topic(master_address() or "", TopicSettings(topic, queues, queues))
            await admin.topic_route(NAMESRV, topic)
            break
        except AdminError:
            await asyncio.sleep(0.2)


async def topic_made(
    topic: str, master_address: Callable[[], str | None], clock: Clock, credentials: Credentials | None
) -> None:
    """The same for a topic with one queue, by a separate client."""
    admin = AdminClient(clock, signer=signer_of(credentials))
    await made(admin, topic, 1, master_address)
    await admin.close()


class ClientApp:
    """The client's app. It first creates its topics at `master_address()`."""

    def __init__(
        self,
        runtime: Runtime,
        interval_ms: int,
        notes: ReaderNotes,
        master_address: Callable[[], str | None],
        credentials: Credentials | None,
    ) -> None:
        self.client = Client(
            NAMESRV,
            clock=runtime.clock,
            random=random.Random(runtime.random.getrandbits(32)),
            credentials=credentials,
        )
        self._signer = signer_of(credentials)
        self.loads = [
            self._load(runtime, SINGLE, interval_ms),
            self._load(runtime, SELDOM, SELDOM_MS),
        ]
        self.batches = Batches(self.client, random.Random(runtime.random.getrandbits(32)))
        self.delayed = DelayedWork(self.client, runtime.random, SEND_TIMEOUT_MS)
        self.notes = notes
        self.next_offset: dict[str, int] = {}
        self._master_address = master_address
        self._reading: asyncio.Task[None] | None = None
        self.is_ready = False
        self.never_fails: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

    def _load(self, runtime: Runtime, topic: str, interval_ms: int) -> SteadyLoad:
        return SteadyLoad(
            self.client.producer(f"{topic} producer"),
            topic,
            queues=QUEUES_OF[topic],
            clock=runtime.clock,
            random=runtime.random,
            interval_ms=interval_ms,
            timeout_ms=SEND_TIMEOUT_MS,
        )

    def attempts(self) -> dict[str, list[SendAttempt]]:
        """The attempts of all but delayed messages, by topic."""
        return {load.topic: load.attempts for load in self.loads} | {BATCHES: self.batches.attempts}

    async def start(self) -> None:
        admin = AdminClient(self.client.clock, signer=self._signer)
        for topic, queues in QUEUES_OF.items():
            await made(admin, topic, queues, self._master_address)
        await admin.close()
        for load in self.loads:
            load.start()
        self.batches.start()
        self.delayed.start()
        self._reading = asyncio.get_running_loop().create_task(self._read(), name="reader")
        self.is_ready = True

    async def stop(self) -> None:
        await self.stop_sending()
        await self.client.close()

    async def wait_failed(self) -> BaseException:
        return await self.never_fails

    async def stop_sending(self) -> None:
        for load in self.loads:
            await load.stop()
        await self.batches.stop()
        await self.delayed.stop()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])
            self._reading = None

    async def _read(self) -> None:
        """Follow each queue of the plain topics, as a consumer does."""
        consumer = self.client.consumer(GROUP)
        next_offset = self.next_offset
        while True:
            await asyncio.sleep(READ_MS / 1000)
            try:
                for queue in [queue for topic in PLAIN for queue in await consumer.queues(topic)]:
                    result = await consumer.pull(queue, next_offset.get(str(queue), 0))
                    if not result.messages and result.next_offset > next_offset.get(str(queue), 0):
                        next_offset[str(queue)] = result.next_offset  # retention has moved the beginning
                    for message in result.messages:
                        found = as_found(queue, message)
                        first_read = found.place not in self.notes.seen
                        self.notes.note(found)
                        next_offset[str(queue)] = message.queue_offset + 1
                        if message.topic == SINGLE and first_read:  # no message is handed back twice
                            self.delayed.newest = message
            except (PullFailed, RouteUnknown):
                continue

    async def finds_master(self, broker_set: str) -> None:
        """Return once every topic's route, if there is one, names the master."""
        for topic in (*QUEUES_OF, *self.delayed.attempts):
            while True:
                self.client.routes.renew(topic)
                await asyncio.sleep(0.5)
                try:
                    route = await self.client.routes.get(topic)
                except RouteUnknown:
                    break
                if route.master(broker_set) is not None:
                    break

    async def read_topic(self, topic: str) -> list[Found]:
        """Read each queue from its first to its last readable message. Raises PullFailed if a second try fails too. The first
        may fail because a connection still leads to a former process of a broker."""
        consumer = self.client.consumer("judge")
        try:
            return await read_back(consumer, topic)
        except PullFailed:
            return await read_back(consumer, topic)
