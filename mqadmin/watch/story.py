"""Combines what is known of a broker set's elections: epochs in its log, elections that controllers reported, and changes that
were seen while watching.

Invariant: a reason is inferred only for a change of master between two looks, from what both looks show. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from mqadmin.watch.timelines import ELECTIONS_MAX
from mqadmin.watch.view import SetView, WatchedElection


class Story:
    """The changes of one broker set since watching began."""

    def __init__(self) -> None:
        self._before: SetView | None = None
        self._seen: dict[int, WatchedElection] = {}

    def goes_on(self, now: SetView, at_ms: int) -> SetView:
        """The look `now`, with its elections completed by those seen before."""
        before = self._before
        # no controller answered, so the next look is compared with the last one that had an answer
        if now.master_epoch is None:
            return replace(now, elections=self._merged(now.elections))
        if before is not None and before.master_epoch is not None and now.master_epoch > before.master_epoch:
            self._seen[now.master_epoch] = WatchedElection(
                epoch=now.master_epoch, master=now.master_address, at_ms=at_ms, why=reason(before, now)
            )
            for epoch in sorted(self._seen)[:-ELECTIONS_MAX]:
                del self._seen[epoch]
        self._before = now
        return replace(now, elections=self._merged(now.elections))

    def _merged(self, logged: Iterable[WatchedElection]) -> tuple[WatchedElection, ...]:
        rows = {row.epoch: row for row in logged}
        for epoch, seen in self._seen.items():
            known = rows.get(epoch, seen)
            rows[epoch] = replace(
                known,
                master=known.master or seen.master,
                at_ms=known.at_ms or seen.at_ms,
                why=known.why or seen.why,
            )
        return tuple(rows[epoch] for epoch in sorted(rows, reverse=True)[:ELECTIONS_MAX])


def reason(before: SetView, now: SetView) -> str:
    """The reason of the change of master, as far as the two looks show it."""
    if now.master_address is None:
        return "nobody fit was alive"
    if before.master_address is None:
        return "there was no master"
    if before.master_address == now.master_address:
        return "the same broker again"
    former = next((row for row in now.brokers if row.address == before.master_address), None)
    if former is None or former.trouble is not None or former.alive is False:
        return f"broker {_name(before)} was lost"
    return f"handed over by {_name(before)}"


def _name(view: SetView) -> str:
    return str(view.master_address if view.master_id is None else view.master_id)
