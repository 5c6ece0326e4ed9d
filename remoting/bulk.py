"""Bulk replies: replies whose size grows with a table. They are made in steps, and other tasks run between two steps.

Invariant: a server makes one such reply at a time. Equal requests share a reply only if all of them arrive before the reply is
begun, so a reply is never older than its request. However many bulk replies a connection requests, they are sent to it one at a
time, each when the connection has room."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from mqruntime.slices import Steps, by_turns
from remoting.command import RemotingCommand
from remoting.header import Header
from remoting.peer import Peer

T = TypeVar("T")
IN_TURN = "bulk answers"


class BulkAnswers:
    """The bulk replies of one server."""

    def __init__(self) -> None:
        self._making = asyncio.Lock()
        self._asked: dict[Hashable, asyncio.Future[Any]] = {}

    async def get(self, key: Hashable, make: Callable[[], Steps[T]]) -> T:
        """The result of a call of `make` that began after this call. Requests with equal `key` may share it."""
        asked = self._asked.get(key)
        if asked is not None:
            shared: T = await asyncio.shield(asked)
            return shared
        made = self._asked[key] = asyncio.get_running_loop().create_future()
        try:
            async with self._making:
                del self._asked[key]
                result = await by_turns(make())
        except BaseException as error:
            if self._asked.get(key) is made:
                del self._asked[key]
            if isinstance(error, Exception):
                made.set_exception(error)
                made.exception()  # mark as retrieved: no other caller may wait
            else:
                made.cancel()
            raise
        made.set_result(result)
        return result

    async def answer(
        self,
        peer: Peer,
        command: RemotingCommand,
        key: Hashable,
        make: Callable[[], Steps[tuple[bytes, Header | None]]],
    ) -> None:
        """Send the reply to `command`, after the earlier ones of `peer` have left this process."""
        in_turn = peer.attributes.setdefault(IN_TURN, asyncio.Lock())
        assert isinstance(in_turn, asyncio.Lock)
        async with in_turn:
            await peer.room()
            if not peer.closed:
                body, header = await self.get(key, make)
                peer.send([command.reply(header=header, body=body)])
