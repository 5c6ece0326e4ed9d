"""A limit on work per turn of the event loop.

Invariant: the amount taken since the loop's last turn never exceeds the budget."""

from __future__ import annotations

import asyncio


class TurnBudget:
    """A budget in any unit; use it in the event loop's thread."""

    def __init__(self, budget: int) -> None:
        self._budget = self._left = budget

    def takes(self, amount: int) -> bool:
        """Take `amount`; False, and nothing taken, if less is left in this turn."""
        if amount > self._left:
            return False
        if self._left == self._budget:
            asyncio.get_running_loop().call_soon(self._renew)
        self._left -= amount
        return True

    def _renew(self) -> None:
        self._left = self._budget
