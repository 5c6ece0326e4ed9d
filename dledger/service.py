"""The leader's answers to clients' APPEND and GET, with DLedger's codes and JSON.

Invariant: each request is answered. The answer to an APPEND has code 200 if the entry was appended and committed, 502 if it may
be, and any other code if it was not appended. A GET is linearizable: a majority confirms the leader, and only committed entries
are returned."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from dledger.ledger import DLedger
from dledger.node.clientjson import (
    ClientCode,
    ClientEnvelope,
    bodies_of,
    encode_answer,
    entry_fields,
    envelope_of,
    index_of,
)
from dledger.node.messagejson import Fields, MessageError, decode_fields
from dledger.node.transport import HEADER_CODE, BadRequests
from dledger.raft.errors import EntryRefused, IndexOutOfRange, NotLeader, OutcomeUnknown, TooManyProposals
from dledger.raft.messages import ResultCode
from remoting.command import RemotingCommand
from remoting.peer import Peer

logger = logging.getLogger(__name__)

ACK_MS = 2500
"""Clients wait 3000 ms, so the answer must be sent earlier."""


class ClientService:
    """The service for the clients of one member; call `register` before the member starts."""

    def __init__(self, ledger: DLedger) -> None:
        self._ledger = ledger
        self._bad = BadRequests(logger, ledger.clock)

    def register(self) -> None:
        for code, answer in (
            (ClientCode.APPEND, self._append),
            (ClientCode.GET, self._get),
        ):
            self._ledger.router.add(code, self._answering(answer))

    def _answering(
        self, answer: Callable[[Fields], Awaitable[tuple[ResultCode, Fields]]]
    ) -> Callable[[Peer, RemotingCommand], Awaitable[RemotingCommand]]:
        async def handle(peer: Peer, command: RemotingCommand) -> RemotingCommand:
            envelope, code, found = ClientEnvelope("", ""), ResultCode.UNEXPECTED_ARGUMENT, Fields()
            try:
                fields = decode_fields(command.body)
                envelope = envelope_of(fields)
                code, found = self._addressed(envelope) or await answer(fields)
            except MessageError as error:
                found = {"remark": error.why}
                self._bad.refused(peer.remote_address, command.code, error)
            leader_id = self._ledger.leader_id
            return command.reply(HEADER_CODE, body=encode_answer(envelope, code, leader_id, found))

        return handle

    def _addressed(self, envelope: ClientEnvelope) -> tuple[ResultCode, Fields] | None:
        """The answer to a request that is meant for another member or group; else None."""
        if envelope.receiver != self._ledger.self_id:
            return ResultCode.UNKNOWN_MEMBER, {}
        return (ResultCode.UNKNOWN_GROUP, {}) if envelope.group != self._ledger.group else None

    async def _append(self, fields: Fields) -> tuple[ResultCode, Fields]:
        bodies = bodies_of(fields)
        try:
            appended = await self._ledger.append(*bodies, timeout_ms=ACK_MS)
        except NotLeader:
            return ResultCode.NOT_LEADER, {}
        except TooManyProposals:
            return ResultCode.LEADER_PENDING_FULL, {}
        except OutcomeUnknown:
            return ResultCode.WAIT_QUORUM_ACK_TIMEOUT, {}
        except ValueError as error:
            raise MessageError("body", [len(body) for body in bodies], str(error)) from None
        answer: Fields = {
            "index": appended.index,
            "pos": appended.position,
            "term": self._ledger.term,
        }
        refusals = {
            str(number): str(result)
            for number, result in enumerate(appended.results)
            if isinstance(result, EntryRefused)
        }
        return ResultCode.SUCCESS, answer | ({"refusals": refusals} if refusals else {})

    async def _get(self, fields: Fields) -> tuple[ResultCode, Fields]:
        index = index_of(fields)
        try:
            await self._ledger.read_index(ACK_MS)
            return ResultCode.SUCCESS, {"entries": [entry_fields(await self._ledger.get(index))]}
        except NotLeader:
            return ResultCode.NOT_LEADER, {"entries": []}
        except IndexOutOfRange as error:
            before = index < error.first
            code = ResultCode.INDEX_LESS_THAN_LOCAL_BEGIN if before else ResultCode.INDEX_OUT_OF_RANGE
            return code, {"entries": []}
