"""Which broker may be elected, deposed, or enter a set, and which brokers are eligible afterwards.

Invariant: each rule is one function. It states what must hold for any request, and uses no code of the product."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from simulation.controllers.setmodel import SetState


class Unfitness(IntEnum):
    """How unfit a broker is to lead. A broker with a lower value is preferred."""

    FIT = 0
    COULD_LEAD = 1
    CANNOT = 2


@dataclass(frozen=True, slots=True)
class Said:
    """The newest heartbeat of a broker. Upstream's brokers report only how long their logs are. With fewer members than
    `members_min` the broker does not acknowledge; 0 means that it may acknowledge alone. `once` is the longest log that it
    ever reported. `overtaken` means that a copy of earlier reports came over a newer connection, so its log may be taken for
    shorter."""

    members_min: int = 0
    may_miss: bool = False
    unfit: Unfitness = Unfitness.FIT
    log_end: int = 0
    once: int = 0
    overtaken: bool = False


@dataclass(frozen=True, slots=True)
class LivenessView:
    """What a controller could know when it made a proposal: the brokers whose heartbeats it may use, the brokers whose
    heartbeats it must use, and the brokers that it may consider dead. A broker is undecided if the leader is new, or was
    paused, and knows nothing of the broker yet. `restarted` are brokers whose registration, if not late, the controller was
    handling."""

    by: str = "?"
    alive: frozenset[int] = field(default_factory=frozenset)
    gone: frozenset[int] = field(default_factory=frozenset)
    surely_alive: frozenset[int] = field(default_factory=frozenset)
    restarted: frozenset[int] = field(default_factory=frozenset)
    said: dict[int, Said] = field(default_factory=dict)

    def of(self, broker_id: int) -> Said:
        return self.said.get(broker_id, Said())


def may_be_elected(
    state: SetState, candidate: int, learners: frozenset[int], liveness: LivenessView, *, unclean: bool
) -> str | None:
    """Why the broker may not be elected; None if it may. An unregistered broker or a learner is never elected. At first any
    registered broker may be elected. Later, unless unclean election is on, only members of the set, and eligible brokers that
    report how many members must acknowledge."""
    if candidate not in state.codes:
        return f"{candidate} is not registered"
    if candidate in learners:
        return f"{candidate} is a learner"
    if state.master_epoch == 0 or unclean or candidate in _electable(state, liveness):
        return None
    return f"{candidate} was neither in the set {sorted(state.members)} nor eligible {sorted(state.eligible)}"


def better_than(state: SetState, elected: int, liveness: LivenessView, *, designated: bool) -> str | None:
    """Why another broker should have been elected when no operator requested the election; None if the choice is right. A
    complete broker comes before a broker that may be missing data. Among equals, a broker that can lead comes before one that
    cannot. The first rule also holds for a designated broker. A broker without a log, or with less log than it once had, is
    never better."""
    said = liveness.of(elected)
    for other in _electable(state, liveness) & liveness.surely_alive - {elected}:
        rival = liveness.of(other)
        if rival.overtaken or not _is_whole(rival):
            continue
        if said.may_miss:
            return f"{elected} may be missing data that {other} holds"
        if said.unfit > rival.unfit and not designated:
            return f"{elected} cannot lead, or not well, and {other} is fitter"
    return None


def yields_to(old: Said, new: Said) -> bool:
    """Whether an unfit live master yields: to a fitter broker, or to a broker that is as fit and complete while the master is
    not complete."""
    if old.unfit > new.unfit:
        return True
    old_may_miss = old.overtaken or not _is_whole(old)
    return old.unfit == new.unfit == Unfitness.COULD_LEAD and _is_whole(new) and old_may_miss


def _is_whole(said: Said) -> bool:
    """Whether the broker has a log that is as long as ever, and does not report that it may be missing data."""
    return 0 < said.log_end >= said.once and not said.may_miss


def _electable(state: SetState, liveness: LivenessView) -> frozenset[int]:
    return state.members | frozenset(other for other in state.eligible if liveness.of(other).members_min > 0)


def eligible_after_alter(state: SetState, altered: frozenset[int], members_min: int) -> frozenset[int]:
    """The brokers that are eligible after an alter. A broker that leaves the set still holds all acknowledged data if the set
    is so small that its master acknowledges nothing."""
    if not 0 < members_min > len(altered):
        return frozenset()
    return state.members.union(state.eligible).difference(altered)


def eligible_after_election(state: SetState, elected: int, liveness: LivenessView) -> frozenset[int]:
    """The brokers that are eligible after an election. A new master acknowledges nothing before its set is altered, unless it
    does not report how large the set must be."""
    held = state.members | state.eligible
    if liveness.of(elected).members_min == 0 or (state.master_epoch > 0 and elected not in held):
        return frozenset()
    return held - {elected}


def may_be_forgotten(state: SetState, gone: frozenset[int], liveness: LivenessView) -> str | None:
    """Why the brokers may not be forgotten; None if they may. Of the brokers that hold acknowledged data, at least one that may
    be alive and reports to be complete must be left. So many must be left that each of them that is certainly alive has enough
    members to acknowledge."""
    holders = state.members | state.eligible
    left = holders - gone
    if left == holders:
        return None
    if not any(not liveness.of(other).may_miss for other in left & liveness.alive):
        return f"none of the remaining {sorted(left)} certainly holds all"
    least = max((liveness.of(other).members_min for other in left & liveness.surely_alive), default=0)
    return None if len(left) >= least else f"the remaining {sorted(left)} are fewer than {least}"


def may_be_the_set(state: SetState, members: frozenset[int], learners: frozenset[int]) -> str | None:
    """Why these brokers may not be the set, or None."""
    if not members:
        return "the set is empty"
    if state.master_id not in members:
        return f"the master {state.master_id} is not in {sorted(members)}"
    if not members <= state.codes.keys():
        return f"unregistered brokers in {sorted(members)}"
    if members & learners:
        return f"learners in {sorted(members)}"
    return None
