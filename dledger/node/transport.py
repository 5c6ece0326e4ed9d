"""The members' messages on the wire: requests out and answers in, and requests in and answers out. The module also logs
requests that this member cannot read. Upstream: DLedgerRpcNettyService.

Invariant: a request that reached the core is answered once, when the core returns the answer. A request that cannot be read, or
that is meant for another member or group, is answered here and changes nothing. A host is logged at most once in `REMIND_MS`,
and the last HOSTS_MAX hosts are remembered, so a client that can reach the port cannot fill the disk with log lines."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from typing import Protocol

from dledger.node.authenticator import MessageRefusal, PeerAuthenticator, TheirList
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
"""For each kind, the limit of requests to one peer that wait for an answer. More requests are rejected, so no kind uses up the
room of another kind."""
COMPARES_MAX = 3
"""The limit of PUSH calls above the setting's limit of PUSHes in flight. It is needed because the leader gives up a PUSH before
its call ends."""
SAID_MAX = 100
OF_ANOTHER_KIND = (
    "does not know the members' requests: it speaks DLedger as Java does, and shares no group with this member, or is "
    "none; correct the list of members"
)
CALL_TIMEOUTS = 2
"""A call is given up after this multiple of the longest election timeout, so that answers delayed by a slow disk still
count."""


class Receiver(Protocol):
    """The member behind the transport."""

    def receive(self, sender: str, message: Message, ticket: int) -> bool:
        """Handles a message. The `ticket` of a request is passed to `answer` later. Returns False if no answer will come."""
        ...

    def unsent(self, peer: str, request: Request) -> None:
        """Called when the request was rejected here, or when no answer to it will come."""
        ...

    def connection_lost(self, peer: str) -> None:
        """Called when the connection that brought the newest request of `peer` has ended."""
        ...

    async def transfer_leadership(self, target: str | None) -> ResultCode:
        """Transfers the leadership on an operator's request."""
        ...

    def suppress_elections(self) -> None:
        """Called when another group has a leader and counts this member as its own."""
        ...

    def ask_for_members(self) -> None:
        """Called when a node that is not in the list of members shows a newer list, which known members must confirm."""
        ...


