"""Closing a client ends all waiting calls and leaves no task behind."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from mqclient.client import Client
from mqclient.errors import (
    ClientError,
    EndOutcomeUnknown,
    LockFailed,
    PullFailed,
    ReplyFailed,
    RequestUnanswered,
    RouteUnknown,
    SendOutcomeUnknown,
    SendRefused,
)
from mqclient.message import StoredMessage
from mqclient.producer import SendResult, SendStatus
from mqclient.route import MessageQueue
from mqclient.transactions import Transaction, TransactionState
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from tests.unit.mqclient.servers import Server, cluster, route_to, stored_as, with_servers

LONG_MS = 600_000
QUEUE = MessageQueue("T", "broker-a", 0)
CALLS: list[tuple[Callable[[Client], Awaitable[Any]], type[ClientError]]] = [
    (lambda client: client.producer("PG").send("T", b"x", patience_ms=60_000), SendRefused),
    (lambda client: client.consumer("CG").queues("T"), RouteUnknown),
    (lambda client: client.consumer("CG").max_offset(MessageQueue("T", "broker-a", 0)), PullFailed),
]


@pytest.mark.parametrize(("call", "error"), CALLS)
def test_closing_the_client_ends_calls_that_wait_for_a_route(
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
def test_a_closed_client_sends_no_request(
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


def test_a_cancelled_caller_does_not_cancel_the_route_request_of_others() -> None:
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


def silent(request: RemotingCommand) -> None:
    return None


def done(request: RemotingCommand) -> RemotingCommand:
    return request.reply()


async def transact(client: Client) -> None:
    producer = client.transactions("PG", lambda message: TransactionState.UNKNOWN)
    await producer.send("T", b"x", timeout_ms=LONG_MS)


async def commit(client: Client) -> None:
    producer = client.transactions("PG", lambda message: TransactionState.UNKNOWN)
    stored = SendResult(SendStatus.SEND_OK, QUEUE, 7, ("ID",), "7F00000100002A9F0000000000001000")
    await Transaction(producer, stored).commit(timeout_ms=LONG_MS)


async def reply(client: Client) -> None:
    asked = {"CLUSTER": "C", "REPLY_TO_CLIENT": "x", "CORRELATION_ID": "c"}
    request = StoredMessage("T", 0, 0, 0, b"?", asked, 0, 0, 0, "", 0, "", 0, 0, 0)
    await client.requester("PG").reply(request, b"!", timeout_ms=LONG_MS)


def read(client: Client) -> Awaitable[StoredMessage]:
    return anext(client.consumer("CG").read(QUEUE, 0, 1, patience_ms=LONG_MS))


def request(client: Client) -> Coroutine[Any, Any, StoredMessage]:
    return client.requester("PG").request("T", b"anybody?", timeout_ms=LONG_MS)


OF_A_SILENT_MASTER: list[tuple[str, Callable[[Client], Awaitable[Any]], type[ClientError]]] = [
    (
        "SEND_MESSAGE_V2",
        lambda client: client.producer("PG").send("T", b"x", timeout_ms=LONG_MS),
        SendOutcomeUnknown,
    ),
    ("PULL_MESSAGE", lambda client: client.consumer("CG").pull(QUEUE, 0, suspend_ms=LONG_MS), PullFailed),
    ("PULL_MESSAGE", read, PullFailed),
    ("GET_MAX_OFFSET", lambda client: client.consumer("CG").max_offset(QUEUE), PullFailed),
    ("LOCK_BATCH_MQ", lambda client: client.locks("CG", "me").lock([QUEUE]), LockFailed),
    ("UNLOCK_BATCH_MQ", lambda client: client.locks("CG", "me").unlock([QUEUE]), LockFailed),
    ("SEND_MESSAGE_V2", transact, SendOutcomeUnknown),
    ("END_TRANSACTION", commit, EndOutcomeUnknown),
    ("HEART_BEAT", request, SendRefused),
    ("SEND_MESSAGE_V2", request, SendOutcomeUnknown),
    ("SEND_REPLY_MESSAGE_V2", reply, ReplyFailed),
]


ANSWERS = {"SEND_MESSAGE_V2": "send"}


async def ended_soon(task: asyncio.Future[Any]) -> bool:
    """Whether the task ends within 100 turns of the loop, without any delay."""
    for _ in range(100):
        if task.done():
            break
        await asyncio.sleep(0)
    return task.done()


@pytest.mark.parametrize(("what", "call", "error"), OF_A_SILENT_MASTER)
def test_closing_the_client_ends_calls_that_wait_for_a_master(
    what: str,
    call: Callable[[Client], Awaitable[Any]],
    error: type[ClientError],
    caplog: pytest.LogCaptureFixture,
) -> None:
    namesrv, broker = cluster(**{"send": stored_as(), "HEART_BEAT": done, ANSWERS.get(what, what): silent})

    async def scenario(client: Client) -> None:
        others = asyncio.all_tasks()
        waiting = asyncio.ensure_future(call(client))
        while RequestCode[what] not in [each.code for each in broker.asked]:  # noqa: ASYNC110 - the socket is real
            await asyncio.sleep(0.005)
        await client.close()
        assert await ended_soon(waiting)
        with pytest.raises(error, match="the client is closed|closed by this end"):
            await waiting
        assert asyncio.all_tasks() == others
        gc.collect()

    with caplog.at_level(logging.WARNING):
        with_servers(namesrv, broker)(scenario)
    assert not caplog.records


def test_closing_the_client_ends_requests_that_wait_for_a_reply(caplog: pytest.LogCaptureFixture) -> None:
    namesrv, broker = cluster(stored_as(), HEART_BEAT=done)

    async def scenario(client: Client) -> None:
        others = asyncio.all_tasks()
        waiting = [asyncio.create_task(request(client)) for _ in range(3)]
        while any(peer.calls_pending for peer in client.remoting._connections.peers) or len(broker.asked) < 6:  # noqa: ASYNC110 - the socket is real
            await asyncio.sleep(0.005)
        await client.close()
        for each in waiting:
            assert await ended_soon(each)
            with pytest.raises(RequestUnanswered, match="request to T: the client is closed"):
                await each
        assert asyncio.all_tasks() == others
        gc.collect()

    with caplog.at_level(logging.WARNING):
        with_servers(namesrv, broker)(scenario)
    assert not caplog.records


@pytest.mark.parametrize(
    ("call", "error"), [*CALLS, (transact, SendRefused), (request, SendRefused), (commit, EndOutcomeUnknown)]
)
def test_closing_the_client_ends_a_call_that_has_just_begun(
    call: Callable[[Client], Awaitable[Any]], error: type[ClientError]
) -> None:
    namesrv = Server(GET_ROUTEINFO_BY_TOPIC=silent)

    async def scenario(client: Client) -> None:
        begun = asyncio.ensure_future(call(client))
        await asyncio.sleep(0)
        await client.close()
        assert await ended_soon(begun)
        with pytest.raises(error, match="the client is closed"):
            await begun

    with_servers(namesrv)(scenario)


def test_a_transaction_producer_entered_after_the_close_does_nothing() -> None:
    namesrv = Server(GET_ROUTEINFO_BY_TOPIC=silent)

    async def scenario(client: Client) -> None:
        await client.close()
        others = asyncio.all_tasks()
        async with client.transactions("PG", lambda message: TransactionState.UNKNOWN, topics=["T"]):
            for _ in range(10):
                await asyncio.sleep(0)
            assert asyncio.all_tasks() == others

    with_servers(namesrv)(scenario)
