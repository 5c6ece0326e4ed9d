"""One accepted connection of a master: moves bytes between the socket and the log, for both kinds of links.

Invariant: frames are written in the order in which the link builds them, and only with bytes that are known to be intact. Log
bytes are sent as views of the mapping. The transport holds a view until its bytes are sent or `wait_closed` returns. An
unreadable range only ends this connection."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Protocol, cast

from ha.counters import HACounters
from ha.errors import RangeUnserved
from ha.log import ReplicatedLog
from ha.master.link import Acked, Action, Batch, Close, HandshakeDone, Hold
from ha.master.unreadableranges import UnreadableRanges
from ha.rate import ByteRate
from mqruntime.clock import Clock
from mqruntime.coretimer import CoreTimer
from mqruntime.peercertificate import NOT_ASKED, certificate_of
from mqruntime.tasks import Tasks

Body = bytes | memoryview
_BATCHES_A_TURN = 4
"""After this number of frames a busy link yields to other tasks."""


class SendingLink(Protocol):
    """The interface common to MasterLink and ClassicMasterLink."""

    ack_offset: int
    next_offset: int

    @property
    def state(self) -> Enum: ...
    @property
    def next_tick_ms(self) -> int: ...
    def receive(self, data: bytes, now_ms: int) -> Sequence[Action]: ...
    def writable(self, now_ms: int) -> Sequence[Action]: ...
    def hold(self, why: Hold) -> None: ...
    def release(self, why: Hold, now_ms: int) -> Sequence[Action]: ...
    def tick(self, now_ms: int) -> Sequence[Action]: ...
    def connection_lost(self) -> None: ...


class LogSender(asyncio.Protocol):
    """The connection. `tasks` runs cold reads. Subclasses handle the slave's messages."""

    def __init__(
        self,
        link: SendingLink,
        log: ReplicatedLog,
        *,
        buffer_size_max: int,
        clock: Clock,
        tasks: Tasks,
        counters: HACounters,
        unreadable: UnreadableRanges,
    ) -> None:
        self.link = link
        self._log = log
        self._clock = clock
        self._tasks = tasks
        self._counters = counters
        self._unreadable = unreadable
        self._buffer_size_max = buffer_size_max
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._timer = CoreTimer(clock, tasks, self._tick)
        self._turn_pending = False
        self._cold_read: asyncio.Task[None] | None = None
        self._close_reason: str | None = None
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self.address = self.peer_host = self.own_host = "?"
        self.certificate = NOT_ASKED
        self.rate = ByteRate()

    # -- for subclasses

    @property
    def slave(self) -> str:
        """The slave's name in the log."""
        raise NotImplementedError

    def _opened(self) -> None:
        """Handle a new connection."""
        raise NotImplementedError

    def _heard(self, message: Acked | HandshakeDone) -> None:
        """Handle a message of the slave."""
        raise NotImplementedError

    def _lost(self, reason: str) -> None:
        """Handle the end of the connection."""
        raise NotImplementedError

    # -- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=self._buffer_size_max)
        host, port = transport.get_extra_info("peername")[:2]
        self.address, self.peer_host = f"{host}:{port}", host
        self.own_host = transport.get_extra_info("sockname")[0]
        self.certificate = certificate_of(transport)
        self._opened()
        self._arm_timer()

    def data_received(self, data: bytes) -> None:
        state = self.link.state
        self._perform(self.link.receive(data, self._now_ms()))
        if self.link.state is not state:  # a single ack makes nothing due
            self._arm_timer()
            self.pump()

    def pause_writing(self) -> None:
        self.link.hold(Hold.WRITER)

    def resume_writing(self) -> None:
        self.release(Hold.WRITER)

    def connection_lost(self, error: Exception | None) -> None:
        self._timer.cancel()
        self.link.connection_lost()
        why = self._close_reason or ("by the peer" if error is None else str(error))
        self._lost(why)
        self._closed.set_result(None)

    # -- the link's side

    def _perform(self, actions: Iterable[Action]) -> None:
        for action in actions:
            if isinstance(action, Batch):  # a match takes as long as the rest of this function
                self._send(action)
            elif isinstance(action, Close):
                self.close(action.reason)
            else:
                self._heard(action)

    def pump(self) -> None:
        """Write the link's next frames, as long as the socket accepts data."""
        now_ms = self._now_ms()
        for _ in range(_BATCHES_A_TURN):
            frames = self.link.writable(now_ms)
            if not frames:
                return
            self._perform(frames)
            if self.link.next_offset == self._log.max_offset():
                return  # this frame contained everything else that was due
        if not self._turn_pending:
            self._turn_pending = True
            self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._turn_pending = False
        self.pump()

    def release(self, why: Hold) -> None:
        """End a hold of the link."""
        self._perform(self.link.release(why, self._now_ms()))
        self._arm_timer()
        self.pump()

    def _send(self, batch: Batch) -> None:
        body = self._log.at_hand(batch.offset, batch.size) if batch.size else b""
        if body is not None:
            self._write_frame(batch, body)
            return
        self.link.hold(Hold.COLD_READ)
        self._cold_read = self._tasks.start(self._send_cold(batch), name=f"ha-cold-read {self.address}")

    async def _send_cold(self, batch: Batch) -> None:
        try:
            body = await self._read_sound(batch)
        except RangeUnserved as refusal:
            self._cold_read = None
            if not self._ended:
                segment = batch.offset - batch.offset % self._log.segment_size_bytes
                self._unreadable.refused(self.slave, segment, refusal)
                self.close(str(refusal))
            return
        self._cold_read = None
        if not self._ended:
            self._write_frame(batch, body)
            self.release(Hold.COLD_READ)

    async def _read_sound(self, batch: Batch) -> bytes:
        """The body of a frame, read outside the mapping. Raises RangeUnserved."""
        offset, size = batch.offset, batch.size
        try:
            why = await self._log.check(offset, size)
            if why is None and offset < self._log.min_offset():
                why = "retention has deleted these bytes"
            if why is None:
                return await self._log.read_cold(offset, size)
        except OSError as error:
            why = str(error)
        raise RangeUnserved(offset, size, why)

    def _write_frame(self, batch: Batch, body: Body) -> None:
        """Write header and body at once, because a separate header would wake the slave twice."""
        assert len(body) == batch.size, f"{len(body)} of {batch.size} bytes at {batch.offset}"
        if body:
            self._write([batch.header, body], len(batch.header) + batch.size)
        else:
            self._write([batch.header], len(batch.header))

    def _write(self, buffers: list[Body], size: int) -> None:
        assert self._transport is not None
        self.rate.add(size, self._now_ms())
        self._counters.sent_bytes += size
        self._transport.writelines(buffers)

    # -- time and end

    def _tick(self) -> None:
        self._perform(self.link.tick(self._now_ms()))
        self.pump()
        self._arm_timer()

    def _arm_timer(self) -> None:
        """Arm the timer again. Called when the link may need its tick sooner than before; frames only delay the tick."""
        if not self._ended:
            self._timer.due_at(self.link.next_tick_ms)

    @property
    def _ended(self) -> bool:
        return self._close_reason is not None or self._closed.done()

    def close(self, reason: str) -> None:
        """Drop the connection and all unsent data."""
        self._close_reason = self._close_reason or reason
        self.link.connection_lost()
        assert self._transport is not None
        self._transport.abort()

    async def wait_closed(self) -> None:
        """Wait until neither the socket nor a reading thread uses the log for this connection."""
        await asyncio.shield(self._closed)  # if the waiter is cancelled, the connection still ends
        if self._cold_read is not None:
            await asyncio.wait([self._cold_read])

    def _now_ms(self) -> int:
        return self._clock.monotonic_ms()
