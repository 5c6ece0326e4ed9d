"""A member of a consumer group that behaves as upstream's push consumer does: it allocates its share by the list of members
that one broker gives it, reads until a rebalance takes a queue away, and commits one-way. Its allocation shares no code with
mqclient's members."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress

from mqclient.consumer import PullConsumer, PullStatus
from mqclient.errors import PullFailed, RouteUnknown
from mqclient.message import StoredMessage
from mqclient.route import MessageQueue
from mqclient.routetable import TopicRoutes
from remoting.client import RemotingClient
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.errors import RemotingError
from remoting.headers.admin import ConsumerGroupHeader
from remoting.headers.messages import ConsumerSendMsgBackHeader
from remoting.headers.offsets import UpdateConsumerOffsetHeader
from remoting.peer import Peer
from remoting.router import Router
from remoting.signing import Credentials, Signer
from simulation.kernel.node import Node, SimulatedClock

BEAT_S = 5.0
"""Upstream's clients send heartbeats each 30 s and rebalance each 20 s."""
PAUSE_S = 0.1
SUSPEND_MS = 2_000


class JavaMember:
    """The member `client_id` on `node`. `handle` returns whether it handled a message; else the message is sent back."""

    def __init__(
        self,
        node: Node,
        name_server: str,
        client_id: str,
        group: str,
        topic: str,
        handle: Callable[[StoredMessage], Awaitable[bool]],
        credentials: Credentials | None,
        reconsume_max: int,
    ) -> None:
        router = Router()
        router.add(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, self._notified)
        clock = SimulatedClock(node)
        signer = None if credentials is None else Signer(credentials)
        self.remoting = RemotingClient(clock=clock, router=router, signer=signer)
        self.routes = TopicRoutes(name_server, self.remoting, clock)
        self.consumer = PullConsumer(group, routes=self.routes, client=self.remoting, clock=clock)
        self.client_id = client_id
        self.group = group
        self.topics = (topic, f"%RETRY%{group}")
        self.handle = handle
        self.reconsume_max = reconsume_max
        self.readers: dict[MessageQueue, asyncio.Task[None]] = {}
        self.changed = asyncio.Event()

    async def run(self) -> None:
        """Stay in the group until the process ends."""
        while True:
            self.changed.clear()
            with suppress(RemotingError, RouteUnknown):
                await self.rebalance()
            with suppress(TimeoutError):
                async with asyncio.timeout(BEAT_S):
                    await self.changed.wait()
            await asyncio.sleep(PAUSE_S)

    def _notified(self, peer: Peer, command: RemotingCommand) -> None:
        self.changed.set()

    async def rebalance(self) -> None:
        """Raises RemotingError, RouteUnknown."""
        share: set[MessageQueue] = set()
        for topic in self.topics:
            route = await self.routes.get(topic)
            masters = [address for name in sorted(route.addresses) if (address := route.master(name))]
            for address in masters:
                await self.remoting.call(address, self._heartbeat())
            if not masters:
                return
            header = ConsumerGroupHeader(self.group)
            request = RemotingCommand.request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
            reply = await self.remoting.call(masters[0], request)
            ids = sorted(json.loads(bytes(reply.body or b"{}")).get("consumerIdList", []))
            if self.client_id not in ids:
                return
            share.update(averagely(ids, self.client_id, sorted(route.read_queues)))
        for queue in self.readers.keys() - share:
            self.readers.pop(queue).cancel()
        for queue in share - self.readers.keys():
            self.readers[queue] = asyncio.create_task(self._read(queue))

    def _heartbeat(self) -> RemotingCommand:
        subscriptions = [
            {
                "topic": topic,
                "subString": "*",
                "tagsSet": [],
                "codeSet": [],
                "subVersion": 1,
                "expressionType": "TAG",
            }
            for topic in self.topics
        ]
        consumer = {
            "groupName": self.group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "subscriptionDataSet": subscriptions, "unitMode": False,
        }  # fmt: skip
        data = {"clientID": self.client_id, "producerDataSet": [], "consumerDataSet": [consumer]}
        return RemotingCommand.request(RequestCode.HEART_BEAT, None, json.dumps(data).encode())

    async def _read(self, queue: MessageQueue) -> None:
        at: int | None = None
        while True:
            try:
                if at is None:
                    at = await self.consumer.committed(queue)
                    at = await self.consumer.min_offset(queue) if at is None else at
                result = await self.consumer.pull(queue, at, suspend_ms=SUSPEND_MS)
            except PullFailed:
                await asyncio.sleep(PAUSE_S)
                continue
            if result.status is PullStatus.OFFSET_ILLEGAL:
                at = None
                await asyncio.sleep(PAUSE_S)
                continue
            for message in result.messages:
                while not await self._finished(queue, message):  # noqa: ASYNC110 - it is tried again
                    await asyncio.sleep(PAUSE_S)
            at = max(at, result.next_offset)
            await self._commit(queue, at)

    async def _finished(self, queue: MessageQueue, message: StoredMessage) -> bool:
        return await self.handle(message) or await self._sent_back(queue, message)

    async def _sent_back(self, queue: MessageQueue, message: StoredMessage) -> bool:
        header = ConsumerSendMsgBackHeader(
            message.physical_offset,
            self.group,
            0,
            message.message_id,
            message.topic,
            False,
            self.reconsume_max,
        )
        with suppress(RemotingError, RouteUnknown):
            address = (await self.routes.get(queue.topic)).master(queue.broker_name)
            if address is not None:
                request = RemotingCommand.request(RequestCode.CONSUMER_SEND_MSG_BACK, header)
                return (await self.remoting.call(address, request)).code == 0
        return False

    async def _commit(self, queue: MessageQueue, offset: int) -> None:
        header = UpdateConsumerOffsetHeader(self.group, queue.topic, queue.queue_id, offset)
        with suppress(RemotingError, RouteUnknown):
            address = (await self.routes.get(queue.topic)).master(queue.broker_name)
            if address is not None:
                request = RemotingCommand.request(RequestCode.UPDATE_CONSUMER_OFFSET, header)
                await self.remoting.one_way(address, request)


def averagely(ids: list[str], own: str, queues: list[MessageQueue]) -> list[MessageQueue]:
    """Upstream: AllocateMessageQueueAveragely.allocate, statement by statement."""
    index, size, mod = ids.index(own), len(queues), len(queues) % len(ids)
    if size <= len(ids):
        average = 1
    elif mod > 0 and index < mod:
        average = size // len(ids) + 1
    else:
        average = size // len(ids)
    start = index * average if mod > 0 and index < mod else index * average + mod
    return [queues[(start + each) % size] for each in range(max(min(average, size - start), 0))]
