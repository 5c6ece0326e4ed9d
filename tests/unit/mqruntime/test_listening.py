"""Addresses that are warned of, the error of a failed bind, and closing a port that accepts."""

from __future__ import annotations

import asyncio
import errno
import socket

import pytest

from mqruntime.listening import accepts_no_more, exposure, why_not_listening


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "localhost"])
def test_a_loopback_address_is_not_warned_of(host: str) -> None:
    assert exposure(host) is None


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "10.1.2.3", "broker-1.example"])
def test_an_address_reachable_from_other_hosts_is_warned_of(host: str) -> None:
    warning = exposure(host)
    assert warning is not None and (host in warning or "every address" in warning)


def test_a_failed_bind_says_what_to_do() -> None:
    assert "set another port" in why_not_listening(OSError(errno.EADDRINUSE, "x"))
    assert "bindAddress" in why_not_listening(OSError(errno.EADDRNOTAVAIL, "x"))
    assert "1024" in why_not_listening(OSError(errno.EACCES, "x"))
    assert why_not_listening(OSError(errno.EINVAL, "Invalid argument")) == "cannot listen: Invalid argument"


HOST = "127.0.0.1"


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
        server = await loop.create_server(lambda: Accepted(made), HOST, 0)
        with socket.create_connection(server.sockets[0].getsockname()) as client:
            for _ in range(turns):
                await asyncio.sleep(0)
            await accepts_no_more(server)
            server.close()
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
