"""Server and client over real loopback, on the standard loop and on uvloop."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct

import pytest

from mqruntime.clock import SystemClock
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RESPONSE_BIT, RemotingCommand
from remoting.errors import AddressInUse, CallTimeout, ConnectFailed, ConnectionLost, NotSent
from remoting.limits import Limits
from remoting.peer import Peer
from remoting.router import Router
from remoting.server import RemotingServer
from tests.unit.remoting.conftest import Run
from tests.unit.remoting.scene import (
    BATCH_A,
    BATCH_B,
    BROKEN,
    BUG,
    DISK_FULL,
    ECHO,
    LATER,
    SILENT,
    STRICT,
    frames,
    raw,
    replies,
    request,
    scene,
)


def test_calls_are_answered_also_with_bodies_of_four_mebibytes(run: Run) -> None:
    async def story() -> None:
        async with scene() as made:
            body = bytes(range(256)) * (4 << 12)
            answers = await asyncio.gather(*(made.call(ECHO, body[i:]) for i in range(3)))
            assert [answer.body for answer in answers] == [body[i:] for i in range(3)]
            assert len(made.connected) == 1  # three calls that met shared one connection

    run(story())


def test_an_unknown_code_is_answered_as_java_answers_it(run: Run) -> None:
    async def story() -> None:
        async with scene() as made:
            answer = await made.call(9999)
            assert (answer.code, answer.remark) == (3, " request type 9999 not supported")
            assert answer.flag & RESPONSE_BIT

    run(story())


def test_an_exception_of_a_handler_becomes_code_1(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with scene() as made:
            broken = await made.call(BROKEN)
            assert (broken.code, broken.remark) == (1, "KeyError: 'no such thing'")
            strict = await made.call(STRICT)
            assert (strict.code, strict.remark) == (1, "header field brokerName is absent: text is required")
            full = await made.call(DISK_FULL)
            assert (full.code, full.remark) == (
                1,
                "OSError: [Errno 28] No space left on device: 'topics.json'",
            )
            assert made.fatal == []
            assert (await made.call(BUG)).code == 1
            assert [str(error) for error in made.fatal] == ["epochs went backwards"]

    with caplog.at_level(logging.ERROR):
        run(story())
    logged = [(record.message, record.exc_info is not None) for record in caplog.records]
    assert logged == [("handler failed", True), ("handler failed", False), ("handler failed", True)]


def test_a_one_way_request_is_never_answered(run: Run) -> None:
    async def story() -> None:
        async with scene() as made:
            made.release.set()
            oneways = [RemotingCommand(code, flag=2) for code in (ECHO, BROKEN, STRICT, LATER, 9999)]
            stream, writer = await raw(made, frames(*oneways, request(ECHO, body=b"end")))
            (only,) = await replies(stream, 1)
            assert (only.opaque, only.body) == (6, b"end")
            writer.close()
            assert await stream.read() == b""

    run(story())


def test_unexpected_replies_are_dropped_and_opaques_may_repeat(run: Run) -> None:
    async def story() -> None:
        async with scene() as made:
            unasked = [RemotingCommand(0, flag=1), RemotingCommand(ECHO, flag=3)]
            twins = frames(request(ECHO, body=b"a")) + frames(request(ECHO, body=b"b"))
            stream, writer = await raw(made, frames(*unasked) + twins)
            answers = await replies(stream, 2)
            assert [(answer.opaque, answer.body) for answer in answers] == [(1, b"a"), (1, b"b")]
            writer.close()

    run(story())


def test_handlers_that_wait_answer_out_of_order(run: Run) -> None:
    async def story() -> None:
        async with scene() as made:
            stream, writer = await raw(
                made, frames(request(LATER, body=b"late"), request(ECHO, body=b"early"))
            )
            (first,) = await replies(stream, 1)
            assert first.body == b"early"
            made.release.set()
            (second,) = await replies(stream, 1)
            assert second.body == b"late"
            writer.close()

    run(story())


def test_too_many_waiting_handlers_are_answered_busy(run: Run) -> None:
    async def story() -> None:
        async with scene(Limits(running_max=2)) as made:
            stream, writer = await raw(made, frames(*(request(LATER) for _ in range(3))))
            (busy,) = await replies(stream, 1)
            assert (busy.code, busy.opaque) == (ResponseCode.SYSTEM_BUSY, 3)
            made.release.set()
            assert [answer.code for answer in await replies(stream, 2)] == [0, 0]
            writer.close()

    run(story())


def test_consecutive_requests_of_a_batch_reach_one_callback(run: Run) -> None:
    async def story() -> None:
        async with scene() as made:
            sends = [
                request(BATCH_A, body=b"1"),
                request(BATCH_B, body=b"2"),
                request(ECHO),
                request(BATCH_A),
            ]
            stream, writer = await raw(made, frames(*sends))
            assert sorted(answer.opaque for answer in await replies(stream, 4)) == [1, 2, 3, 4]
            assert made.batches == [[b"1", b"2"], [b""]]
            writer.write(frames(request(BATCH_A, body=b"fail"), RemotingCommand(BATCH_B, flag=2)))
            (failed,) = await replies(stream, 1)
            assert (failed.code, failed.remark) == (1, "OSError: disk")
            writer.close()

    run(story())


def test_the_server_calls_the_client_on_the_client_s_connection(run: Run) -> None:
    async def story() -> None:
        async with scene() as made:
            await made.call(ECHO)
            (peer,) = made.connected
            answer = await peer.call(request(ECHO), 5000)
            assert answer.body == b"client"
            assert (await peer.call(request(7), 5000)).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED

    run(story())


def test_a_call_that_is_not_answered_times_out_and_keeps_the_connection(run: Run) -> None:
    async def story() -> None:
        async with scene() as made:
            await made.call(ECHO)
            slow = asyncio.ensure_future(made.call(LATER, b"x", timeout_ms=60_000))
            with pytest.raises(CallTimeout, match=rf"{made.address}: no reply to request {SILENT} in 1 ms"):
                await made.call(SILENT, timeout_ms=1)
            made.release.set()
            assert (await slow).body == b"x"
            assert len(made.connected) == 1

    run(story())


def test_calls_end_with_connection_lost_when_the_server_goes(run: Run) -> None:
    async def story() -> None:
        async with scene() as made:
            lost: list[str] = []
            made.client.on_disconnect = lost.append
            calls = [asyncio.ensure_future(made.call(SILENT, timeout_ms=60_000)) for _ in range(3)]
            await made.call(ECHO)
            assert made.client.connected(made.address)
            address = made.address
            made.connected[0].close()
            for call in calls:
                with pytest.raises(ConnectionLost) as raised:
                    await call
                assert raised.value.address == address
            assert not made.client.connected(address)
            assert lost == [address]
            assert (await made.call(ECHO, b"again")).body == b"again"

    run(story())


def test_a_refused_connection_is_a_definite_failure(run: Run) -> None:
    async def story() -> None:
        async with scene() as made:
            address = made.address
            await made.server.stop()
            no_places = (
                "nonsense",
                "127.0.0.1:99999",
                "127.0.0.1:x",
                "127.0.0.1:" + "9" * 5000,
                "typed..twice:1",
            )
            for wrong in (address, *no_places):
                with pytest.raises(ConnectFailed) as raised:
                    await made.client.call(wrong, request(ECHO), 5000)
                assert raised.value.address == wrong
            with pytest.raises(ConnectFailed):
                await made.client.one_way(address, request(ECHO))
            await made.client.close()
            with pytest.raises(ConnectFailed, match="the client is closed"):
                await made.client.call(address, request(ECHO))

    run(story())


@pytest.mark.parametrize("turns", range(8))
def test_a_client_is_closed_at_any_step_of_a_connection_that_opens(run: Run, turns: int) -> None:
    async def story() -> None:
        async with scene() as made:
            call = asyncio.get_running_loop().create_task(made.call(SILENT))
            for _ in range(turns):
                await asyncio.sleep(0)
            await made.client.close()
            with pytest.raises((NotSent, ConnectionLost)):
                await call

    run(story())


def test_a_stopping_java_server_is_asked_again_on_a_new_connection(run: Run) -> None:
    async def story() -> None:
        going = [True]

        def handler(peer: Peer, command: RemotingCommand) -> RemotingCommand:
            return command.reply(ResponseCode.GO_AWAY if going.pop() else 0)

        router = Router()
        router.add(RequestCode.GET_MAX_OFFSET, handler)
        going.insert(0, False)
        peers: list[Peer] = []
        server = RemotingServer(
            router, host="127.0.0.1", port=0, clock=SystemClock(), on_connect=peers.append
        )
        await server.start()
        client = RemotingClient(clock=SystemClock())
        answer = await client.call(f"127.0.0.1:{server.port}", request(RequestCode.GET_MAX_OFFSET))
        assert answer.code == 0
        assert len(peers) == 2
        await client.close()
        await server.stop()

    run(story())


def test_a_taken_port_is_reported_as_such(run: Run) -> None:
    async def story() -> None:
        async with scene() as made:
            second = RemotingServer(Router(), host="127.0.0.1", port=made.server.port, clock=SystemClock())
            with pytest.raises(AddressInUse, match="another process listens here"):
                await second.start()

    run(story())


def test_sends_in_the_turn_of_a_lost_connection_are_dropped_silently(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    """Else asyncio logs "socket.send() raised exception" for each write from the fifth on."""

    async def story() -> None:
        async with scene() as made:
            with socket.create_connection(("127.0.0.1", made.server.port)) as other:
                other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                other.setblocking(False)
                loop = asyncio.get_running_loop()
                await loop.sock_sendall(other, frames(request(ECHO)))
                await loop.sock_recv(other, 1_000)
            [peer] = made.connected
            for _ in range(12):
                peer.one_way(request(ECHO))
            assert await made.disconnected.get() is peer

    run(story())
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


def test_close_callbacks_run_once_even_when_added_late(run: Run) -> None:
    async def story() -> None:
        async with scene() as made:
            await made.call(ECHO)
            (peer,) = made.connected
            seen: list[str] = []
            peer.on_close(lambda gone: seen.append("first"))
            made.client.disconnect(made.address)
            assert await made.disconnected.get() is peer
            peer.on_close(lambda gone: seen.append("late"))
            peer.send([request(ECHO)])  # no effect: the connection is closed
            with pytest.raises(NotSent):
                await peer.call(request(ECHO), 1000)
            assert seen == ["first", "late"]

    run(story())
