"""Too long messages are refused before they are sent, and do not affect other calls of the connection."""

from __future__ import annotations

import asyncio

import pytest

from mqclient.client import Client
from mqclient.errors import MessageTooLong, ReplyFailed
from mqclient.message import OutgoingMessage, StoredMessage
from tests.unit.mqclient.servers import cluster, stored_as, with_servers

PROPERTIES_BYTES = 32_767
OF_A_SEND = len("UNIQ_KEY\x01" + "F" * 32 + "\x02WAIT\x01true\x02" + "a\x01\x02")
MIB = 1 << 20


def test_properties_of_the_maximum_length_are_sent() -> None:
    namesrv, broker = cluster(stored_as())

    async def scenario(client: Client) -> None:
        for filler in "x\x03":  # the second takes six bytes each in a JSON header
            sent = {"a": filler * (PROPERTIES_BYTES - OF_A_SEND)}
            assert (await client.producer("PG").send("T", b"x", properties=sent)).acknowledged

    with_servers(namesrv, broker)(scenario)


@pytest.mark.parametrize(
    ("properties", "why"),
    [
        ({"a": "x" * (PROPERTIES_BYTES - OF_A_SEND + 1)}, "properties of 32768 bytes; 32767 are allowed"),
        ({"a": "é" * 20_000}, "properties of 400.. bytes; 32767 are allowed"),
    ],
)
def test_properties_that_are_too_long_are_refused_before_the_send(
    properties: dict[str, str], why: str
) -> None:
    namesrv, broker = cluster(stored_as())

    async def scenario(client: Client) -> None:
        producer = client.producer("PG")
        with pytest.raises(MessageTooLong, match=why):
            await producer.send("T", b"x", properties=properties, patience_ms=60_000)
        with pytest.raises(MessageTooLong, match=why):
            await producer.send_batch("T", [OutgoingMessage(b"x", properties)], patience_ms=60_000)

    with_servers(namesrv, broker)(scenario)
    assert not broker.asked


def test_a_message_above_the_frame_limit_does_not_affect_other_calls() -> None:
    namesrv, broker = cluster(lambda request: None)

    async def scenario(client: Client) -> None:
        producer = client.producer("PG")
        waiting = asyncio.create_task(producer.send("T", b"is answered later", timeout_ms=60_000))
        while not broker.asked:  # noqa: ASYNC110 - the socket is real, so is the waiting
            await asyncio.sleep(0.005)
        with pytest.raises(MessageTooLong, match="a frame of 1.* bytes; 16777216 are allowed"):
            unbounded = client.producer("PG", message_bytes_max=None)
            await unbounded.send("T", bytes(16 * MIB), patience_ms=60_000)
        (peer,) = broker.server._connections.peers
        peer.send([stored_as()(broker.asked[0])])
        assert (await waiting).acknowledged

    with_servers(namesrv, broker)(scenario)


def test_a_reply_with_properties_that_are_too_long_is_not_sent() -> None:
    namesrv, broker = cluster(stored_as())
    asked = {"CLUSTER": "DefaultCluster", "REPLY_TO_CLIENT": "me", "CORRELATION_ID": "7"}
    request = StoredMessage("T", 0, 0, 0, b"", asked, 0, 0, 0, "127.0.0.1:1", 0, "127.0.0.1:2", 0, 0, 100)

    async def scenario(client: Client) -> None:
        with pytest.raises(ReplyFailed, match="32767 are allowed"):
            await client.requester("PG").reply(request, b"yes", properties={"a": "x" * 40_000})

    with_servers(namesrv, broker)(scenario)


def test_a_body_above_the_limit_is_refused_unless_the_limit_is_raised() -> None:
    namesrv, broker = cluster(stored_as())

    async def scenario(client: Client) -> None:
        producer, larger = client.producer("PG"), client.producer("PG", message_bytes_max=5 * MIB)
        why = "a body of 5242880 bytes; 4194304 are allowed"
        with pytest.raises(MessageTooLong, match=why):
            await producer.send("T", bytes(5 * MIB), patience_ms=60_000)
        with pytest.raises(MessageTooLong, match="are allowed"):
            await producer.send_batch("T", [OutgoingMessage(bytes(3 * MIB))] * 2)
        assert not broker.asked
        assert (await larger.send("T", bytes(5 * MIB))).acknowledged
        assert (await producer.send("T", bytes(4 * MIB))).acknowledged

    with_servers(namesrv, broker)(scenario)
