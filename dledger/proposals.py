"""What proposers on this member wait for: entries that are to be decided and applied.

Invariant: they stand in the order of their indexes; each wait ends once, with what the state machine returned for its entries,
or with OutcomeUnknown."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field

from dledger.errors import OutcomeUnknown


@dataclass(slots=True)
class Proposal:
    """Entries first_index..last_index wait."""

    first_index: int
    last_index: int
    done: asyncio.Future[list[object]]
    results: list[object] = field(default_factory=list)


class Proposals:
    """Those of one leader; they are given up when it leads no more."""

    def __init__(self) -> None:
        self._waiting: deque[Proposal] = deque()

    def add(self, first_index: int, count: int) -> asyncio.Future[list[object]]:
        """Resolves with what was returned for `count` entries from `first_index` on, which come next."""
        done: asyncio.Future[list[object]] = asyncio.get_running_loop().create_future()
        self._waiting.append(Proposal(first_index, first_index + count - 1, done))
        return done

    def applied(self, index: int, result: object) -> None:
        """The state machine has returned `result` for the entry."""
        if not self._waiting or self._waiting[0].first_index > index:
            return
        proposal = self._waiting[0]
        proposal.results.append(result)
        if index == proposal.last_index:
            self._waiting.popleft()
            if not proposal.done.done():
                proposal.done.set_result(proposal.results)

    def give_up(self, why: str) -> None:
        """Whether they will be decided is not for this member to know any more."""
        while self._waiting:
            done = self._waiting.popleft().done
            if not done.done():
                done.set_exception(OutcomeUnknown(why))
