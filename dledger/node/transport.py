"""The members' messages on the wire: requests out, answers in, and the other way round.

Invariant: a request that reached the core is answered once, when the core says so; a request that cannot be
read, or was meant for another member or group, is answered here and changes nothing."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from typing import Protocol

from dledger.node.authenticator import PeerAuthenticator, Refusal, TheirList
from dledger.node.badrequests import BadRequests
from dledger.node.messageframe import FRAMES
from dledger.node.messagejson import (
    Envelope,
    MessageError,
    decode_envelope,
    decode_request,
    decode_response,
    encode_refusal,
    encode_request,
    encode_response,
    framed_request,
)
from dledger.node.starts import Starts
from dledger.raft.entries import Entries
from dledger.raft.messages import (
    CODE_OF,
    HeartBeatRequest,
    HeartBeatResponse,
    InstallResponse,
    Message,
    MessageCode,
    PushRequest,
    PushResponse,
    Request,
    Response,
    ResultCode,
    TransferRequest,
    TransferResponse,
)
from dledger.raft.settings import PUSHED_BYTES_MAX, DLedgerSettings
from mqruntime.clock import Clock
from mqruntime.repeatedfailures import RepeatedFailures
from mqruntime.tasks import Tasks
from remoting.client import RemotingClient
from remoting.command import RemotingCommand
from remoting.errors import RemotingError
from remoting.peer import REPLACED, Peer
from remoting.router import Router

logger = logging.getLogger(__name__)

HEADER_CODE = 200
CALLS_MAX = {
    MessageCode.VOTE: 8,
    MessageCode.HEART_BEAT: 32,
    MessageCode.LEADERSHIP_TRANSFER: 2,
    MessageCode.STANDING: 2,
    MessageCode.INSTALL_SNAPSHOT: 2,
}
"""Requests of a kind to one peer that wait for an answer; more are refused, so that no kind takes another's place."""
COMPARES_MAX = 3
"""PUSHes beside those that the settings allow to be under way: the leader gives those up sooner than their calls end."""
SAID_MAX = 100
OF_ANOTHER_KIND = (
    "does not know what members ask each other: it speaks DLedger as Java does, and shares no group with this member, or is "
    "none; correct the list of members"
)
CALL_TIMEOUTS = 2
"""A call is given up after so many of the longest election timeouts: answers that a slow disk delayed count."""


class Receiver(Protocol):
    """The member behind the transport."""

    def receive(self, sender: str, message: Message, ticket: int) -> bool:
        """Takes a message. The `ticket` of a request comes back in `answer`; False: no answer will come."""
        ...

    def unsent(self, peer: str, request: Request) -> None:
        """The request was rejected here, or no answer to it will come."""
        ...

    def connection_lost(self, peer: str) -> None:
        """The connection that brought the newest request of `peer` has ended."""
        ...

    async def transfer_leadership(self, target: str | None) -> ResultCode:
        """An operator asks for it."""
        ...

    def suppress_elections(self) -> None:
        """Another group counts this member as its own and has a leader."""
        ...


