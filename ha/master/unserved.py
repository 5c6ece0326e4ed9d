"""What slaves need of a log and its disk does not give.

Invariant: it ends no more than the link that needs it. Whoever lacks it comes again at intervals, and is told of once for each
segment, and again every half minute while that lasts: each time it may lack a little more, or less, of one record."""

from __future__ import annotations

import logging

from ha.errors import RangeUnserved
from mqruntime.clock import Clock
from mqruntime.log import fields
from mqruntime.repeatedfailures import RepeatedFailures

logger = logging.getLogger("ha.master")


class UnservedRanges:
    """One for all links of a mastership."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures = RepeatedFailures()

    def refused(self, slave: str, segment: int, refusal: RangeUnserved) -> None:
        """The link of `slave` ends by `refusal`, in the segment that starts at `segment`."""
        if self._failures.failed((slave, segment), self._clock.monotonic_ms()):
            logger.error(
                "a slave lacks bytes of the log that cannot be read here: it gets nothing behind them, is tried again each "
                "time that it connects, and leaves the set; clients and the other slaves are served. Check this disk; "
                "under controllers elect a replica that has them (mqadmin electMaster)",
                extra=fields(slave=slave, offset=refusal.offset, size=refusal.size, why=refusal.why),
            )
