"""The election policy. Upstream: DefaultElectPolicy.

Invariant: the elected broker is a live candidate; a live old master is preferred to all others. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LiveReport:
    """The last report of a live broker: the last epoch of its epoch file, the end of its log in bytes, its configured
    priority (lower is preferred). Upstream's brokers never send the rest: minInSyncReplicas (0: not sent), whether
    its log may be missing data that it acknowledged before a loss of memory, why it could not lead now, and whether
    it is an async learner."""

    epoch: int
    max_offset: int
    election_priority: int
    members_min: int = 0
    may_miss: bool = False
    unfit: str = ""
    is_learner: bool = False
    could_lead: bool = False
    """Whether it can lead though it reports why it should not: parts of its log are damaged, and it accepts messages."""
    set_back: bool = False
    """Its disk was set back to an earlier image, and a newer one may hold more; `may_miss` is set too."""


def elect(
    candidates: Iterable[int],
    reports: dict[int, LiveReport],
    *,
    old_master: int | None,
    designated: int | None = None,
) -> int | None:
    """The new master among `candidates`, or None. `reports` holds exactly the live brokers.

    A designated broker is elected or none is. Else a live old master stays. Else the order is: highest epoch, longest
    log, lowest priority number, lowest id. Upstream subtracts offsets in 32 bits, so there a gap of 2 GiB reverses
    the order; here the longer log always wins."""
    alive = [broker_id for broker_id in candidates if broker_id in reports]
    if designated is not None:
        return designated if designated in alive else None
    if old_master in alive:
        return old_master
    return min(alive, key=lambda broker_id: _rank(broker_id, reports[broker_id]), default=None)


def _rank(broker_id: int, report: LiveReport) -> tuple[int, int, int, int]:
    return (-report.epoch, -report.max_offset, report.election_priority, broker_id)
