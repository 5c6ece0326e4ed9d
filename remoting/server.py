"""A listening socket whose connections are served by one router.

Invariant: between `start` and `stop` the port accepts connections; after `stop` no connection is left.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

from mqruntime.clock import Clock
from mqruntime.listening import why_not_listening
from mqruntime.network import PLAIN, Link, Network, OpenPort
from remoting.connections import Connections
from remoting.errors import AddressInUse, CannotListen
from remoting.limits import Limits
from remoting.peer import Peer
from remoting.router import Router


class RemotingServer:
    """Serves `router` on `host:port`. If the given port is 0, a free port is taken, and `port` names it after `start`."""

    def __init__(
        self,
        router: Router,
        *,
        host: str,
        port: int,
        clock: Clock,
        network: Network = PLAIN,
        limits: Limits | None = None,
        on_connect: Callable[[Peer], None] | None = None,
        on_disconnect: Callable[[Peer], None] | None = None,
    ) -> None:
        self.host = host
        self.port = port
        self._connections = Connections(router, clock, limits or Limits(), on_connect, on_disconnect)
        self._network = network
        self._open_port: OpenPort | None = None

    async def start(self) -> None:
        """Listen. Raises AddressInUse, or CannotListen when this process cannot bind the address."""
        try:
            self._open_port = await self._network.listen(
                self._connections.protocol, self.host, self.port, Link.REMOTING
            )
        except OSError as error:
            kind = AddressInUse if error.errno == errno.EADDRINUSE else CannotListen
            raise kind(f"{self.host}:{self.port}", why_not_listening(error)) from error
        self.port = self._open_port.port

    async def stop(self) -> None:
        """Stop accepting and close accepted connections."""
        if self._open_port is not None:
            await self._open_port.close()
        await self._connections.stop()
