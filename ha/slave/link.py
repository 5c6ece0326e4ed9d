"""The slave's end of one link, from handshake to the master's log.

Invariant: the slave's log is a prefix of the master's log from the first ack on. Bytes are accepted only at the end of the
slave's log, and in at most one epoch for each frame. An epoch's entry is durable before the first byte of this epoch is in the
log. While a cut or an entry is being made durable, nothing is read and nothing is acked. Confirmed data is never cut unless an
operator allows the cut, because it may have been acknowledged and the master may have lost it. If acks report the data on disk,
no ack reports more.

A link starts only with a master that knows the newest epoch that this broker has accepted. A master of an older epoch may not
know members that joined the set later, so following it could acknowledge data that those members are missing. A Java master
does not record an epoch in which its log did not grow before the next epoch began; a MasterProof can replace such an epoch. An
epoch above the newest epoch that controllers have named to this broker is not accepted, because an epoch in the log blocks all
roles of older epochs.

    CONNECTED --reply--> [CUTTING --cut done-->] [PERSISTING --persisted-->] TRANSFER
    TRANSFER --frame of a new epoch--> PERSISTING --> TRANSFER          any --error--> CLOSED

Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from epochfile.history import NO_CONSISTENT_POINT, EpochHistory, EpochOutOfOrder
from ha.frames import (
    HANDSHAKE_REPLY,
    TRANSFER,
    HAFrameError,
    Handshake,
    HandshakeReply,
    TransferHeader,
    encode_ack,
)
from mqruntime.core import NEVER_MS


@dataclass(slots=True)
class Send:
    """Write these bytes to the peer."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Cut:
    """Truncate the log durably from `log_end` to `offset`, then call `cut_done`."""

    offset: int
    log_end: int
    own: EpochHistory
    master: EpochHistory


@dataclass(frozen=True, slots=True)
class PersistEpochs:
    """Store this history durably, then call `persisted`. If `log_begins` is set, an empty log is about to begin at this offset;
    make this durable too."""

    history: EpochHistory
    log_begins: int | None = None


@dataclass(slots=True)
class Place:
    """Write these bytes at the log's end, `offset`, and move the end past them. An ack is due."""

    offset: int
    data: bytes


@dataclass(slots=True)
class Advance:
    """Move the end of the log to `end`. An ack is due."""

    end: int


@dataclass(slots=True)
class Confirm:
    """All data below `offset` is in the log of every member of the SyncStateSet, and in this log."""

    offset: int


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """The log holds all data that this master had when its epoch began, and all data confirmed since. Occurs once for each
    link."""


@dataclass(frozen=True, slots=True)
class StayOut:
    """Following this master would cut this log, which ends at `log_end`, to `offset`, which is below its confirm offset. An
    operator must choose which log counts. A Close follows."""

    offset: int
    confirm_offset: int
    log_end: int


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """The master's log starts at or above `master_min`, so the master has deleted the data that would follow the confirmed part
    of this log, which ends at `log_end`. This replica must start empty. A Close follows."""

    master_min: int
    log_end: int


@dataclass(frozen=True, slots=True)
class MasterProof:
    """What a Java master reported right before this link, apart from its epoch file. The master leads `epoch`. Its log equals
    this log up to `same_end`, because both have the same record that ends there; 0 if the records differ."""

    epoch: int
    same_end: int


@dataclass(frozen=True, slots=True)
class OldMaster:
    """The master's list is missing the newest epoch that this broker has accepted, and no proof replaces this epoch. A Close
    follows."""


@dataclass(frozen=True, slots=True)
class Close:
    """Close the connection. The last action of a link."""

    reason: str


Action = (
    Send
    | Cut
    | PersistEpochs
    | Place
    | Advance
    | Confirm
    | CaughtUp
    | StayOut
    | LeftBehind
    | OldMaster
    | Close
)
"""The classes of actions that occur for every frame are not frozen, because an object of such a class is created in a third of
the time."""


@dataclass(frozen=True, slots=True)
class LogRange:
    """The next `size` bytes of the stream belong into the log at `offset`."""

    offset: int
    size: int


READ_AHEAD_BYTES = 64 * 1024
PLACED_BYTES_MIN = 16 * 1024
"""If less than this is left of a body, the rest is read together with the following frames, and copied. A larger rest is read
directly into the log."""
BEGIN_ANEW = "resync this replica: mqadmin resyncBroker"


class SlaveState(Enum):
    CONNECTED = "waiting for the handshake reply"
    CUTTING = "waiting for the log to be cut"
    PERSISTING = "waiting for the epoch file"
    TRANSFER = "receiving"
    CLOSED = "closed"


