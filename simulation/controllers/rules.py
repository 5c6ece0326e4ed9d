"""Who may be elected, who may be deposed, who may enter a set, and who is eligible beside it then.

Invariant: each rule stands in one function, and says what must hold whoever asked and whatever the code under test did."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from simulation.controllers.setmodel import SetState


class Unfitness(IntEnum):
    """Who says less of it leads before who says more."""

    FIT = 0
    COULD_LEAD = 1
    CANNOT = 2


@dataclass(frozen=True, slots=True)
class Said:
    """What a broker's newest heartbeat said of it; upstream's brokers say nothing but how long their logs are.
    `members_min`: below which it does not acknowledge; 0: it may alone. `once`: the longest log that it ever told of.
    `overtaken`: a copy of earlier words came over a newer connection than these, so its log may be taken for shorter."""

    members_min: int = 0
    may_lack: bool = False
    unfit: Unfitness = Unfitness.FIT
    log_end: int = 0
    once: int = 0
    overtaken: bool = False


@dataclass(frozen=True, slots=True)
class Hearing:
    """What had reached the controller that made a proposal when it made it: the brokers whose heartbeats may count and those
    whose must, and those that it may take for gone. Between them stand brokers of which a new leader knows nothing yet, or
    one that stood still for a while cannot be sure. `restarted`: whose registration it had in hand then, not a late one."""

    by: str = "?"
    alive: frozenset[int] = field(default_factory=frozenset)
    gone: frozenset[int] = field(default_factory=frozenset)
    surely_alive: frozenset[int] = field(default_factory=frozenset)
    restarted: frozenset[int] = field(default_factory=frozenset)
    said: dict[int, Said] = field(default_factory=dict)

    def of(self, broker_id: int) -> Said:
        return self.said.get(broker_id, Said())


def may_be_elected(
    state: SetState, candidate: int, learners: frozenset[int], hearing: Hearing, *, unclean: bool
) -> str | None:
    """Why not, or None. Never a stranger or a learner; at first whoever is registered, later a member of the set or one
    that is eligible beside it and tells when it lost memory, if unclean election is not on."""
    if candidate not in state.codes:
        return f"{candidate} is not registered"
    if candidate in learners:
        return f"{candidate} is a learner"
    if state.master_epoch == 0 or unclean or candidate in _electable(state, hearing):
        return None
    return f"{candidate} was not in {sorted(state.members)}, nor eligible: {sorted(state.eligible)}"


def better_than(state: SetState, elected: int, hearing: Hearing, *, designated: bool) -> str | None:
    """Who should have been elected in its place by itself, or None: one that says that it lacks nothing before one that may
    lack something, and of those one that can lead before one that cannot. The first holds for one that an operator designated,
    too. Who has no log, or less than once, is nobody's better."""
    said = hearing.of(elected)
    for other in _electable(state, hearing) & hearing.surely_alive - {elected}:
        rival = hearing.of(other)
        if rival.overtaken or not _is_whole(rival):
            continue
        if said.may_lack:
            return f"{elected} may lack what {other} holds"
        if said.unfit > rival.unfit and not designated:
            return f"{elected} cannot lead, or not well, and {other} can better"
    return None


def yields_to(old: Said, new: Said) -> bool:
    """An unfit master that is heard yields: to one that is fitter, or could lead as well and lacks nothing while it may."""
    if old.unfit > new.unfit:
        return True
    old_may_lack = old.overtaken or not _is_whole(old)
    return old.unfit == new.unfit == Unfitness.COULD_LEAD and _is_whole(new) and old_may_lack


def _is_whole(said: Said) -> bool:
    """Whether it has a log, no shorter than once, and does not say that it may lack something."""
    return 0 < said.log_end >= said.once and not said.may_lack


def _electable(state: SetState, hearing: Hearing) -> frozenset[int]:
    return state.members | frozenset(other for other in state.eligible if hearing.of(other).members_min > 0)


def eligible_after_alter(state: SetState, altered: frozenset[int], members_min: int) -> frozenset[int]:
    """Whoever leaves a set in which its master acknowledges nothing, or any set that is so small, still holds all that was
    acknowledged."""
    if not 0 < members_min > len(altered):
        return frozenset()
    return state.members.union(state.eligible).difference(altered)


def eligible_after_election(state: SetState, elected: int, hearing: Hearing) -> frozenset[int]:
    """A new master acknowledges nothing before its set was altered, unless it does not say how large the set must be."""
    held = state.members | state.eligible
    if hearing.of(elected).members_min == 0 or (state.master_epoch > 0 and elected not in held):
        return frozenset()
    return held - {elected}


def may_be_forgotten(state: SetState, gone: frozenset[int], hearing: Hearing) -> str | None:
    """Why not, or None. Of those that hold what was acknowledged somebody must be left who may live and says that it lacks
    nothing, and as many as each that lives for sure acknowledges with."""
    holders = state.members | state.eligible
    left = holders - gone
    if left == holders:
        return None
    if not any(not hearing.of(other).may_lack for other in left & hearing.alive):
        return f"none of {sorted(left)} is left that surely holds all"
    least = max((hearing.of(other).members_min for other in left & hearing.surely_alive), default=0)
    return None if len(left) >= least else f"{sorted(left)} are fewer than {least}"


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
