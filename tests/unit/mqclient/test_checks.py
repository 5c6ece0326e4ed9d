"""The answers of a producer to a broker's transaction check."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from accesscontrol.guard import is_signed
from mqclient.client import Client
from mqclient.message import StoredMessage
from mqclient.transactions import CheckRequests, TransactionState
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.headers.transactions import CheckTransactionStateHeader, EndTransactionHeader
from remoting.signing import Credentials, Signer
from tests.unit.mqclient.records import HALF
from tests.unit.mqclient.servers import cluster, stored_as, with_servers


@pytest.mark.parametrize("answer", [None, True, 8, "COMMIT"])
def test_a_check_result_that_is_no_state_is_logged_and_leaves_it_open(
    answer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    ended: list[RemotingCommand] = []
    namesrv, broker = cluster(
        stored_as(),
        HEART_BEAT=lambda request: request.reply(),
        END_TRANSACTION=lambda request: ended.append(request),
    )
    answers = [answer, TransactionState.COMMIT]

    async def scenario(client: Client) -> None:
        async with client.transactions("PG", lambda message: answers.pop(0), topics=["T"]):
            while not broker.asked:  # noqa: ASYNC110 - the socket is real, so is the waiting
                await asyncio.sleep(0.005)
            (peer,) = broker.server._connections.peers
            for message_id in ("first", "second"):
                header = CheckTransactionStateHeader(
                    0, 0x1000, message_id, message_id, "", broker_name="broker-a"
                )
                peer.one_way(RemotingCommand.request(RequestCode.CHECK_TRANSACTION_STATE, header, HALF))
            while not ended:  # noqa: ASYNC110 - the socket is real, so is the waiting
                await asyncio.sleep(0.005)

    with caplog.at_level(logging.ERROR, "mqclient"):
        with_servers(namesrv, broker)(scenario)
    said = [EndTransactionHeader.from_ext(request.ext) for request in ended]
    assert [(header.msg_id, header.commit_or_rollback) for header in said] == [("second", 8)]
    assert f"answered {answer!r}, which is no TransactionState" in caplog.text


class Answers:
    """A producer that commits, and the connection over which it answers."""

    group = "PG"
    remote_address = "10.0.0.1:10911"

    def __init__(self) -> None:
        self.sent: list[RemotingCommand] = []

    async def asked(self, message: StoredMessage) -> TransactionState:
        return TransactionState.COMMIT

    def one_way(self, command: RemotingCommand) -> None:
        self.sent.append(command)


def test_the_answer_to_a_check_is_signed_like_a_request() -> None:
    here: Any = Answers()
    checks = CheckRequests(Signer(Credentials("alice", "alice-password")))
    checks.add(here)
    header = CheckTransactionStateHeader(0, 0x1000, "id", "id", "", broker_name="broker-a")
    asyncio.run(
        checks.handle(here, RemotingCommand.request(RequestCode.CHECK_TRANSACTION_STATE, header, HALF))
    )
    [ending] = here.sent
    assert ending.ext["AccessKey"] == "alice"
    assert is_signed(ending, b"alice-password")
