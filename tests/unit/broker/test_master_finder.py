"""A slave uses the HA address of its own master only, not of another broker at the master's address."""

from __future__ import annotations

import asyncio

from broker.neighbours.masterfinder import REFUSALS_PER_CONNECTION, MasterFinder
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.headers.group import ExchangeHAInfoHeader

MASTER = "10.0.0.1:10911"


class ScriptedClient:
    """Answers 906 with `reply` and records closed connections."""

    def __init__(self) -> None:
        self.reply = RemotingCommand.request(RequestCode.EXCHANGE_BROKER_HA_INFO).reply()
        self.disconnected: list[str] = []

    def answers(self, ha_address: str, address: str) -> None:
        request = RemotingCommand.request(RequestCode.EXCHANGE_BROKER_HA_INFO)
        self.reply = request.reply(header=ExchangeHAInfoHeader(ha_address, 0, address))

    def refuses(self) -> None:
        request = RemotingCommand.request(RequestCode.EXCHANGE_BROKER_HA_INFO)
        self.reply = request.reply(ResponseCode.SYSTEM_ERROR, "this broker is not master now")

    async def call(self, address: str, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        await asyncio.sleep(0)
        return self.reply

    def disconnect(self, address: str) -> None:
        self.disconnected.append(address)


def finder_of(client: ScriptedClient) -> tuple[MasterFinder, list[tuple[str, int]]]:
    """A finder, and the (HA address, epoch) pairs that it finds."""
    found: list[tuple[str, int]] = []
    return MasterFinder(client, lambda *pair: found.append(pair)), found  # type: ignore[arg-type]


async def asked(finder: MasterFinder, times: int = 1) -> None:
    """Lets the finder send its request, without its waits in between."""
    for _ in range(times):
        finder.follow(MASTER, 7)
        task = asyncio.get_running_loop().create_task(finder.run())
        for _ in range(5):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])


def test_the_ha_address_reported_by_the_master_is_used() -> None:
    client = ScriptedClient()
    finder, found = finder_of(client)
    client.answers("10.0.0.1:10912", MASTER)
    asyncio.run(asked(finder))
    assert (found, client.disconnected) == ([("10.0.0.1:10912", 7)], [])


def test_another_broker_at_the_masters_address_is_ignored_and_disconnected() -> None:
    client = ScriptedClient()
    finder, found = finder_of(client)
    client.answers("10.0.0.9:10912", "10.0.0.9:10911")
    asyncio.run(asked(finder))
    assert (found, client.disconnected) == ([], [MASTER])


def test_a_master_that_keeps_refusing_is_asked_over_a_new_connection() -> None:
    client = ScriptedClient()
    finder, found = finder_of(client)
    client.refuses()
    asyncio.run(asked(finder, REFUSALS_PER_CONNECTION - 1))
    assert client.disconnected == []
    asyncio.run(asked(finder))
    assert (found, client.disconnected) == ([], [MASTER])
