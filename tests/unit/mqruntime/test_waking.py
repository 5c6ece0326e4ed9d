"""A wait ends when its event is set, or at its timeout."""

from __future__ import annotations

import asyncio

from mqruntime.waking import wait_event
from simulation.kernel.world import World


def test_a_woken_wait_returns_true_at_once() -> None:
    async def story() -> tuple[bool, bool, bool]:
        wake = asyncio.Event()
        asyncio.get_running_loop().call_later(0.01, wake.set)
        first = await wait_event(wake, 60_000)
        return first, await wait_event(wake, 60_000), await wait_event(wake, None)

    with World(1) as world:
        began_ms = world.now_ms
        assert world.run(story()) == (True, True, True), "the event stays set"
        assert world.now_ms - began_ms < 20


def test_a_wait_that_is_not_woken_returns_false_at_its_timeout() -> None:
    with World(1) as world:
        began_ms = world.now_ms
        assert world.run(wait_event(asyncio.Event(), 500)) is False
        assert 500 <= world.now_ms - began_ms < 510
