"""Runs dispatch whenever the confirm offset moves, in steps short enough for other tasks to run in between.

Invariant: dispatch never passes the confirm offset. While the disk has no room for consume queues, or does not return the log,
dispatch waits, and `full` or `unread` is set. On a slave without waiting consumers, dispatch waits until some bytes have
gathered, because a record costs a fifth of the time if many are dispatched at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from messagestore.dispatch.dispatcher import Dispatcher
from messagestore.errors import StoreCorrupted
from messagestore.log.files import LogFiles
from messagestore.messages import QueueGrew
from mqruntime.diskfull import RETRY_S, RetriedWrite
from mqruntime.log import fields
from mqruntime.repeatedfailure import RepeatedFailure

logger = logging.getLogger(__name__)

STEP_RECORDS = 512
STEP_BYTES_MIN = 1 << 20
GATHER_BYTES = 4 << 20
GATHER_S = 0.01


class DispatchLoop:
    """`on_progress()` is called after each step that added queue entries. While `gathers()` is true and less than GATHER_BYTES
    are to be dispatched, the loop waits GATHER_S for more."""

    def __init__(
        self,
        commit_log: LogFiles,
        dispatcher: Dispatcher,
        *,
        confirm_offset: Callable[[], int],
        record_size_max: int,
        gathers: Callable[[], bool],
        on_progress: Callable[[], None],
        may_read: Callable[[int, int], Awaitable[bool]],
        looks_again: Callable[[int], bool],
    ) -> None:
        """`may_read(start, end)` is called before exactly these bytes are dispatched. If it returns False, it is called again
        later. If there is no record at a position, `looks_again(position)` says whether to read the bytes once more."""
        self._log = commit_log
        self._dispatcher = dispatcher
        self._confirm_offset = confirm_offset
        self._step_bytes_min = self._step_bytes = max(STEP_BYTES_MIN, 2 * record_size_max)
        self._entry_write = RetriedWrite(
            logger,
            "no entry of a consume queue or the index can be written, retrying",
            again="entry of a consume queue or the index can be written again",
        )
        self.unread = False
        """Whether the disk did not return the log that is to be dispatched next."""
        self._rests = False  # whether it pauses before the next attempt
        self._failure = RepeatedFailure()
        self._gathers = gathers
        self._on_progress = on_progress
        self._may_read = may_read
        self._looks_again = looks_again
        self._callbacks: list[Callable[[list[QueueGrew]], None]] = []
        self._wanted = asyncio.Event()
        self._holds = 0

    @property
    def full(self) -> bool:
        return self._entry_write.refused

    def on_arrival(self, callback: Callable[[list[QueueGrew]], None]) -> None:
        """Register a callback that gets the queues that grew, after each step that added an entry."""
        self._callbacks.append(callback)

    def wake(self) -> None:
        """Called when there may be something to dispatch."""
        self._wanted.set()

    @contextmanager
    def held(self) -> Iterator[None]:
        """In this context no step begins by itself, but a step that is reading from the disk may end."""
        self._holds += 1
        try:
            yield
        finally:
            self._holds -= 1
            self.wake()

    async def run(self) -> None:
        """Run as long as the store does."""
        while True:
            await self._wanted.wait()
            if self._gathers() and self._confirm_offset() - self._dispatcher.position < GATHER_BYTES:
                await asyncio.sleep(GATHER_S)
            self._wanted.clear()
            if not self._holds and await self._step_or_again():
                self._wanted.set()
                await asyncio.sleep(0)  # other tasks run between two steps

    def step(self) -> bool:
        """Run one bounded step over mapped segments. Returns True if more can be done at once."""
        position = self._dispatcher.position
        if position >= self._confirm_offset():
            self._entry_write.done()  # the refused records may have been cut off
            return False
        view, start = self._log.segment_view(position)
        return self._dispatch_in(view, start, start + self._log.segment_size_bytes, self._confirm_offset())

    async def _step_or_again(self) -> bool:
        try:
            return await self._step()
        except StoreCorrupted:
            if not self._looks_again(self._dispatcher.position):
                raise
            return True

    async def _step(self) -> bool:
        if self._rests:
            return False
        position = self._dispatcher.position
        if position >= self._confirm_offset():
            self._was_read()  # the unreadable bytes may have been cut off
            return self.step()
        segment_end = self._log.segment_start(position) + self._log.segment_size_bytes
        whole = min(segment_end, self._confirm_offset())
        reach = min(position + self._step_bytes, whole)
        try:
            if not await self._may_read(position, reach):
                asyncio.get_running_loop().call_later(RETRY_S, self.wake)
                return False
            if self._holds or self._dispatcher.position != position:
                return True
            is_cold = self._log.is_cold(position)
            if is_cold:
                ahead = min(position + self._step_bytes, segment_end)
                content: bytes | memoryview = await self._log.read_file(position, ahead)
                start = position
            else:
                content, start = self._log.segment_view(position)
        except OSError as error:
            self._not_read(position, error)
            return False
        self._was_read()
        if self._dispatcher.position != position:  # truncated meanwhile
            return True
        confirmed = self._confirm_offset()
        more = self._dispatch_in(
            content, start, segment_end, confirmed if reach == segment_end else min(reach, confirmed)
        )
        if self._dispatcher.position != position:
            self._step_bytes = self._step_bytes_min
            return more or is_cold or reach < confirmed
        if reach < whole and not self.full:  # a larger record: maxMessageSize was greater once
            self._step_bytes *= 2
            return True
        return more

    def _not_read(self, position: int, error: OSError) -> None:
        """Wait RETRY_S before the next attempt, however often `wake` is called until then."""
        loop = asyncio.get_running_loop()
        self.unread = self._rests = True
        loop.call_later(RETRY_S, self._ask_again)
        if self._failure.failed(error.errno, int(loop.time() * 1000)):
            logger.error(
                "dispatch waits: the disk does not give the log, retrying; later messages enter their queues once it does",
                extra=fields(
                    offset=position,
                    why=error,
                    hint="check the disk; if the error remains, let another replica lead, empty this store and start it again",
                ),
            )

    def _ask_again(self) -> None:
        self._rests = False
        self.wake()

    def _was_read(self) -> None:
        if self.unread:
            self.unread = False
            after_ms = self._failure.recovered(int(asyncio.get_running_loop().time() * 1000))
            logger.info("dispatch continues, the disk returns the log again", extra=fields(after_ms=after_ms))

    def _dispatch_in(self, buffer: bytes | memoryview, start: int, segment_end: int, limit: int) -> bool:
        try:
            more = self._dispatcher.run(buffer, start, segment_end, limit, STEP_RECORDS)
        except OSError as error:
            self._entry_write.failed(error)
            more = False
            asyncio.get_running_loop().call_later(RETRY_S, self.wake)
        else:
            self._entry_write.done()
        if grown := self._dispatcher.take_grown():
            self._on_progress()
            for callback in self._callbacks:
                callback(grown)
        return more
