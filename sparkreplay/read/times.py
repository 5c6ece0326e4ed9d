"""The segments that a read by time leaves out, if the user states that store times grow along the log.

Invariant: only the first records of segments are read for their times, because a segment's beginning is always a record. If one
of them is older than the one before, the user's statement is rejected."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from messagestore.record import (
    MAGIC_V1,
    MAGIC_V2,
    PHYSICAL_OFFSET,
    PHYSICAL_OFFSET_AT,
    PREFIX,
    RECORD_SIZE_MIN,
    store_timestamp,
)
from sparkreplay.errors import OptionError, SegmentGone
from sparkreplay.read.plan import bytes_at
from sparkreplay.records.rowfilter import Between, Condition, OneOfFilter
from sparkreplay.store.files import Files
from sparkreplay.store.segments import Segment, open_segment

OPTION = "storeTimesOrdered"
FIELD = "store_timestamp"
HEADER_BYTES_MAX = 112


@dataclass(frozen=True)
class TimeWindow:
    """Store times [low, high] in ms; None is no limit."""

    low: int | None = None
    high: int | None = None

    def may_hold(self, first: int | None, last: int | None) -> bool:
        """Whether a segment whose store times are within [first, last] may have a row in this window. None means that the limit
        is unknown."""
        early = self.low is not None and last is not None and last < self.low
        late = self.high is not None and first is not None and first > self.high
        return not early and not late


def window_of(conditions: Iterable[Condition]) -> TimeWindow:
    """The store times that satisfy all conditions."""
    lows: list[int] = []
    highs: list[int] = []
    for condition in conditions:
        if isinstance(condition, Between) and condition.field == FIELD:
            lows += [] if condition.low is None else [condition.low]
            highs += [] if condition.high is None else [condition.high]
        elif isinstance(condition, OneOfFilter) and condition.field == FIELD and condition.numbers:
            lows.append(min(condition.numbers))
            highs.append(max(condition.numbers))
    return TimeWindow(max(lows, default=None), min(highs, default=None))


def segments_within(files: Files, segments: Sequence[Segment], end: int, window: TimeWindow) -> list[Segment]:
    """The segments, among the consecutive `segments`, that may hold rows of `window` below `end`. Raises OptionError if the
    times of the first records are not ordered."""
    if window == TimeWindow():
        return list(segments)
    times = [first_stored_ms(files, segment, end) for segment in segments]
    require_order(segments, times)
    return [
        segment
        for segment, first, next_first in zip_longest(segments, times, times[1:])
        if window.may_hold(first, next_first)
    ]


def require_order(segments: Sequence[Segment], times: Sequence[int | None]) -> None:
    newest: int | None = None
    for segment, time in zip(segments, times, strict=True):
        if time is None:
            continue
        if newest is not None and time < newest:
            raise OptionError(
                OPTION,
                f"is not true of this log: {segment.path} begins at store time {time}, and one before it at {newest}; "
                "leave the option out",
            )
        newest = time


def first_stored_ms(files: Files, segment: Segment, end: int) -> int | None:
    """The store time of a segment's first record. None if that record does not end below `end` or is unreadable."""
    try:
        file = open_segment(files, segment)
    except SegmentGone:
        return None  # the worker reports it
    try:
        header = bytes_at(file, segment.framing.lead_bytes, HEADER_BYTES_MAX)
    finally:
        file.close()
    if len(header) < HEADER_BYTES_MAX:
        return None
    size, magic = PREFIX.unpack_from(header)
    named = PHYSICAL_OFFSET.unpack_from(header, PHYSICAL_OFFSET_AT)[0]
    record_at = segment.start_offset + segment.framing.lead_bytes
    whole = RECORD_SIZE_MIN <= size <= end - record_at
    if magic not in (MAGIC_V1, MAGIC_V2) or named != record_at or not whole:
        return None
    return store_timestamp(header, 0)
