"""A hostile peer: it sends bytes to a port, may wait for an answer, and may keep the connection."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable
from contextlib import suppress

from localcluster.layout import HOST
from remoting.codes import ResponseCode
from remoting.command import RESPONSE_BIT, RemotingCommand
from remoting.frame import FrameReader
from remoting.signing import Signer
from simulation.hostile.frames import whole

READ_BYTES = 1 << 18
IN_FLIGHT = 64


class HostilePeer:
    """A peer of one port; keeps its connections open until `leave`. A `context` makes it speak TLS, a `signer` signs."""

    def __init__(
        self, port: int, context: ssl.SSLContext | None = None, signer: Signer | None = None
    ) -> None:
        self._port = port
        self._context = context
        self._signer = signer
        self._held: list[asyncio.StreamWriter] = []

    async def say(self, data: bytes, *, stays_s: float = 0.05) -> None:
        """Sends the bytes and closes, with or without an answer."""
        reader, writer = await self._connected()
        with suppress(OSError):
            writer.write(data)
            await writer.drain()
            with suppress(TimeoutError):
                async with asyncio.timeout(stays_s):
                    while await reader.read(READ_BYTES):
                        pass
        writer.transport.abort()

    async def hold(self, data: bytes = b"", count: int = 1) -> None:
        """Sends the bytes on `count` connections, never reads, and keeps them open."""
        for _ in range(count):
            _, writer = await self._connected()
            writer.transport.pause_reading()  # type: ignore[attr-defined]  # of a socket's transport
            writer.write(data)
            self._held.append(writer)

    async def ask(self, commands: Iterable[RemotingCommand]) -> list[RemotingCommand]:
        """The answers in order of arrival. Fails if the server closes the connection or does not answer."""
        reader, writer = await self._connected()
        frames, asked = FrameReader(), 0
        answers: list[RemotingCommand] = []
        for command in commands:
            asked += 1
            command.opaque = asked
            if self._signer is not None:
                self._signer.sign(command)
            writer.write(whole(command))
            while asked - len(answers) > IN_FLIGHT:
                answers += await self._answers(reader, frames, command)
        while len(answers) < asked:
            answers += await self._answers(reader, frames, command)
        writer.transport.abort()
        return answers

    def leave(self) -> None:
        for writer in self._held:
            writer.transport.abort()

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(HOST, self._port, ssl=self._context, limit=READ_BYTES)

    async def _answers(
        self, reader: asyncio.StreamReader, frames: FrameReader, last: RemotingCommand
    ) -> list[RemotingCommand]:
        async with asyncio.timeout(60):
            data = await reader.read(READ_BYTES)
        assert data, f"port {self._port} closed the connection at or before code {last.code} {last.ext}"
        return [answer for answer in frames.receive(data) if answer.flag & RESPONSE_BIT]

    async def served(self, codes: Iterable[int]) -> list[int]:
        """The codes among these that the port serves."""
        return [
            code for code in codes if (await self._code_of(code)) != ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        ]

    async def _code_of(self, code: int) -> int:
        [answer] = await self.ask([RemotingCommand.request(code, {})])
        return answer.code
