"""Planted bugs of messages in transactions."""

from __future__ import annotations

from broker.transactions.donequeue import DoneQueue
from simulation.mutants.groups.bugs import BUGS

bug = BUGS.playing("transactions")


@bug("past-before-it-is-reported", DoneQueue, "first_waiting")
def past_before_it_is_reported(self: DoneQueue) -> int | None:
    """A half counts as done once its end is in the log. So the next master writes no op message for it, and the master after
    that checks it again."""
    return None
