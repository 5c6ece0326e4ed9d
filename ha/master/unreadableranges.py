"""Ranges of the log that slaves need but that the disk does not return.

Invariant: an unreadable range ends only the link that needs it. The slave reconnects at intervals. For each slave and segment
this is logged once, and then every half minute while it lasts. The log line is by segment, because at each connection the slave
may need another part of the same record."""

from __future__ import annotations

import logging

from ha.errors import RangeUnserved
from mqruntime.clock import Clock
from mqruntime.log import fields
from mqruntime.repeatedfailures import RepeatedFailures

logger = logging.getLogger("ha.master")


class UnreadableRanges:
    """The unreadable ranges, for all links of a mastership."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures = RepeatedFailures()

    def refused(self, slave: str, segment: int, refusal: RangeUnserved) -> None:
        """Note that `refusal`, in the segment that starts at `segment`, ends the link of `slave`."""
        if self._failures.failed((slave, segment), self._clock.monotonic_ms()):
            logger.error(
                "a slave is missing bytes of the log that cannot be read here",
                extra=fields(
                    slave=slave,
                    offset=refusal.offset,
                    size=refusal.size,
                    why=refusal.why,
                    hint="it receives nothing after them, leaves the set, and is retried at each connection; clients and other "
                    "slaves are served. Check this disk; under controllers elect a replica that has them (mqadmin electMaster)",
                ),
            )
