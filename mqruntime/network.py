"""Ports and connections of one process: the network that an app gets, and the plain one.

Invariant: a protocol that gets `connection_made` gets `connection_lost` too, also when the attempt to connect is abandoned.
uvloop omits it when it is cancelled between the two steps of a successful attempt; so a protocol may get it twice, and must
ignore the second."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Sequence
from enum import Enum
from ssl import SSLContext
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

from mqruntime.peercertificate import certificate_of
from mqruntime.proxyheader import ClientAddress

P = TypeVar("P", bound=asyncio.BaseProtocol)

BACKLOG = 1024
HANDED_OVER_TURNS = 3
"""After this many turns of asyncio's loop each accepted connection has its transport."""


class Link(Enum):
    """The use of a port or connection; a network may secure them differently."""

    REMOTING = "remoting"
    REPLICATION = "replication"
    PAGES = "pages"


@runtime_checkable
class Forwarded(Protocol):
    """A protocol of the event loop for connections that a proxy may forward."""

    def forwarded_from(self, source: ClientAddress) -> None:
        """The client is at `source`, and the other end of the transport is a proxy. Called before `connection_made`."""
        ...


class OpenPort(Protocol):
    """An open port."""

    port: int
    """The number that the system chose, if 0 was asked for."""

    async def close(self) -> None:
        """Accept no more. Accepted connections stay open."""
        ...


class Protection(Enum):
    """What all ports of a network ask of a connection."""

    NONE = "none"
    TLS = "TLS"
    CERTIFICATE = "TLS and a certificate"


class CertificateStatus(NamedTuple):
    """A server's own certificate."""

    left_ms: int
    """Until it expires; below 0 afterwards."""
    reloads: int
    """How often changed files were taken since the start."""
    failed_reloads: int


class Connector(Protocol):
    """Opens connections."""

    async def connect(self, make: Callable[[], P], host: str, port: int, timeout_ms: int, link: Link) -> P:
        """The protocol of an open connection. Raises TimeoutError after `timeout_ms`; OSError without a route or a listener,
        if the other end is not what it must be, or if no resolver accepts `host`, which may have come from a peer."""
        ...


class Network(Connector, Protocol):
    """Opens ports, too."""

    @property
    def protection(self) -> Protection: ...

    @property
    def warnings(self) -> Sequence[str]:
        """Warnings about its settings."""
        ...

    @property
    def certificate(self) -> CertificateStatus | None:
        """None without a certificate."""
        ...

    async def watch(self) -> None:
        """Notices changes from outside, until it is cancelled."""
        ...

    async def listen(
        self, make: Callable[[], asyncio.BaseProtocol], host: str, port: int, link: Link
    ) -> OpenPort:
        """An open port, each of whose connections gets a protocol from `make`, which is Forwarded if the network knows
        proxies and `link` is REMOTING. Raises OSError."""
        ...


class PlainNetwork:
    """The network of the running event loop, without encryption."""

    protection = Protection.NONE
    warnings: Sequence[str] = ()
    certificate: CertificateStatus | None = None

    async def watch(self) -> None:
        """There is nothing that could change."""

    async def listen(
        self, make: Callable[[], asyncio.BaseProtocol], host: str, port: int, link: Link
    ) -> OpenPort:
        server = await asyncio.get_running_loop().create_server(
            make, host, port, backlog=BACKLOG, reuse_address=True
        )
        return _PlainPort(server)

    async def connect(self, make: Callable[[], P], host: str, port: int, timeout_ms: int, link: Link) -> P:
        return await open_connection(make, host, port, timeout_ms)


PLAIN = PlainNetwork()


class _PlainPort:
    def __init__(self, server: asyncio.Server) -> None:
        self._server = server
        self.port = int(server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Without the wait, a connection that asyncio has accepted, and whose transport is made later, would stay open
        without an owner (`Server._attach` of Python 3.11); uvloop accepts in one step."""
        loop = asyncio.get_running_loop()
        if isinstance(loop, asyncio.SelectorEventLoop) and isinstance(self._server, asyncio.Server):
            for each in self._server.sockets:
                loop.remove_reader(each.fileno())
            for _ in range(HANDED_OVER_TURNS):
                await asyncio.sleep(0)
        self._server.close()


async def open_connection(
    make: Callable[[], P],
    host: str,
    port: int,
    timeout_ms: int,
    context: SSLContext | None = None,
) -> P:
    """The protocol of an open connection, with TLS by `context` if there is one. Raises TimeoutError, OSError (`ssl.SSLError`
    is one)."""
    made: list[P] = []

    def noted() -> P:
        made.append(make())
        return made[-1]

    transport: asyncio.BaseTransport | None = None
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            transport, protocol = await asyncio.get_running_loop().create_connection(
                noted, host, port, ssl=context
            )
        if certificate_of(transport).contradicts(f"{host}:{port}"):
            raise ConnectionRefusedError(None, f"the certificate there is not that of {host}:{port}")
        return protocol
    except BaseException as error:
        if transport is not None:
            transport.close()
        for protocol in made:
            protocol.connection_lost(None)
        if isinstance(error, ValueError) and not isinstance(
            error, OSError
        ):  # a failed verification of TLS is both
            raise OSError(errno.EINVAL, f"not the name of a host: {error}") from error
        raise