class PeerTransport:
    """The transport of one member. `peers` maps ids to addresses; the owner of `peers` updates it when the members change."""

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
        """For each peer the open connections that brought its requests. The connection of the newest request is last."""
        self.silent_ms = settings.election_timeout_max_ms
        self.reads_frames: set[str] = set()
        """The peers that read frames according to their last message."""
        self.guard = guard
        self.starts = starts
        self.calls: Counter[tuple[str, MessageCode]] = Counter()
        self.last_ticket = 0
        self.answers: dict[int, asyncio.Future[Response | None]] = {}
        self.said: set[tuple[str, str]] = set()
        """The warnings about unreadable answers that were logged for each peer. They are logged once, because such answers
        repeat."""
        self.bad = BadRequests(logger, clock)

    def register(self, router: Router) -> None:
        for code in MessageCode:
            router.add(code, self.on_request)

    def ask(self, to: str, request: Request) -> None:
        """Sends a request. The answer is passed to `receive`; if there is none, the request is passed to `unsent`."""
        code = CODE_OF[type(request)]
        if isinstance(request, PushRequest) and not self.fits(to, request):
            self.receiver.unsent(to, request)
        elif self.calls[to, code] < self.calls_max[code]:
            self.calls[to, code] += 1
            self.tasks.start(self.call(to, code, request), name=f"dledger-{code.name} {self.self_id}->{to}")
        else:
            self.receiver.unsent(to, request)

    def fits(self, to: str, push: PushRequest) -> bool:
        """Whether `push` may be sent. A receiver closes the connection if a frame is too large, and then misses heartbeats. No
        new entry is too large for a frame, but older logs may have such entries."""
        size = Entries.of(push.entries).body_bytes
        if size <= PUSHED_BYTES_MAX:
            return True
        index = push.prev_index + 1
        if self.too_large.failed((to, index), self.clock.monotonic_ms()):
            logger.error(
                "%s is missing entry %d, and a PUSH with it has %d bytes where %d are allowed: this member sends it nothing "
                "behind that entry. If nothing is committed any more, stop this member until another leads; else the member "
                "gets a snapshot, once one covers that entry",
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
        """The answer of `to`; None if no answer comes that the core may see. The reason is logged."""
        address = self.guard.address_of(to)
        if address is None:  # the member was removed since
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
        """The envelope of a message that this member writes."""
        mine = self.guard.peer_list, self.frames, self.guard.members_index, self.guard.origin
        return Envelope(group, sender, receiver, *mine, self.starts.text)

    async def on_request(self, peer: Peer, command: RemotingCommand) -> RemotingCommand | None:
        """Answers every request with a JSON body, because a Java caller would wait for ever without a body."""
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
        refusal = await self.guard.check_request(
            envelope.sender, request, theirs, peer.remote_address, peer.certificate
        )
        if refusal is MessageRefusal.PEERS and isinstance(request, HeartBeatRequest | PushRequest):
            await self.judge_other_leader(envelope, peer)
        may_ask = refusal in (None, MessageRefusal.UNCONFIRMED)
        if may_ask and self.guard.needs_confirmation(envelope.sender, theirs):
            self.receiver.ask_for_members()
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

    def say_once(self, peer: str, text: str) -> None:
        if (peer, text) in self.said or len(self.said) >= SAID_MAX:
            logger.debug("peer=%s %s", peer, text)
        else:
            self.said.add((peer, text))
            logger.warning("peer=%s %s", peer, text)

    async def judge_other_leader(self, envelope: Envelope, peer: Peer) -> None:
        """Handles a leader with another list of members that includes this member: this member must not lead too."""
        if await self.guard.is_rival(
            envelope.sender, list_of(envelope), peer.remote_address, peer.certificate
        ):
            self.receiver.suppress_elections()

    def note_frames(self, peer: str, envelope: Envelope) -> None:
        """Records whether `peer` reads frames, as its last message says. A peer may have gone back to an older version."""
        if envelope.frames < FRAMES:
            self.reads_frames.discard(peer)
        elif peer in self.peers:
            self.reads_frames.add(peer)

    def spoke(self, peer: Peer, sender: str) -> None:
        """Records the connection that brings the requests of `sender`. A member uses one connection at a time, so an older
        silent connection is dead: a member that lost power does not close its connection. If both connections are used, two
        processes claim this id. Neither process may make this member close the other's connection repeatedly."""
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
        """Sends the core's answer to the request with this ticket."""
        answer = self.answers.get(ticket)
        if answer is not None and not answer.done():
            answer.set_result(response)

    def close(self) -> None:
        """Ends the waiting requests without an answer."""
        for answer in self.answers.values():
            if not answer.done():
                answer.set_result(None)


def is_unknown_there(response: Response) -> bool:
    """Whether the answering member does not know this member. This holds whatever the terms are."""
    answer = (HeartBeatResponse, PushResponse, InstallResponse, TransferResponse)
    return isinstance(response, answer) and response.code is ResultCode.UNKNOWN_MEMBER


def list_of(envelope: Envelope) -> TheirList:
    return TheirList(envelope.peers, envelope.members_index, envelope.origin)


def refuse(command: RemotingCommand, envelope: Envelope, code: ResultCode) -> RemotingCommand:
    return command.reply(HEADER_CODE, body=encode_refusal(envelope, code))


REMIND_MS = 60_000
HOSTS_MAX = 256
REASON_LENGTH_MAX = 200


class BadRequests:
    """Logs the bad requests of one service."""

    def __init__(self, logger: logging.Logger, clock: Clock) -> None:
        self._logger = logger
        self._clock = clock
        self._hosts = RepeatedFailures(REMIND_MS, HOSTS_MAX)

    def refused(self, address: str, code: int, why: Exception) -> None:
        """Logs that a request `code` from `address` was refused."""
        if self._hosts.failed(address.rpartition(":")[0], self._clock.monotonic_ms()):
            reason = str(why)[:REASON_LENGTH_MAX]
            self._logger.warning(
                "peer=%s request=%d refused, logged once a minute: %s", address, code, reason
            )
