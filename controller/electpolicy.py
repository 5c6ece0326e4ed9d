"""Who becomes master: the rules of upstream's DefaultElectPolicy.

Invariant: the choice is one of the candidates and alive; nobody is better than an old master that lives. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LiveReport:
    """What a live broker last said of itself: the last epoch of its epoch file, the end of its log in
    bytes, its configured priority (lower is preferred); and what upstream's brokers never say: its
    minInSyncReplicas (0: not said), whether its log may lack what it had acknowledged before a loss of memory,
    why it could not lead now, and whether it is an async learner."""

    epoch: int
    max_offset: int
    election_priority: int
    members_min: int = 0
    may_lack: bool = False
    unfit: str = ""
    is_learner: bool = False
    could_lead: bool = False
    """Though it says why it should not: its log is damaged here and there, and it takes messages."""
    set_back: bool = False
    """Its disk was set back to an earlier image, and a newer one may hold more; it says `may_lack` then, too."""


def elect(
    candidates: Iterable[int],
    reports: dict[int, LiveReport],
    *,
    old_master: int | None,
    designated: int | None = None,
) -> int | None:
    """The new master among `candidates`, or None. `reports` holds exactly the brokers that are alive.

    A designated broker is taken or nobody is. Without one a live old master stays, and else the highest
    epoch wins, then the longest log, then the lowest priority number, then the lowest id. Upstream
    subtracts offsets in 32 bits, so there a gap of 2 GiB turns the order round; here the longer log always
    wins."""
    alive = [broker_id for broker_id in candidates if broker_id in reports]
    if designated is not None:
        return designated if designated in alive else None
    if old_master in alive:
        return old_master
    return min(alive, key=lambda broker_id: _rank(broker_id, reports[broker_id]), default=None)


def _rank(broker_id: int, report: LiveReport) -> tuple[int, int, int, int]:
    return (-report.epoch, -report.max_offset, report.election_priority, broker_id)
