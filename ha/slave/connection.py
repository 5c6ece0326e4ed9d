"""A slave's connection to its master: moves bytes from the socket into the log, as the link requires.

Invariant: the socket is not read while a cut or an epoch entry is being made durable. The transport holds a view of the log
only between `get_buffer` and `buffer_updated`. After `wait_closed` has returned, it holds no view."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, cast

from ha.counters import HACounters
from ha.log import ReplicatedLog
from ha.rate import ByteRate
from ha.slave.link import (
    CLOSED,
    Action,
    Advance,
    CaughtUp,
    Close,
    Confirm,
    Cut,
    LeftBehind,
    LogRange,
    OldMaster,
    PersistEpochs,
    Place,
    Send,
    SlaveLink,
    SlaveState,
    StayOut,
)
from mqruntime.clock import Clock
from mqruntime.coretimer import CoreTimer
from mqruntime.tasks import Tasks


class ReceivingLink(Protocol):
    """The interface common to SlaveLink and ClassicSlaveLink."""

    frames: int
    state: SlaveState

    @property
    def next_tick_ms(self) -> int: ...
    def start(self) -> Sequence[Action]: ...
    def next_read(self) -> memoryview | LogRange | None: ...
    def filled(self, size: int, now_ms: int) -> Sequence[Action]: ...
    def turn_over(self, now_ms: int) -> Sequence[Action]: ...
    def tick(self, now_ms: int) -> Sequence[Action]: ...
    def connection_lost(self) -> None: ...


class SlaveConnection(asyncio.BufferedProtocol):
    def __init__(
        self,
        link: ReceivingLink,
        log: ReplicatedLog,
        clock: Clock,
        tasks: Tasks,
        counters: HACounters,
        on_confirm: Callable[[], None],
        on_caught_up: Callable[[], None],
    ) -> None:
        self.link = link
        self.rate = ByteRate()
        self.read_wall_ms = 0
        self.written_wall_ms = 0
        self.close_reason = "by the master"
        self.log_refused = False  # the log could not accept received bytes
        self.stays_out: StayOut | LeftBehind | None = None
        self.is_doubted = False  # the master's epochs contradict this broker's epochs
        self._log = log
        self._clock = clock
        self._counters = counters
        self._on_confirm = on_confirm
        self._on_caught_up = on_caught_up
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._timer = CoreTimer(clock, tasks, self._tick)
        self._ack_due = self._ack_soon = False
        self._room = 0  # size in bytes of the transport's buffer
        self._unplaced = memoryview(bytearray(1))
        self._to_do: asyncio.Queue[Cut | PersistEpochs | None] = asyncio.Queue(maxsize=2)
        self.closed: asyncio.Future[None] = self._loop.create_future()

    @property
    def is_up(self) -> bool:
        return self._transport is not None and not self.closed.done()

    async def next_durable_step(self) -> Cut | PersistEpochs | None:
        """Wait for the next action that the caller must make durable: a Cut or a PersistEpochs. The link continues only after
        `step_done`. None once the connection has ended."""
        return await self._to_do.get()

    def step_done(self, actions: list[Action]) -> None:
        """Perform the actions that the link returned from `cut_done` or `persisted`, and resume reading."""
        if not self.closed.done() and self._transport is not None:
            self._perform(actions)
            self._ack_in_time(all_came=False)
            self._arm_timer()
            if self.link.next_read() is not None:
                self._transport.resume_reading()

    def flushed(self) -> None:
        """Called when more of the log is on disk: acknowledge it."""
        if not self.closed.done() and self._transport is not None:
            assert isinstance(self.link, SlaveLink), "a classic link reports its log's end"
            end = self._log.flushed_offset()
            self._perform(self.link.flushed(end, self._clock.monotonic_ms()))

    # -- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self.link.state is SlaveState.CLOSED:
            self._transport.abort()
            return
        self._perform(self.link.start())
        self._arm_timer()

    def get_buffer(self, sizehint: int) -> memoryview:
        place = self.link.next_read()
        try:
            if isinstance(place, LogRange):
                place = self._log.write_view(place.offset, place.size)
        except Exception as error:  # the disk is full, or the log has stopped; the error names the reason
            # later, because uvloop crashes when a transport is aborted while it asks for a buffer
            self._loop.call_soon(self.refuse_log, _refusal(error))
            self.link.connection_lost()
            return self._unplaced
        if place is None:
            self._room = 0
            return self._unplaced
        self._room = len(place)
        return place

    def buffer_updated(self, nbytes: int) -> None:
        state = self.link.state
        if state is CLOSED:
            return
        if not self._room:
            self.close("bytes arrived without a buffer")
            return
        self.read_wall_ms, now_ms = self._clock.now_ms(), self._clock.monotonic_ms()
        self.rate.add(nbytes, now_ms)
        self._counters.received_bytes += nbytes
        self._perform(self.link.filled(nbytes, now_ms))
        if self.link.state is not state:
            self._arm_timer()
        self._ack_in_time(all_came=nbytes < self._room)

    def connection_lost(self, error: Exception | None) -> None:
        if self._transport is None or self.closed.done():
            return  # the connection was never made, or this was called before
        self._timer.cancel()
        if error is not None:
            self.close_reason = str(error)
        self.link.connection_lost()
        self.closed.set_result(None)
        self._to_do.put_nowait(None)

    # -- the link's side

    def _perform(self, actions: Iterable[Action]) -> None:
        assert self._transport is not None
        for action in actions:
            # a match takes longer than the action
            if isinstance(action, Place):
                try:
                    self._place(action.offset, action.data)
                except Exception as error:  # see get_buffer
                    self.refuse_log(_refusal(error))
                    return
                self._ack_due = True
            elif isinstance(action, Confirm):
                if action.offset > self._log.confirm_offset():
                    self._log.set_confirm_offset(action.offset)
                    self._on_confirm()
            elif isinstance(action, Send):
                self._write(action.data)
            elif isinstance(action, Advance):
                self._log.advance(action.end)
                self._ack_due = True
            else:
                self._perform_seldom(action)

    def _perform_seldom(
        self, action: CaughtUp | StayOut | LeftBehind | OldMaster | Cut | PersistEpochs | Close
    ) -> None:
        match action:
            case CaughtUp():
                self._on_caught_up()
            case StayOut() | LeftBehind():
                self.stays_out, self.is_doubted = action, isinstance(action, StayOut)
            case OldMaster():
                self.is_doubted = True
            case Cut() | PersistEpochs():
                assert self._transport is not None
                self._transport.pause_reading()
                self._to_do.put_nowait(action)
            case Close(reason):
                self.close(reason)

    def _place(self, offset: int, data: bytes) -> None:
        at = 0
        while at < len(data):  # a segment may end within the data
            view = self._log.write_view(offset + at, len(data) - at)
            view[:] = data if len(view) == len(data) else data[at : at + len(view)]
            at += len(view)
            self._log.advance(offset + at)

    def _arm_timer(self) -> None:
        """Arm the timer again. Called when the link may need its tick sooner than before; traffic only delays the tick."""
        if not self.closed.done():
            self._timer.due_at(self.link.next_tick_ms)

    def _ack_in_time(self, *, all_came: bool) -> None:
        """Send one ack for all frames of this turn of the event loop, at once if the socket has no more frames."""
        if self._ack_due and not self._ack_soon:
            if all_came:
                self._turn_over()
            else:
                self._ack_soon = True
                self._loop.call_soon(self._turn_over)

    def _turn_over(self) -> None:
        self._ack_due = self._ack_soon = False
        self._perform(self.link.turn_over(self._clock.monotonic_ms()))

    def _write(self, data: bytes) -> None:
        assert self._transport is not None
        self.written_wall_ms = self._clock.now_ms()
        self._transport.write(data)

    def _tick(self) -> None:
        self._perform(self.link.tick(self._clock.monotonic_ms()))
        self._arm_timer()

    def refuse_log(self, reason: str) -> None:
        """Drop the connection because this broker's log cannot accept its data."""
        self.log_refused = True
        self.close(reason)

    def close(self, reason: str) -> None:
        """Drop the connection. No more of its data reaches the log or the master."""
        if self.closed.done():
            return
        self.close_reason = reason
        self.link.connection_lost()
        if self._transport is not None:
            self._transport.abort()

    async def wait_closed(self) -> None:
        """Wait until the socket holds no view of the log. Returns at once if the connection was never opened."""
        if self._transport is not None:
            await self.closed


def _refusal(error: Exception) -> str:
    cure = "; make room on this broker's disk" if isinstance(error, OSError) else ""
    return f"the log accepts no bytes: {error}{cure}"
