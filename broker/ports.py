"""Ports of a broker for clients, other brokers and controllers: the main port and the fast port.

Invariant: one router serves both ports."""

from __future__ import annotations

from collections.abc import Callable

from broker.settings.broker import BrokerSettings
from messagestore.record import pack_host
from mqruntime.clock import Clock
from mqruntime.network import Network
from remoting.limits import Limits
from remoting.peer import Peer
from remoting.router import Router
from remoting.server import RemotingServer


class Ports:
    """The ports. `on_disconnect` is called with every connection that has ended."""

    def __init__(
        self,
        settings: BrokerSettings,
        router: Router,
        clock: Clock,
        network: Network,
        on_disconnect: Callable[[Peer], None],
    ) -> None:
        self._ip = settings.broker_ip1
        limits = Limits(idle_ms_max=settings.server_channel_max_idle_time_seconds * 1000)
        self._main, self._fast = (
            RemotingServer(
                router,
                host=settings.listens_on,
                port=port,
                clock=clock,
                network=network,
                limits=limits,
                on_disconnect=on_disconnect,
            )
            for port in (settings.listen_port, settings.fast_port)
        )

    async def open(self) -> None:
        """Open the ports. Raises AddressInUse, CannotListen."""
        await self._main.start()
        await self._fast.start()

    async def close(self) -> None:
        await self._main.stop()
        await self._fast.stop()

    @property
    def address(self) -> str:
        """HOST:PORT of the main port, as clients reach it."""
        return f"{self._ip}:{self._main.port}"

    @property
    def packed_address(self) -> bytes:
        """The address in the form of records."""
        return pack_host(self._ip, self._main.port)
