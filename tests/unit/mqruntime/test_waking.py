"""A wait ends when its task is asked to run, or when its time is over."""

from __future__ import annotations

import asyncio

from mqruntime.waking import wait_event
from simulation.kernel.world import World


def test_who_is_woken_goes_on_at_once_and_says_so() -> None:
    async def story() -> tuple[bool, bool, bool]:
        wake = asyncio.Event()
        asyncio.get_running_loop().call_later(0.01, wake.set)
        first = await wait_event(wake, 60_000)
        return first, await wait_event(wake, 60_000), await wait_event(wake, None)

    with World(1) as world:
        began_ms = world.now_ms
        assert world.run(story()) == (True, True, True), "nobody cleared it"
        assert world.now_ms - began_ms < 20


def test_who_is_not_woken_goes_on_when_the_time_is_over() -> None:
    with World(1) as world:
        began_ms = world.now_ms
        assert world.run(wait_event(asyncio.Event(), 500)) is False
        assert 500 <= world.now_ms - began_ms < 510
