"""Drives a SlaveLink with a master's bytes over a MemoryLog, doing at once what must be durable."""

from __future__ import annotations

import asyncio

from epochfile.history import NO_EPOCH, EpochHistory
from ha.frames import Handshake
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
from tests.unit.ha.memorylog import MemoryLog


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
        self.level: list[int] = []  # the log's end each time
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
                    self.level.append(self.log.max_offset())
                case StayOut() | LeftBehind():
                    self.stays_out = action
                case OldMaster():
                    self.is_old_master = True
                case Close(reason):
                    self.closed = reason

    def feed(self, data: bytes, step: int = 1 << 30) -> SlaveDriver:
        """All of `data` in receives of at most `step` bytes, with an ack after each; stops at a close."""
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
