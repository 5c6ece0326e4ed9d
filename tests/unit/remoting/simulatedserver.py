"""A server in virtual time, and the addresses of server and client."""

from __future__ import annotations

import asyncio

from mqruntime.runtime import Runtime
from remoting.router import Router
from remoting.server import RemotingServer

SERVER, CLIENT, PORT = "10.0.0.1", "10.0.0.2", 9876
ADDRESS = f"{SERVER}:{PORT}"


class SimulatedServer:
    """A process that serves `router` and never fails."""

    def __init__(self, runtime: Runtime, router: Router) -> None:
        self.server = RemotingServer(router, host=SERVER, port=PORT, clock=runtime.clock)

    async def start(self) -> None:
        await self.server.start()

    async def stop(self) -> None:
        await self.server.stop()

    async def wait_failed(self) -> BaseException:
        never: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        return await never
