"""Wrong arguments raise at once and do not affect other calls; wrong answers of a broker are skipped."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mqclient.client import Client
from mqclient.errors import PullFailed
from mqclient.message import OutgoingMessage, StoredMessage
from mqclient.route import MessageQueue
from remoting.command import RemotingCommand
from remoting.headers.pull import PullMessageResponseHeader
from tests.unit.mqclient.records import WORKED_RECORD
from tests.unit.mqclient.servers import cluster, stored_as, with_servers

QUEUE = MessageQueue("TopicTest", "broker-a", 1)
ASKED = {"CLUSTER": "DefaultCluster", "REPLY_TO_CLIENT": "me", "CORRELATION_ID": "7"}


@pytest.mark.parametrize("body", ["text", None, 5, ["x"], memoryview(b"words of four bytes ").cast("I")])
def test_a_body_that_is_not_bytes_is_a_type_error_and_the_connection_stays(body: Any) -> None:
    namesrv, broker = cluster(stored_as())

    async def scenario(client: Client) -> None:
        producer = client.producer("PG")
        await producer.send("T", b"connected")
        with pytest.raises(TypeError, match="a body is bytes, not"):
            await producer.send("T", body)
        with pytest.raises(TypeError, match="a body is bytes, not"):
            await producer.send_batch("T", [OutgoingMessage(body)])
        request = StoredMessage("T", 0, 0, 0, b"", ASKED, 0, 0, 0, "", 0, "", 0, 0, 100)
        with pytest.raises(TypeError, match="a body is bytes, not"):
            await client.requester("PG").reply(request, body)
        assert (await producer.send("T", bytearray(b"more"))).acknowledged

    with_servers(namesrv, broker)(scenario)
    assert [bytes(request.body or b"") for request in broker.asked] == [b"connected", b"more"]


@pytest.mark.parametrize("properties", [{"a": 5}, {"a": None}, {5: "a"}, {"a": b"x"}])
def test_a_property_that_is_no_text_is_a_type_error(properties: Any) -> None:
    namesrv, broker = cluster(stored_as())

    async def scenario(client: Client) -> None:
        with pytest.raises(TypeError):
            await client.producer("PG").send("T", b"x", properties=properties)

    with_servers(namesrv, broker)(scenario)
    assert not broker.asked


def test_a_reader_skips_messages_below_its_offset() -> None:
    def pulled(request: RemotingCommand) -> RemotingCommand:
        return request.reply(header=PullMessageResponseHeader(0, 6, 0, 6), body=WORKED_RECORD)

    namesrv, broker = cluster(stored_as(), PULL_MESSAGE=pulled)

    async def scenario(client: Client) -> None:
        consumer = client.consumer("CG")
        assert [message.queue_offset async for message in consumer.read(QUEUE, 3, 6)] == [3]
        assert [message.queue_offset async for message in consumer.read(QUEUE, 4, 6)] == []

    with_servers(namesrv, broker)(scenario)


def test_a_broker_that_answers_pulls_at_once_is_pulled_with_a_pause() -> None:
    def empty(request: RemotingCommand) -> RemotingCommand:
        return request.reply(19, header=PullMessageResponseHeader(0, 3, 0, 6))

    namesrv, broker = cluster(stored_as(), PULL_MESSAGE=empty)

    async def scenario(client: Client) -> None:
        consumer = client.consumer("CG")
        with pytest.raises(PullFailed, match="nothing to read at 3"):
            async with asyncio.timeout(60):
                _ = [message async for message in consumer.read(QUEUE, 3, 6, patience_ms=200)]

    with_servers(namesrv, broker)(scenario)
    assert len(broker.asked) <= 6
