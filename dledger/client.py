"""A client of a group. The client finds the leader, and reports whether the outcome of a request is certain.

Invariant: an append is sent again only if it was certainly not carried out before. Otherwise OutcomeUnknown is raised."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dledger.node.clientjson import ClientCode, ClientEnvelope, append_fields, encode, entry_of
from dledger.node.memberservice import SHOW
from dledger.node.messagejson import Envelope, Fields, MessageError, decode_fields, encode_request, number
from dledger.raft.entries import NO_INDEX, NO_TERM, Entry
from dledger.raft.errors import EntryRefused, NotLeader, OutcomeUnknown, RefusalReason
from dledger.raft.membership import Change, Step
from dledger.raft.messages import MessageCode, ResultCode, TransferRequest
from remoting.client import RemotingClient
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.errors import FrameTooLong, NotSent, RemotingError

CALL_MS = 3000
TRY_AGAIN_S = 0.05
PROMOTE_RETRY_MS = 200
TRANSIENT_REASONS = {
    RefusalReason.NOT_LEVEL.value,
    RefusalReason.UNDER_WAY.value,
    RefusalReason.NOT_BEGUN.value,
    RefusalReason.HANDING_OVER.value,
}
"""If a change was refused for one of these reasons, it may succeed a moment later."""
CLIENT_ID = "client"
"""The sender of a client's requests; no member has this id."""
REASONS = {
    ResultCode.UNKNOWN_GROUP: "it is a member of another group; correct --group",
    ResultCode.UNKNOWN_MEMBER: "another member listens there, or it knows no such member; correct --peers",
    ResultCode.UNEXPECTED_ARGUMENT: "it cannot read the request; an entry has 1 byte to 4 MiB, an index is 0 or more",
    ResultCode.LEADER_PENDING_FULL: "too many entries wait there; nothing was appended, try again later",
    ResultCode.INDEX_OUT_OF_RANGE: "no entry with this index is committed yet; status shows the last committed one",
    ResultCode.INDEX_LESS_THAN_LOCAL_BEGIN: "this entry was deleted; status shows where the log begins",
    ResultCode.TAKE_LEADERSHIP_FAILED: "nobody took over, and the leader stays; check that the others run",
    ResultCode.LEADER_TRANSFERRING: "a leadership transfer is under way already",
}


class Refused(Exception):
    """A member answered with another code than 200. The member did nothing."""

    def __init__(self, member: str, code: int, remark: str = "", why: str = "") -> None:
        known = REASONS.get(ResultCode(code), "") if code in {*ResultCode} else ""
        super().__init__(f"{member} refused with {code}: {remark or known or 'see its log'}")
        self.member = member
        self.code = code
        self.remark = remark
        self.why = why
        """A value of dledger.raft.errors.RefusalReason, if a change of the members was refused."""


class Answer(NamedTuple):
    """The result of an APPEND."""

    first_index: int
    position: int
    refusals: dict[int, EntryRefused]
    """The refused bodies, by the number of the body."""


