"""Which of a log's oldest segments are deleted: those that are expired and, if the disk fills, more of the oldest.

Invariant: segments are deleted from the oldest on. The last segment is never deleted, nor is a segment that ends above a hold
(an offset from which on data must stay), whatever age and disk usage are. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

HOUR_MS = 3_600_000
HOUR, HOUR_MAX = re.compile(r"[0-9]{1,2}"), 23
MANUAL_ROUNDS = 20
"""After an operator's request, this many rounds may delete at any hour."""


class RetainedSegment(NamedTuple):
    """Bytes [start, end) of the log. `newest_ms` is the store time of the first record after the segment, so nothing in the
    segment is younger. It is None if there is no record, or if the record cannot be read, is corrupt, or has the time 0. Then a
    later segment's time is used. A time in the future is replaced in the same way, so it does not keep segments for ever. A
    time that is older than the true one affects only this segment, and earlier ones that have to use its time: they may be
    deleted too early."""

    start: int
    end: int
    newest_ms: int | None


class RetentionHold(NamedTuple):
    """No segment at or above `offset` may be deleted; `why` is reported."""

    offset: int
    why: str


@dataclass(frozen=True, slots=True)
class Rules:
    """`delete_hours` are hours of the local day; ratios count from 0 to 1 of the disk."""

    reserved_ms: int
    delete_hours: frozenset[int]
    clean_above: float
    clean_forcibly_above: float
    refuse_above: float
    may_clean_forcibly: bool
    segments_max: int

    def refuses_sends(self, before: bool, disk_used: float) -> bool:
        """Whether the disk is too full for sends. `before` is the last result. After True, sends are refused until usage falls
        below the ratio of forced deletion."""
        enough = min(self.clean_forcibly_above, self.refuse_above)
        return disk_used > (enough if before else self.refuse_above)


class Moment(NamedTuple):
    """A decision's inputs besides the log: wall time, hour of the local day, disk usage, and whether an operator asked."""

    now_ms: int
    hour: int
    disk_used: float
    asked: bool


class RetentionDecision(NamedTuple):
    """Segments that end at or below `end` are deleted. There are `segments` of them, of which `by_force` are not expired.
    `held` is the hold, if any, that alone keeps the next segment from being deleted."""

    end: int
    segments: int
    by_force: int
    held: RetentionHold | None


def is_due(moment: Moment, rules: Rules) -> bool:
    """Whether segments that are old enough may be deleted now."""
    at_its_hour = moment.hour in rules.delete_hours
    return at_its_hour or moment.asked or moment.disk_used > rules.clean_above or _forced(moment, rules)


def _forced(moment: Moment, rules: Rules) -> bool:
    return rules.may_clean_forcibly and moment.disk_used > rules.clean_forcibly_above


def decide(
    segments: Sequence[RetainedSegment], holds: Iterable[RetentionHold], moment: Moment, rules: Rules
) -> RetentionDecision:
    """Decide what to delete. `segments` has at least one segment: the oldest of the log, without the last, oldest first."""
    forced = _forced(moment, rules)
    end, by_force = segments[0].start, 0
    if not is_due(moment, rules):
        return RetentionDecision(end, 0, 0, None)
    lowest = min(holds, key=lambda hold: hold.offset)
    for count, segment in enumerate(segments):
        times = (later.newest_ms for later in segments[count:])
        newest_ms = next((time for time in times if time is not None and time <= moment.now_ms), None)
        aged = newest_ms is not None and newest_ms + rules.reserved_ms <= moment.now_ms
        if count == rules.segments_max or not (aged or forced):
            return RetentionDecision(end, count, by_force, None)
        if segment.end > lowest.offset:
            return RetentionDecision(end, count, by_force, lowest)
        end = segment.end
        by_force += not aged
    return RetentionDecision(end, len(segments), by_force, None)


def hours_of(text: str) -> frozenset[int]:
    """Parse deleteWhen: `04`, `00;12`; a trailing semicolon is allowed, as upstream does. Raises ValueError."""
    parts = text.strip().removesuffix(";").split(";")
    if not all(HOUR.fullmatch(part.strip()) and int(part) <= HOUR_MAX for part in parts):
        raise ValueError("must be hours of the day, 00 to 23, separated by semicolons, as 04 or 00;12")
    return frozenset(map(int, parts))
