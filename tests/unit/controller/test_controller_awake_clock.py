from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from controller.awakeclock import LATE_MS_MAX, TICK_MS, AwakeClock
from tests.support.doubles import ManualClock


def while_running(scenario: Callable[[AwakeClock, ManualClock], None]) -> None:
    async def body() -> None:
        beneath = ManualClock()
        clock = AwakeClock(beneath)
        running = asyncio.create_task(clock.run())
        await asyncio.sleep(0)
        scenario(clock, beneath)
        running.cancel()

    asyncio.run(body())


def test_the_clock_counts_time_while_the_process_runs() -> None:
    def scenario(clock: AwakeClock, beneath: ManualClock) -> None:
        for _ in range(40):
            beneath.ms += TICK_MS + LATE_MS_MAX
            assert clock.monotonic_ms() == beneath.ms
        assert clock.now_ms() == beneath.now_ms()

    while_running(scenario)


def test_a_process_pause_counts_as_one_tick() -> None:
    def scenario(clock: AwakeClock, beneath: ManualClock) -> None:
        before = clock.monotonic_ms()
        beneath.ms += 3_600_000
        assert clock.monotonic_ms() == clock.monotonic_ms() == before + TICK_MS
        beneath.ms += 100
        assert clock.monotonic_ms() == before + TICK_MS + 100

    while_running(scenario)


def test_a_process_that_is_always_late_counts_its_ticks() -> None:
    def scenario(clock: AwakeClock, beneath: ManualClock) -> None:
        before = clock.monotonic_ms()
        for _ in range(40):
            beneath.ms += 800
            clock.monotonic_ms()
        assert clock.monotonic_ms() == before + 40 * TICK_MS

    while_running(scenario)


def test_a_process_pause_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def scenario(clock: AwakeClock, beneath: ManualClock) -> None:
        beneath.ms += 12_000
        clock.monotonic_ms()

    while_running(scenario)
    assert "stood still" in caplog.text


def test_a_clock_that_is_not_running_returns_the_underlying_time() -> None:
    beneath = ManualClock()
    clock = AwakeClock(beneath)
    beneath.ms += 60_000
    assert clock.monotonic_ms() == beneath.ms
