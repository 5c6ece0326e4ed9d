"""The election policy. Upstream: DefaultElectPolicy.

Invariant: the elected broker is a live candidate. A live old master is preferred to all other candidates. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LiveReport:
    """The last report of a live broker: the last epoch of its epoch file, the end of its log in bytes, and its configured
    priority (lower is preferred). Upstream's brokers never send the other fields: minInSyncReplicas (0: not sent), whether the
    log may be missing data that the broker acknowledged before a loss of memory, the reason why the broker could not lead now,
    and whether the broker is an async learner."""

    epoch: int
    max_offset: int
    election_priority: int
    members_min: int = 0
    may_miss: bool = False
    unfit: str = ""
    is_learner: bool = False
    could_lead: bool = False
    """Whether the broker can lead although `unfit` is not empty: parts of its log are damaged, but it accepts messages."""
    set_back: bool = False
    """Whether the broker's disk was set back to an earlier image. A newer image may hold more data, so `may_miss` is True
    too."""


def elect(
    candidates: Iterable[int],
    reports: dict[int, LiveReport],
    *,
    old_master: int | None,
    designated: int | None = None,
) -> int | None:
    """The new master among `candidates`; None if no candidate can be elected. `reports` holds exactly the live brokers.

    If a broker is designated, it is elected or no broker is. Otherwise a live old master stays. Otherwise the order is: highest
    epoch, longest log, lowest priority number, lowest id. Upstream subtracts offsets in 32 bits, so a gap of 2 GiB reverses its
    order; here the longer log always wins."""
    alive = [broker_id for broker_id in candidates if broker_id in reports]
    if designated is not None:
        return designated if designated in alive else None
    if old_master in alive:
        return old_master
    return min(alive, key=lambda broker_id: _rank(broker_id, reports[broker_id]), default=None)


def _rank(broker_id: int, report: LiveReport) -> tuple[int, int, int, int]:
    return (-report.epoch, -report.max_offset, report.election_priority, broker_id)
