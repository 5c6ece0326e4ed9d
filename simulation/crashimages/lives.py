"""Runs a script in a simulated process that may be crashed at any step. The time from a start to a crash is one life."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from mqruntime.runtime import App, Runtime
from simulation.kernel.node import Node
from simulation.kernel.world import World

LIMIT_MS = 600_000


class ScriptedApp(App, Protocol):
    """An app that plays a script."""

    done: bool
    failure: BaseException | None


S = TypeVar("S", bound=ScriptedApp)


def live(world: World, node: Node, make: Callable[[Runtime], S], steps: int | None) -> int:
    """Play one life, until the event loop has taken `steps` steps or to the end of the script. Returns how many steps it
    took."""
    apps: list[S] = []
    taken = 0

    def made(runtime: Runtime) -> S:
        apps.append(make(runtime))
        return apps[-1]

    def over() -> bool:
        nonlocal taken
        taken += 1
        if node.failure is not None:
            raise AssertionError("the start or the script failed") from node.failure
        return taken == steps or any(app.done for app in apps)

    node.start(made)
    world.run_until(over, limit_ms=LIMIT_MS)
    assert all(app.failure is None for app in apps)
    return taken
