"""Handles sends: checks them, stores all sends of one receive with one append, and answers when the replicas have the messages.
Upstream: SendMessageProcessor.

Invariant: a send is answered OK only once the acknowledged end covers it. A rejected send was not stored. Sends that need not
wait for replicas are answered in the order of the requests, after the sends that waited before them. No task, timer or future
belongs to a single message."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable

from broker.clients.refusals import BATCH_COMPRESSED, ClientRefused, put_refusal
from broker.clients.requesters import Requesters
from broker.metrics.latencies import Latencies
from broker.metrics.totals import Totals
from broker.replication.pending import PendingRun, PendingSend
from broker.replication.writegate import ClientLog, WriteGate
from broker.sends.admission import SendAdmission
from broker.sends.request import SendRequest, read_send_request
from messagestore.messages import MessageToStore, PlainSends, PutResult, ReplyForm
from messagestore.record import COMPRESSED, offset_message_id, pack_host
from messagestore.systemtopics import HALF_TOPIC
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RESPONSE_BIT, RemotingCommand
from remoting.errors import HeaderError
from remoting.frame import START, encode
from remoting.peer import Peer
from remoting.plainsends import commands_of

SEND_CODES = {RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE}

SUCCESS = int(ResponseCode.SUCCESS)
REPLY_PROPERTIES = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}


class SendProcessor:
    """Serves SEND_MESSAGE (10), SEND_MESSAGE_V2 (310) and SEND_BATCH_MESSAGE (320) of all connections."""

    def __init__(
        self,
        *,
        log: ClientLog,
        admission: SendAdmission,
        gate: WriteGate,
        half_stored: Callable[[MessageToStore, PutResult], None],
        totals: Totals | None = None,
        latencies: Latencies | None = None,
        requesters: Requesters | None = None,
    ) -> None:
        """`half_stored` is called with each half message that was stored."""
        self._half_stored = half_stored
        self._log = log
        self._admission = admission
        self._gate = gate
        self._requesters = requesters
        self._totals = totals
        self._latencies = latencies
        self.stored = 0
        self._reply_parts = _reply_parts()

    def handle_plain(self, peer: Peer, sends: PlainSends) -> None:
        """Like `handle`, for a receive that was parsed as plain sends."""
        if not self._stored_plain(peer, sends):
            self.handle(peer, commands_of(sends))

    def _stored_plain(self, peer: Peer, sends: PlainSends) -> bool:
        """Store all `sends` at once. Returns False if that is not possible; then nothing was stored."""
        if self._gate.refusal() is not None:
            return False
        if not sends.queues_within([self._admission.plain_queues(topic.decode()) for topic in sends.topics]):
            return False
        deadline_ms = self._gate.deadline_ms()
        admission = self._admission
        reply = ReplyForm(self._reply_parts, admission.unique_key_prefix, admission.unique_keys_given)
        appended = self._log.append_plain(sends, packed_address(peer), admission.added_properties, reply)
        if appended is None:
            return False
        admission.unique_keys_given += sends.unnamed
        for (_, _, records), times in appended.amounts.items():
            self.stored += records * times
        if appended.ends:
            run = PendingRun(
                appended.ends, appended.frames, appended.frame_ends, deadline_ms, peer, sends.code
            )
            if self._gate.reachable(run.end_offset):
                self._gate.pending.add(run)
            else:
                for send in run.each():
                    send.alone = not self._gate.reachable(send.end_offset)
                    if send.alone:
                        send.reply.code = ResponseCode.SLAVE_NOT_AVAILABLE.value
                    self._gate.pending.add(send)
        if self._totals is not None:
            self._totals.plain_sends_stored(appended.amounts)
        self._gate.settle()
        return True

    def handle(self, peer: Peer, commands: list[RemotingCommand]) -> None:
        """Answer all `commands`, at once or when the messages are replicated."""
        answers: list[RemotingCommand | None] = [None] * len(commands)  # None: the answer has to wait
        accepted: list[tuple[int, SendRequest, str]] = []
        messages: list[MessageToStore] = []
        born_host = packed_address(peer)
        refusal = self._gate.refusal()
        for number, command in enumerate(commands):
            try:
                if refusal is not None:
                    raise refusal
                request = read_send_request(command.code, command.ext)
                self._check_requester(request, peer, command)
                message, uniq_key = self._admission.message(request, command, born_host)
            except ClientRefused as refused:
                answers[number] = refused.reply_to(command)
            except HeaderError as error:
                answers[number] = command.reply(ResponseCode.SYSTEM_ERROR, str(error))
            else:
                accepted.append((number, request, uniq_key))
                messages.append(message)
                if self._requesters is not None and (client_id := request.asks_reply_for):
                    self._requesters.asked(client_id, peer, command)
        if messages:
            self._store(peer, commands, accepted, messages, answers)
        replies = [
            answer
            for answer, command in zip(answers, commands, strict=True)
            if answer is not None and not command.is_oneway
        ]
        if replies:
            if self._latencies is not None:
                self._latencies.answered_at_once(commands, replies, peer.active_at_ms)
            peer.send(replies)

    def _check_requester(self, request: SendRequest, peer: Peer, command: RemotingCommand) -> None:
        """Check that the reply to this request would not go to another user. Raises ClientRefused."""
        if self._requesters is not None and (client_id := request.asks_reply_for):
            why = self._requesters.why_not(client_id, peer, command)
            if why is not None:
                raise ClientRefused(ResponseCode.NO_PERMISSION, why)

    def _store(
        self,
        peer: Peer,
        commands: list[RemotingCommand],
        accepted: list[tuple[int, SendRequest, str]],
        messages: list[MessageToStore],
        answers: list[RemotingCommand | None],
    ) -> None:
        """Append `messages`, those of the `accepted` sends among `commands`. Put replies that need not wait into `answers`."""
        deadline_ms = self._gate.deadline_ms()
        pending = self._gate.pending
        stored, stored_bytes = self.stored, 0
        results = self._log.append(messages)
        settled_end = self._gate.settled_end()
        for (number, request, uniq_key), message, appended in zip(accepted, messages, results, strict=True):
            command = commands[number]
            if appended.error is not None:
                code, remark = put_refusal(appended)
                if code == ResponseCode.MESSAGE_ILLEGAL and request.batch and request.sys_flag & COMPRESSED:
                    remark = BATCH_COMPRESSED  # the C++ client compresses batches of 4 KiB and more
                answers[number] = command.reply(code, remark)
                continue
            if message.topic == HALF_TOPIC:
                self._half_stored(message, appended)
            self.stored += appended.count
            stored_bytes += appended.record_bytes
            if command.is_oneway:
                continue
            fields = self._reply_fields(request.queue_id, appended, uniq_key)
            reply = _reply(command.opaque, fields)
            if request.waits_for_replicas and appended.end_offset > settled_end:
                alone = not self._gate.reachable(appended.end_offset)
                if alone:
                    reply.code = ResponseCode.SLAVE_NOT_AVAILABLE.value
                waiting = PendingSend(
                    appended.end_offset, deadline_ms, peer, reply, command.code, alone=alone
                )
                pending.add(waiting)
            else:
                answers[number] = reply
        if self._totals is not None:
            self._totals.sends_stored(messages, results, self.stored - stored, stored_bytes)
        self._gate.settle()  # answers sends that need not wait, because there is no slave

    def _reply_fields(self, queue_id: int, appended: PutResult, uniq_key: str) -> dict[str, str]:
        host = self._log.store_host
        if appended.physical_offsets:
            message_id = ",".join(offset_message_id(host, offset) for offset in appended.physical_offsets)
        else:
            message_id = offset_message_id(host, appended.physical_offset)
        return _reply_fields(message_id, str(queue_id), str(appended.queue_offset), uniq_key)


def _reply_fields(message_id: str, queue_id: str, queue_offset: str, uniq_key: str) -> dict[str, str]:
    return {
        "msgId": message_id,
        "queueId": queue_id,
        "queueOffset": queue_offset,
        "transactionId": uniq_key,
        **REPLY_PROPERTIES,
    }


def _reply(opaque: int, fields: dict[str, str]) -> RemotingCommand:
    return RemotingCommand(SUCCESS, opaque, RESPONSE_BIT, None, fields)


def _reply_parts() -> tuple[bytes, ...]:
    """The header of a reply, split at the fields that differ between sends: message id, queue id and offset, unique key and
    opaque."""
    marks = "@1", "@2", "@3", "@4"
    mark = 1_234_567_890
    (frame,) = encode(_reply(mark, _reply_fields(*marks)))
    rest = bytes(frame)[START.size :]
    parts = []
    for each in (*marks, str(mark)):
        part, _, rest = rest.partition(each.encode())
        parts.append(part)
    return (*parts, rest)


def packed_address(peer: Peer) -> bytes:
    """The peer's address in the encoding of records; 127.0.0.1:0 if the peer has no IP address."""
    packed = peer.attributes.get("packed_address")
    if not isinstance(packed, bytes):
        host, _, port = peer.remote_address.rpartition(":")
        try:
            packed = pack_host(str(ipaddress.ip_address(host.strip("[]"))), int(port))
        except ValueError:
            packed = pack_host("127.0.0.1", 0)
        peer.attributes["packed_address"] = packed
    return packed
