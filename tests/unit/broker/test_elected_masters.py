"""The request by which a slave learns the epoch of a Java master whose epoch file does not show it."""

from __future__ import annotations

import asyncio

import pytest

from broker.neighbours.pairedmaster import ElectedMaster
from ha.errors import MasterUnread
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand

JAVA = b'{"dataVersion":{"counter":3,"stateVersion":7,"timestamp":1700000000000},"topicConfigTable":{}}'


class Names:
    """The master's address and epoch as the controllers report them."""

    master_address: str | None = "10.0.0.1:10911"
    master_epoch = 7


class ScriptedClient:
    def __init__(self, code: int, body: bytes) -> None:
        self.code, self.body = code, body
        self.asked: list[int] = []

    async def call(self, address: str, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        self.asked.append(command.code)
        return command.reply(self.code, "why", body=self.body)


def led(client: ScriptedClient, *, upstreams: bool = True) -> int | None:
    master = ElectedMaster(Names(), client, lambda: upstreams)  # type: ignore[arg-type]
    return asyncio.run(master.leads())


def test_an_upstream_master_reports_its_epoch_with_its_topics() -> None:
    client = ScriptedClient(ResponseCode.SUCCESS, JAVA)
    assert led(client) == 7 and client.asked == [RequestCode.GET_ALL_TOPIC_CONFIG]


def test_the_named_master_matches_its_own_epoch_only() -> None:
    master = ElectedMaster(Names(), ScriptedClient(0, b""), lambda: True)  # type: ignore[arg-type]
    assert [master.names(epoch) for epoch in (6, 7, 8)] == [False, True, False]


def test_a_master_of_this_project_is_not_asked() -> None:
    client = ScriptedClient(ResponseCode.SUCCESS, JAVA)
    assert led(client, upstreams=False) is None and client.asked == []


@pytest.mark.parametrize(
    "client", [ScriptedClient(ResponseCode.SYSTEM_ERROR, b""), ScriptedClient(ResponseCode.SUCCESS, b"{")]
)
def test_a_failed_answer_raises_master_unread(client: ScriptedClient) -> None:
    with pytest.raises(MasterUnread):
        led(client)
