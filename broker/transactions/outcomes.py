"""How the transactions ended that ended last.

Invariant: bounded; what is forgotten is ended nevertheless, for it is not among the open halves. Pure."""

from __future__ import annotations

from enum import IntEnum

from messagestore.record import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK

OUTCOMES_MAX = 65_536


class Outcome(IntEnum):
    """The value is that of `commitOrRollback`."""

    COMMIT = TRANSACTION_COMMIT
    ROLLBACK = TRANSACTION_ROLLBACK


class Outcomes:
    """By root."""

    def __init__(self) -> None:
        self._outcomes: dict[int, Outcome] = {}

    def note(self, root: int, outcome: Outcome) -> None:
        self._outcomes[root] = outcome
        if len(self._outcomes) > OUTCOMES_MAX:
            del self._outcomes[next(iter(self._outcomes))]

    def of(self, root: int) -> Outcome | None:
        """None when it is not known any more."""
        return self._outcomes.get(root)
