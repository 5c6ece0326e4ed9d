"""The epoch file's binding to this broker's log, updated as the log and its epochs change.

The binding has the owner of the store and, for each epoch, a seal: checksums of the log's bytes around the epoch's beginning.
Invariant: bytes are sealed only when they are confirmed, so no election changes them, and only if the log still held them at
this start."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterator

from epochfile.binding import AFTER_BYTES, Binding, Seal, SegmentSpan, span_after, span_before
from epochfile.file import EpochFile
from epochfile.history import EpochHistory
from ha.errors import EpochFileForeign
from ha.log import ReplicatedLog
from mqruntime.log import fields

logger = logging.getLogger("ha")

NOTHING_DUE = 1 << 63
"""A value of `due` above every offset."""


class KeptBinding:
    """The binding. `due` is the confirm offset from which on `seal` has work to do. `owner` is the broker id that owns this
    store."""

    def __init__(self, file: EpochFile) -> None:
        self._file = file.binding
        self._epoch_file = file.name
        self._binding = Binding()
        self.owner: int | None = None
        self.due = NOTHING_DUE

    async def check(self, log: ReplicatedLog, history: EpochHistory) -> None:
        """Check at the start that `history`, from the epoch file, belongs to this log. Upstream and older versions write a file
        without a binding, which is accepted if its epochs begin at the beginning of records.

        Raises: EpochFileForeign, OSError."""
        found = await self._file.load()
        if found is None:
            await self._adopted(log, history)
            found = Binding()
        else:
            parted = found.parted(history, log.min_offset(), log.max_offset())
            if parted is not None:
                why = f"this log's bytes there were written in epoch {parted.bound_epoch}"
                raise self._foreign(parted.epoch, parted.offset, why)
        self.owner = found.owner
        held = [await self._still_held(log, seal) for seal in found.seals]
        self._binding = Binding(held, found.owner).of(history, found.owner)
        await self._seal(log, found)

    async def _adopted(self, log: ReplicatedLog, history: EpochHistory) -> None:
        for epoch, start in history:
            if log.min_offset() < start < log.max_offset() and not await log.is_boundary(start):
                raise self._foreign(epoch, start, "no record of this log begins there")

    async def _still_held(self, log: ReplicatedLog, seal: Seal) -> Seal:
        """The seal without the parts that a crash removed from the log's end. Parts below the log's start are not checked."""
        digests: list[int | None] = []
        for span, digest in _spans(seal, log):
            if span is None or digest is None or span.end > log.max_offset():
                digest = None
            elif span.start >= log.min_offset() and await _digest(log, span) != digest:
                why = "the log does not read there what it read when the epoch began: another log's file, or damage"
                raise self._foreign(*seal.entry, why)
            digests.append(digest)
        return Seal(seal.entry, *digests)

    def _foreign(self, epoch: int, offset: int, why: str) -> EpochFileForeign:
        return EpochFileForeign(self._epoch_file, self._file.name, epoch, offset, why)

    async def owned_by(self, owner: int | None) -> None:
        """Set the broker id at the start; None while an id is applied for. Raises EpochFileForeign, OSError."""
        former, self.owner = self._binding.owner, owner
        if None not in (former, owner) and former != owner and self._binding.seals:
            why = f"the file was written by broker {former}, this is broker {owner}"
            raise self._foreign(*self._binding.seals[-1].entry, why)
        if former is not None and owner is None:
            await self.store(self._binding.history)  # the owner is erased before another id is granted

    async def store(self, history: EpochHistory) -> None:
        """Store the binding of `history` durably. Call this before the epoch file is written. Raises OSError."""
        binding = self._binding.of(history, self.owner)
        await self._file.store(binding)
        self._binding = binding
        self.due = min(
            (seal_end for seal in binding.seals for seal_end in _open_ends(seal)), default=NOTHING_DUE
        )

    async def seal(self, log: ReplicatedLog) -> None:
        """Record checksums of the log's bytes at the beginnings of epochs, as far as these bytes are confirmed. A disk failure
        is logged, and the next change or start repeats the failed part."""
        try:
            await self._seal(log, self._binding)
        except OSError as error:
            logger.warning(
                "the log cannot be read where an epoch begins, its binding is left as it is",
                extra=fields(why=error),
            )

    async def _seal(self, log: ReplicatedLog, stored: Binding) -> None:
        confirm = log.confirm_offset()
        seals = [await _sealed(log, seal, confirm) for seal in self._binding.seals]
        if log.confirm_offset() >= confirm:  # otherwise the log was cut meanwhile
            self._binding = Binding(seals, self.owner)
        ends = (end for seal in self._binding.seals for end in _open_ends(seal))
        self.due = min((end for end in ends if end > confirm), default=NOTHING_DUE)
        if self._binding != stored:
            try:
                await self._file.store(self._binding)
            except OSError as error:
                logger.warning("binding of the epoch file not written", extra=fields(why=error))


def _spans(seal: Seal, log: ReplicatedLog) -> Iterator[tuple[SegmentSpan | None, int | None]]:
    size = log.segment_size_bytes
    yield span_before(seal.entry, size), seal.before
    yield span_after(seal.entry, size), seal.after


def _open_ends(seal: Seal) -> Iterator[int]:
    """The confirm offsets from which on the missing parts can be sealed. A segment that ends earlier only delays the seal."""
    if seal.before is None and seal.entry.start_offset:
        yield seal.entry.start_offset
    if seal.after is None:
        yield seal.entry.start_offset + AFTER_BYTES


async def _sealed(log: ReplicatedLog, seal: Seal, confirm: int) -> Seal:
    digests: list[int | None] = []
    for span, digest in _spans(seal, log):
        if digest is None and span is not None and log.min_offset() <= span.start and span.end <= confirm:
            digest = await _digest(log, span)
        digests.append(digest)
    return Seal(seal.entry, *digests)


async def _digest(log: ReplicatedLog, span: SegmentSpan) -> int:
    size = span.end - span.start
    if log.is_cold(span.start):
        return zlib.crc32(await log.read_cold(span.start, size))
    return zlib.crc32(log.read(span.start, size))
