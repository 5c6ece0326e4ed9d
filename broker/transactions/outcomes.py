"""The outcomes of the transactions that ended last.

Invariant: at most OUTCOMES_MAX outcomes are kept. If a transaction has no outcome here and is not among the open halves, it has
ended with an unknown outcome. Pure."""

from __future__ import annotations

from enum import IntEnum

from messagestore.record import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK

OUTCOMES_MAX = 65_536


class TransactionOutcome(IntEnum):
    """The outcome. Its value is that of the header field `commitOrRollback`."""

    COMMIT = TRANSACTION_COMMIT
    ROLLBACK = TRANSACTION_ROLLBACK


class Outcomes:
    """The outcomes by root (the queue offset of a transaction's first half)."""

    def __init__(self) -> None:
        self._outcomes: dict[int, TransactionOutcome] = {}

    def note(self, root: int, outcome: TransactionOutcome) -> None:
        self._outcomes[root] = outcome
        if len(self._outcomes) > OUTCOMES_MAX:
            del self._outcomes[next(iter(self._outcomes))]

    def of(self, root: int) -> TransactionOutcome | None:
        """The outcome; None if it was dropped."""
        return self._outcomes.get(root)
