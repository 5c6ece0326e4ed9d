"""The master's end of one link, from the slave's handshake to the end of the connection.

Invariant: one gapless range of the log is sent. Each frame lies in one segment and one epoch, and is labelled with this epoch.
An ack is never above the sent range and never below an earlier ack; all other messages of a slave are rejected. Only one
handshake is answered, in one piece. No frame is built while the link is on hold: a built frame must be written, because
building it updates what the slave is assumed to know.

    WAITING --handshake--> AWAITING_FIRST_ACK --first ack--> SENDING          any --error--> CLOSED
    SENDING --the slave is behind the log's start--> REJECTED --any frame, or time--> CLOSED

Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from epochfile.entry import EpochEntry
from epochfile.history import EpochHistory
from ha.frames import (
    ACK,
    HANDSHAKE_STATE,
    TRANSFER,
    TRANSFER_STATE,
    HAFrameError,
    Handshake,
    HandshakeReply,
    decode_ack,
    state_of,
)
from ha.master.pace import Pace
from mqruntime.otherprotocols import PREFIX_BYTES, other_protocol

UNKNOWN = -1
_STATE_SIZE = 4
_MARKS_MAX = 4096  # limit for a slave that never acks; with fewer marks a slave only seems to be later


class MasterView(Protocol):
    """The link's view of its master. Every call returns present values. All offsets are byte positions in the log."""

    @property
    def broker_id(self) -> int: ...
    @property
    def segment_size_bytes(self) -> int: ...
    @property
    def log_min(self) -> int: ...
    @property
    def log_end(self) -> int: ...
    @property
    def history(self) -> EpochHistory: ...
    @property
    def confirm_offset(self) -> int: ...


@dataclass(frozen=True, slots=True)
class HandshakeDone:
    """The slave has identified itself. Write `reply`. From now on the link counts for this broker id."""

    handshake: Handshake
    reply: bytes


@dataclass(slots=True)
class Acked:
    """The slave holds the log up to `offset`."""

    offset: int


@dataclass(slots=True)
class Batch:
    """The next frame: write `header`, then `size` bytes of the log at `offset`. A notice (a frame that only announces an epoch
    or the confirm offset) has no bytes of the log."""

    header: bytes
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Close:
    """Close the connection. The last action of a link."""

    reason: str


Action = HandshakeDone | Acked | Batch | Close
"""The classes of actions that occur for every frame are not frozen, because an object of such a class is created in a third of
the time."""


class Hold(Enum):
    """The reason why no frame can be written now."""

    WRITER = "the socket takes no more"
    COLD_READ = "the body of the last frame is being read"
    ADMITTANCE = "the slave's identity is being checked"
    NEW_EPOCH = "the entry of the epoch that the next bytes belong to is not durable"


class MasterState(Enum):
    WAITING = "waiting for the handshake"
    AWAITING_FIRST_ACK = "waiting for the first ack"
    SENDING = "sending"
    REJECTED = "rejected: the log begins above the requested offset"
    CLOSED = "closed"


SENDING, CLOSED = MasterState.SENDING, MasterState.CLOSED
"""Constants for every frame, because an enum's attributes are slow to look up."""


