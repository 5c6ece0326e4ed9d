"""Deadlines of calls."""

from __future__ import annotations

import asyncio

from mqruntime.clock import SystemClock
from remoting.command import RemotingCommand
from remoting.deadlines import KEPT_MIN, Deadlines
from remoting.errors import CallTimeout


def test_answered_calls_are_not_held_until_their_deadlines() -> None:
    async def story() -> None:
        deadlines = Deadlines(SystemClock())
        loop = asyncio.get_running_loop()
        waiting: list[asyncio.Future[RemotingCommand]] = []
        for _ in range(1000):
            future: asyncio.Future[RemotingCommand] = loop.create_future()
            deadlines.add(future, 60_000, lambda: CallTimeout("127.0.0.1:9876", "late"))
            waiting.append(future)
            if len(waiting) > 8:
                waiting.pop(0).set_result(RemotingCommand.request(60_001))
        assert len(deadlines._heap) == len(waiting) + 1  # the last answer came after the last call
        deadlines.stop()

    asyncio.run(story())


def test_answered_calls_are_not_held_behind_one_that_waits() -> None:
    async def story() -> None:
        deadlines = Deadlines(SystemClock())
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[RemotingCommand] = loop.create_future()
        deadlines.add(waiting, 30_000, lambda: CallTimeout("127.0.0.1:9876", "late"))
        for _ in range(10_000):
            future: asyncio.Future[RemotingCommand] = loop.create_future()
            deadlines.add(future, 60_000, lambda: CallTimeout("127.0.0.1:9876", "late"))
            future.set_result(RemotingCommand.request(60_001))
            assert len(deadlines._heap) <= KEPT_MIN + 1
        assert deadlines._heap[0][2] is waiting
        deadlines.stop()

    asyncio.run(story())
