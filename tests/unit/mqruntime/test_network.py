"""Attempts to connect that are cancelled at each of their steps, on each kind of loop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from mqruntime.network import PLAIN, Link

HOST = "127.0.0.1"
STEPS_MAX = 20


class RecordingProtocol(asyncio.Protocol):
    def __init__(self) -> None:
        self.events: list[str] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.events.append("made")

    def connection_lost(self, error: Exception | None) -> None:
        if self.events == ["made"]:
            self.events.append("lost")


async def given_up_after(steps: int, port: int) -> list[str] | None:
    """The events of the protocol; None if the attempt ended before it was cancelled."""
    made: list[RecordingProtocol] = []

    def make() -> RecordingProtocol:
        made.append(RecordingProtocol())
        return made[-1]

    task = asyncio.get_running_loop().create_task(PLAIN.connect(make, HOST, port, 3_000, Link.REMOTING))
    for _ in range(steps):
        await asyncio.sleep(0)
    if task.done():
        protocol = task.result()
        assert protocol.events == ["made"]
        protocol.transport.close()
        return None
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    return [event for protocol in made for event in protocol.events]


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_protocol_that_saw_a_connection_sees_its_end(
    run: Callable[[Coroutine[Any, Any, None]], None],
) -> None:
    async def story() -> None:
        ends: list[asyncio.Task[None]] = []

        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            ends.append(asyncio.get_running_loop().create_task(accepted(reader, writer)))

        server = await asyncio.start_server(accept, HOST, 0)
        port = server.sockets[0].getsockname()[1]
        events_by_step = [await given_up_after(steps, port) for steps in range(STEPS_MAX)]
        server.close()
        await asyncio.gather(*ends)
        assert ["made", "lost"] in events_by_step and None in events_by_step
        assert {tuple(events) for events in events_by_step if events} == {("made", "lost")}

    run(story())


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("host", ["typed..twice", "x" * 64, "\ud800", "a\0b"])
def test_connecting_to_a_malformed_host_name_raises_os_error(
    new_loop: Callable[[], asyncio.AbstractEventLoop], host: str
) -> None:
    with asyncio.Runner(loop_factory=new_loop) as runner, pytest.raises(OSError):
        runner.run(PLAIN.connect(RecordingProtocol, host, 9, 3_000, Link.REMOTING))


class Accepted(asyncio.Protocol):
    def __init__(self, made: list[asyncio.Transport]) -> None:
        self.made = made

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.made.append(transport)


@pytest.mark.parametrize("turns", range(5))
def test_a_connection_accepted_while_the_server_closes_is_closed(turns: int) -> None:
    """After two turns asyncio has accepted the socket, and makes its transport in the next one."""

    async def scenario() -> None:
        made: list[asyncio.Transport] = []
        loop = asyncio.get_running_loop()
        opened = await PLAIN.listen(lambda: Accepted(made), HOST, 0, Link.REMOTING)
        with socket.create_connection((HOST, opened.port)) as client:
            for _ in range(turns):
                await asyncio.sleep(0)
            await opened.close()
            for each in made:
                each.close()
            await asyncio.sleep(0)
            client.setblocking(False)
            try:
                ended = await asyncio.wait_for(loop.sock_recv(client, 1), 5)
            except ConnectionResetError:  # it was not accepted
                ended = b""
            assert ended == b""

    asyncio.run(scenario())
