"""The background scrub of one log: finds corruption on disk before a reader does.

Invariant: only records below the flushed and confirmed end are checked, one slice at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from messagestore.log.files import LogFiles
from messagestore.scrub.schedule import BeginPass, ScrubSchedule, ScrubSlice
from messagestore.scrub.soundness import Integrity
from mqruntime.clock import Clock
from mqruntime.core import NEVER_MS
from mqruntime.log import fields
from mqruntime.repeatedfailure import RepeatedFailure

logger = logging.getLogger(__name__)


class Scrubber:
    def __init__(
        self,
        log: LogFiles,
        integrity: Integrity,
        confirm_offset: Callable[[], int],
        clock: Clock,
        *,
        bytes_per_second: int,
        interval_ms: int,
    ) -> None:
        self._log = log
        self._integrity = integrity
        self._confirm_offset = confirm_offset
        self._clock = clock
        self._unreadable = RepeatedFailure()
        self.schedule = ScrubSchedule(
            bytes_per_second=bytes_per_second, interval_ms=interval_ms, now_ms=clock.monotonic_ms()
        )

    async def run(self) -> None:
        """Run until cancelled. Returns at once if the scrub is disabled."""
        while (due_ms := self.schedule.next_tick_ms) != NEVER_MS:
            await asyncio.sleep(max(due_ms - self._clock.monotonic_ms(), 0) / 1000)
            for action in self.schedule.tick(self._clock.monotonic_ms()):
                match action:
                    case BeginPass(again):
                        self._begin(again=again)
                    case ScrubSlice(start, end):
                        await self._scrub(start, end)

    def _begin(self, *, again: bool) -> None:
        """Begin a pass. The first pass reads records that this process has not written; later passes read all cold bytes, those
        below the newest few segments."""
        log, integrity = self._log, self._integrity
        if again:
            cold_end = min(log.cold_end, log.segment_start(min(self._confirm_offset(), log.flushed_offset)))
            integrity.begin_again(max(cold_end, log.min_offset))
        end = max((each.end for each in integrity.unchecked.ranges), default=0)
        self.schedule.begun(log.min_offset, end, self._clock.monotonic_ms())

    async def _scrub(self, start: int, end: int) -> None:
        integrity, schedule = self._integrity, self.schedule
        found = integrity.unchecked.first(start, end)
        if found is None:
            schedule.scrubbed(end, 0, 0, self._clock.monotonic_ms())
            return
        at, unchecked = found  # the pass and the range both begin at a boundary
        try:
            walked = await integrity.walk(at, unchecked.end)
        except OSError as error:
            if self._unreadable.failed(error.errno, self._clock.monotonic_ms()):
                logger.error("the log cannot be read, retrying", extra=fields(offset=at, why=error))
            schedule.failed(self._clock.monotonic_ms())
            return
        position = walked.end
        if position == at and not walked.why and integrity.unchecked.first(at, at + 1) is not None:
            schedule.failed(
                self._clock.monotonic_ms()
            )  # the file was deleted, and the log is about to begin behind it
            return
        if walked.why:
            integrity.note(walked)
            segment_end = self._log.segment_start(position) + self._log.segment_size_bytes
            position = position + walked.size if walked.size else min(segment_end, unchecked.end)
        schedule.scrubbed(position, walked.end - at, walked.records, self._clock.monotonic_ms())
