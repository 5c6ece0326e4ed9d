"""Servers that answer nonsense: every call ends in a readable error of the client."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from mqclient.client import Client
from mqclient.errors import EndOutcomeUnknown, LockFailed, PullFailed, SendOutcomeUnknown, SendRefused
from mqclient.route import MessageQueue
from mqclient.transactions import TransactionState
from remoting.command import RemotingCommand
from remoting.headers.send import SendMessageResponseHeader
from tests.unit.mqclient.servers import Server, cluster, stored_as, with_servers

QUEUE = MessageQueue("T", "b", 0)
SET = {"brokerName": "b", "cluster": "C", "brokerAddrs": {"0": "127.0.0.1:1"}}
QUEUES = {"brokerName": "b", "perm": 6, "readQueueNums": 1, "writeQueueNums": 1}


def route(*, of_set: dict[str, Any] | None = None, of_queues: dict[str, Any] | None = None) -> bytes:
    return orjson.dumps({"brokerDatas": [SET | (of_set or {})], "queueDatas": [QUEUES | (of_queues or {})]})


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"null",
        b"{",
        b"\xff",
        b"[" * 100_000,
        b'{"queueDatas":{}}',
        b'{"queueDatas":[1]}',
        b'{"queueDatas":[{"perm":6}]}',
        route(of_queues={"perm": None, "brokerName": None}),
        route(of_queues={"brokerName": ["b"]}),
        route().replace(b'"writeQueueNums":1', b'"writeQueueNums":1e999'),
        route(of_queues={"writeQueueNums": "1" * 5_000}),
        route(of_queues={"writeQueueNums": 1 << 30}),
        route(of_set={"brokerAddrs": {"0": 5.5e300}}).replace(b"5.5e300", b"[]"),
        route(of_set={"brokerAddrs": {"0": {"0": "127.0.0.1:1"}}}),
        route(of_set={"brokerAddrs": ["127.0.0.1:1"]}),
        route(of_set={"brokerAddrs": {"1e3": "127.0.0.1:1"}}),
        route(of_set={"brokerAddrs": {"0": "not an address"}}),
        route(of_set={"brokerAddrs": {"0": "\x00:1"}}),
        route(of_set={"brokerAddrs": {"0": "." * 70_000 + ":1"}}),
        b"{" + b"'a':1," * 200_000 + b"}",
    ],
)
def test_a_malformed_route_refuses_the_message(body: bytes) -> None:
    namesrv = Server(GET_ROUTEINFO_BY_TOPIC=lambda request: request.reply(body=body))

    async def scenario(client: Client) -> None:
        with pytest.raises(SendRefused) as refused:
            await client.producer("PG").send("T", b"x")
        assert len(str(refused.value)) < 80_000
        with pytest.raises(PullFailed):
            await client.consumer("CG").pull(QUEUE, 0)
        with pytest.raises(LockFailed):
            await client.locks("CG", "me").lock([QUEUE])

    with_servers(namesrv)(scenario)


def test_a_long_remark_is_shortened() -> None:
    namesrv, broker = cluster(stored_as(13, "no\n" * 1_000_000))

    async def scenario(client: Client) -> None:
        with pytest.raises(SendRefused, match="answered 13 no no no .*\\.\\.\\.$") as refused:
            await client.producer("PG").send("T", b"x")
        assert len(str(refused.value)) < 1_200

    with_servers(namesrv, broker)(scenario)


@pytest.mark.parametrize(
    "ext",
    [
        {},
        {"msgId": "7F", "queueId": "0"},
        {"msgId": "7F", "queueId": "0", "queueOffset": "9" * 30},
        {"msgId": "7F", "queueId": "4294967296", "queueOffset": "0"},
        {"msgId": "7F", "queueId": "", "queueOffset": "0"},
    ],
)
def test_an_incomplete_send_answer_leaves_the_outcome_unknown(ext: dict[str, str]) -> None:
    def answer(request: RemotingCommand) -> RemotingCommand:
        reply = request.reply()
        reply.ext = ext
        return reply

    namesrv, broker = cluster(answer)

    async def scenario(client: Client) -> None:
        with pytest.raises(SendOutcomeUnknown, match="incomplete"):
            await client.producer("PG").send("T", b"x")

    with_servers(namesrv, broker)(scenario)


@pytest.mark.parametrize("given", ["", "0A", "x" * 32, "0" * 15 + " ", "F" * 32, "1" * 15 + "_"])
def test_a_transaction_without_a_known_offset_ends_unknown(given: str) -> None:
    def stored(request: RemotingCommand) -> RemotingCommand:
        return request.reply(header=SendMessageResponseHeader(given, 0, 7))

    namesrv, broker = cluster(stored, HEART_BEAT=lambda request: request.reply())

    async def scenario(client: Client) -> None:
        producer = client.transactions("PG", lambda message: TransactionState.UNKNOWN)
        transaction = await producer.send("T", b"x")
        with pytest.raises(EndOutcomeUnknown, match="its broker gave it the id"):
            await transaction.commit()

    with_servers(namesrv, broker)(scenario)


@pytest.mark.parametrize("body", [b"", b"[]", b'{"lockOKMQSet":5}', b'{"lockOKMQSet":[{"queueId":"x"}]}'])
def test_a_lock_answer_without_the_locked_queues_is_a_failure(body: bytes) -> None:
    namesrv, broker = cluster(stored_as(), LOCK_BATCH_MQ=lambda request: request.reply(body=body))

    async def scenario(client: Client) -> None:
        locks = client.locks("CG", "me")
        with pytest.raises(LockFailed, match="unreadable answer"):
            await locks.lock([MessageQueue("T", "broker-a", 0)])

    with_servers(namesrv, broker)(scenario)
