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


def test_the_one_that_others_count_on_starts_first_and_ends_last() -> None:
    async def story_told() -> None:
        story: list[str] = []
        both = AppGroup(Part("a", story), Part("b", story))
        await both.start()
        await both.stop()
        assert story == ["a starts", "b starts", "b stops", "a stops"]

    asyncio.run(story_told())


def test_one_that_cannot_start_is_told_and_what_comes_after_it_is_left_alone() -> None:
    async def story_told() -> None:
        story: list[str] = []
        parts = AppGroup(Part("a", story), Part("b", story, unstartable=True), Part("c", story))
        with pytest.raises(OSError, match="b cannot"):
            await parts.start()
        await parts.stop()
        assert story == ["a starts", "b starts", "b stops", "a stops"]

    asyncio.run(story_told())


def test_one_that_cannot_end_in_order_keeps_no_other_from_it() -> None:
    async def story_told() -> None:
        story: list[str] = []
        both = AppGroup(Part("a", story), Part("b", story, unstoppable=True))
        await both.start()
        with pytest.raises(OSError, match="b cannot stop"):
            await both.stop()
        assert story[-1] == "a stops"

    asyncio.run(story_told())


@pytest.mark.parametrize("failing", [0, 1])
def test_the_failure_of_one_is_that_of_all(failing: int) -> None:
    async def story_told() -> None:
        parts = [Part("a", []), Part("b", [])]
        both = AppGroup(*parts)
        await both.start()
        waiting = asyncio.create_task(both.wait_failed())
        await asyncio.sleep(0)
        error = RestartWanted()
        parts[failing].failed.set_result(error)
        assert await waiting is error

    asyncio.run(story_told())
