"""The slave's end of one classic link.

Invariant: bytes are accepted only at the end of this slave's log. All data in this log counts as confirmed, because the master
reports nothing about other slaves.

    TRANSFER --any error--> CLOSED

Pure."""

from __future__ import annotations

from ha.classic.frames import TRANSFER, PairTransferHeader, encode_report
from ha.frames import HAFrameError
from ha.slave.link import Action, Advance, Close, Confirm, LogRange, Send, SlaveState


class ClassicSlaveLink:
    """The link; it is used like a SlaveLink, but asks for no Cut and no PersistEpochs."""

    def __init__(
        self,
        *,
        log_end: int,
        segment_size_bytes: int,
        heartbeat_interval_ms: int,
        housekeeping_interval_ms: int,
        now_ms: int,
    ) -> None:
        """`log_end` is a record boundary. A log without data may start at any segment."""
        self._log_end = log_end
        self._empty = log_end == 0
        self._segment_size_bytes = segment_size_bytes
        self._heartbeat_interval_ms = heartbeat_interval_ms
        self._housekeeping_interval_ms = housekeeping_interval_ms
        self._read_ms = self._written_ms = now_ms
        self._reported = -1
        self._header = bytearray(TRANSFER.size)
        self._header_filled = 0
        self._body_left = 0
        self.frames = 0  # frames begun, heartbeats included
        self.state = SlaveState.TRANSFER

    def start(self) -> list[Action]:
        """Send the first report, which requests the start offset."""
        return [self._report(self._written_ms)]

    # -- the stream

    def next_read(self) -> memoryview | LogRange | None:
        """Buffer for the next bytes of the stream; None once the link is closed."""
        if self.state is SlaveState.CLOSED:
            return None
        if self._body_left:
            return LogRange(self._log_end, self._body_left)
        return memoryview(self._header)[self._header_filled :]

    def filled(self, size: int, now_ms: int) -> list[Action]:
        """Handle `size` bytes, at least 1, which have arrived in the buffer of the last `next_read`."""
        self._read_ms = now_ms
        if self._body_left:
            return self._body_filled(size)
        self._header_filled += size
        if self._header_filled == len(self._header):
            self._header_filled = 0
            try:
                self._frame_begins(PairTransferHeader.decode(self._header))
            except HAFrameError as error:
                return self._close(str(error))
        return []

    def _frame_begins(self, frame: PairTransferHeader) -> None:
        self.frames += 1
        if self._empty:
            if frame.body_size and frame.offset % self._segment_size_bytes:
                raise HAFrameError(f"the first bytes of an empty log at {frame.offset}, within a segment")
        elif frame.offset != self._log_end:
            raise HAFrameError(f"a frame at {frame.offset}, the own log ends at {self._log_end}")
        if frame.body_size:
            self._body_left = frame.body_size
            self._log_end = frame.offset

    def _body_filled(self, size: int) -> list[Action]:
        assert size <= self._body_left
        self._log_end += size
        self._body_left -= size
        self._empty = False
        return [Advance(self._log_end), Confirm(self._log_end)]

    # -- reports and time

    def turn_over(self, now_ms: int) -> list[Action]:
        """Report once for all data that arrived together, if the log end changed."""
        if self.state is SlaveState.CLOSED or self._own_end() == self._reported:
            return []
        return [self._report(now_ms)]

    def tick(self, now_ms: int) -> list[Action]:
        """Call at `next_tick_ms` or later."""
        if self.state is SlaveState.CLOSED:
            return []
        if now_ms - self._read_ms >= self._housekeeping_interval_ms:
            return self._close(f"nothing heard for {now_ms - self._read_ms} ms")
        return [self._report(now_ms)] if now_ms - self._written_ms >= self._heartbeat_interval_ms else []

    @property
    def next_tick_ms(self) -> int:
        return min(
            self._read_ms + self._housekeeping_interval_ms, self._written_ms + self._heartbeat_interval_ms
        )

    def _own_end(self) -> int:
        return 0 if self._empty else self._log_end

    def _report(self, now_ms: int) -> Send:
        self._written_ms = now_ms
        self._reported = self._own_end()
        return Send(encode_report(self._reported))

    # -- the end

    def connection_lost(self) -> None:
        """Note that nothing more will be read or sent."""
        self.state = SlaveState.CLOSED

    def _close(self, reason: str) -> list[Action]:
        self.state = SlaveState.CLOSED
        return [Close(reason)]
