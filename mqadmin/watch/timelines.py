"""Joins elections that controllers reported with the epochs in the log.

Invariant: all times of one election come from the same controller, so from the same clock. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace

from mqadmin.watch.view import WatchedElection
from remoting.bodies.elections import Election

ELECTIONS_MAX = 10


def fullest(stories: Iterable[Iterable[Election]]) -> dict[int, Election]:
    """Each epoch from the controller that knows most facts of it, or from the first such controller."""
    found: dict[int, Election] = {}
    for story in stories:
        for reported in story:
            if reported.epoch not in found or known(reported) > known(found[reported.epoch]):
                found[reported.epoch] = reported
    return found


def known(reported: Election) -> int:
    """The number of known facts of an election."""
    return sum(getattr(reported, row.name) is not None for row in fields(reported))


def joined(logged: Iterable[WatchedElection], reported: dict[int, Election]) -> tuple[WatchedElection, ...]:
    """The last elections in the log or reported, newest first."""
    rows = {row.epoch: row for row in logged}
    for epoch, one in reported.items():
        row = rows.get(epoch, WatchedElection(epoch))
        at_ms = one.elected_ms if one.new_master_id is None else one.writable_ms
        rows[epoch] = replace(row, at_ms=at_ms, why=one.reason, reported=one)
    return tuple(rows[epoch] for epoch in sorted(rows, reverse=True)[:ELECTIONS_MAX])


def began_ms(reported: Election) -> int | None:
    """When the election began: the loss was noticed or, without a loss, the election was proposed. If both are unknown, when
    it was applied."""
    for moment in (reported.noticed_ms, reported.proposed_ms, reported.elected_ms):
        if moment is not None:
            return moment
    return None
