"""What clients ask that other brokers' clients ask, too: long headers, odd delays, names at the edge. Each over the wire."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mqclient.message import decode_messages
from remoting.bodies.heartbeats import ConsumerData, HeartbeatData, SubscriptionData
from remoting.codes import RequestCode, ResponseCode
from remoting.command import JSON, ROCKETMQ, RemotingCommand
from remoting.frame import HEADER_BYTES_MAX
from remoting.headers.pull import PullMessageHeader
from simulation.kernel.world import World
from tests.unit.broker.served import Served

PROPERTIES_MAX = 32_767


@pytest.fixture
def served() -> Iterator[Served]:
    with World(11) as world:
        yield Served(world)


def send_ext(properties: str, **more: str) -> dict[str, str]:
    """The header of a send to queue 2 of topic orders, as Java writes it."""
    ext = {
        "a": "PG", "b": "orders", "c": "TBW102", "d": "4", "e": "2", "f": "0", "g": "1700000000000", "h": "0",
        "i": properties, "j": "0", "k": "false", "m": "false",
    }  # fmt: skip
    return ext | more


def asked_over_one_connection(served: Served, requests: list[RemotingCommand]) -> list[RemotingCommand]:
    async def ask() -> list[RemotingCommand]:
        async with served.cluster.client() as client:
            return [await client.remoting.call(served.master.address, each) for each in requests]

    replies: list[RemotingCommand] = served.cluster.run(ask())
    return replies


def send(properties: str, kind: int = JSON, **more: str) -> RemotingCommand:
    request = RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, send_ext(properties, **more), b"body")
    request.serialize_type = kind
    return request


@pytest.mark.parametrize("kind", [JSON, ROCKETMQ])
def test_properties_are_taken_and_refused_by_their_own_length_alone(served: Served, kind: int) -> None:
    """Each pair has two separators, which JSON writes as six bytes each: 3,700 properties are no odd request."""
    added = 150  # UNIQ_KEY and what the broker adds
    pairs = "".join(f"k{number:04}\x01v\x02" for number in range((PROPERTIES_MAX - added) // 8))
    escaped = "k\x01" + "\x03" * (PROPERTIES_MAX - added) + "\x02"
    over = "k\x01" + "\x03" * PROPERTIES_MAX + "\x02"
    far_over = "k\x01" + "\x03" * HEADER_BYTES_MAX + "\x02"
    replies = asked_over_one_connection(
        served, [send(text, kind) for text in (pairs, over, escaped, far_over, "k\x01v\x02")]
    )
    assert [reply.code for reply in replies] == [0, 13, 0, 13, 0]
    assert str(PROPERTIES_MAX) in (replies[1].remark or "")
    assert "header of" in (replies[3].remark or "")
    read = [message for message in served.cluster.run(served.cluster.read_all()) if message.queue_id == 2]
    assert sorted(len(message.properties) for message in read) == sorted([len(pairs) // 8 + 4, 5, 5])


def test_a_request_with_a_header_that_is_not_read_is_refused_alone(served: Served) -> None:
    header = {"topic": "orders", "queueId": "1"}
    requests = [
        RemotingCommand.request(RequestCode.GET_MAX_OFFSET, header | {"z": "z" * HEADER_BYTES_MAX}),
        RemotingCommand.request(RequestCode.GET_MAX_OFFSET, header),
    ]
    refused, answered = asked_over_one_connection(served, requests)
    assert (refused.code, "header of" in (refused.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)
    assert answered.ext["offset"] == "3"


HOUR_MS = 3_600_000


def heartbeat(expression: str, version: int) -> RemotingCommand:
    subscription = SubscriptionData("orders", expression, sub_version=version)
    data = HeartbeatData("c1", [], [ConsumerData("CG", subscription_data_set=[subscription])])
    return RemotingCommand.request(RequestCode.HEART_BEAT, None, data.encode())


def pull(version: int) -> RemotingCommand:
    header = PullMessageHeader("CG", "orders", 1, 0, 32, 0, 0, 0, version)
    return RemotingCommand.request(RequestCode.PULL_MESSAGE, header)


def test_a_client_whose_clock_was_set_back_gets_what_it_says_it_wants(served: Served) -> None:
    """Queue 1 has messages with the tags one, two and three."""
    _, first, _, second = asked_over_one_connection(
        served,
        [
            heartbeat("one", 9 * HOUR_MS),
            pull(9 * HOUR_MS),
            heartbeat("two || three", 8 * HOUR_MS),
            pull(8 * HOUR_MS),
        ],
    )
    assert [
        [message.body for message in decode_messages(bytes(reply.body or b""))] for reply in (first, second)
    ] == [
        [b"one"],
        [b"two", b"three"],
    ]
