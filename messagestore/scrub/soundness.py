"""Integrity of the log: which bytes this broker may serve without checking them, and which records are damaged.

Invariant: bytes that this process neither appended nor received are unchecked until their records have been read and the CRCs
agree. A damaged record stays damaged and unchecked until it is replaced or cut off. Reads and checks run in threads."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from messagestore.errors import LogReplaced, OffsetOutOfRange, RecordDamaged
from messagestore.log.files import LogFiles
from messagestore.record import check
from messagestore.scrub.unchecked import Unchecked
from messagestore.scrub.walk import SLICE_BYTES, WalkedSlice, WalkSlice
from messagestore.walker import segment_name
from mqruntime.log import fields

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Damage:
    """One damaged record. `size` is 0 if the record's head is damaged too."""

    segment: str
    offset: int
    size: int
    why: str

    @property
    def end(self) -> int:
        return self.offset + max(self.size, 1)

    def error(self) -> RecordDamaged:
        return RecordDamaged(self.segment, self.offset, self.why)


class Integrity:
    """`boundary_at_or_below(offset)` is the greatest record boundary that the consume queues know and that is not above
    `offset`. With `verify_record`, record CRCs are compared too if present."""

    def __init__(
        self,
        log: LogFiles,
        boundary_at_or_below: Callable[[int], int],
        walk: WalkSlice,
        *,
        verify_record: bool,
    ) -> None:
        self._log = log
        self._walk = walk
        self._verify_record = verify_record
        self._boundary_at_or_below = boundary_at_or_below
        self.unchecked = Unchecked()
        self.uncompared = Unchecked()
        """Records that the scrub is to compare with their queue entries."""
        self.damages: dict[int, Damage] = {}
        """The damaged records, by offset."""
        self.checked_bytes = 0
        """Bytes checked since the start. Some may have been checked several times."""
        self.repairs = 0
        self.on_damage: Callable[[], None] = lambda: None
        """Called when a damaged record is found."""

    def begin(self, walked_from: int) -> None:
        """Note that the start has checked the records from `walked_from` on."""
        self.unchecked.add(self._log.min_offset, walked_from)

    def begin_again(self, end: int) -> None:
        """Check all bytes below `end` once more."""
        self.unchecked.add(self._log.min_offset, end)

    def mark_suspect(self, start: int, end: int) -> None:
        """Check [start, end), which lies between two boundaries, once more, because a caller found damage there."""
        self.unchecked.add(start, end)

    def cut(self, offset: int) -> None:
        """Call before the log is cut to `offset`."""
        self.unchecked.cut(offset)
        self.uncompared.cut(offset)
        for damaged in [damaged for damaged in self.damages if damaged >= offset]:
            del self.damages[damaged]

    def begin_at(self, offset: int) -> None:
        """Note that the log begins at `offset` now: bytes below it need no check and no repair."""
        self.unchecked.begin_at(offset)
        self.uncompared.begin_at(offset)
        for damaged in [damaged for damaged in self.damages if damaged < offset]:
            del self.damages[damaged]

    def is_checked(self, offset: int, size: int) -> bool:
        return self.unchecked.first(offset, offset + size) is None

    async def check(self, offset: int, size: int) -> None:
        """Read and check the unchecked bytes among `size` bytes from `offset` on. Raises RecordDamaged, OSError, or
        OffsetOutOfRange if the bytes were deleted."""
        end = offset + size
        distrusted = -1
        while (found := self.unchecked.first(offset, end)) is not None:
            for damage in self.damages.values():
                if damage.offset < end and damage.end > offset:
                    raise damage.error()
            at, (start, limit) = found
            known = max(start, self._log.segment_start(at))
            begin = known if distrusted == at else max(known, self._boundary_at_or_below(at))
            walked = await self.walk(begin, limit)
            if walked.why and begin == walked.end > known:
                distrusted = at  # the queues themselves may be wrong
            elif not walked.why and begin == walked.end and not self.is_checked(begin, 1):
                raise OffsetOutOfRange(begin, self._log.min_offset, self._log.max_offset)
            elif walked.why and self.note(walked) and walked.end < end:
                raise self.damages[walked.end].error()

    async def walk(self, position: int, limit: int) -> WalkedSlice:
        """Check one slice of an unchecked range that ends at `limit`, from a record boundary on. Raises OSError."""
        segment_end = self._log.segment_start(position) + self._log.segment_size_bytes
        end = min(position + SLICE_BYTES, segment_end, limit)
        try:
            walked = await self._walked(position, end, segment_end, limit)
            if walked.wanted:
                end = min(position + walked.wanted, segment_end, limit)
                walked = await self._walked(position, end, segment_end, limit)
        except LogReplaced:  # the whole log is replaced, which the caller must know
            raise
        except OffsetOutOfRange:  # the bytes were deleted and need no check
            self.begin_at(self._log.min_offset)  # they may have been marked for a check meanwhile
            return WalkedSlice(position, 0)
        if self.unchecked.first(position, position + 1) is None:
            return WalkedSlice(position, 0)  # cut off, deleted, or checked by another task
        self.unchecked.checked(position, walked.end)
        self.checked_bytes += walked.end - position
        return walked

    async def _walked(self, position: int, end: int, segment_end: int, limit: int) -> WalkedSlice:
        return await self._log.examine(
            position,
            end,
            lambda content: self._walk(content, position, segment_end, limit, self._verify_record),
        )

    async def fits(self, offset: int, content: bytes) -> bool:
        """Whether `content` is an intact record that exactly fits the place of the damaged record at `offset`. Raises
        OSError."""
        damage, end = self.damages.get(offset), offset + len(content)
        left = self._log.segment_start(offset) + self._log.segment_size_bytes - offset
        if damage is None or end > self._log.max_offset:
            return False
        if check(content, 0, left, offset, verify_record=self._verify_record) != len(content):
            return False
        if damage.size:
            return damage.size == len(content)
        return left == len(content) or end == self._log.max_offset or await self._log.is_boundary(end)

    def repaired(self, offset: int, size: int) -> None:
        """Note that the record at `offset` was replaced by an intact one."""
        self.damages.pop(offset, None)
        self.unchecked.checked(offset, offset + size)
        self.repairs += 1

    def note(self, walked: WalkedSlice) -> bool:
        """Record, and log once, that the record where this walk ended is damaged. Returns False if the record has been cut off
        since."""
        offset = walked.end
        if offset in self.damages or self.is_checked(offset, 1):
            return offset in self.damages
        segment = segment_name(self._log.segment_start(offset))
        self.damages[offset] = damage = Damage(segment, offset, walked.size, walked.why)
        logger.error(
            "a record of the log is damaged on disk: it is neither served nor sent to other replicas until it is repaired "
            "from another one",
            extra=fields(
                segment=segment,
                offset=damage.offset,
                size=damage.size,
                why=damage.why,
                hint="under controllers a master cannot repair itself: elect another (mqadmin electMaster); where nothing "
                "repairs it, check the disk, empty this store, brokerIdentity included, and start the broker again",
            ),
        )
        self.on_damage()
        return True
