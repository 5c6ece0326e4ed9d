"""A client that is closed leaves nobody waiting, and nothing behind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from mqclient.client import Client
from mqclient.errors import ClientError, PullFailed, RouteUnknown, SendRefused
from mqclient.route import MessageQueue
from tests.unit.mqclient.servers import Server, cluster, route_to, stored_as, with_servers

CALLS: list[tuple[Callable[[Client], Awaitable[Any]], type[ClientError]]] = [
    (lambda client: client.producer("PG").send("T", b"x", patience_ms=60_000), SendRefused),
    (lambda client: client.consumer("CG").queues("T"), RouteUnknown),
    (lambda client: client.consumer("CG").max_offset(MessageQueue("T", "broker-a", 0)), PullFailed),
]


@pytest.mark.parametrize(("call", "error"), CALLS)
def test_who_waits_for_a_route_when_the_client_is_closed_hears_so(
    call: Callable[[Client], Awaitable[Any]], error: type[ClientError]
) -> None:
    namesrv = Server(GET_ROUTEINFO_BY_TOPIC=lambda request: None)

    async def scenario(client: Client) -> None:
        others = asyncio.all_tasks()
        waiting = [asyncio.ensure_future(call(client)) for _ in range(3)]
        while not namesrv.asked:  # noqa: ASYNC110 - the socket is real, so is the waiting
            await asyncio.sleep(0.005)
        await client.close()
        for each in waiting:
            with pytest.raises(error, match="the client is closed"):
                await each
        assert asyncio.all_tasks() == others

    with_servers(namesrv)(scenario)


@pytest.mark.parametrize(("call", "error"), CALLS)
def test_a_closed_client_asks_nobody(
    call: Callable[[Client], Awaitable[Any]], error: type[ClientError]
) -> None:
    namesrv = Server(GET_ROUTEINFO_BY_TOPIC=lambda request: None)

    async def scenario(client: Client) -> None:
        await client.close()
        others = asyncio.all_tasks()
        with pytest.raises(error, match="the client is closed"):
            await call(client)
        assert asyncio.all_tasks() == others

    with_servers(namesrv)(scenario)
    assert not namesrv.asked


def test_patience_ends_with_the_client() -> None:
    namesrv, broker = cluster(stored_as(14, "a slave by now"))

    async def scenario(client: Client) -> None:
        sending = asyncio.create_task(client.producer("PG").send("T", b"x", patience_ms=60_000))
        reading = anext(client.consumer("CG").read(MessageQueue("T", "b", 0), 0, 1, patience_ms=60_000))
        pulling = asyncio.ensure_future(reading)
        while not broker.asked:  # noqa: ASYNC110 - the socket is real, so is the waiting
            await asyncio.sleep(0.005)
        await client.close()
        async with asyncio.timeout(10):
            with pytest.raises(SendRefused):
                await sending
            with pytest.raises(PullFailed):
                await pulling

    with_servers(namesrv, broker)(scenario)


def test_a_caller_that_gives_up_while_a_route_is_asked_for_ends_nobody_elses_question() -> None:
    namesrv, broker = cluster(stored_as())
    namesrv.answers["GET_ROUTEINFO_BY_TOPIC"] = lambda request: None

    async def scenario(client: Client) -> None:
        one, other = (asyncio.create_task(client.producer("PG").send("T", b"x")) for _ in range(2))
        while not namesrv.asked:  # noqa: ASYNC110 - the socket is real, so is the waiting
            await asyncio.sleep(0.005)
        one.cancel()
        (peer,) = namesrv.server._connections.peers
        peer.send([route_to({0: broker.address})(namesrv.asked[0])])
        assert (await other).acknowledged
        assert one.cancelled()

    with_servers(namesrv, broker)(scenario)
