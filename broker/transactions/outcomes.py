"""Outcomes of the transactions that ended last.

Invariant: bounded. A transaction whose outcome was dropped is ended, for it is not open. Pure."""

from __future__ import annotations

from enum import IntEnum

from messagestore.record import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK

OUTCOMES_MAX = 65_536


class TransactionOutcome(IntEnum):
    """The value is that of `commitOrRollback`."""

    COMMIT = TRANSACTION_COMMIT
    ROLLBACK = TRANSACTION_ROLLBACK


class Outcomes:
    """Outcomes by root."""

    def __init__(self) -> None:
        self._outcomes: dict[int, TransactionOutcome] = {}

    def note(self, root: int, outcome: TransactionOutcome) -> None:
        self._outcomes[root] = outcome
        if len(self._outcomes) > OUTCOMES_MAX:
            del self._outcomes[next(iter(self._outcomes))]

    def of(self, root: int) -> TransactionOutcome | None:
        """The outcome; None when it was dropped."""
        return self._outcomes.get(root)
