"""Who may be elected, who may be deposed, who may enter a set.

Invariant: each rule stands in one function, and says what must hold whoever asked and whatever the code under test did."""

from __future__ import annotations

from dataclasses import dataclass, field

from simulation.controllers.setmodel import SetState


@dataclass(frozen=True, slots=True)
class Hearing:
    """What had reached the controller that made a proposal when it made it: the brokers whose heartbeats count, and those
    that it may take for gone. Between the two stand brokers of which a new leader knows nothing yet."""

    by: str = "?"
    alive: frozenset[int] = field(default_factory=frozenset)
    gone: frozenset[int] = field(default_factory=frozenset)


def may_be_elected(state: SetState, candidate: int, learners: frozenset[int], *, unclean: bool) -> str | None:
    """Why not, or None. Never a stranger or a learner; at first whoever is registered, later a member of the set only, if
    unclean election is not on."""
    if candidate not in state.codes:
        return f"{candidate} is not registered"
    if candidate in learners:
        return f"{candidate} is a learner"
    if state.master_epoch == 0 or unclean or candidate in state.members:
        return None
    return f"{candidate} was not in {sorted(state.members)}"


def may_be_the_set(state: SetState, members: frozenset[int], learners: frozenset[int]) -> str | None:
    """Why not, or None."""
    if not members:
        return "the set is empty"
    if state.master_id not in members:
        return f"the master {state.master_id} is not in {sorted(members)}"
    if not members <= state.codes.keys():
        return f"strangers in {sorted(members)}"
    if members & learners:
        return f"learners in {sorted(members)}"
    return None
