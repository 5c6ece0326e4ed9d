"""Requests of administrators that the broker passes on to connected consumers: for a consumer's state
(GET_CONSUMER_RUNNING_INFO, 307), for the offsets of a group's consumers in a topic (INVOKE_BROKER_TO_GET_CONSUMER_STATUS, 223),
and to consume a stored message now (CONSUME_MESSAGE_DIRECTLY, 309).

Invariant: a client only gets messages that readers may see, and its answer is returned unchanged. The size of the messages that
wait for clients is limited."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import nullcontext

from accesscontrol.guard import Access
from broker.access.needs import SUB, topic_need
from broker.clients.groups import ConsumerGroups, GroupClient
from broker.clients.readgate import ReadGate
from broker.clients.refusals import NO_READERS, REJECTED
from broker.clients.renewal import LONG_ANSWER_BYTES
from messagestore.record import decode, parse_message_id
from messagestore.store.brokerstore import BrokerStore
from mqruntime.log import fields
from mqruntime.slices import yield_to_loop
from remoting.bodies.queues import ConsumerStatusBody, MessageQueue
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import BodyError, CallTimeout, HeaderError, RemotingError
from remoting.headers.admin import ConsumerStatusHeader, GetConsumerRunningInfoHeader
from remoting.headers.messages import ConsumeMessageDirectlyHeader
from remoting.peer import Peer
from remoting.router import Router

CLIENT_TIMEOUT_MS = 10_000
STATUS_TIMEOUT_MS = 2_000
"""An administrator waits 3 s or 5 s, and should get the answers that came by then."""
STATUS_DIALECT_MAX = 256 << 10
"""Limit of an answer in Java's dialect of JSON, in which queues are keys."""
ASKED_MAX, ASKED_A_TURN = 10_000, 100
"""Clients whose offsets are asked for at a time, and in one turn of the event loop."""
PASSING_BYTES_MAX = 64 << 20
"""Limit of the messages that wait for their consumers; a single consumer that does not read can reach this limit."""

logger = logging.getLogger("broker.clients")


