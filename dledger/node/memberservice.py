"""The requests of operators: DLedger's METADATA, and DLEDGER_CHANGE_MEMBERS (51022), which shows and changes the members.

Invariant: each request is answered. The answer to a change has code 200 if the change is committed, 502 if it may be committed,
and any other code if nothing was appended."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping

from dledger.node.clientjson import ClientCode, ClientEnvelope, encode_answer, envelope_of
from dledger.node.messagejson import Fields, MessageError, choice, decode_fields, flag, text
from dledger.node.node import DLedgerNode
from dledger.node.transport import HEADER_CODE, BadRequests
from dledger.raft.entries import NO_INDEX
from dledger.raft.errors import ChangeRefused, NotLeader, OutcomeUnknown, RefusalReason
from dledger.raft.membership import Change, Step
from dledger.raft.messages import ResultCode
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.peer import Peer
from remoting.router import Router

logger = logging.getLogger(__name__)

COMMIT_MS_MAX = 2500
"""Clients wait 3000 ms, so the answer must be sent earlier."""
SHOW = "show"


class MemberService:
    """The service of one member of `group`; call `register` before the member starts. METADATA contains `counts()`.

    DLEDGER_CHANGE_MEMBERS has `step`, `member`, `address` and `dryRun`. `step` is a value of dledger.raft.membership.Step, or
    `show`, which any member answers from its own state. An answer has the present list, with `index` and `committed`. The
    leader's answer also has `missing`, the number of entries that each other member is missing. The answer to a change has the
    new list in `after`, or the reason in `why` and a `remark`."""

    def __init__(
        self,
        node: DLedgerNode,
        group: str,
        counts: Callable[[], Mapping[str, int]] = lambda: {},
        before_change: Callable[[], Awaitable[str | None]] | None = None,
    ) -> None:
        """`before_change()` is awaited before the voters change, for a program whose members hold more than the log. A result
        that is not None is the reason to refuse the change."""
        self._node = node
        self._group = group
        self._counts = counts
        self._before_change = before_change
        self._bad = BadRequests(logger, node.clock)

    def register(self, router: Router) -> None:
        router.add(ClientCode.METADATA, self._answering(self._metadata))
        router.add(RequestCode.DLEDGER_CHANGE_MEMBERS, self._answering(self._members))

    def _answering(
        self, answer: Callable[[Fields, Peer], Awaitable[tuple[ResultCode, Fields]]]
    ) -> Callable[[Peer, RemotingCommand], Awaitable[RemotingCommand]]:
        async def handle(peer: Peer, command: RemotingCommand) -> RemotingCommand:
            envelope, code, found = ClientEnvelope("", ""), ResultCode.UNEXPECTED_ARGUMENT, Fields()
            try:
                fields = decode_fields(command.body)
                envelope = envelope_of(fields)
                if envelope.receiver != self._node.self_id:
                    code = ResultCode.UNKNOWN_MEMBER
                elif envelope.group != self._group:
                    code = ResultCode.UNKNOWN_GROUP
                else:
                    code, found = await answer(fields, peer)
            except MessageError as error:
                found = {"remark": str(error)}
                self._bad.refused(peer.remote_address, command.code, error)
            return command.reply(HEADER_CODE, body=encode_answer(envelope, code, self._node.leader_id, found))

        return handle

    async def _metadata(self, fields: Fields, peer: Peer) -> tuple[ResultCode, Fields]:
        node = self._node
        core = node.core
        return ResultCode.SUCCESS, {
            "peers": dict(node.peers),
            "role": node.role.value,
            "active": node.is_active,
            "memberTerm": node.term,
            "firstIndex": core.log.first_index if core else 0,
            "lastIndex": node.last_index,
            "committedIndex": core.committed_index if core else NO_INDEX,
            "appliedIndex": node.applied_index,
            "counts": dict(self._counts()),
        }

    async def _members(self, fields: Fields, peer: Peer) -> tuple[ResultCode, Fields]:
        return (
            (ResultCode.SUCCESS, self._shown())
            if fields.get("step") == SHOW
            else await self._changed(fields, peer)
        )

    async def _changed(self, fields: Fields, peer: Peer) -> tuple[ResultCode, Fields]:
        step: Step = choice(Step, fields, "step")
        change = Change(step, text(fields, "member"), text(fields, "address"))
        before = self._shown()
        try:
            if flag(fields, "dryRun"):
                after = self._node.allowed(change)
            else:
                await self._prepare(change)
                _, after = await self._node.change_members(change, COMMIT_MS_MAX)
                logger.info("%s %s asked_by=%s", step.value, change.member, peer.remote_address)
        except NotLeader as elsewhere:
            return ResultCode.NOT_LEADER, before | {"leaderAddress": elsewhere.leader_address or ""}
        except ChangeRefused as refusal:
            return ResultCode.CHANGE_REFUSED, before | {"why": refusal.why.value, "remark": str(refusal)}
        except OutcomeUnknown as error:
            return ResultCode.WAIT_QUORUM_ACK_TIMEOUT, before | {"remark": str(error)}
        return ResultCode.SUCCESS, before | {"after": after.as_json()}

    async def _prepare(self, change: Change) -> None:
        """Checks `change` before it is made. Raises NotLeader, ChangeRefused."""
        if self._before_change is None or change.adds:
            return
        self._node.allowed(change)
        if (why := await self._before_change()) is not None:
            raise ChangeRefused(RefusalReason.NOT_BEGUN, why)

    def _shown(self) -> Fields:
        core = self._node.core
        if core is None:
            return {"index": NO_INDEX, "committed": False, "voters": dict(self._node.peers), "learners": {}}
        missing = {} if core.leader is None else {peer: core.leader.lag(peer) for peer in core.progress}
        shown = {"index": core.membership.index, "committed": core.members_committed, "missing": missing}
        return shown | core.membership.members.as_json()
