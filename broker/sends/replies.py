"""Replies to requests of clients (SEND_REPLY_MESSAGE, 324 and 325): each reply is pushed (326) over the connection of the
requesting client. The answer to the replying client reports whether the requesting client took the reply. Upstream:
ReplyMessageProcessor.

Invariant: a reply is pushed to one client, once. Storing the reply afterwards does not change the answer. A client that is
connected to a former master of this set is reached through that broker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from ipaddress import ip_address

from broker.clients.refusals import REJECTED, ClientRefused
from broker.clients.requesters import Requesters
from broker.metrics.totals import Totals
from broker.replication.pending import PendingSend
from broker.replication.writegate import ClientLog, WriteGate
from broker.sends.admission import SendAdmission
from broker.sends.processor import REPLY_PROPERTIES, SEND_CODES, packed_address
from broker.sends.request import REPLY_TO_CLIENT, SendRequest, read_send_request
from messagestore.messages import MessageToStore
from messagestore.properties import last_value
from messagestore.record import offset_message_id
from mqruntime.clock import Clock
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Body, RemotingCommand
from remoting.errors import HeaderError, RemotingError
from remoting.headers.send import ReplyMessageHeader, SendMessageHeader
from remoting.peer import Peer
from remoting.router import Router

PUSH_REPLY_TIME = "PUSH_REPLY_TIME"
NOBODY_NAMED = "reply message properties[REPLY_TO_CLIENT] is null"
PUSH_TIMEOUT_MS = 10_000
PUSHES_MAX = 10_000
PUSHING_BYTES_MAX = 64 << 20
"""Limits the replies that wait for their clients; a single client that does not read can reach this limit."""


class Replies:
    """The handlers of SEND_REPLY_MESSAGE (324) and SEND_REPLY_MESSAGE_V2 (325). `stores` returns whether replies are also
    stored, in the topic that they name. `recheck` returns the refusal of a reply that waited for the requesting client; None if
    its client may still send it."""

    def __init__(
        self,
        *,
        log: ClientLog,
        admission: SendAdmission,
        gate: WriteGate,
        requesters: Requesters,
        clock: Clock,
        stores: Callable[[], bool],
        totals: Totals | None = None,
        recheck: Callable[[Peer, RemotingCommand], RemotingCommand | None] = lambda peer, command: None,
    ) -> None:
        self._log = log
        self._admission = admission
        self._gate = gate
        self._requesters = requesters
        self._clock = clock
        self._stores = stores
        self._recheck = recheck
        self._totals = totals
        self._pushing = 0
        self._pushing_bytes = 0

    def add_to(self, router: Router) -> None:
        router.add(RequestCode.SEND_REPLY_MESSAGE, self.handle)
        router.add(RequestCode.SEND_REPLY_MESSAGE_V2, self.handle)

    async def handle(self, peer: Peer, command: RemotingCommand) -> RemotingCommand | None:
        """Answer when the requesting client has taken the reply or cannot be reached. If the reply is stored, the answer also
        waits until the replicas have it."""
        if (refusal := self._gate.role_refusal()) is not None:
            return refusal.reply_to(command)
        if self._pushing >= PUSHES_MAX or self._pushing_bytes >= PUSHING_BYTES_MAX:
            return command.reply(ResponseCode.SYSTEM_BUSY, REJECTED)
        header = SendMessageHeader.of(command)
        request = read_send_request(command.code, command.ext)
        try:
            message, _ = self._admission.message(request, command, packed_address(peer))
        except ClientRefused as refused:
            return refused.reply_to(command)
        client_id = request.value_of(REPLY_TO_CLIENT)
        why = (
            await self._push(client_id, self._question(peer, command, header)) if client_id else NOBODY_NAMED
        )
        code = ResponseCode.SUCCESS if why is None else ResponseCode.SYSTEM_ERROR
        placed = {"msgId": "0", "queueId": str(request.queue_id), "queueOffset": "0"} if why is None else {}
        answer = command.reply(code, why, {**placed, **REPLY_PROPERTIES})
        if not self._stores() or self._gate.refusal() is not None or self._recheck(peer, command) is not None:
            return answer
        return self._store(peer, command, request, message, answer)

    async def passed_back(self, command: RemotingCommand) -> RemotingCommand:
        """Push a reply from the successor to its client, which is connected here. Returns the answer for the successor."""
        properties = command.ext.get("properties", "")
        client_id = last_value(properties.encode(), REPLY_TO_CLIENT.encode()).decode()
        peer = self._requesters.find(client_id, own=True)
        if peer is None:
            return command.reply(ResponseCode.SYSTEM_ERROR, _not_found(client_id))
        why = await self._call(peer, client_id, _question(command.ext, command.body))
        return command.reply(ResponseCode.SUCCESS if why is None else ResponseCode.SYSTEM_ERROR, why)

    def passed_on(self, peer: Peer, commands: Sequence[RemotingCommand]) -> None:
        """Record requests that this broker passes on to the successor: it returns their replies through this broker."""
        for command in commands:
            if command.code in SEND_CODES and any(
                "REPLY_TO_CLIENT\x01" in value for value in command.ext.values()
            ):
                try:
                    client_id = read_send_request(command.code, command.ext).asks_reply_for
                except HeaderError:
                    continue  # the successor will reject it
                if client_id:
                    self._requesters.asked(client_id, peer, command)

    # -- the requesting client

    def _question(self, peer: Peer, command: RemotingCommand, header: SendMessageHeader) -> RemotingCommand:
        now_ms = self._clock.now_ms()
        properties = header.properties or ""
        if properties and properties[-1] != "\x02":
            properties += "\x02"
        host = self._log.store_host
        pushed = ReplyMessageHeader(
            header.producer_group,
            header.topic,
            header.default_topic,
            header.default_topic_queue_nums,
            header.queue_id,
            header.sys_flag,
            header.born_timestamp,
            header.flag,
            peer.remote_address,
            f"{ip_address(host[:-4])}:{int.from_bytes(host[-4:])}",
            now_ms,
            f"{properties}{PUSH_REPLY_TIME}\x01{now_ms}\x02",
            header.reconsume_times,
            bool(header.unit_mode),
        )
        return _question(pushed.to_ext(), command.body)

    async def _push(self, client_id: str, question: RemotingCommand) -> str | None:
        """Push the reply. Returns the reason why the client did not take it; None if the client took it."""
        size = len(question.body or b"") + len(question.ext.get("properties", ""))
        self._pushing += 1
        self._pushing_bytes += size
        try:
            peer = self._requesters.find(client_id)
            if peer is not None:
                return await self._call(peer, client_id, question)
            for former in self._requesters.former():
                if await self._call(former, client_id, _question(question.ext, question.body)) is None:
                    return None
            return _not_found(client_id)
        finally:
            self._pushing -= 1
            self._pushing_bytes -= size

    async def _call(self, peer: Peer, client_id: str, question: RemotingCommand) -> str | None:
        try:
            answer = await peer.call(question, PUSH_TIMEOUT_MS)
        except RemotingError:
            return _failed(client_id)
        return None if answer.code == ResponseCode.SUCCESS else _failed(client_id)

    # -- the store

    def _store(
        self,
        peer: Peer,
        command: RemotingCommand,
        request: SendRequest,
        message: MessageToStore,
        answer: RemotingCommand,
    ) -> RemotingCommand | None:
        properties = request.properties.encode()  # as sent: a reply is no half and has no delay
        message = replace(message, topic=request.topic, queue_id=request.queue_id, properties=properties)
        (appended,) = self._log.append([message])
        if appended.error is not None:
            return answer
        if self._totals is not None:
            self._totals.sends_stored([message], [appended], 1, appended.record_bytes)
        if command.is_oneway:
            return None
        answer.ext["msgId"] = offset_message_id(self._log.store_host, appended.physical_offset)
        answer.ext["queueId"], answer.ext["queueOffset"] = str(message.queue_id), str(appended.queue_offset)
        gate = self._gate
        alone = not gate.reachable(appended.end_offset)
        gate.pending.add(
            PendingSend(
                appended.end_offset, gate.deadline_ms(), peer, answer, command.code, answer, alone=alone
            )
        )
        gate.settle()
        return None


def _question(ext: dict[str, str], body: Body | None) -> RemotingCommand:
    return RemotingCommand.request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, ext, body)


def _not_found(client_id: str) -> str:
    return f"push reply message fail, channel of <{client_id}> not found."


def _failed(client_id: str) -> str:
    return f"push reply message to {client_id}fail."  # upstream's text
