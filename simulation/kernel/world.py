"""One seed's world: its loop, network, trace and nodes.

Invariant: everything that happens in the world follows from the seed and the calls of the test. The same seed and calls give
the same trace digest.

    with World(seed) as world:
        node = world.node("broker-0", "10.0.0.1")
        node.start(make_app)
        world.run_until(lambda: node.app.ready, limit_ms=5_000)"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

from simulation.kernel.guard import hidden_inputs_trapped
from simulation.kernel.loop import SimulatedLoop, SimulationError
from simulation.kernel.network import SimulatedNetwork
from simulation.kernel.node import Node
from simulation.kernel.trace import Trace

T = TypeVar("T")

RUN_LIMIT_MS = 600_000


class NotReached(SimulationError):
    """The condition of `run_until` was not met. The text has the seed and the position of every task."""


class World:
    """One world, used as a context manager. At the end the remaining processes are buried."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.trace = Trace()
        self.loop = SimulatedLoop(seed)
        self.network = SimulatedNetwork(self.loop, seed, self.trace)
        self.nodes: dict[str, Node] = {}

    def node(self, name: str, host: str) -> Node:
        """Make a new host with an empty disk. Nothing runs on it yet."""
        assert name not in self.nodes, f"there is a node {name} already"
        self.nodes[name] = Node(self.seed, self.network, self.trace, name, host)
        return self.nodes[name]

    @property
    def now_ms(self) -> int:
        """Virtual ms since the world began."""
        return self.loop.now_us // 1000

    def after_each_step(self, check: Callable[[], None]) -> None:
        """Call `check` after each turn of the event loop. This is the place for invariants."""
        self.loop.after_step.append(check)

    def run_for_ms(self, ms: int) -> None:
        """Let virtual time pass."""
        self._run(asyncio.sleep(ms / 1000))

    def run_until(self, predicate: Callable[[], bool], limit_ms: int) -> None:
        """Run until `predicate`, called after each step, holds. Raises NotReached if that does not happen within `limit_ms`."""
        if predicate():
            return
        reached = self.loop.create_future()

        def ask() -> None:
            if not reached.done() and predicate():
                reached.set_result(None)

        self.loop.after_step.append(ask)
        try:
            self._run(self._within(reached, limit_ms))
        finally:
            self.loop.after_step.remove(ask)

    def run(self, coroutine: Coroutine[Any, Any, T], *, limit_ms: int = RUN_LIMIT_MS) -> T:
        """Run a coroutine of the test to its end. The test has its own host outside all nodes."""
        return self._run(self._within(coroutine, limit_ms))

    def run_on(self, node: Node, coroutine: Coroutine[Any, Any, T], *, limit_ms: int = RUN_LIMIT_MS) -> T:
        """Run a coroutine of a node's app within its process, to its end."""
        results: list[T] = []

        async def run() -> None:
            results.append(await coroutine)

        async def spawned() -> None:
            await node.spawn(run())

        self.run(spawned(), limit_ms=limit_ms)
        return results[0]

    @contextmanager
    def partitioned(self, host: str, other: str, *, both: bool = True) -> Iterator[None]:
        """A cut between two hosts for the length of the block."""
        self.network.cut(host, other, both=both)
        try:
            yield
        finally:
            self.network.heal(host, other)

    def close(self) -> None:
        """Bury all processes. The world cannot run again."""
        self.loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            error.add_note(f"seed {self.seed}, at {self.now_ms} ms, trace {self.trace.digest:08x}")
        lost = self.loop.lost_exceptions()
        self.close()
        if error is None and lost:
            raise SimulationError(
                f"a task failed, and its exception was not retrieved: {lost[0]!r}"
            ) from lost[0]

    async def _within(self, awaitable: Awaitable[T], limit_ms: int) -> T:
        timer = asyncio.timeout(limit_ms / 1000)
        try:
            async with timer:
                return await awaitable
        except TimeoutError:
            if not timer.expired():
                raise
            stacks = self.loop.stacks()
            raise NotReached(f"not within {limit_ms} ms (seed {self.seed})\n{stacks}") from None

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        with hidden_inputs_trapped(self.loop):
            return self.loop.run_until_complete(coroutine)
