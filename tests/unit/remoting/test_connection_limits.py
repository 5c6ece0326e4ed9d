"""What happens at the limits of a connection, over real loopback, on the standard loop and on uvloop."""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import suppress

import pytest

from mqruntime.log import FIELDS
from remoting.bigbuffers import TOO_MUCH
from remoting.frame import FrameReader
from remoting.limits import Limits
from tests.unit.remoting.conftest import Run
from tests.unit.remoting.scene import ECHO, frames, raw, request, scene


def cuts(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Why connections were cut."""
    return [getattr(record, FIELDS)["why"] for record in caplog.records if record.message == "connection cut"]


def test_bodies_beyond_every_buffer_both_ways_at_once_are_all_answered(run: Run) -> None:
    async def story() -> None:
        async with scene() as made:
            body = bytes(range(256)) * (4 << 12)
            answers = await asyncio.gather(*(made.call(ECHO, body[i:], 60_000) for i in range(30)))
            assert [len(answer.body or b"") for answer in answers] == [len(body) - i for i in range(30)]
            assert len(made.connected) == 1

    run(story())


def test_malformed_bytes_close_that_connection_and_no_other(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with scene() as made:
            stream, writer = await raw(made, frames(request(ECHO, body=b"ok")) + b"GET / HTTP/1.1\r\n\r\n")
            got = FrameReader().receive(await stream.read())
            assert [answer.body for answer in got] == [b"ok"]
            writer.close()
            assert (await made.call(ECHO, b"alive")).body == b"alive"

    run(story())
    assert cuts(caplog) == ["an HTTP client at a port that speaks RocketMQ's protocol"]


def test_a_proxy_that_is_not_named_is_refused_once_by_name(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with scene() as made:
            for begin in (
                b"PROXY TCP4 10.9.1.2 10.0.0.1 1 1\r\n",
                b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c",
                b"PROX",
            ):
                stream, writer = await raw(made, begin + frames(request(ECHO, body=b"no")))
                with suppress(ConnectionError):
                    assert await stream.read() == b""
                writer.close()
            assert (await made.call(ECHO, b"alive")).body == b"alive"

    run(story())
    assert cuts(caplog) == ["a PROXY header where none is expected; see proxyProtocolHosts"]


def test_a_reader_that_never_reads_is_cut_at_the_limit(run: Run) -> None:
    async def story() -> None:
        limits = Limits(unsent_bytes_high=1 << 30, unsent_bytes_max=8 << 20)
        async with scene(limits) as made:
            body = bytes(1 << 20)
            with socket.create_connection(("127.0.0.1", made.server.port)) as quiet:
                quiet.setblocking(False)
                while not made.connected or not made.connected[0].closed:
                    try:
                        await asyncio.get_running_loop().sock_sendall(quiet, frames(request(ECHO, body=body)))
                    except OSError:
                        break
                await made.disconnected.get()

    run(story())


def test_a_slow_reader_s_requests_wait_and_all_are_answered(run: Run) -> None:
    async def story() -> None:
        high, body, count = 1 << 16, bytes(1 << 18), 100
        async with scene(Limits(unsent_bytes_high=high)) as made:
            stream, writer = await raw(made, b"")
            for _ in range(count):
                writer.write(frames(request(ECHO, body=body)))
            unsent_max, got, reader = 0, 0, FrameReader()
            while got < count:
                got += len(reader.receive(await stream.read(1 << 14)))
                unsent_max = max(unsent_max, *(peer.unsent_bytes for peer in made.connected), 0)
            assert unsent_max <= high + 3 * len(body)  # never more than what one receive may bring on top
            writer.close()

    run(story())


def test_idle_connections_and_unfinished_frames_are_closed(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with scene(Limits(idle_ms_max=1)) as made:
            stream, writer = await raw(made, b"")
            assert await stream.read() == b""
            writer.close()
        async with scene(Limits(stall_ms_max=1)) as made:
            stream, writer = await raw(made, frames(request(ECHO, body=b"never whole"))[:-1])
            assert await stream.read() == b""
            writer.close()

    with caplog.at_level(logging.INFO):
        run(story())
    assert cuts(caplog) == ["idle", "it began a frame and does not end it"]


def test_connections_above_the_limit_are_refused(run: Run) -> None:
    async def story() -> None:
        async with scene(Limits(connections_max=1)) as made:
            await made.call(ECHO)
            stream, writer = await raw(made, b"")
            assert await stream.read() == b""
            writer.close()
            assert (await made.call(ECHO, b"mine")).body == b"mine"

    run(story())


def test_long_frames_that_do_not_end_take_a_bounded_memory_together(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with scene(Limits(begun_bytes_max=8 << 20)) as made:
            begun = frames(request(ECHO, body=bytes(3 << 20)))[:-1]
            held = []
            for _ in range(8):
                held.append(await raw(made, begun))
                await held[-1][1].drain()
                await asyncio.sleep(0.05)
            whole = bytes(range(256)) * (12 << 10)
            assert (await made.call(ECHO, whole, 60_000)).body == whole
            for _, writer in held:
                writer.close()

    run(story())
    assert set(cuts(caplog)) == {TOO_MUCH}
