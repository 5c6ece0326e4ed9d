"""A group has one transaction producer in a client, because brokers send their checks to the client."""

from __future__ import annotations

import asyncio
import re

import pytest

from mqclient.client import Client
from mqclient.errors import GroupTaken
from mqclient.message import StoredMessage
from mqclient.transactions import TransactionState
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.headers.transactions import CheckTransactionStateHeader, EndTransactionHeader
from tests.unit.mqclient.records import HALF
from tests.unit.mqclient.servers import Server, cluster, stored_as, with_servers

END = RequestCode.END_TRANSACTION


def commit(message: StoredMessage) -> TransactionState:
    return TransactionState.COMMIT


def rollback(message: StoredMessage) -> TransactionState:
    return TransactionState.ROLLBACK


def servers() -> tuple[Server, Server]:
    return cluster(
        stored_as(), HEART_BEAT=lambda request: request.reply(), END_TRANSACTION=lambda request: None
    )


async def asked(broker: Server) -> int:
    """The client's answer to a check of a transaction of PG."""
    ends = [request for request in broker.asked if request.code == END]
    while not broker.server._connections.peers:  # noqa: ASYNC110 - the socket is real, so is the waiting
        await asyncio.sleep(0.005)
    (peer,) = broker.server._connections.peers
    header = CheckTransactionStateHeader(0, 0x1000, "id", "id", "", broker_name="broker-a")
    peer.one_way(RemotingCommand.request(RequestCode.CHECK_TRANSACTION_STATE, header, HALF))
    while not (sent := [each for each in broker.asked if each.code == END and each not in ends]):  # noqa: ASYNC110 - as above
        await asyncio.sleep(0.005)
    return EndTransactionHeader.from_ext(sent[0].ext).commit_or_rollback


def test_a_second_producer_of_a_group_is_refused_and_the_first_answers_checks() -> None:
    namesrv, broker = servers()

    async def scenario(client: Client) -> None:
        async with client.transactions("PG", commit, topics=["T"]):
            with pytest.raises(
                GroupTaken,
                match=re.escape(
                    "group PG has a producer of transactions in this client: "
                    "use that one, close it first, or create the other one in its own Client"
                ),
            ) as refused:
                client.transactions("PG", rollback, client_id="another", topics=["T"])
            assert refused.value.group == "PG"
            async with client.transactions("OTHER", rollback, topics=["T"]):
                assert await asked(broker) == TransactionState.COMMIT

    with_servers(namesrv, broker)(scenario)


def test_a_group_is_free_again_once_its_producer_is_closed() -> None:
    namesrv, broker = servers()

    async def scenario(client: Client) -> None:
        async with client.transactions("PG", commit, topics=["T"]) as first:
            pass
        async with client.transactions("PG", rollback, topics=["T"]):
            assert await asked(broker) == TransactionState.ROLLBACK
            with pytest.raises(GroupTaken, match="group PG"):
                await first.__aenter__()
        async with first:
            assert await asked(broker) == TransactionState.COMMIT

    with_servers(namesrv, broker)(scenario)


def test_each_client_has_a_producer_of_the_group() -> None:
    namesrv, broker = servers()

    async def scenario(client: Client) -> None:
        async with Client(namesrv.address) as another:
            async with client.transactions("PG", commit), another.transactions("PG", rollback):
                pass

    with_servers(namesrv, broker)(scenario)
