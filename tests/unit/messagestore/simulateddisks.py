"""Stores on the simulated disk."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from messagestore.store.messagestore import MessageStore
from simulation.kernel.disk import SimulatedDisk
from simulation.kernel.node import Node
from simulation.kernel.world import World
from tests.unit.messagestore.storehelp import small_settings


def on_a_node(scenario: Callable[[Node], Coroutine[Any, Any, None]]) -> None:
    with World(1) as world:
        node = world.node("broker-0", "10.0.0.1")

        class App:
            async def start(self) -> None:
                await scenario(node)

            async def stop(self) -> None:
                raise AssertionError("not asked")

            async def wait_failed(self) -> BaseException:
                done.append(True)
                return await world.loop.create_future()

        done: list[bool] = []
        node.start(lambda runtime: App())
        world.run_until(lambda: bool(done) or node.failure is not None, limit_ms=60_000)
        assert node.failure is None


def on_a_disk(
    scenario: Callable[[MessageStore, SimulatedDisk, list[BaseException]], Coroutine[Any, Any, None]],
) -> None:
    """Run the scenario with a started master store; the list collects its fatal errors."""

    async def with_a_store(node: Node) -> None:
        fatal: list[BaseException] = []
        store = MessageStore(node.runtime(), small_settings(), on_fatal=fatal.append)
        await store.start()
        await store.become_master()
        await scenario(store, node.disk, fatal)
        await store.stop()

    on_a_node(with_a_store)
