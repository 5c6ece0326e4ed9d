"""The master's end of one classic link, from the slave's first report to the end of the connection.

Invariant: one gapless range of the log is sent, and each frame lies in one segment. A report is never above the sent range and
never below an earlier report. The first report is an offset within the log; other reports end the connection. Upstream accepts
any report, so there a slave with a longer log than its master's acknowledges sends that it does not hold.

    WAITING --first report--> SENDING          any --error--> CLOSED

Pure."""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from ha.classic.frames import REPORT, PairTransferHeader, decode_report
from ha.frames import HAFrameError
from ha.master.link import UNKNOWN, Acked, Action, Batch, Close, Hold


class LogView(Protocol):
    """The link's view of its master's log. Every call returns present values. All offsets are byte positions in the log."""

    @property
    def segment_size_bytes(self) -> int: ...
    @property
    def log_min(self) -> int: ...
    @property
    def log_end(self) -> int: ...


class ClassicMasterState(Enum):
    WAITING = "waiting for the first report"
    SENDING = "sending"
    CLOSED = "closed"


class ClassicMasterLink:
    """The link; it is used like a MasterLink. There is no handshake, so the slave's broker id is not known."""

    def __init__(
        self,
        master: LogView,
        *,
        transfer_batch_size: int,
        heartbeat_interval_ms: int,
        housekeeping_interval_ms: int,
        now_ms: int,
    ) -> None:
        self._master = master
        self._transfer_batch_size = transfer_batch_size
        self._heartbeat_interval_ms = heartbeat_interval_ms
        self._housekeeping_interval_ms = housekeeping_interval_ms
        self._read_ms = self._written_ms = now_ms
        self._received = bytearray()
        self._held: set[Hold] = set()
        self.state = ClassicMasterState.WAITING
        self.ack_offset = UNKNOWN
        self.next_offset = UNKNOWN  # offset of the next frame
        self._began = UNKNOWN  # offset of the first frame

    # -- from the slave

    def receive(self, data: bytes, now_ms: int) -> list[Action]:
        """Handle the next bytes of the stream, in any fragments."""
        if self.state is ClassicMasterState.CLOSED:
            return []
        self._read_ms = now_ms
        self._received += data
        before = self.ack_offset
        try:
            while len(self._received) >= REPORT.size:
                report = decode_report(self._received[: REPORT.size])
                del self._received[: REPORT.size]
                self._reported(report, now_ms)
        except HAFrameError as error:
            return self._close(str(error))
        return [Acked(self.ack_offset)] if self.ack_offset != before else []

    def _reported(self, offset: int, now_ms: int) -> None:
        if self.state is ClassicMasterState.WAITING:
            self.next_offset = self._began = self._start_at(offset)
            self.state = ClassicMasterState.SENDING
            self._written_ms = now_ms
        elif not self.ack_offset <= offset <= self.next_offset:
            raise HAFrameError(f"a report of {offset} after {self.ack_offset}, sent up to {self.next_offset}")
        self.ack_offset = offset

    def _start_at(self, requested: int) -> int:
        master = self._master
        if requested == 0:
            return max(master.log_end - master.log_end % master.segment_size_bytes, master.log_min)
        if requested > master.log_end:
            raise HAFrameError(
                f"a slave whose log ends at {requested}, this one ends at {master.log_end}: the rest was lost here, or never "
                "written here; empty the slave's store, or make it the master of the pair"
            )
        if requested < master.log_min:
            raise HAFrameError(
                f"a request for {requested}, this log begins at {master.log_min}; empty the slave's store"
            )
        return requested

    @property
    def read_from(self) -> int | None:
        """The offset from which on the slave still has to read; None unless the link is sending."""
        is_sending = self.state is ClassicMasterState.SENDING
        return max(self.ack_offset, self._began) if is_sending else None

    # -- to the slave

    def hold(self, why: Hold) -> None:
        """Write no frame until `release`."""
        self._held.add(why)

    def release(self, why: Hold, now_ms: int) -> list[Action]:
        """End a hold. Returns what `writable` returns."""
        self._held.discard(why)
        return self.writable(now_ms)

    def writable(self, now_ms: int) -> list[Action]:
        """The next frame, or a heartbeat if it is overdue; nothing if everything is sent."""
        if self.state is not ClassicMasterState.SENDING or self._held:
            return []
        if self.next_offset < self._master.log_min:
            return self._close(
                f"{self.next_offset} is due, the log begins at {self._master.log_min}; empty the slave's store"
            )
        segment = self._master.segment_size_bytes
        size = min(
            self._master.log_end - self.next_offset,
            self._transfer_batch_size,
            segment - self.next_offset % segment,
        )
        return [self._frame_of(size, now_ms)] if size else self._heartbeat_if_due(now_ms)

    def _frame_of(self, size: int, now_ms: int) -> Batch:
        offset = self.next_offset
        self._written_ms = now_ms
        self.next_offset += size
        return Batch(PairTransferHeader(offset, size).encode(), offset, size)

    # -- time

    def tick(self, now_ms: int) -> list[Action]:
        """Call at `next_tick_ms` or later."""
        if self.state is ClassicMasterState.CLOSED:
            return []
        if now_ms - self._read_ms >= self._housekeeping_interval_ms:
            return self._close(f"nothing heard for {now_ms - self._read_ms} ms")
        return self._heartbeat_if_due(now_ms)

    def _heartbeat_if_due(self, now_ms: int) -> list[Action]:
        sends = self.state is ClassicMasterState.SENDING and not self._held
        due = sends and now_ms - self._written_ms >= self._heartbeat_interval_ms
        return [self._frame_of(0, now_ms)] if due else []

    @property
    def next_tick_ms(self) -> int:
        idle = self._read_ms + self._housekeeping_interval_ms
        if self.state is ClassicMasterState.SENDING and not self._held:
            return min(idle, self._written_ms + self._heartbeat_interval_ms)
        return idle

    # -- the end

    def connection_lost(self) -> None:
        """Note that nothing more will be received or sent."""
        self.state = ClassicMasterState.CLOSED

    def _close(self, reason: str) -> list[Action]:
        self.state = ClassicMasterState.CLOSED
        return [Close(reason)]
