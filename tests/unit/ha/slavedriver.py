"""Drives a SlaveLink with a master's bytes over a MemoryLog; durable steps complete at once."""

from __future__ import annotations

import asyncio

from epochfile.history import NO_EPOCH, EpochHistory
from ha.frames import Handshake, HandshakeReply, TransferHeader, decode_ack
from ha.slave.link import (
    Action,
    Advance,
    CaughtUp,
    Close,
    Confirm,
    Cut,
    LeftBehind,
    LogRange,
    MasterProof,
    OldMaster,
    PersistEpochs,
    Place,
    Send,
    SlaveLink,
    StayOut,
)
from tests.unit.ha.memorylog import MemoryLog, record


class SlaveDriver:
    def __init__(
        self,
        log: MemoryLog,
        history: EpochHistory,
        handshake: Handshake | None = None,
        truncation_allowed: int | None = None,
        *,
        acks_flushed: bool = False,
        epoch: int = NO_EPOCH,
        proof: MasterProof | None = None,
        epoch_max: int | None = None,
    ) -> None:
        self.log = log
        self.stored = history
        self.sent: list[bytes] = []
        self.confirmed: list[int] = []
        self.cuts: list[Cut] = []
        self.stores: list[tuple[EpochHistory, int]] = []  # with the log's end at that time
        self.caught_up_at: list[int] = []  # the log end each time
        self.stays_out: StayOut | LeftBehind | None = None
        self.is_old_master = False
        self.closed: str | None = None
        self.now_ms = 0
        self.link = SlaveLink(
            handshake=handshake or Handshake(2),
            history=history,
            epoch=epoch,
            log_min=log.min_offset(),
            log_end=log.max_offset(),
            confirm_offset=log.confirm_offset(),
            truncation_allowed=truncation_allowed,
            flushed_end=log.max_offset() if acks_flushed else None,
            segment_size_bytes=log.segment_size_bytes,
            heartbeat_interval_ms=5000,
            housekeeping_interval_ms=20000,
            handshake_timeout_ms=5000,
            now_ms=0,
            proof=proof,
            epoch_max=epoch_max,
        )
        self.perform(self.link.start())

    def perform(self, actions: list[Action]) -> None:
        for action in actions:
            assert self.closed is None
            match action:
                case Send(data):
                    self.sent.append(data)
                case Place(offset, data):
                    while data:
                        view = self.log.write_view(offset, len(data))
                        view[:], data, offset = data[: len(view)], data[len(view) :], offset + len(view)
                        self.log.advance(offset)
                case Advance(end):
                    self.log.advance(end)
                case Confirm(offset):
                    assert offset <= self.log.max_offset()
                    self.log.set_confirm_offset(offset)
                    self.confirmed.append(offset)
                case Cut(offset):
                    assert self.link.next_read() is None
                    self.cuts.append(action)
                    boundary = asyncio.run(self.log.truncate(offset))
                    self.perform(self.link.cut_done(boundary, self.now_ms))
                case PersistEpochs(history):
                    assert self.link.next_read() is None
                    self.stored = history
                    self.stores.append((history, self.log.max_offset()))
                    self.perform(self.link.persisted(self.now_ms))
                case CaughtUp():
                    self.caught_up_at.append(self.log.max_offset())
                case StayOut() | LeftBehind():
                    self.stays_out = action
                case OldMaster():
                    self.is_old_master = True
                case Close(reason):
                    self.closed = reason

    def feed(self, data: bytes, step: int = 1 << 30) -> SlaveDriver:
        """Feed `data` in receives of at most `step` bytes, with an ack after each; stop at a close."""
        position = 0
        while position < len(data) and self.closed is None:
            chunk_end = min(position + step, len(data))
            while position < chunk_end and self.closed is None:
                place = self.link.next_read()
                assert place is not None
                if isinstance(place, LogRange):
                    place = self.log.write_view(place.offset, place.size)
                size = min(len(place), chunk_end - position)
                place[:size] = data[position : position + size]
                del place
                position += size
                self.perform(self.link.filled(size, self.now_ms))
            self.perform(self.link.turn_over(self.now_ms))
        return self


SIZE = 100


def data(begin: int, end: int, letter: str = "a") -> bytes:
    """The records of a log from `begin` to `end`, 100 bytes each."""
    return b"".join(record(f"{letter}{at}", SIZE) for at in range(begin, end, SIZE))


def log_to(end: int, letter: str = "a", partial: bytes = b"") -> MemoryLog:
    return MemoryLog(10_000, data(0, end, letter) + partial)


def greeting(max_offset: int, *epochs: tuple[int, int]) -> bytes:
    return HandshakeReply(max_offset, EpochHistory(epochs)).encode()


def frame(offset: int, body: bytes, epoch: int, start: int, confirm: int = 0) -> bytes:
    return TransferHeader(len(body), offset, epoch, start, confirm).encode() + body


def acks(driver: SlaveDriver) -> list[int]:
    return [decode_ack(sent) for sent in driver.sent[1:]]
