"""Kills or pauses the master at the worst moments for a client: when the master has just answered, or is about to get a
request.

Invariant: the chance is drawn from the client's own random generator. The next master is spared for a while, because other
faults happen to it too."""

from __future__ import annotations

import random
from collections.abc import Callable

from simulation.kernel.node import Node
from simulation.kernel.world import World

STILL_MS = (12_000, 25_000)
"""Long enough for a successor."""


class MasterTrouble:
    """`kill` ends the process of the `master()`. The next master is spared for `spared_ms` afterwards."""

    def __init__(
        self,
        world: World,
        chance: random.Random,
        *,
        master: Callable[[], Node | None],
        kill: Callable[[Node], object],
        spared_ms: int,
    ) -> None:
        self.healed = False
        self._world = world
        self._random = chance
        self._master = master
        self._kill = kill
        self._spared_ms = spared_ms
        self._spared_until_ms = 0

    def dies(self, chance: float) -> bool:
        """Kill the master with this chance. Returns whether it died."""
        master = self._struck(chance)
        if master is None:
            return False
        self._spared_until_ms = self._world.now_ms + self._spared_ms
        self._kill(master)
        return True

    def is_paused(self, chance: float) -> Node | None:
        """Pause the master with this chance, and return it. Requests wait in its socket until its successor leads."""
        master = self._struck(chance)
        if master is None:
            return None
        still_ms = self._random.randint(*STILL_MS)
        self._spared_until_ms = self._world.now_ms + still_ms + self._spared_ms
        master.pause(still_ms)
        return master

    def _struck(self, chance: float) -> Node | None:
        master = self._master()
        if self.healed or master is None or self._world.now_ms < self._spared_until_ms:
            return None
        return master if self._random.random() < chance else None
