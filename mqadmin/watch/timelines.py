"""Elections as controllers tell them, joined with the epochs in the log.

Invariant: the moments of one election are those of one controller, on one clock. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace

from mqadmin.watch.view import Election
from remoting.bodies.elections import Election as Told

ELECTIONS_MAX = 10


def fullest(stories: Iterable[Iterable[Told]]) -> dict[int, Told]:
    """Each epoch as the controller tells it that knows most of it, the first of those that know as much."""
    found: dict[int, Told] = {}
    for story in stories:
        for told in story:
            if told.epoch not in found or known(told) > known(found[told.epoch]):
                found[told.epoch] = told
    return found


def known(told: Told) -> int:
    """How many of its facts are known."""
    return sum(getattr(told, row.name) is not None for row in fields(told))


def joined(logged: Iterable[Election], told: dict[int, Told]) -> tuple[Election, ...]:
    """The last elections that stand in the log or were told, newest first."""
    rows = {row.epoch: row for row in logged}
    for epoch, one in told.items():
        row = rows.get(epoch, Election(epoch))
        at_ms = one.elected_ms if one.new_master_id is None else one.writable_ms
        rows[epoch] = replace(row, at_ms=at_ms, why=one.reason, told=one)
    return tuple(rows[epoch] for epoch in sorted(rows, reverse=True)[:ELECTIONS_MAX])


def began_ms(told: Told) -> int | None:
    """When the election began: the loss was noticed, or it was proposed without one; else when it was applied."""
    for moment in (told.noticed_ms, told.proposed_ms, told.elected_ms):
        if moment is not None:
            return moment
    return None