class PeerTransport:
    """`peers` maps ids to addresses; its owner changes it when members change."""

    frames = FRAMES

    def __init__(
        self,
        *,
        group: str,
        self_id: str,
        peers: Mapping[str, str],
        client: RemotingClient,
        tasks: Tasks,
        clock: Clock,
        settings: DLedgerSettings,
        receiver: Receiver,
        guard: PeerAuthenticator,
        starts: Starts,
    ) -> None:
        self.group = group
        self.self_id = self_id
        self.peers = peers
        self.client = client
        self.tasks = tasks
        self.clock = clock
        self.too_large = RepeatedFailures()
        self.timeout_ms = CALL_TIMEOUTS * settings.election_timeout_max_ms
        self.calls_max = CALLS_MAX | {MessageCode.PUSH: settings.pushes_in_flight_max + COMPARES_MAX}
        self.receiver = receiver
        self.inbound: dict[str, dict[Peer, None]] = {}
        """The open connections that brought each peer's requests, that of the newest one last."""
        self.silent_ms = settings.election_timeout_max_ms
        self.reads_frames: set[str] = set()
        """The peers that said so last."""
        self.guard = guard
        self.starts = starts
        self.calls: Counter[tuple[str, MessageCode]] = Counter()
        self.last_ticket = 0
        self.answers: dict[int, asyncio.Future[Response | None]] = {}
        self.said: set[tuple[str, str]] = set()
        """What was said of which peer, about answers that cannot be read: such come again and again."""
        self.bad = BadRequests(logger, clock)

    def register(self, router: Router) -> None:
        for code in MessageCode:
            router.add(code, self.on_request)

    def ask(self, to: str, request: Request) -> None:
        """Sends a request; its answer goes to `receive`, or the request to `unsent`."""
        code = CODE_OF[type(request)]
        if isinstance(request, PushRequest) and not self.fits(to, request):
            self.receiver.unsent(to, request)
        elif self.calls[to, code] < self.calls_max[code]:
            self.calls[to, code] += 1
            self.tasks.start(self.call(to, code, request), name=f"dledger-{code.name} {self.self_id}->{to}")
        else:
            self.receiver.unsent(to, request)

    def fits(self, to: str, push: PushRequest) -> bool:
        """Whether it is to be sent: who gets a frame that is too large ends the connection, and so misses heartbeats. No new
        entry is too large for one; older logs may have such."""
        size = Entries.of(push.entries).body_bytes
        if size <= PUSHED_BYTES_MAX:
            return True
        index = push.prev_index + 1
        if self.too_large.failed((to, index), self.clock.monotonic_ms()):
            logger.error(
                "%s lacks entry %d, and a PUSH with it has %d bytes where %d are allowed: it gets nothing behind it from this "
                "member. Where nothing is decided any more, stop this member until another leads; else it gets a snapshot, "
                "once one stands for that entry",
                to, index, size, PUSHED_BYTES_MAX,
            )  # fmt: skip
        return False

    async def call(self, to: str, code: MessageCode, request: Request) -> None:
        try:
            response = await self.answer_of(to, code, request)
        finally:
            self.calls[to, code] -= 1
        if response is None:
            self.receiver.unsent(to, request)
        else:
            self.receiver.receive(to, response, 0)

    async def answer_of(self, to: str, code: MessageCode, request: Request) -> Response | None:
        """None when none will come that the core may see; the log says why."""
        address = self.guard.address_of(to)
        if address is None:  # removed since
            return None
        envelope = self.envelope(self.group, self.self_id, to)
        framed = to in self.reads_frames
        body, *behind = framed_request(envelope, request) if framed else [encode_request(envelope, request)]
        command = RemotingCommand.request(code, body=body, behind=behind)
        try:
            reply = await self.client.call(address, command, self.timeout_ms)
            if not reply.body:
                self.say_once(to, OF_ANOTHER_KIND)
                return None
            answered, fields = decode_envelope(reply.body)
            self.note_frames(to, answered)
            response = decode_response(code, fields)
        except RemotingError as error:
            logger.debug("peer=%s request=%s unanswered: %s", to, code.name, error)
            return None
        except MessageError as error:
            self.say_once(to, f"request={code.name} bad answer: {error}")
            return None
        if response is None and self.guard.check_refusal(to, list_of(answered)) is not None:
            return None
        if response is None or answered != envelope:
            why = fields.get("code")
            logger.warning("peer=%s request=%s refused with %s in group %s", to, code.name, why, self.group)
            return None
        refused = self.guard.check_response(to, response, list_of(answered)) is not None
        if refused or not await self.starts.heed(to, answered.start_numbers):
            return None
        return None if is_unknown_there(response) else response

    def envelope(self, group: str, sender: str, receiver: str) -> Envelope:
        """As this member writes it."""
        mine = self.guard.peer_list, self.frames, self.guard.members_index, self.guard.origin
        return Envelope(group, sender, receiver, *mine, self.starts.text)

    async def on_request(self, peer: Peer, command: RemotingCommand) -> RemotingCommand | None:
        """Whatever comes, the answer has a JSON body: a Java caller would wait for ever without one."""
        envelope = Envelope(self.group, "", self.self_id)
        try:
            envelope, fields = decode_envelope(command.body)
            if envelope.receiver != self.self_id:
                return refuse(command, envelope, ResultCode.UNKNOWN_MEMBER)
            if envelope.group != self.group:
                return refuse(command, envelope, ResultCode.UNKNOWN_GROUP)
            request = decode_request(command.code, envelope, fields)
        except MessageError as error:
            self.bad.refused(peer.remote_address, command.code, error)
            return refuse(command, envelope, ResultCode.UNEXPECTED_ARGUMENT)
        if isinstance(request, TransferRequest) and request.transfer_id == self.self_id:
            code = await self.receiver.transfer_leadership(request.transferee_id or None)
            return refuse(command, envelope, code)
        theirs = list_of(envelope)
        refusal = await self.guard.check_request(envelope.sender, request, theirs, peer.remote_address)
        if refusal is Refusal.PEERS and isinstance(request, HeartBeatRequest | PushRequest):
            await self.judge_other_leader(envelope, peer)
        mine = envelope.group, envelope.sender, envelope.receiver
        if refusal is not None:
            return refuse(command, self.envelope(*mine), refusal.code)
        await self.starts.heed(envelope.sender, envelope.start_numbers)
        self.spoke(peer, envelope.sender)
        self.note_frames(envelope.sender, envelope)
        response = await self.response_to(envelope.sender, request)
        if response is None:
            return None
        return command.reply(HEADER_CODE, body=encode_response(self.envelope(*mine), response))

    def say_once(self, who: str, what: str) -> None:
        if (who, what) in self.said or len(self.said) >= SAID_MAX:
            logger.debug("peer=%s %s", who, what)
        else:
            self.said.add((who, what))
            logger.warning("peer=%s %s", who, what)

    async def judge_other_leader(self, envelope: Envelope, peer: Peer) -> None:
        """One leads that counts this member as its own, in another list: two leaders of one group must not be."""
        if await self.guard.is_rival(envelope.sender, list_of(envelope), peer.remote_address):
            self.receiver.suppress_elections()

    def note_frames(self, peer: str, envelope: Envelope) -> None:
        """One that is of an older version now refused a frame, or said nothing of them."""
        if envelope.frames < FRAMES:
            self.reads_frames.discard(peer)
        elif peer in self.peers:
            self.reads_frames.add(peer)

    def spoke(self, peer: Peer, sender: str) -> None:
        """A member has one connection with this one at a time: where another brings its words, and nothing comes over the one
        before for a while, that one has no end there any more. Of one that lost power nobody would tell. While two speak, two
        processes say that they are this member: neither shall end the other's again and again."""
        if sender not in self.peers or peer.closed:
            return
        links = self.inbound.setdefault(sender, {})
        if peer not in links:
            peer.on_close(lambda gone: self.closed(sender, gone))
        links.pop(peer, None)
        links[peer] = None
        if len(links) > 1:
            for former in list(links):
                if peer.active_at_ms - former.active_at_ms >= self.silent_ms:
                    former.cut(REPLACED)

    def closed(self, sender: str, peer: Peer) -> None:
        links = self.inbound[sender]
        is_newest = next(reversed(links)) is peer
        del links[peer]
        if not links:
            del self.inbound[sender]
        if is_newest:
            self.receiver.connection_lost(sender)

    async def response_to(self, sender: str, request: Request) -> Response | None:
        self.last_ticket += 1
        ticket = self.last_ticket
        answer: asyncio.Future[Response | None] = asyncio.get_running_loop().create_future()
        self.answers[ticket] = answer
        try:
            return await answer if self.receiver.receive(sender, request, ticket) else None
        finally:
            del self.answers[ticket]

    def answer(self, ticket: int, response: Response) -> None:
        """The core's answer to the request that `receive` got with this ticket."""
        answer = self.answers.get(ticket)
        if answer is not None and not answer.done():
            answer.set_result(response)

    def close(self) -> None:
        """Requests that wait for an answer get none."""
        for answer in self.answers.values():
            if not answer.done():
                answer.set_result(None)


def is_unknown_there(response: Response) -> bool:
    """Whether the answering member takes us for a stranger, in whatever term."""
    answer = (HeartBeatResponse, PushResponse, InstallResponse, TransferResponse)
    return isinstance(response, answer) and response.code is ResultCode.UNKNOWN_MEMBER


def list_of(envelope: Envelope) -> TheirList:
    return TheirList(envelope.peers, envelope.members_index, envelope.origin)


def refuse(command: RemotingCommand, envelope: Envelope, code: ResultCode) -> RemotingCommand:
    return command.reply(HEADER_CODE, body=encode_refusal(envelope, code))
