"""One accepted connection of a master: moves bytes between the socket, the log and a MasterLink.

Invariant: frames are written in the order the link makes them. Log bytes go out as views of the mapping, which the
transport holds until they are sent or `wait_closed` returns."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from ha.master.link import Acked, Batch, Close, Greeted, MasterLink, MasterState
from ha.rate import ByteRate

if TYPE_CHECKING:
    from ha.master.mastership import Mastership

Body = bytes | memoryview
_BATCHES_A_TURN = 4
"""A link with much to send lets the others take turns after this many frames."""


class MasterConnection(asyncio.Protocol):
    def __init__(self, mastership: Mastership) -> None:
        self._mastership = mastership
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._writing_paused = False
        self._turn_pending = False
        self._cold_read: asyncio.Task[None] | None = None
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self.address = "?"
        self.rate = ByteRate()
        settings = mastership.settings
        self.link = MasterLink(
            mastership,
            transfer_batch_size=settings.transfer_batch_size,
            heartbeat_interval_ms=settings.heartbeat_interval_ms,
            housekeeping_interval_ms=settings.housekeeping_interval_ms,
            handshake_timeout_ms=settings.handshake_timeout_ms,
            now_ms=self._now_ms(),
        )

    @property
    def slave_broker_id(self) -> int:
        """-1 before the handshake."""
        return -1 if self.link.handshake is None else self.link.handshake.slave_broker_id

    # -- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=2 * self._mastership.settings.transfer_batch_size)
        host, port = transport.get_extra_info("peername")[:2]
        self.address = f"{host}:{port}"
        self._mastership.opened(self)
        self._arm_timer()

    def data_received(self, data: bytes) -> None:
        for action in self.link.receive(data, self._now_ms()):
            match action:
                case Greeted(handshake, reply):
                    self._write([reply])
                    self._mastership.greeted(self, handshake)
                case Acked(offset):
                    self._mastership.acked(self, offset)
                case Close(reason):
                    self._mastership.protocol_error()
                    self.close(reason)
        self.pump()

    def pause_writing(self) -> None:
        self._writing_paused = True

    def resume_writing(self) -> None:
        self._writing_paused = False
        self.pump()

    def connection_lost(self, error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.link.state = MasterState.CLOSED
        self._mastership.lost(self, "by the peer" if error is None else str(error))
        self._closed.set_result(None)

    # -- sending

    def pump(self) -> None:
        """Write what the link has to send, as far as the socket takes it."""
        for _ in range(_BATCHES_A_TURN):
            if not self._may_write():
                return
            batch = self.link.next_batch(self._now_ms())
            if batch is None:
                return
            if isinstance(batch, Close):
                self.close(batch.reason)
                return
            self._send(batch)
        if not self._turn_pending:
            self._turn_pending = True
            self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._turn_pending = False
        self.pump()

    def tell_confirm_offset(self) -> None:
        """A frame without a body, if the slave does not know the confirm offset yet."""
        if self._may_write() and (notice := self.link.confirm_notice(self._now_ms())) is not None:
            self._send(notice)

    def _may_write(self) -> bool:
        return not (self._writing_paused or self._mastership.sending_held or self._cold_read is not None)

    def _send(self, batch: Batch) -> None:
        log = self._mastership.log
        if batch.size and log.is_cold(batch.offset):
            self._cold_read = self._mastership.tasks.start(
                self._send_cold(batch), name=f"ha-cold-read slave={self.slave_broker_id}"
            )
            return
        self._write_frame(batch, log.read(batch.offset, batch.size) if batch.size else b"")

    async def _send_cold(self, batch: Batch) -> None:
        body = await self._mastership.log.read_cold(batch.offset, batch.size)
        self._cold_read = None
        if self.link.state is not MasterState.CLOSED:
            self._write_frame(batch, body)
            self.pump()

    def _write_frame(self, batch: Batch, body: Body) -> None:
        """In one write: a header that travels alone wakes the slave once more."""
        assert len(body) == batch.size, f"{len(body)} of {batch.size} bytes at {batch.offset}"
        self._write([batch.header, body] if body else [batch.header])

    def _write(self, buffers: list[Body]) -> None:
        assert self._transport is not None
        size = sum(map(len, buffers))
        self.rate.add(size, self._now_ms())
        self._mastership.counters.sent_bytes += size
        self._transport.writelines(buffers)

    # -- time and end

    def _arm_timer(self) -> None:
        delay_ms = max(1, self.link.next_tick_ms() - self._now_ms())
        self._timer = self._loop.call_later(delay_ms / 1000, self._tick)

    def _tick(self) -> None:
        match self.link.tick(self._now_ms()):
            case Close(reason):
                self.close(reason)
                return
            case Batch() as heartbeat if self._may_write():
                self._send(heartbeat)
        self._arm_timer()

    def close(self, reason: str) -> None:
        """Drop the connection with all that waits to be sent."""
        self.link.state = MasterState.CLOSED
        self._mastership.closing(self, reason)
        assert self._transport is not None
        self._transport.abort()

    async def wait_closed(self) -> None:
        """Until neither the socket nor a reading thread uses the log for this connection."""
        await self._closed
        if self._cold_read is not None:
            await asyncio.wait([self._cold_read])

    def _now_ms(self) -> int:
        return self._mastership.clock.monotonic_ms()
