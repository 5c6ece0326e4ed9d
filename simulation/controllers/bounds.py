"""Checks the sizes of the controllers' tables.

Invariant: the rules N1 to N4 of simulation.kernel.bounds hold, whatever was requested. Limits are computed from the sets and
brokers of the world, and from the granted ids, which the check reads from the bytes of applied entries."""

from __future__ import annotations

from collections.abc import Mapping

from simulation.controllers.check import ControllerCheck
from simulation.kernel.bounds import Bounds, Numbers
from simulation.kernel.node import Node
from simulation.kernel.violation import Violation
from simulation.kernel.world import World

LOOK_MS = 20_000
ELECTIONS_KEPT = 10
"""Elections kept of each set, as many as upstream's tools show."""
REASONS = 8
"""The number of reasons for elections."""
PROCESSES_KEPT = 4
"""Processes kept of a broker. Earlier processes cannot matter any more."""


class ControllerBounds:
    """Looks each LOOK_MS, and remembers the highest id that was granted in each set."""

    def __init__(
        self, world: World, check: ControllerCheck, controllers: list[Node], sets: Mapping[str, list[Node]]
    ) -> None:
        self.world = world
        self.check = check
        self.sets = sets
        self.bounds = Bounds(world, controllers, Violation)
        self.due_us = 1_000 * LOOK_MS
        self.highest: dict[str, int] = {}

    def look(self) -> None:
        """Raises Violation N1 to N4."""
        if self.world.loop.now_us >= self.due_us:
            self.due_us += 1_000 * LOOK_MS
            self.look_now()

    def at_the_end(self) -> None:
        """Check when everything is whole. Brokers still send requests, and a controller that was paused has many to answer."""
        self.bounds.looks = 0
        self.look_now()

    def look_now(self) -> None:
        for name, model in self.check.sets.items():
            self.highest[name] = max((self.highest.get(name, 0), *model.now.codes))
        self.bounds.look(self.expected)

    def expected(self, node: Node) -> Numbers:
        sets = len(self.check.sets)
        ids = sum(self.highest.values()) + sum(map(len, self.sets.values()))
        per_set = max(self.highest.values(), default=0) + max(map(len, self.sets.values()))
        return {
            "RequestCounts.elections": REASONS * (sets + 1),
            "ElectionHistory._elections": sets,
            "ElectionHistory._elections[]": ELECTIONS_KEPT,
            "ElectionHistory._saved[]": ELECTIONS_KEPT,
            "Heartbeats._entries": ids,
            "Heartbeats._of_connection": ids,
            "Heartbeats._spoken": ids,
            "Heartbeats._spoken[]": PROCESSES_KEPT,
            "Holdings._of": ids,
            "Holdings._of_set[]": per_set,
            "RaftLog._recent": len(self.check.order) + len(self.world.nodes) + 100,
            "Replicas.by_id": per_set,
        }
