"""An administrator who creates, changes and deletes topics and groups, one request at a time.

Invariant: for each topic or group the last request and its answer are noted. A name is not used again if the outcome of its
last request is unknown, or while messages or commits for it may still be on their way."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from mqadmin.admin import AdminClient
from mqadmin.errors import AdminError
from mqclient.client import Client
from mqclient.errors import RouteUnknown, SendOutcomeUnknown, SendRefused
from remoting.bodies.groups import SubscriptionGroupConfig
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import NotSent, RemotingError
from remoting.headers.admin import CreateTopicHeader, DeleteSubscriptionGroupHeader, TopicHeader
from remoting.headers.offsets import UpdateConsumerOffsetHeader
from remoting.signing import Signer
from simulation.workloads.facts import Fact, Facts

INTERVAL_MS = (600, 2_500)
ANSWER_MS_MAX = 2_500
NAMES_MAX = 4
"""How many names of a kind are created, deleted and created again. Names whose outcome is open do not count."""
VALUE_MAX = 9


class Administration:
    """The administrator. `find_master(admin)` returns the master to ask. Groups commit in `topic`."""

    def __init__(
        self,
        client: Client,
        facts: Facts,
        chance: random.Random,
        *,
        find_master: Callable[[AdminClient], Awaitable[str | None]],
        topic: str,
        signer: Signer | None = None,
    ) -> None:
        self._client = client
        self._admin = AdminClient(client.clock, signer=signer)
        self._producer = client.producer("administrator")
        self._facts = facts
        self._random = chance
        self._find_master = find_master
        self._topic = topic
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._work(), name="administration")

    async def stop(self) -> None:
        """Returns when the request under way has ended."""
        self._stopping.set()
        if self._task is not None:
            await self._task
        await self._admin.close()

    async def _work(self) -> None:
        while not self._stopping.is_set():
            master = await self._find_master(self._admin)
            if master is not None:
                await self._change(self._chosen(), master)
            try:
                async with asyncio.timeout(self._random.randint(*INTERVAL_MS) / 1000):
                    await self._stopping.wait()
            except TimeoutError:
                continue

    def _chosen(self) -> Fact:
        kind = self._random.choice(("topic", "group"))
        known = [fact for fact in self._facts.of(kind) if not fact.is_open]
        if len(known) < NAMES_MAX:
            return self._facts.add(kind)
        return self._random.choice(known)

    async def _change(self, fact: Fact, master: str) -> None:
        """Create an absent topic or group, or change or delete an existing one."""
        wanted = self._random.randint(1, VALUE_MAX)
        if fact.value and self._random.random() < 0.6:
            wanted = 0
        fact.asked(wanted)
        try:
            reply = await self._client.remoting.call(master, request(fact, wanted), ANSWER_MS_MAX)
        except NotSent:
            fact.refused()
            return
        except RemotingError:
            return
        if reply.code == ResponseCode.SERVICE_NOT_AVAILABLE:
            fact.refused()
        elif reply.code == ResponseCode.SUCCESS:
            fact.answered()
            self._facts.on_answered(fact)
            if wanted and not await self._used(fact, master):
                fact.give_up()

    async def _used(self, fact: Fact, master: str) -> bool:
        """Send a message to the topic, or commit for the group. Returns whether that has certainly ended."""
        if fact.kind == "topic":
            try:
                return (await self._producer.send(fact.name, b"x", timeout_ms=ANSWER_MS_MAX)).acknowledged
            except SendOutcomeUnknown:
                return False
            except (SendRefused, RouteUnknown):
                return True
        header = UpdateConsumerOffsetHeader(fact.name, self._topic, 0, fact.value)
        commit = RemotingCommand.request(RequestCode.UPDATE_CONSUMER_OFFSET, header)
        try:
            await self._client.remoting.call(master, commit, ANSWER_MS_MAX)
        except NotSent:
            return True
        except RemotingError:
            return False
        return True


def request(fact: Fact, wanted: int) -> RemotingCommand:
    """Give `fact` the value `wanted`; 0 deletes it."""
    if fact.kind == "topic":
        if wanted:
            made = CreateTopicHeader(fact.name, "TBW102", wanted, wanted, 6)
            return RemotingCommand.request(RequestCode.UPDATE_AND_CREATE_TOPIC, made)
        return RemotingCommand.request(RequestCode.DELETE_TOPIC_IN_BROKER, TopicHeader(fact.name))
    if wanted:
        body = SubscriptionGroupConfig(fact.name, retry_max_times=wanted).encode()
        return RemotingCommand.request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)
    deleted = DeleteSubscriptionGroupHeader(fact.name, clean_offset=True)
    return RemotingCommand.request(RequestCode.DELETE_SUBSCRIPTIONGROUP, deleted)


def named_by(controllers: str, broker_set: str) -> Callable[[AdminClient], Awaitable[str | None]]:
    """The master according to the controllers."""

    async def find(admin: AdminClient) -> str | None:
        try:
            return (await admin.sync_states(controllers, [broker_set]))[broker_set].master_address
        except (AdminError, KeyError):
            return None

    return find
