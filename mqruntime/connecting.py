"""Opening a connection that may be abandoned at any moment.

Invariant: a protocol that gets `connection_made` gets `connection_lost` too. uvloop omits it when it is cancelled between the
two steps of a successful attempt; so a protocol may get it twice, and must ignore the second."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import TypeVar

P = TypeVar("P", bound=asyncio.BaseProtocol)


async def connect(make: Callable[[], P], host: str, port: int, timeout_ms: int) -> P:
    """The protocol of an open connection. Raises TimeoutError after `timeout_ms`; OSError without a route or a listener, or
    if no resolver accepts `host`, which may have come from a peer."""
    made: list[P] = []

    def noted() -> P:
        made.append(make())
        return made[-1]

    transport: asyncio.BaseTransport | None = None
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            transport, protocol = await asyncio.get_running_loop().create_connection(noted, host, port)
        return protocol
    except BaseException as error:
        if transport is not None:
            transport.close()
        for protocol in made:
            protocol.connection_lost(None)
        if isinstance(error, ValueError):
            raise OSError(errno.EINVAL, f"not the name of a host: {error}") from error
        raise
