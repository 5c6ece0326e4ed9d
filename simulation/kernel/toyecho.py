"""A toy service to test the kernel: every received line is written to disk and sent back.

Invariant: a line is on disk before it is echoed."""

from __future__ import annotations

import asyncio

from mqruntime.runtime import Runtime
from mqruntime.tasks import Tasks

LOG = "echo.log"
LOG_BYTES = 64 * 1024


class EchoApp:
    """Echoes lines at TCP port `port`. The log is a segment of 64 KiB in which a zero byte ends the text."""

    def __init__(self, runtime: Runtime, port: int) -> None:
        self._runtime = runtime
        self._port = port
        self._failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        self._tasks = Tasks(self._fail)
        self._end = 0
        self.echoed = 0
        self.ready = False

    async def start(self) -> None:
        segments = self._runtime.segments
        known = [name for name, _ in segments.names()]
        self._log = segments.open(LOG) if LOG in known else segments.create(LOG, LOG_BYTES)
        self._end = bytes(self._log.view()).find(0)
        self._server = await asyncio.get_running_loop().create_server(self._protocol, "0.0.0.0", self._port)
        self.ready = True

    async def stop(self) -> None:
        self._server.close()
        await self._tasks.stop()
        self._log.close()

    async def wait_failed(self) -> BaseException:
        return await self._failed

    def _protocol(self) -> asyncio.StreamReaderProtocol:
        reader = asyncio.StreamReader()
        return asyncio.StreamReaderProtocol(reader, self._connected)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.start(self._serve(reader, writer), name="echo")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                start, self._end = self._end, self._end + len(line)
                self._log.view()[start : self._end] = line
                await self._log.sync(start, start + len(line))
                writer.write(line)
                await writer.drain()
                self.echoed += 1
        except ConnectionError:
            return  # the client is gone, and asks elsewhere
        finally:
            writer.close()

    def _fail(self, error: BaseException) -> None:
        if not self._failed.done():
            self._failed.set_result(error)
