"""The form of every core: protocol logic without event loop, clock, socket or file.

Events go in by methods that return actions, which the shell performs in order; time goes in as `now_ms`, monotonic. Only the
core itself changes its state. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

NEVER_MS = 1 << 62
"""The next tick of a core that waits only for events."""

Action_co = TypeVar("Action_co", covariant=True)


class Core(Protocol[Action_co]):
    def tick(self, now_ms: int) -> Sequence[Action_co]:
        """Time passed. Call it at `next_tick_ms` or later; too early it returns nothing."""
        ...

    @property
    def next_tick_ms(self) -> int: ...
