"""The bounds on what a simulated process holds, and how it is counted."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from mqruntime.runtime import Runtime
from simulation.kernel.bounds import LOOPS_MAX, Bounds
from simulation.kernel.census import sizes
from simulation.kernel.node import Node
from simulation.kernel.violation import Violation
from simulation.kernel.world import World

HERE = frozenset({__name__.partition(".")[0]})


class Shelf:
    __slots__ = ("books",)

    def __init__(self, count: int) -> None:
        self.books = list(range(count))


class Library:
    def __init__(self) -> None:
        self.shelves = {"a": Shelf(3), "b": Shelf(5)}
        self.readers: dict[str, list[int]] = {"one": [1, 2]}
        self.ask = partial(self.shelf_of, self)

    def shelf_of(self, other: Library) -> Shelf:
        return other.shelves["a"]


class Opens:
    """Opens a file, keeps it, and starts `waits` timers."""

    def __init__(self, waits: int, runtime: Runtime) -> None:
        self.file = runtime.segments.create("file", 4096)
        self.timers = [asyncio.get_running_loop().call_later(1e6, print) for _ in range(waits)]
        self.failed = asyncio.get_running_loop().create_future()

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        self.file.close()

    async def wait_failed(self) -> BaseException:
        error: BaseException = await self.failed
        return error


def started(world: World, waits: int = 0) -> tuple[Node, Bounds]:
    node = world.node("one", "10.0.0.1")
    node.start(partial(Opens, waits))
    world.run_for_ms(10)
    return node, Bounds(world, [node], Violation)


def test_each_container_is_counted_under_its_class() -> None:
    assert sizes(Library(), HERE) == {
        "Library.shelves": 2,
        "Library.readers": 1,
        "Library.readers[]": 2,
        "Shelf.books": 5,
    }


def test_an_open_file_is_allowed_while_it_exists() -> None:
    with World(1) as world:
        node, bounds = started(world)
        bounds.look(lambda node: {}, idle=True)
        node.disk.wipe("file")
        bounds.look(lambda node: {})  # a read may still be in progress
        with pytest.raises(Violation, match=r"N1: one has file open, which is gone"):
            bounds.look(lambda node: {}, idle=True)


def test_a_killed_process_has_no_open_files() -> None:
    with World(1) as world:
        node, _ = started(world)
        assert node.disk.open_names() == [("file", True)]
        node.kill()
        assert node.disk.open_names() == []


def test_unneeded_timers_are_found() -> None:
    with World(1) as world:
        _, bounds = started(world, waits=LOOPS_MAX + 1)
        with pytest.raises(Violation, match=r"N4: one has 3\d timers"):
            bounds.look(lambda node: {}, idle=True)