class ClientCalls:
    """The handlers."""

    def __init__(
        self,
        broker_name: str,
        consumers: ConsumerGroups,
        store: BrokerStore,
        reading: ReadGate,
        access: Access,
    ) -> None:
        self._broker_name = broker_name
        self._consumers = consumers
        self._store = store
        self._reading = reading
        self._access = access
        self._passing_bytes = 0
        self._decoding = asyncio.Lock()
        """Long answers that come together are decoded in one turn of the event loop each."""
        self._asked = 0
        """The number of clients that are being asked for their offsets."""

    def add_to(self, router: Router) -> None:
        router.add(RequestCode.GET_CONSUMER_RUNNING_INFO, self._running_info)
        router.add(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, self._status)
        router.add(RequestCode.CONSUME_MESSAGE_DIRECTLY, self._consume)

    async def _running_info(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        header = GetConsumerRunningInfoHeader.from_ext(command.ext)
        return await self._pass_on(command, header, header.client_id)

    async def _status(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        """The offsets of each client of a group, each asked with GET_CONSUMER_STATUS_FROM_CLIENT (221). A client that does not
        answer is left out, as in upstream."""
        header = ConsumerStatusHeader.from_ext(command.ext)
        found = self._consumers.find(header.group)
        if found is None:
            remark = f"No Any Consumer online in the consumer group: [{header.group}]"
            return command.reply(ResponseCode.SYSTEM_ERROR, remark)
        wanted = header.client_addr or ""
        clients = [client for client in found.clients.values() if wanted in ("", client.client_id)]
        if self._asked + len(clients) > ASKED_MAX:
            return command.reply(ResponseCode.SYSTEM_BUSY, REJECTED)
        self._asked += len(clients)
        try:
            offsets_by_client = await _statuses_of(clients, header, self._decoding)
        finally:
            self._asked -= len(clients)
        table = {
            client.client_id: offsets
            for client, offsets in zip(clients, offsets_by_client, strict=True)
            if offsets is not None
        }
        if len(table) < len(clients):
            silent = fields(group=header.group, clients=len(clients), without=len(clients) - len(table))
            logger.debug("consumers do not report their offsets", extra=silent)
        return command.reply(body=ConsumerStatusBody(consumer_table=table).encode())

    async def _consume(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        header = ConsumeMessageDirectlyHeader.from_ext(command.ext)
        if not self._reading.serves_reads:
            return command.reply(ResponseCode.SYSTEM_BUSY, NO_READERS)
        try:
            _, offset = parse_message_id(header.msg_id or "")
        except ValueError:
            raise HeaderError(
                "msgId", header.msg_id, "the id that a broker gave a message is required"
            ) from None
        record = await self._store.listed_at(offset) if offset >= 0 else None
        if record is None:
            return command.reply(ResponseCode.SYSTEM_ERROR, f"can not find message by id: {header.msg_id}")
        need = topic_need(decode(record, verify_body=False).topic, SUB)  # whatever topic the request names
        if (why := self._access.why_not(peer, command, need)) is not None:
            return command.reply(ResponseCode.NO_PERMISSION, why)
        header.broker_name = self._broker_name
        size = len(record)
        if self._passing_bytes + size > PASSING_BYTES_MAX:
            return command.reply(ResponseCode.SYSTEM_BUSY, REJECTED)
        self._passing_bytes += size
        try:
            return await self._pass_on(command, header, header.client_id or "", bytes(record))
        finally:
            self._passing_bytes -= size

    async def _pass_on(
        self,
        command: RemotingCommand,
        header: ConsumeMessageDirectlyHeader | GetConsumerRunningInfoHeader,
        client_id: str,
        body: bytes | None = None,
    ) -> RemotingCommand:
        """Ask the client. It gets the fields of `header` only: with the administrator's signature, and values that it chose
        itself, it could send requests of its own."""
        group = header.consumer_group
        found = self._consumers.find(group)
        client = found.clients.get(client_id) if found is not None else None
        if client is None:
            return command.reply(
                ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online"
            )
        question = RemotingCommand.request(command.code, header, body)
        try:
            answer = await client.peer.call(question, CLIENT_TIMEOUT_MS)
        except CallTimeout as error:
            return command.reply(
                ResponseCode.CONSUME_MSG_TIMEOUT, f"consumer <{group}> <{client_id}> Timeout: {error}"
            )
        except RemotingError as error:
            return command.reply(
                ResponseCode.SYSTEM_ERROR, f"invoke consumer <{group}> <{client_id}> Exception: {error}"
            )
        return command.reply(answer.code, answer.remark, answer.ext, answer.body)


async def _statuses_of(
    clients: Sequence[GroupClient], header: ConsumerStatusHeader, decoding: asyncio.Lock
) -> list[dict[MessageQueue, int] | None]:
    """The offsets of each client, all asked at the same time; None for a client that does not answer."""
    asking: list[asyncio.Task[dict[MessageQueue, int] | None]] = []
    try:
        for client in clients:
            work = _status_of(client, header, decoding)
            asking.append(asyncio.create_task(work, name="offsets of a consumer"))
            if len(asking) % ASKED_A_TURN == 0:
                await yield_to_loop()
        return await asyncio.gather(*asking)
    finally:
        for each in asking:
            each.cancel()


async def _status_of(
    client: GroupClient, header: ConsumerStatusHeader, decoding: asyncio.Lock
) -> dict[MessageQueue, int] | None:
    asked = ConsumerStatusHeader(header.topic, header.group)
    question = RemotingCommand.request(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, asked)
    try:
        answer = await client.peer.call(question, STATUS_TIMEOUT_MS)
        if answer.code == ResponseCode.SUCCESS and answer.body:
            is_long = len(answer.body) > LONG_ANSWER_BYTES
            async with decoding if is_long else nullcontext():
                read = ConsumerStatusBody.from_request(answer.body, dialect_max=STATUS_DIALECT_MAX)
                if is_long:
                    await yield_to_loop()
            return read.message_queue_table
    except (RemotingError, BodyError):
        pass
    return None
