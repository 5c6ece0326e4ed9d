"""Ended transactions since the start, by topic, and their durations.

Invariant: the end of a transaction counts once, at the master that stored it. Pure."""

from __future__ import annotations

from collections import Counter


class TransactionTotals:
    """The totals of one broker."""

    def __init__(self) -> None:
        self.committed: Counter[str] = Counter()
        self.rolled_back: Counter[str] = Counter()

    def ended(self, topic: str, *, committed: bool) -> None:
        (self.committed if committed else self.rolled_back)[topic] += 1
