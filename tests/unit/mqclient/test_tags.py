"""Tags as in upstream's client: an empty tag of a message is none; a subscription to "" is to all."""

from __future__ import annotations

import pytest

from mqclient.client import Client
from mqclient.message import decode_properties
from mqclient.route import MessageQueue
from remoting.command import RemotingCommand
from remoting.headers.pull import PullMessageHeader, PullMessageResponseHeader
from remoting.headers.send import SendMessageHeader
from tests.unit.mqclient.records import WORKED_RECORD
from tests.unit.mqclient.servers import cluster, stored_as, with_servers

QUEUE = MessageQueue("TopicTest", "broker-a", 1)
WITHOUT_TAG = WORKED_RECORD.replace(b"TAGS", b"GATS")


def pulled(request: RemotingCommand) -> RemotingCommand:
    header = PullMessageResponseHeader(0, 4, 0, 5)
    return request.reply(header=header, body=WORKED_RECORD + WITHOUT_TAG)


def test_a_message_with_an_empty_tag_has_none() -> None:
    namesrv, broker = cluster(stored_as())

    async def scenario(client: Client) -> None:
        await client.producer("PG").send("T", b"x", tags="")

    with_servers(namesrv, broker)(scenario)
    properties = decode_properties(SendMessageHeader.of(broker.asked[0]).properties or "")
    assert "TAGS" not in properties


@pytest.mark.parametrize(
    ("tags", "asked", "found"),
    [
        ("*", "*", ["TagA", None]),
        ("", "*", ["TagA", None]),
        ("TagA||TagB", "TagA||TagB", ["TagA"]),
        ("TagA||", "TagA||", ["TagA"]),
        ("TagB", "TagB", []),
    ],
)
def test_a_pull_returns_messages_with_the_given_tags(tags: str, asked: str, found: list[str | None]) -> None:
    namesrv, broker = cluster(stored_as(), PULL_MESSAGE=pulled)

    async def scenario(client: Client) -> None:
        result = await client.consumer("CG").pull(QUEUE, 0, tags=tags)
        assert [message.properties.get("TAGS") for message in result.messages] == found

    with_servers(namesrv, broker)(scenario)
    assert PullMessageHeader.from_ext(broker.asked[0].ext).subscription == asked


def test_a_tag_expression_without_tags_is_a_value_error() -> None:
    namesrv, broker = cluster(stored_as(), PULL_MESSAGE=pulled)

    async def scenario(client: Client) -> None:
        with pytest.raises(ValueError, match="name no tag"):
            await client.consumer("CG").pull(QUEUE, 0, tags=" || ")

    with_servers(namesrv, broker)(scenario)
    assert not broker.asked
