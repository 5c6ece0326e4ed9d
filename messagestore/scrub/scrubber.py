"""The background scrub of one log: finds corruption on disk before a reader does, in the log and in what queues say of it.

Invariant: only records below the flushed and confirmed end are checked, one slice at a time. Records are compared with their
queue entries after their own check, and at least once after each start."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from messagestore.log.files import LogFiles
from messagestore.scrub.schedule import BeginPass, ScrubSchedule, ScrubSlice
from messagestore.scrub.soundness import Integrity
from mqruntime.clock import Clock
from mqruntime.core import NEVER_MS
from mqruntime.log import fields
from mqruntime.repeatedfailure import RepeatedFailure

logger = logging.getLogger(__name__)


class Comparing(Protocol):
    """The part of EntryMending that the scrub drives."""

    @property
    def listed_end(self) -> int: ...

    async def compare(self, start: int, end: int) -> tuple[int, int]: ...


class Scrubber:
    """`entries` compares records with their queue entries."""

    def __init__(
        self,
        log: LogFiles,
        integrity: Integrity,
        entries: Comparing,
        confirm_offset: Callable[[], int],
        clock: Clock,
        *,
        bytes_per_second: int,
        interval_ms: int,
    ) -> None:
        self._log = log
        self._integrity = integrity
        self._entries = entries
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
        end = self._entries.listed_end
        if again:
            end = min(log.cold_end, log.segment_start(min(self._confirm_offset(), log.flushed_offset)))
            integrity.begin_again(max(end, log.min_offset))
        integrity.uncompared.add(log.min_offset, max(end, log.min_offset))
        ranges = *integrity.unchecked.ranges, *integrity.uncompared.ranges
        self.schedule.begun(
            log.min_offset, max((each.end for each in ranges), default=0), self._clock.monotonic_ms()
        )

    async def _scrub(self, start: int, end: int) -> None:
        """One slice: of unchecked records, with their entries, or of entries alone where the records were checked already.
        Both the pass and the ranges begin at a boundary."""
        unchecked = self._integrity.unchecked.first(start, end)
        uncompared = self._integrity.uncompared.first(start, end)
        try:
            if uncompared is not None and (unchecked is None or uncompared[0] < unchecked[0]):
                at, (_, limit) = uncompared
                await self._compare(at, min(limit, unchecked[0] if unchecked is not None else end))
            elif unchecked is not None:
                await self._check(unchecked[0], unchecked[1].end)
            else:
                self.schedule.scrubbed(end, 0, 0, self._clock.monotonic_ms())
        except OSError as error:
            if self._unreadable.failed(error.errno, self._clock.monotonic_ms()):
                at = min(found[0] for found in (unchecked, uncompared) if found is not None)
                logger.error("the log cannot be read, retrying", extra=fields(offset=at, why=error))
            self.schedule.failed(self._clock.monotonic_ms())

    async def _compare(self, at: int, limit: int) -> None:
        reached, records = await self._entries.compare(at, limit)
        reached = min(reached, limit)
        self._integrity.uncompared.checked(at, reached)
        self.schedule.scrubbed(reached, reached - at, records, self._clock.monotonic_ms())

    async def _check(self, at: int, limit: int) -> None:
        integrity, schedule = self._integrity, self.schedule
        walked = await integrity.walk(at, limit)
        position = walked.end
        if position == at and not walked.why and integrity.unchecked.first(at, at + 1) is not None:
            schedule.failed(
                self._clock.monotonic_ms()
            )  # the file was deleted, and the log is about to begin behind it
            return
        if walked.why:
            integrity.note(walked)
        compared = at
        while compared < position and integrity.uncompared.first(at, position) is not None:
            compared, _ = await self._entries.compare(compared, position)
            integrity.uncompared.checked(at, min(compared, position))
        if walked.why:
            segment_end = self._log.segment_start(position) + self._log.segment_size_bytes
            position = position + walked.size if walked.size else min(segment_end, limit)
            integrity.uncompared.checked(walked.end, position)
        schedule.scrubbed(position, walked.end - at, walked.records, self._clock.monotonic_ms())