class DLedgerClient:
    """The client. `peers` maps ids to "host:port". Each call ends after about `timeout_ms`."""

    def __init__(
        self, peers: Mapping[str, str], group: str, client: RemotingClient, timeout_ms: int = CALL_MS
    ) -> None:
        self.peers = dict(peers)
        self.group = group
        self.timeout_ms = timeout_ms
        self._client = client
        self._leader: str | None = None

    async def append(self, bodies: Sequence[bytes]) -> Answer:
        """Appends entries, in the order of `bodies`. Raises NotLeader (no member leads), Refused or FrameTooLong if nothing was
        appended, else OutcomeUnknown."""
        fields = await self._led(ClientCode.APPEND, append_fields(bodies))
        refusals = fields.get("refusals") or {}
        return Answer(
            number(0, fields, "index"),
            number(NO_INDEX, fields, "pos"),
            {int(key): EntryRefused(why) for key, why in refusals.items()},
        )

    async def get(self, index: int) -> Entry:
        """A committed entry, read from the leader. Raises NotLeader, Refused, OutcomeUnknown (no answer)."""
        return entry_of(await self._led(ClientCode.GET, {"beginIndex": index}))

    async def status(self) -> dict[str, Fields | RemotingError | Refused]:
        """The METADATA of each member, or the reason why it did not answer. Includes members that are not in `peers` but in
        another member's list."""
        found: dict[str, Fields | RemotingError | Refused] = {}
        while unasked := [member for member in self.peers if member not in found]:
            answers = await asyncio.gather(*map(self._status_of, unasked))
            found |= zip(unasked, answers, strict=True)
            for answer in answers:
                if isinstance(answer, dict):
                    self._learn(answer)
        return found

    async def transfer(self, target: str | None) -> str:
        """Transfers the leadership to `target`, or to the leader's choice. Returns the former leader, which may be `target`.

        Raises: NotLeader, Refused, OutcomeUnknown."""
        async with asyncio.timeout(self.timeout_ms / 1000):
            leader = await self._find_leader()
        if leader == target:
            return leader
        request = TransferRequest(NO_TERM, leader, target or "", NO_INDEX)
        body = encode_request(Envelope(self.group, CLIENT_ID, leader), request)
        command = RemotingCommand.request(MessageCode.LEADERSHIP_TRANSFER, body=body)
        try:
            fields = decode_fields(
                (await self._client.call(self.peers[leader], command, self.timeout_ms)).body
            )
        except (RemotingError, MessageError) as error:
            raise OutcomeUnknown(f"{leader} did not answer ({error})") from error
        if (code := fields.get("code", 0)) != ResultCode.SUCCESS:
            stranger = f"{target} is not among {', '.join(self.peers)}, or does not vote"
            raise Refused(leader, code, stranger if target and code == ResultCode.UNKNOWN_MEMBER else "")
        return leader

    # Members

    async def members(self) -> Fields:
        """The members as the leader knows them. Raises NotLeader, Refused, OutcomeUnknown (no answer)."""
        return await self._led(RequestCode.DLEDGER_CHANGE_MEMBERS, {"step": SHOW})

    async def change(self, change: Change, *, dry_run: bool = False) -> Fields:
        """Changes the members; with `dry_run` it only asks whether the change is allowed. Returns the list before the change
        and the list `after` it.

        Raises: NotLeader or Refused if nothing was changed, else OutcomeUnknown."""
        wish = {"step": change.step.value, "member": change.member, "address": change.address}
        return await self._led(RequestCode.DLEDGER_CHANGE_MEMBERS, wish | {"dryRun": dry_run})

    async def add(self, member: str, address: str, catch_up_ms: int) -> Fields:
        """Adds `member` as a learner, and promotes it to a voter once it has caught up. If that takes longer than
        `catch_up_ms`, the member stays a learner and Refused is raised. A member that is already a learner is only promoted."""
        before = await self.members()
        if before["learners"].get(member) != address:
            await self.change(Change(Step.ADD, member, address))
        tries = max(1, catch_up_ms // PROMOTE_RETRY_MS)
        while True:
            try:
                promoted = await self.change(Change(Step.PROMOTE, member))
                return before | {"after": promoted["after"]}
            except Refused as refusal:
                tries -= 1
                if refusal.why not in TRANSIENT_REASONS or not tries:
                    raise
            await asyncio.sleep(PROMOTE_RETRY_MS / 1000)

    async def remove(self, member: str) -> Fields:
        """Removes `member`. If `member` leads, it transfers its leadership first. Raises what `change` and `transfer` raise."""
        while True:
            try:
                return await self.change(Change(Step.REMOVE, member))
            except Refused as refusal:
                if refusal.why != RefusalReason.LEADS.value:
                    raise
            await self.transfer(None)
            self._leader = None

    # One request to the leader

    async def _led(self, code: int, fields: Fields) -> Fields:
        try:
            async with asyncio.timeout(self.timeout_ms / 1000) as limit:
                while True:
                    leader = self._leader or await self._find_leader()
                    try:
                        answer = await self._asked(leader, code, fields)
                    except FrameTooLong:
                        raise
                    except NotSent:
                        self._leader = None
                    except RemotingError as error:
                        self._leader = None
                        raise OutcomeUnknown(f"{leader} did not answer ({error})") from error
                    else:
                        if answer["code"] == ResultCode.SUCCESS:
                            return answer
                        self._judge(leader, answer)
                    await asyncio.sleep(TRY_AGAIN_S)
        except TimeoutError:
            if not limit.expired():
                raise
            raise self._timed_out() from None

    def _timed_out(self) -> Exception:
        if self._leader is not None:
            return OutcomeUnknown(f"{self._leader} did not answer within {self.timeout_ms} ms")
        return NotLeader(None, None)

    def _judge(self, leader: str, answer: Fields) -> None:
        """Returns only if another member should be asked; otherwise raises."""
        code = answer["code"]
        if code == ResultCode.WAIT_QUORUM_ACK_TIMEOUT:
            raise OutcomeUnknown(f"{leader} leads, and no majority answered it in time")
        if code != ResultCode.NOT_LEADER:
            raise Refused(leader, code, answer.get("remark") or "", answer.get("why") or "")
        named = answer.get("leaderId")
        self._leader = named if named in self.peers and named != leader else None

    async def _find_leader(self) -> str:
        """Asks all members until a member answers that it serves, or until TimeoutError ends the search."""
        while True:
            for member, found in (await self.status()).items():
                if isinstance(found, dict) and found.get("active"):
                    self._leader = member
                    return member
            await asyncio.sleep(TRY_AGAIN_S)

    def _learn(self, metadata: Fields) -> None:
        """Adds members that joined after `peers` was written."""
        for member, address in (metadata.get("peers") or {}).items():
            self.peers.setdefault(member, address)

    async def _status_of(self, member: str) -> Fields | RemotingError | Refused:
        try:
            fields = await self._asked(member, ClientCode.METADATA, {})
        except RemotingError as error:
            return error
        code = fields["code"]
        return fields if code == ResultCode.SUCCESS else Refused(member, code)

    async def _asked(self, member: str, code: int, fields: Fields) -> Fields:
        """The fields of the answer, which contain its `code`. Raises RemotingError."""
        body = encode(ClientEnvelope(self.group, member), fields)
        address = self.peers[member]
        reply = await self._client.call(address, RemotingCommand.request(code, body=body), self.timeout_ms)
        try:
            answer = decode_fields(reply.body)
            number(0, answer, "code")
        except MessageError as error:
            raise RemotingError(
                address, f"no member of a DLedger group that serves clients: {error}"
            ) from None
        return answer
