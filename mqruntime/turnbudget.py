"""How much of some work one turn of the event loop does.

Invariant: what was taken since the loop last came round is never more than the budget."""

from __future__ import annotations

import asyncio


class TurnBudget:
    """Of anything that is counted; to be asked in the event loop's thread."""

    def __init__(self, budget: int) -> None:
        self._budget = self._left = budget

    def takes(self, amount: int) -> bool:
        """Takes `amount`, or nothing where less is left of this turn."""
        if amount > self._left:
            return False
        if self._left == self._budget:
            asyncio.get_running_loop().call_soon(self._renew)
        self._left -= amount
        return True

    def _renew(self) -> None:
        self._left = self._budget
