"""Servers of one process start, fail and end together."""

from __future__ import annotations

import asyncio

import pytest

from mqruntime.runtime import RestartWanted
from mqruntime.together import AppGroup


class Part:
    def __init__(
        self, name: str, story: list[str], unstartable: bool = False, unstoppable: bool = False
    ) -> None:
        self.name = name
        self.story = story
        self.unstartable = unstartable
        self.unstoppable = unstoppable
        self.failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

    async def start(self) -> None:
        self.story.append(f"{self.name} starts")
        if self.unstartable:
            raise OSError(f"{self.name} cannot")

    async def stop(self) -> None:
        self.story.append(f"{self.name} stops")
        if self.unstoppable:
            raise OSError(f"{self.name} cannot stop")

    async def wait_failed(self) -> BaseException:
        return await asyncio.shield(self.failed)


def test_the_first_part_starts_first_and_stops_last() -> None:
    async def scenario() -> None:
        story: list[str] = []
        both = AppGroup(Part("a", story), Part("b", story))
        await both.start()
        await both.stop()
        assert story == ["a starts", "b starts", "b stops", "a stops"]

    asyncio.run(scenario())


def test_a_part_that_fails_to_start_is_stopped_and_later_parts_never_start() -> None:
    async def scenario() -> None:
        story: list[str] = []
        parts = AppGroup(Part("a", story), Part("b", story, unstartable=True), Part("c", story))
        with pytest.raises(OSError, match="b cannot"):
            await parts.start()
        await parts.stop()
        assert story == ["a starts", "b starts", "b stops", "a stops"]

    asyncio.run(scenario())


def test_a_part_that_fails_to_stop_does_not_keep_others_running() -> None:
    async def scenario() -> None:
        story: list[str] = []
        both = AppGroup(Part("a", story), Part("b", story, unstoppable=True))
        await both.start()
        with pytest.raises(OSError, match="b cannot stop"):
            await both.stop()
        assert story[-1] == "a stops"

    asyncio.run(scenario())


@pytest.mark.parametrize("failing", [0, 1])
def test_the_failure_of_one_part_is_the_failure_of_the_group(failing: int) -> None:
    async def scenario() -> None:
        parts = [Part("a", []), Part("b", [])]
        both = AppGroup(*parts)
        await both.start()
        waiting = asyncio.create_task(both.wait_failed())
        await asyncio.sleep(0)
        error = RestartWanted()
        parts[failing].failed.set_result(error)
        assert await waiting is error

    asyncio.run(scenario())
