"""The timer of a shell, on virtual time."""

from __future__ import annotations

import asyncio

from mqruntime.core import NEVER_MS
from mqruntime.coretimer import CoreTimer
from mqruntime.runtime import Runtime
from mqruntime.tasks import Tasks
from simulation.kernel.world import World

BUG = [-1]


class App:
    """Sets `timer` to the times it is given, and records when it fires."""

    def __init__(self, runtime: Runtime) -> None:
        self.clock = runtime.clock
        self.began_ms = self.clock.monotonic_ms()
        self.fired: list[int] = []
        self.next_ms: list[int] = []
        self.failed: list[BaseException] = []
        self.timer = CoreTimer(runtime.clock, Tasks(self.failed.append), self.due)

    def due(self) -> None:
        self.fired.append(self.clock.monotonic_ms() - self.began_ms)
        if self.next_ms == BUG:
            raise AssertionError("a bug")
        if self.next_ms:
            self.at(self.next_ms.pop(0))

    def at(self, due_ms: int) -> None:
        self.timer.due_at(self.began_ms + due_ms)

    async def start(self) -> None:
        """Nothing of its own."""

    async def stop(self) -> None:
        self.timer.cancel()

    async def wait_failed(self) -> BaseException:
        return await asyncio.get_running_loop().create_future()


def played(due: list[int], next_ms: list[int] | None = None, *, cancel: bool = False) -> App:
    with World(1) as world:
        node = world.node("one", "10.0.0.1")
        apps: list[App] = []

        def made(runtime: Runtime) -> App:
            apps.append(App(runtime))
            return apps[0]

        node.start(made)
        world.run_for_ms(1)

        async def arm() -> None:
            apps[0].began_ms = apps[0].clock.monotonic_ms()
            apps[0].next_ms = next_ms or []
            for at in due:
                apps[0].at(at)
            if cancel:
                apps[0].timer.cancel()

        node.spawn(arm())
        world.run_for_ms(1_000)
        return apps[0]


def fired(due: list[int], next_ms: list[int] | None = None, *, cancel: bool = False) -> list[int]:
    return played(due, next_ms, cancel=cancel).fired


def test_the_timer_fires_once_at_the_earliest_requested_time() -> None:
    [at] = fired([500, 100, 300])
    assert 100 <= at <= 102


def test_a_time_in_the_past_fires_now() -> None:
    [at] = fired([-50])
    assert at <= 2


def test_the_woken_caller_may_arm_the_timer_again() -> None:
    first, second = fired([100], [400])
    assert 100 <= first <= 102 and 400 <= second <= 402


def test_a_timer_set_to_never_or_cancelled_does_not_fire() -> None:
    assert fired([NEVER_MS - 10**9]) == [] and fired([100, 200], cancel=True) == []


def test_an_exception_in_the_timer_callback_ends_the_owner() -> None:
    [error] = played([100], BUG).failed
    assert str(error) == "a bug"