class MasterLink:
    """The link. Call `receive` with the stream. Call `writable` when frames can be written, after the handshake's reply was
    written, and again after every append and every frame. Call `hold` when frames cannot be written. Call `tick` when it is
    due."""

    def __init__(
        self,
        master: MasterView,
        *,
        transfer_batch_size: int,
        heartbeat_interval_ms: int,
        housekeeping_interval_ms: int,
        handshake_timeout_ms: int,
        pace: Pace,
        now_ms: int,
    ) -> None:
        self.pace = pace
        self._master = master
        self._transfer_batch_size = transfer_batch_size
        self._heartbeat_interval_ms = heartbeat_interval_ms
        self._housekeeping_interval_ms = housekeeping_interval_ms
        self._handshake_timeout_ms = handshake_timeout_ms
        self._opened_ms = self._read_ms = self._written_ms = now_ms
        self._received = bytearray()
        self._labelled: EpochEntry | None = None  # epoch label of the newest frame
        self._history: EpochHistory | None = None  # the history that `_entry` is from
        self._entry: EpochEntry | None = None
        self._stretch_end = UNKNOWN  # end of this epoch, if known, or of the segment
        self._confirm_sent = UNKNOWN
        self._sent_marks: deque[tuple[int, int]] = deque()  # (log end, ms) when a frame was built; both rise
        self._held: set[Hold] = set()
        self._confirm_owed = False  # the confirm offset moved during a hold
        self.state = MasterState.WAITING
        self.handshake: Handshake | None = None
        self.ack_offset = UNKNOWN
        self.next_offset = UNKNOWN  # offset of the next frame
        self.caught_up_ms: int | None = None  # the newest time whose log end the slave has reached

    # -- from the slave

    def receive(self, data: bytes, now_ms: int) -> list[Action]:
        """Handle the next bytes of the stream, in any fragments."""
        if self.state is CLOSED:
            return []
        self._read_ms = now_ms
        if not self._received and self.state is SENDING and len(data) == ACK.size:
            state, offset = ACK.unpack(data)  # a single ack, as in nearly all cases
            if state == TRANSFER_STATE and self.ack_offset <= offset <= self.next_offset:
                return [self._acked(offset, now_ms)]
        self._received += data
        actions: list[Action] = []
        try:
            while (found := self._frame(now_ms)) is not None:
                actions += found
        except HAFrameError as error:
            actions += self._close(str(error))
        return actions

    def _frame(self, now_ms: int) -> list[Action] | None:
        """Actions of the next frame; None if it is incomplete."""
        received = self._received
        if len(received) < _STATE_SIZE:
            return None
        state = state_of(received)
        if state == TRANSFER_STATE:
            if len(received) < ACK.size:
                return None
            offset = decode_ack(received[: ACK.size])
            del received[: ACK.size]
            return self._ack_frame(offset, now_ms)
        if state != HANDSHAKE_STATE:
            raise HAFrameError(other_protocol(bytes(received[:PREFIX_BYTES])) or f"a frame of state {state}")
        size = Handshake.size_of(received)
        if size is None or len(received) < size:
            return None
        handshake = Handshake.decode(received[:size])
        del received[:size]
        return self._handshake_frame(handshake)

    def _handshake_frame(self, handshake: Handshake) -> list[Action]:
        if self.state is MasterState.AWAITING_FIRST_ACK and handshake == self.handshake:
            return []  # a Java slave repeats the handshake if the reply came in two pieces
        if self.state is not MasterState.WAITING:
            raise HAFrameError(f"a second handshake, of broker {handshake.slave_broker_id}")
        broker_id = handshake.slave_broker_id
        if not handshake.address and (broker_id < 1 or broker_id == self._master.broker_id):
            raise HAFrameError(f"a handshake of broker {handshake.slave_broker_id}")
        self.state = MasterState.AWAITING_FIRST_ACK
        self.handshake = handshake
        return [HandshakeDone(handshake, HandshakeReply(self._master.log_end, self._master.history).encode())]

    def _ack_frame(self, offset: int, now_ms: int) -> list[Action]:
        if self.state is SENDING:
            if not self.ack_offset <= offset <= self.next_offset:
                raise HAFrameError(
                    f"an ack of {offset} after {self.ack_offset}, sent up to {self.next_offset}"
                )
        elif self.state is MasterState.AWAITING_FIRST_ACK:
            self.next_offset = self._start_at(offset)
            self.state = SENDING
        elif self.state is MasterState.REJECTED:
            raise HAFrameError(
                f"an ack of {offset} after a notice that the log begins at {self._master.log_min}"
            )
        else:
            raise HAFrameError("an ack before the handshake")
        return [self._acked(offset, now_ms)]

    def _acked(self, offset: int, now_ms: int) -> Acked:
        self.ack_offset = offset
        if offset == self._master.log_end:
            self._sent_marks.clear()
            self.caught_up_ms = now_ms
        while self._sent_marks and self._sent_marks[0][0] <= offset:
            self.caught_up_ms = self._sent_marks.popleft()[1]
        return Acked(offset)

    def _start_at(self, requested: int) -> int:
        """The offset at which to start sending when the first ack is `requested`."""
        assert self.handshake is not None
        if requested == 0 and self.handshake.is_sync_from_last_file:
            return self._master.log_end - self._master.log_end % self._master.segment_size_bytes
        if requested == 0:
            return self._master.log_min
        if not 0 <= requested <= self._master.log_end:
            raise HAFrameError(
                f"a request for {requested}, the log is {self._master.log_min}..{self._master.log_end}"
            )
        return requested

    def _reject(self, now_ms: int) -> Batch:
        """Reject a slave whose log ends below this log's start, because there would be a gap: send a frame without a body at
        this log's start. A Java slave ends the connection because of the frame's offset; a slave of this implementation also
        logs the reason."""
        self.state = MasterState.REJECTED
        self.next_offset = self._master.log_min
        return self._frame_of(0, now_ms)

    # -- to the slave

    def hold(self, why: Hold) -> None:
        """Write no frame until `release`."""
        self._held.add(why)

    def release(self, why: Hold, now_ms: int) -> list[Action]:
        """End a hold. Returns what `writable` returns."""
        self._held.discard(why)
        return self.writable(now_ms)

    def writable(self, now_ms: int) -> list[Action]:
        """The next frame, if one may be written now. It has a body, or only announces an epoch or the confirm offset, or
        rejects the slave, or is an overdue heartbeat. A Close instead if the epoch of the next byte is unknown."""
        if self.state is not SENDING or self._held:
            return []
        offset, master = self.next_offset, self._master
        if offset >= self._stretch_end or self._history is not master.history:
            self._find_stretch(offset)
        log_end, stretch_end = master.log_end, self._stretch_end
        if log_end >= stretch_end and offset < master.log_min:  # the last segment is never deleted
            return [self._reject(now_ms)]
        entry = self._entry
        if entry is None:
            return self._close(f"{offset} is due, the epochs of the log are {self._history!r}")
        size = (log_end if log_end < stretch_end else stretch_end) - offset
        if size == 0 and entry == self._labelled:
            owed = self._confirm_owed and master.confirm_offset != self._confirm_sent
            return [self._frame_of(0, now_ms)] if owed else self._heartbeat_if_due(now_ms)
        if size > self._transfer_batch_size:
            size = self._transfer_batch_size
        if size and (size := self.pace.allowed(size, now_ms)) == 0:
            return self._heartbeat_if_due(now_ms)
        return [self._labelled_frame(size, entry, log_end, now_ms)]

    def _find_stretch(self, offset: int) -> None:
        """Find the epoch of `offset`, and the end of this epoch's present or future bytes in the same segment. The result is
        valid until the history, which is immutable, is replaced."""
        self._history = history = self._master.history
        self._entry = history.entry_at(offset)
        segment = self._master.segment_size_bytes
        self._stretch_end = offset - offset % segment + segment
        if self._entry is not None:
            self._stretch_end = history.epoch_end(self._entry.epoch, self._stretch_end)

    def confirm_offset_moved(self, now_ms: int) -> list[Action]:
        """Returns a frame without a body if the slave does not know the confirm offset yet."""
        self._confirm_owed = self.state is SENDING and self._master.confirm_offset != self._confirm_sent
        if not self._confirm_owed or self._held:
            return []
        return [self._frame_of(0, now_ms)]

    def _frame_of(self, size: int, now_ms: int) -> Batch:
        offset, master = self.next_offset, self._master
        if offset >= self._stretch_end or self._history is not master.history:
            self._find_stretch(offset)
        entry = self._entry or master.history.entries[0]
        return self._labelled_frame(size, entry, master.log_end, now_ms)

    def _labelled_frame(self, size: int, entry: EpochEntry, log_end: int, now_ms: int) -> Batch:
        offset = self.next_offset
        self._labelled = entry
        self._confirm_sent, self._confirm_owed = self._master.confirm_offset, False
        self._written_ms = now_ms
        self.next_offset = offset + size
        marks = self._sent_marks
        if size and len(marks) < _MARKS_MAX and (not marks or marks[-1][0] < log_end):
            marks.append((log_end, now_ms))
        header = TRANSFER.pack(TRANSFER_STATE, size, offset, *entry, self._confirm_sent)
        return Batch(header, offset, size)

    # -- time

    def tick(self, now_ms: int) -> list[Action]:
        """Call at `next_tick_ms` or later."""
        if self.state is MasterState.CLOSED:
            return []
        if self.state is MasterState.WAITING and now_ms - self._opened_ms >= self._handshake_timeout_ms:
            return self._close(f"no handshake within {self._handshake_timeout_ms} ms")
        if self.state is MasterState.REJECTED and now_ms - self._written_ms >= self._handshake_timeout_ms:
            return self._close(f"the slave is behind the log's beginning, {self._master.log_min}")
        if now_ms - self._read_ms >= self._housekeeping_interval_ms:
            return self._close(f"nothing heard for {now_ms - self._read_ms} ms")
        return self._heartbeat_if_due(now_ms)

    def _heartbeat_if_due(self, now_ms: int) -> list[Action]:
        due = self.state is SENDING and now_ms - self._written_ms >= self._heartbeat_interval_ms
        return [self._frame_of(0, now_ms)] if due and not self._held else []

    @property
    def next_tick_ms(self) -> int:
        idle = self._read_ms + self._housekeeping_interval_ms
        if self.state is MasterState.WAITING:
            return min(idle, self._opened_ms + self._handshake_timeout_ms)
        if self.state is MasterState.REJECTED:
            return min(idle, self._written_ms + self._handshake_timeout_ms)
        if self.state is MasterState.SENDING and not self._held:
            return min(idle, self._written_ms + self._heartbeat_interval_ms, self.pace.due_ms)
        return idle

    # -- the end

    def connection_lost(self) -> None:
        """Note that nothing more will be received or sent."""
        self.state = MasterState.CLOSED

    def _close(self, reason: str) -> list[Action]:
        self.state = MasterState.CLOSED
        return [Close(reason)]
