"""No response of another member, however malformed, ends the member that asked."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from typing import Any

import pytest

from dledger.node.transport import PeerTransport
from dledger.raft.entries import Entry
from dledger.raft.messages import (
    HeartBeatRequest,
    MessageCode,
    PushRequest,
    PushType,
    Request,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from dledger.raft.settings import PUSHED_BYTES_MAX
from remoting.command import RemotingCommand
from scripts.peers.waits import WAIT_S
from tests.unit.dledger.ledgergroup import LedgerGroup

TO_US = {"group": "g", "localId": "n0", "remoteId": "n1"}
ACCEPTS = TO_US | {"term": 4, "ballotTerm": 4, "voteResult": "ACCEPT", "preVote": False}


class Answering:
    """Replaces the client: a peer that answers every request with `body`."""

    def __init__(self, body: bytes) -> None:
        self.body = body

    async def call(self, address: str, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        return command.reply(200, body=self.body)


def answers(bodies: Sequence[dict[str, Any] | list[int]], request: Request) -> list[object]:
    async def run() -> list[object]:
        talk: PeerTransport = LedgerGroup(2).made("n0")._node._transport
        code = MessageCode.VOTE if isinstance(request, VoteRequest) else MessageCode.HEART_BEAT
        found: list[object] = []
        for body in bodies:
            talk.client = Answering(json.dumps(body).encode())  # type: ignore[assignment]
            found.append(await talk.answer_of("n1", code, request))
        return found

    return asyncio.run(run())


@pytest.mark.parametrize("request_", [VoteRequest(4, 1, 3), HeartBeatRequest(4)], ids=["vote", "heartbeat"])
@pytest.mark.parametrize(
    ("fields", "logged"),
    [
        ({"term": -1}, "bad answer: code = None"),
        ({"term": -1, "code": "401"}, "bad answer: code = '401'"),
        ({"term": -1, "code": None}, "bad answer: code = None"),
        ({"term": -1, "code": 401}, "refused with 401"),
        ({"code": 401}, "bad answer: term = None"),
        ({}, "bad answer: term = None"),
    ],
)
def test_a_malformed_refusal_is_logged_and_ignored(
    fields: dict[str, Any], logged: str, request_: Request, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "dledger.node.transport"):
        assert answers([TO_US | fields, TO_US | fields], request_) == [None, None]
    assert logged in caplog.text


def test_a_response_of_another_group_is_ignored_with_or_without_a_code(
    caplog: pytest.LogCaptureFixture,
) -> None:
    other = ACCEPTS | {"group": "other"}
    assert answers([other, other | {"code": 200}], VoteRequest(4, 1, 3)) == [None, None]
    assert "refused with None" in caplog.text and "refused with 200" in caplog.text


def test_a_valid_response_is_returned() -> None:
    assert answers([ACCEPTS, [1]], VoteRequest(4, 1, 3)) == [
        VoteResponse(4, 4, VoteResult.ACCEPT, False),
        None,
    ]


def test_a_stored_entry_too_large_for_a_push_is_logged_and_never_sent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The receiver would close the connection, and with it the heartbeats, again and again."""
    unsent: list[Request] = []

    class Listening(Answering):
        def __init__(self) -> None:
            super().__init__(b"[]")
            self.asked: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        async def call(self, address: str, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
            self.asked.set_result(command.code)
            return await super().call(address, command, timeout_ms)

    async def run() -> None:
        talk: PeerTransport = LedgerGroup(2).made("n0")._node._transport
        client = talk.client = Listening()  # type: ignore[assignment]
        talk.receiver.unsent = lambda to, request: unsent.append(request)
        large, fits = (
            PushRequest(4, PushType.APPEND, 6, 3, 6, (Entry(7, 4, bytes(PUSHED_BYTES_MAX + more)),))
            for more in (1, 0)
        )
        talk.ask("n1", large)
        talk.ask("n1", large)
        assert unsent == [large, large] and not talk.calls
        talk.ask("n1", fits)
        assert await asyncio.wait_for(client.asked, WAIT_S) == MessageCode.PUSH

    asyncio.run(run())
    errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(errors) == 1 and errors[0].startswith("n1 is missing entry 7, and a PUSH with it has ")