CONNECTED, RECEIVING, CLOSED = SlaveState.CONNECTED, SlaveState.TRANSFER, SlaveState.CLOSED
"""Constants for every frame, because an enum's attributes are slow to look up."""


class SlaveLink:
    """The link. Its inputs are the stream (`next_read`, `filled`), completed durable steps (`cut_done`, `persisted`) and the
    time (`tick`). The caller performs the returned actions in order."""

    def __init__(
        self,
        *,
        handshake: Handshake,
        history: EpochHistory,
        epoch: int,
        log_min: int,
        log_end: int,
        confirm_offset: int,
        truncation_allowed: int | None,
        flushed_end: int | None,
        segment_size_bytes: int,
        heartbeat_interval_ms: int,
        housekeeping_interval_ms: int,
        handshake_timeout_ms: int,
        now_ms: int,
        proof: MasterProof | None = None,
        epoch_max: int | None = None,
    ) -> None:
        """`log_end` is a record boundary. A log with data has epochs (checked by the caller); epochs beyond the log's end are
        dropped here. A log without data may start at any segment, unless an epoch ends at the log's start.

        - `epoch`: the newest that this broker has accepted; its log may know less.
        - `truncation_allowed`: an operator allows cutting the log to this offset even where it is confirmed.
        - `flushed_end`: how much of the log is on disk (now all of it), if that is what is acknowledged; else None.
        - `epoch_max`: the newest epoch that controllers have named here, updated by `epoch_named`; None: not checked."""
        self._handshake = handshake
        self._epoch_max = None if epoch_max is None else max(epoch_max, history.last_epoch())
        self.epoch_ahead: int | None = None
        """An epoch above `epoch_max` that the master sent."""
        self._proof = proof
        # a master that does not know this epoch is an old master
        self._epoch_min = max(epoch, history.last_epoch())
        self._stored = history
        self._own = EpochHistory(entry for entry in history if entry.start_offset <= log_end)
        self._master = EpochHistory()
        self._log_min = log_min
        self._log_end = log_end
        self._empty = self._has_nothing()
        self._confirm = confirm_offset
        self._cut_min = (
            confirm_offset if truncation_allowed is None else min(confirm_offset, truncation_allowed)
        )
        self._is_caught_up = False
        self._caught_up_from: int | None = None
        self._flushed_end = flushed_end
        self._segment_size_bytes = segment_size_bytes
        self._heartbeat_interval_ms = heartbeat_interval_ms
        self._housekeeping_interval_ms = housekeeping_interval_ms
        self._handshake_timeout_ms = handshake_timeout_ms
        self._opened_ms = self._read_ms = self._written_ms = now_ms
        self._acked = -1
        self._header = bytearray(HANDSHAKE_REPLY.size)  # header of the reply, then the whole reply
        self._header_filled = 0
        self._stream = memoryview(bytearray(READ_AHEAD_BYTES))  # frames received and not processed yet
        self._stream_filled = 0
        self._frame: TransferHeader | None = None  # header of the last frame
        self._body_left = 0  # missing bytes of this frame's body
        self.frames = 0  # number of transfer frames begun, notices included
        self.state = SlaveState.CONNECTED

    @property
    def log_end(self) -> int:
        return self._log_end

    def start(self) -> list[Action]:
        return [Send(self._handshake.encode())]

    def epoch_named(self, epoch: int) -> None:
        """Note that controllers named `epoch` as an epoch of this master."""
        if self._epoch_max is not None:
            self._epoch_max = max(self._epoch_max, epoch)

    def _check_named(self, epoch: int) -> None:
        """Raises HAFrameError if the epoch is newer than the named epochs."""
        if self._epoch_max is not None and epoch > self._epoch_max:
            self.epoch_ahead = epoch
            raise HAFrameError(
                f"the master leads epoch {epoch}, and controllers have named {self._epoch_max} here"
            )

    # -- the stream

    def next_read(self) -> memoryview | LogRange | None:
        """Buffer for the next bytes of the stream: a view to fill from its start, or a range of the log. None
        while nothing may be read."""
        if self.state is CONNECTED:
            return memoryview(self._header)[self._header_filled :]
        if self.state is not RECEIVING:
            return None
        if self._body_left >= PLACED_BYTES_MIN:
            return LogRange(self._log_end, self._body_left)
        # after a large body another is likely to follow, so the next header is read alone
        alone = not self._body_left and self._frame is not None and self._frame.body_size >= PLACED_BYTES_MIN
        end = TRANSFER.size if alone else len(self._stream)
        return self._stream[self._stream_filled : end]

    def filled(self, size: int, now_ms: int) -> list[Action]:
        """Handle `size` bytes, at least 1, which have arrived in the buffer of the last `next_read`."""
        self._read_ms = now_ms
        if self.state is CONNECTED:
            self._header_filled += size
            if self._header_filled < len(self._header):
                return []
            try:
                return self._reply_filled(now_ms)
            except HAFrameError as error:
                return self._close(str(error))
        if self._body_left >= PLACED_BYTES_MIN:
            self._take(size)
            return [Advance(self._log_end), *self._learned()]
        self._stream_filled += size
        return self._read_stream()

    def _read_stream(self) -> list[Action]:
        """Process the received frames, up to a frame of a new epoch. Their bodies are written together."""
        stream, filled, at = self._stream, self._stream_filled, 0
        bodies: list[memoryview] = []
        begin, last = self._log_end, list[Action]()
        while at < filled and not last:
            if self._body_left:
                body = stream[at : min(at + self._body_left, filled)]
                if not bodies:
                    begin = self._log_end
                bodies.append(body)
                at += len(body)
                self._take(len(body))
            elif filled - at < TRANSFER.size:
                break
            else:
                try:
                    last = self._frame_begins(TransferHeader.decode(stream[at : at + TRANSFER.size]))
                except HAFrameError as error:
                    last = self._close(str(error))
                at += TRANSFER.size
        placed = [Place(begin, b"".join(bodies))] if bodies else []
        self._stream_filled = filled - at
        if at < filled:
            stream[: filled - at] = bytes(stream[at:filled])
        return [*placed, *self._learned(), *last]

    def _take(self, size: int) -> None:
        """Count `size` bytes of the body as written to the log, or about to be written."""
        assert size <= self._body_left
        self._log_end += size
        self._body_left -= size
        self._empty = False

    def _learned(self) -> list[Action]:
        """The actions that follow from the last frame's confirm offset and the data held by now."""
        frame = self._frame
        if frame is None:
            return []
        confirmed = self._confirmed(frame)
        if not self._is_caught_up and (self._body_left < frame.body_size or not frame.body_size):
            confirmed += self._caught_up_with(frame)
        return confirmed

    def _frame_begins(self, frame: TransferHeader) -> list[Action]:
        """Check the frame against the end of this log and the master's epochs. The body is read once the epochs are durable."""
        self.frames += 1
        if self._empty:
            if frame.body_size and (frame.offset < 0 or frame.offset % self._segment_size_bytes):
                raise HAFrameError(f"the first bytes of an empty log at {frame.offset}, within a segment")
        elif frame.offset > self._log_end and not (
            frame.body_size or frame.offset % self._segment_size_bytes
        ):
            reason = f"the master's log begins at {frame.offset}, the own log ends at {self._log_end}"
            return [LeftBehind(frame.offset, self._log_end), *self._close(reason)]
        elif frame.offset != self._log_end:
            raise HAFrameError(f"a frame at {frame.offset}, the own log ends at {self._log_end}")
        self._learn_epoch(frame)
        history = self._history_with(frame.offset, frame.body_size)
        begins = frame.offset if self._empty and frame.body_size else None
        if frame.body_size:
            self._log_end = frame.offset
        self._frame, self._body_left, self._own = frame, frame.body_size, history
        return [] if history is self._stored or history == self._stored else self._persist(history, begins)

    def _learn_epoch(self, frame: TransferHeader) -> None:
        """Accept the frame's epoch label. Usually the label is the epoch of the body. But a Java master labels a body that it
        cut at an epoch's end with the *next* epoch, and announces an epoch in a frame without a body."""
        begins, ends = frame.offset, frame.offset + frame.body_size
        label = (frame.epoch, frame.epoch_start_offset)
        if label == self._master.last() and begins >= frame.epoch_start_offset:
            return
        known = self._master.entry_of(frame.epoch)
        if known is None:
            self._check_named(frame.epoch)
            if not begins <= frame.epoch_start_offset <= ends:
                raise HAFrameError(
                    f"epoch {frame.epoch} at {frame.epoch_start_offset} in a frame at {begins}..{ends}"
                )
            try:
                self._master = self._master.append(label)
            except EpochOutOfOrder as error:
                raise HAFrameError(f"a frame of a lower epoch: {error}") from error
        elif known.start_offset != frame.epoch_start_offset:
            raise HAFrameError(
                f"epoch {frame.epoch} at {frame.epoch_start_offset} was at {known.start_offset} before"
            )
        if not frame.body_size:
            return
        written_in = self._master.entry_at(begins)
        if written_in is None or self._master.epoch_end(written_in.epoch, ends) < ends:
            raise HAFrameError(f"a body at {begins}..{ends} is not within one epoch of {self._master!r}")
        if frame.epoch != written_in.epoch and frame.epoch_start_offset != ends:
            raise HAFrameError(
                f"a body at {begins} of epoch {written_in.epoch} is labelled with epoch {frame.epoch}"
            )

    def _history_with(self, offset: int, body_size: int) -> EpochHistory:
        """This broker's epochs, and the master's epochs that begin at or before `offset`. A log that begins at `offset` does
        not get epochs that ended before."""
        history = self._own
        if history.last_epoch() == self._master.last_epoch():
            return history
        for entry in self._master:
            if entry.start_offset > offset:
                break
            ended = self._master.epoch_end(entry.epoch, offset + 1) <= offset
            if entry.epoch > history.last_epoch() and not (ended and self._empty):
                history = history.append(entry)
        return history

    def _confirmed(self, frame: TransferHeader) -> list[Action]:
        offset = min(frame.confirm_offset, self._log_end)
        if offset <= self._confirm or self._empty:
            return []
        self._confirm = offset
        return [Confirm(offset)]

    def _caught_up_with(self, frame: TransferHeader) -> list[Action]:
        self._caught_up_from = max(frame.confirm_offset, self._master.entries[-1].start_offset)
        return self._caught_up_now()

    def _caught_up_now(self) -> list[Action]:
        if self._is_caught_up or self._caught_up_from is None or self._held_end() < self._caught_up_from:
            return []
        self._is_caught_up = True
        return [CaughtUp()]

    def _held_end(self) -> int:
        """The end of the part of the log that counts for this replica."""
        return self._log_end if self._flushed_end is None else min(self._log_end, self._flushed_end)

    def flushed(self, end: int, now_ms: int) -> list[Action]:
        """Note that the log is on disk up to `end`. An ack may have waited for this."""
        if self._flushed_end is None or self.state not in (SlaveState.PERSISTING, SlaveState.TRANSFER):
            return []
        self._flushed_end = end
        return [*self._caught_up_now(), *self.turn_over(now_ms)]

    # -- the handshake reply

    def _reply_filled(self, now_ms: int) -> list[Action]:
        header_size = HANDSHAKE_REPLY.size
        if len(self._header) == header_size:
            body_size = HandshakeReply.body_size(self._header)
            self._header = self._header + bytes(body_size)  # a copy, because the old may still be exported
            return []
        reply = HandshakeReply.decode(self._header[:header_size], self._header[header_size:])
        self._check_named(reply.epochs.last_epoch())
        self._master = reply.epochs
        is_behind = reply.epochs.last_epoch() < self._epoch_min
        if is_behind and not self._is_proven():
            reason = (
                f"an old master: it knows epoch {reply.epochs.last_epoch()}, this broker {self._epoch_min}"
            )
            return [OldMaster(), *self._close(reason)]
        if self._empty:
            self._own = EpochHistory()
            return self._enter_transfer(now_ms)
        point = self._common_end(reply, is_behind=is_behind)
        if point == NO_CONSISTENT_POINT and 0 < reply.epochs.entries[0].start_offset >= self._confirm:
            master_min = reply.epochs.entries[0].start_offset
            reason = f"the master knows no epoch below {master_min}, the own log is confirmed up to {self._confirm}"
            return [LeftBehind(master_min, self._log_end), *self._close(reason)]
        if point == NO_CONSISTENT_POINT:
            raise HAFrameError(
                f"no epoch in common: own {self._own!r}, master {reply.epochs!r}; {BEGIN_ANEW}"
            )
        if point < self._log_min:
            raise HAFrameError(
                f"the logs diverge at {point}, the own log begins at {self._log_min}; {BEGIN_ANEW}"
            )
        if point == self._log_end:
            return self._enter_transfer(now_ms)
        if point < self._cut_min:
            reason = f"the logs diverge at {point}, the own log is confirmed up to {self._confirm}"
            return [StayOut(point, self._confirm, self._log_end), *self._close(reason)]
        self.state = SlaveState.CUTTING
        return [Cut(point, self._log_end, self._own, reply.epochs)]

    def _is_proven(self) -> bool:
        """Whether the master leads the newest epoch that this broker has accepted, although its list may not contain this
        epoch."""
        return self._proof is not None and self._proof.epoch >= self._epoch_min

    def _common_end(self, reply: HandshakeReply, *, is_behind: bool) -> int:
        """The end of the part that both logs share; NO_CONSISTENT_POINT if the epochs do not show it. If the master's list
        `is_behind`, two masters may have written in its last epoch, so in this epoch only a compared record counts."""
        point = self._own.find_consistent_point(reply.epochs, self._log_end, reply.max_offset)
        if point == NO_CONSISTENT_POINT and self._nothing_confirmed_since_the_beginning():
            point = 0
        if is_behind and len(reply.epochs):
            point = min(point, reply.epochs.entries[-1].start_offset)
        if self._proof is None or not self._is_proven() or self._proof.same_end <= point:
            return point
        same_end = self._proof.same_end
        self._own = EpochHistory(
            entry
            for entry in reply.epochs
            if entry.start_offset <= same_end
            and reply.epochs.epoch_end(entry.epoch, same_end + 1) > self._log_min
        )
        return same_end

    def _has_nothing(self) -> bool:
        return self._log_min == self._log_end and len(self._own.truncate_suffix(self._log_end)) == 0

    def _nothing_confirmed_since_the_beginning(self) -> bool:
        """Whether both logs begin at offset 0, and nothing in this log is confirmed. As no common epoch was found, their first
        masters differ. So this log has no record of the master's log, and no record that another replica is known to hold."""
        return self._confirm == self._log_min == self._own.entries[0].start_offset == 0 and (
            self._master.entries[0].start_offset == 0
        )

    def cut_done(self, log_end: int, now_ms: int) -> list[Action]:
        """Note that the log was durably cut, and now ends at `log_end`."""
        if self.state is SlaveState.CLOSED:
            return []
        assert self.state is SlaveState.CUTTING and log_end <= self._log_end
        self._log_end = log_end
        if self._flushed_end is not None:
            self._flushed_end = log_end
        self._empty = self._has_nothing()
        self._confirm = min(self._confirm, log_end)
        self._read_ms = now_ms
        return self._enter_transfer(now_ms)

    def _enter_transfer(self, now_ms: int) -> list[Action]:
        self._own = self._own.truncate_suffix(self._log_end)
        if not self._empty:
            self._own = self._history_with(self._log_end, 0)
        if self._own != self._stored:
            return self._persist(self._own)
        self.state = SlaveState.TRANSFER
        return self.turn_over(now_ms)

    # -- epochs

    def _persist(self, history: EpochHistory, log_begins: int | None = None) -> list[Action]:
        self.state = SlaveState.PERSISTING
        self._stored = history
        return [PersistEpochs(history, log_begins)]

    def persisted(self, now_ms: int) -> list[Action]:
        """Note that the history of the last PersistEpochs is durable."""
        if self.state is SlaveState.CLOSED:
            return []
        assert self.state is SlaveState.PERSISTING
        self.state = SlaveState.TRANSFER
        self._read_ms = now_ms
        return [*self.turn_over(now_ms), *self._read_stream()]

    # -- acks and time

    def turn_over(self, now_ms: int) -> list[Action]:
        """Return one ack for all data that arrived together, if the log's end changed and may be acknowledged."""
        if self.state is not RECEIVING or self._ack_offset() == self._acked:
            return []
        return [self._ack(now_ms)]

    def tick(self, now_ms: int) -> list[Action]:
        """Call at `next_tick_ms` or later."""
        if self.state not in (SlaveState.CONNECTED, SlaveState.TRANSFER):
            return []
        if self.state is SlaveState.CONNECTED and now_ms - self._opened_ms >= self._handshake_timeout_ms:
            return self._close(f"no handshake reply within {self._handshake_timeout_ms} ms")
        if now_ms - self._read_ms >= self._housekeeping_interval_ms:
            return self._close(f"nothing heard for {now_ms - self._read_ms} ms")
        if self.state is SlaveState.TRANSFER and now_ms - self._written_ms >= self._heartbeat_interval_ms:
            return [self._ack(now_ms)]
        return []

    @property
    def next_tick_ms(self) -> int:
        idle = self._read_ms + self._housekeeping_interval_ms
        if self.state is SlaveState.CONNECTED:
            return min(idle, self._opened_ms + self._handshake_timeout_ms)
        if self.state is SlaveState.TRANSFER:
            return min(idle, self._written_ms + self._heartbeat_interval_ms)
        return NEVER_MS  # the link reads nothing now, so nothing can be late

    def _ack_offset(self) -> int:
        return 0 if self._empty else self._held_end()

    def _ack(self, now_ms: int) -> Send:
        self._written_ms = now_ms
        self._acked = self._ack_offset()
        return Send(encode_ack(self._acked))

    def connection_lost(self) -> None:
        """Note that nothing more will be read or sent. The link ignores durable steps that are still in progress."""
        self.state = SlaveState.CLOSED

    def _close(self, reason: str) -> list[Action]:
        self.state = SlaveState.CLOSED
        return [Close(reason)]
