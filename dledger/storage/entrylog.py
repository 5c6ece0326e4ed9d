"""The log on disk: entries and index units in DLedger 0.3's formats. Upstream: DLedgerMmapFileStore.

The module also reads, outside the event loop, entries that are no longer in memory. It also finds where a log may begin whose
first entries a snapshot covers: only at the beginning of a data file. The log begins only where its first entry confirms the
check value of the entry before. That entry is deleted, and with a wrong check value the first entry could neither be read nor
repaired. To find such a beginning only headers and that entry are read. Only the files grow with the log.

Invariant: an entry that `sync` covered is found again after any crash, and an entry that `cut` removed is not. Each check value
continues the check value of the entry before, so data that an earlier entry left at a position is never taken for the next
entry. The index files are derived: where no `sync_index` covered them they are rebuilt from the data. A returned entry is in
the log as it was written, with its check value compared. A read during a cut returns nothing rather than parts of two logs, and
reads at most what its limits allow. When the beginning moves, all entries after the given entry stay in the log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from dledger.raft.entries import Block, Entries, Entry
from dledger.raft.errors import EMPTY_AND_RESTART, EntryMisplaced, EntryUnreadable, LogDamaged
from dledger.raft.membership import is_members
from dledger.raft.settings import DLedgerSettings
from dledger.raft.snapshot import WHOLE, Begin
from dledger.storage.entry import (
    BLANK,
    BLANK_MAGIC,
    ENTRY_HEADER,
    ENTRY_HEADER_BYTES,
    INDEX_UNIT,
    IndexUnit,
    decode_entry,
    encode_index_unit,
    index_header,
    index_unit_of,
    put_entries,
    read_index_unit,
    stored_check,
)
from dledger.storage.filelist import FileList
from mqruntime.segments import SegmentDirectory
from nativepath import presence

logger = logging.getLogger(__name__)

PositionInBody = Callable[[bytes], int | None]
"""Returns the position of an entry as its body contains it; None if the body contains no position."""


def nowhere(body: bytes) -> int | None:
    return None


def outermost_positions(block: Block, position_in_body: PositionInBody) -> list[tuple[int, int]]:
    """(number, position) of the first and the last entry in `block` whose bodies contain their positions. The positions of the
    entries between follow from the sizes."""
    if position_in_body is nowhere:
        return []
    numbers = range(len(block))
    outermost = (_first_claim(block, some, position_in_body) for some in (numbers, reversed(numbers)))
    return [claim for claim in outermost if claim is not None]


def _first_claim(
    block: Block, numbers: Iterable[int], position_in_body: PositionInBody
) -> tuple[int, int] | None:
    claims = ((number, claimed_position(block, number, position_in_body)) for number in numbers)
    return next(((number, position) for number, position in claims if position is not None), None)


def claimed_position(block: Block, number: int, position_in_body: PositionInBody) -> int | None:
    body = block.body(number)
    return position_in_body(body) if body and not is_members(body) else None


class EntryLog:
    """The log in the files data/ and index/ below `directory`. The caller first calls `open`, and recovers the log once
    (dledger.storage.store)."""

    def __init__(
        self,
        directory: SegmentDirectory,
        settings: DLedgerSettings,
        where: str,
        begin: Begin = WHOLE,
        position_in_body: PositionInBody = nowhere,
    ) -> None:
        self.where = where
        self.position_in_body = position_in_body
        self.begin = begin
        """The log's beginning; data before it is not read."""
        self.data = FileList(directory.subdirectory("data"), settings.data_file_bytes, f"{where}/data")
        self.index = FileList(directory.subdirectory("index"), settings.index_file_bytes, f"{where}/index")
        self.end_index = begin.index
        self.end = begin.position
        self.check = begin.check
        """The check value of the last entry."""
        self.batch_count = 0
        """The number of entries written since the last sync."""
        self._put = put_entries if presence.native is None else presence.native.put_entries
        self.cuts = 0
        """The number of cuts and deletions. A read during a cut or deletion may have returned anything."""

    @property
    def unsynced_from(self) -> int:
        """The first index that no sync has covered."""
        return self.end_index + 1 - self.batch_count

    async def open(self) -> None:
        """Opens the files. Raises LogDamaged, OSError."""
        await self.data.open(self.begin.position)
        await self.index.open_derived(self._first_unit, INDEX_UNIT.size)

    @property
    def _first_unit(self) -> int:
        """The position of the first entry's index unit."""
        return (self.begin.index + 1) * INDEX_UNIT.size

    def skip_blank(self, position: int) -> int:
        """The start of the next file if a blank closes this file at `position`, else `position`."""
        rest = self.data.rest_of_file(position)
        closed = len(rest) < BLANK.size or BLANK.unpack_from(rest) == (BLANK_MAGIC, len(rest))
        return position + len(rest) if closed else position

    def place(self, position: int) -> str:
        """The file and the offset of `position`, for an operator."""
        position = self.skip_blank(position)
        at = position % self.data.file_bytes
        return f"offset {at} of {self.data.where}/{position - at:020d}"

    # Positions of entries

    def unit(self, index: int) -> IndexUnit | None:
        """The unit of entry `index` in the index file; None if the unit there is impossible."""
        unit = read_index_unit(self.index.rest_of_file(index * INDEX_UNIT.size), index)
        there = (
            unit is not None
            and self.begin.index < index
            and self.begin.position <= unit.position < self.data.end
        )
        return unit if there else None

    def stored_unit(self, index: int) -> IndexUnit:
        """The unit of an entry of this log, after comparing the unit with the entry's header. Raises LogDamaged."""
        unit = self.unit(index)
        if unit is None or unit != index_unit_of(self.data.rest_of_file(unit.position)):
            raise self.unreadable(index)
        return unit

    def end_of(self, index: int) -> int:
        """The end of entry `index`, which may be the entry after which the log begins. Raises LogDamaged."""
        return self.begin.position if index == self.begin.index else self.believed_unit(index).end

    def believed_unit(self, index: int) -> IndexUnit:
        """Like `stored_unit`, but with a corrupt header the index is believed if it is right about both neighbours: the member
        must run so that the header can be repaired. Raises LogDamaged."""
        try:
            return self.stored_unit(index)
        except LogDamaged:
            unit, behind, begin = self.unit(index), self.stored_unit(index + 1), self.begin
            before = begin.position, begin.term
            if index - 1 > begin.index:
                stored = self.stored_unit(index - 1)
                before = stored.end, stored.term
            fits = unit is not None and before[0] <= unit.position and unit.end <= behind.position
            if unit is None or not (fits and before[1] <= unit.term <= behind.term):
                raise
            return unit

    def check_of(self, index: int) -> int:
        """The check value of entry `index`, which the next entry continues. Raises LogDamaged."""
        if index == self.begin.index:
            return self.begin.check
        return stored_check(self.data.rest_of_file(self.stored_unit(index).position))

    def unreadable(self, index: int) -> EntryUnreadable:
        return EntryUnreadable(self.where, index)

    def rebuild_index_unit(self, index: int) -> bool:
        """Rewrites a wrong index unit, if its entry is intact and continues the entry before. Returns whether it was
        rewritten."""
        try:
            position = self.skip_blank(self.end_of(index - 1))
            stored = decode_entry(self.data.rest_of_file(position), position, self.check_of(index - 1))
        except LogDamaged:
            return False
        if stored is None or stored.entry.index != index:
            return False
        unit = self.unit(index)
        if unit is not None and unit == index_unit_of(self.data.rest_of_file(position)):
            return False
        self.rewrite_index_units(index, encode_index_unit(stored.entry, position))
        return True

    # Writing

    async def append(self, entries: Sequence[Entry]) -> None:
        """Appends entries, which become durable at the next `sync`.

        Raises: EntryMisplaced; OSError if the disk fails or is full. The log then ends after the complete entries, and the
        other entries can be appended once there is room."""
        for first, block in Entries.of(entries).numbered():
            assert first == self.end_index + 1, f"entry {first} cannot follow {self.end_index}"
            taken = 0
            while taken < len(block):
                rest = block.part(taken, len(block))
                await self.close_file_before(ENTRY_HEADER_BYTES + rest.size(1))
                _, count = self.stretch(rest, self.end)
                self.append_to_file(rest.part(0, count))
                taken += count

    def append_to_file(self, block: Block) -> None:
        """Appends entries that fit into the file. No entry is written if an entry is misplaced, or if the disk has no room for
        all entries and their index units."""
        self.check_places(block)
        index, count = self.end_index + 1, len(block)
        size = block.size(count, ENTRY_HEADER_BYTES)
        first_unit = index * INDEX_UNIT.size
        self.index.make_room(first_unit, first_unit + count * INDEX_UNIT.size)
        units, check = self._put(
            self.data.room(self.end, size), block.data, block.begin, block.ends, index, block.term, self.end,
            self.batch_count, self.check,
        )  # fmt: skip
        self.write_units(index, units)
        self.end_index, self.end, self.check = index + count - 1, self.end + size, check
        self.batch_count += count

    def write_units(self, index: int, units: bytes) -> None:
        """Writes the index units of the entries from `index` on."""
        start, view = index * INDEX_UNIT.size, memoryview(units)
        for position, size in self.index.parts(start, start + len(units)):
            self.index.write(position, view[position - start : position - start + size])

    def check_places(self, block: Block) -> None:
        """Compares the positions in the entries' bodies with the positions that the entries get here. Raises EntryMisplaced for
        the first difference."""
        if all(
            claimed == self.place_in(block, number)
            for number, claimed in outermost_positions(block, self.position_in_body)
        ):
            return
        for number in range(len(block)):
            claimed = claimed_position(block, number, self.position_in_body)
            position = self.place_in(block, number)
            if claimed is not None and claimed != position:
                raise EntryMisplaced(self.end_index + 1 + number, claimed, position)

    def place_in(self, block: Block, number: int) -> int:
        """The position of an entry in a block that is appended at the log's end."""
        return self.end + block.size(number, ENTRY_HEADER_BYTES)

    async def close_file_before(self, size: int) -> None:
        """Continues in a new file if `size` bytes do not fit into the present file. A file is durable before the next file
        exists, so a file that is missing in the middle was lost by the disk."""
        start = self.start_of(size, self.end)
        if start != self.end:
            self.data.write(self.end, BLANK.pack(BLANK_MAGIC, start - self.end))
            await self.sync()
            self.end = start

    def start_of(self, size: int, end: int) -> int:
        """The position of the next entry in a log that ends at `end`. The entry has `size` bytes with its header, and must fit
        into its file together with a blank."""
        remaining = self.data.file_bytes - end % self.data.file_bytes
        return end + remaining if size + BLANK.size > remaining else end

    def stretch(self, block: Block, end: int) -> tuple[int, int]:
        """The position of the first entry of `block` in a log that ends at `end`, and the number of entries that fit into this
        file from there."""
        start = self.start_of(ENTRY_HEADER_BYTES + block.size(1), end)
        left = self.data.file_bytes - start % self.data.file_bytes
        return start, block.fitting(left - BLANK.size, ENTRY_HEADER_BYTES)

    def rewrite_index_units(self, index: int, units: bytes) -> None:
        """Rewrites the index units of the entries from `index` on, in one file. This is needed because the page cache may show
        units that the disk does not have."""
        self.index.rewrite(index * INDEX_UNIT.size, units)

    async def sync(self) -> None:
        """Makes appended entries durable. Raises OSError."""
        await self.data.sync()
        self.batch_count = 0

    async def sync_index(self) -> None:
        """Makes the index units of appended entries durable. Raises OSError."""
        await self.index.sync()

    def rewrite_last_batch(self) -> None:
        """Writes the last batch again, for the next `sync`. Recovery may have read the batch only from the page cache, because
        a killed process had not synced it, or because a sync failed and the kernel forgot which pages it dropped. No older
        batch can be affected. Raises LogDamaged."""
        for index in range(max(self.begin.index + 1, self.unsynced_from), self.end_index + 1):
            position = self.stored_unit(index).position
            stored_size = ENTRY_HEADER.unpack_from(self.data.rest_of_file(position))[1]
            self.data.rewrite(position, bytes(self.data.rest_of_file(position)[:stored_size]))

    def kept(self, count: int) -> tuple[int, int]:
        """The end of the log if it keeps only the entries before `count`, and the check value there. The next entry or the last
        kept entry must confirm the check value, because entries that continue a corrupt value would be lost for ever. Raises
        LogDamaged."""
        last = count - 1
        if last == self.begin.index:
            return self.begin.position, self.begin.check
        try:
            unit = self.believed_unit(last)
            check = stored_check(self.data.rest_of_file(unit.position))
            if self._next_entry_confirms(check, count) or self._follows(unit, check):
                return unit.end, check
        except LogDamaged as error:
            raise self._not_kept(last) from error
        raise self._not_kept(last)

    def _next_entry_confirms(self, check: int, index: int) -> bool:
        """Whether entry `index` confirms that `check` is the check value of the entry before."""
        unit = self.unit(index)
        if unit is None or not check:
            return False
        stored = decode_entry(self.data.rest_of_file(unit.position), unit.position, check)
        return stored is not None and stored.entry.index == index and stored.check != 0

    def _follows(self, unit: IndexUnit, check: int) -> bool:
        """Whether the entry of `unit` is intact and has the check value `check`."""
        rest = self.data.rest_of_file(unit.position)
        stored = decode_entry(rest, unit.position, self.check_of(unit.index - 1))
        return stored is not None and index_unit_of(rest) == unit and stored.check == check

    def _not_kept(self, index: int) -> LogDamaged:
        unit = self.unit(index)
        where = "it has no index unit" if unit is None else self.place(unit.position)
        what = f"entry {index}, which was durable, cannot be read, and the log is to be cut behind it"
        return LogDamaged(self.where, f"{what}: {where}; {EMPTY_AND_RESTART}")

    async def cut(self, count: int) -> None:
        """Keeps the entries before `count`, and erases all data after them, a blank included. So later entries get the same
        positions as if the erased entries had never existed. Durable at the next `sync`. Raises LogDamaged, OSError."""
        end, units_end = self.end, (self.end_index + 2) * INDEX_UNIT.size
        kept = self.kept(count) if count <= self.end_index else (end, self.check)
        self.cuts += 1
        if count <= self.end_index:
            self.end, self.check = kept
            self.batch_count = max(0, self.batch_count - (self.end_index + 1 - count))
            self.end_index = count - 1
        await self.data.erase(self.end, end + ENTRY_HEADER_BYTES)
        await self.index.erase(count * INDEX_UNIT.size, units_end)

    def erase_again(self) -> None:
        """Erases the first header after the log again, because a process that was killed during a cut may have left the zeros
        only in the page cache. Without this header no entry follows the log. Durable at the next `sync`."""
        room = min(ENTRY_HEADER_BYTES, len(self.data.rest_of_file(self.end)))
        if room:
            self.data.rewrite(self.end, bytes(room))

    # Entries that a snapshot covers

    async def close_file(self) -> None:
        """Continues in a new file, so that the present one can be deleted later. Raises OSError."""
        if self.end % self.data.file_bytes:
            await self.close_file_before(self.data.file_bytes)

    def begin_after(self, begin: Begin) -> None:
        """Lets the log begin after `begin`. A durable snapshot covers the entries before, which are not read any more."""
        self.cuts += 1
        self.begin = begin

    async def delete_before(self) -> None:
        """Deletes the files before the log's beginning. Raises OSError."""
        await self.data.begin_at(self.begin.position)
        await self.index.begin_at(self._first_unit)

    async def restart(self, begin: Begin) -> None:
        """Deletes all files, because a durable snapshot replaces the log. If files at or above `begin` are left, the snapshot's
        mark makes them void. Raises OSError."""
        self.cuts += 1
        self.begin = begin
        self.end_index, self.end, self.check, self.batch_count = begin.index, begin.position, begin.check, 0
        await self.data.restart(begin.position)
        await self.index.restart(self._first_unit)

    async def wipe(self) -> None:
        """Deletes all files, before `open`, because a durable snapshot marks them as void. Raises OSError."""
        await self.data.wipe()
        await self.index.wipe()

    def close(self) -> None:
        self.data.close()
        self.index.close()


async def read_entries(log: EntryLog, first: int, entries_max: int, bytes_max: int) -> list[Entry]:
    """Entries on the disk from `first` on, in order, at most `entries_max`, with bodies of at most `bytes_max` together, but at
    least one entry. The result ends at the end of a data file or before the first corrupt entry. It is empty only if the log
    was cut meanwhile, or its beginning moved; the caller asks again.

    Raises: EntryUnreadable if entry `first` is not as it was written; OSError."""
    cuts, begin = log.cuts, log.begin
    last = min(first + entries_max - 1, log.end_index)
    assert begin.index < first <= last, f"the disk does not hold entry {first}"
    before = max(first - 1, begin.index + 1)
    units = units_of(await log.index.read(before * INDEX_UNIT.size, (last + 1) * INDEX_UNIT.size), before)
    check: int | None = begin.check
    if first > before and units:
        check = await check_at(log, units.pop(0).position)
    units = fitting(units, bytes_max, log.data.file_bytes)
    entries: list[Entry] = []
    if units and check is not None and units[-1].end <= log.data.end:
        number, start = divmod(units[0].position, log.data.file_bytes)
        size = units[-1].end - units[0].position
        file = log.data.file(number)
        if file is not None:
            entries = await file.examine(start, start + size, partial(decoded, units, check))
    if log.cuts != cuts:
        return []
    if not entries:
        raise log.unreadable(first)
    return entries


async def check_at(log: EntryLog, position: int) -> int | None:
    """The check value of the entry at `position`; None if its header is not on disk."""
    header = await log.data.read(position, position + ENTRY_HEADER_BYTES)
    return stored_check(memoryview(header)) if len(header) == ENTRY_HEADER_BYTES else None


def units_of(data: bytes, first: int) -> list[IndexUnit]:
    """The index units in `data` of the entries from `first` on, up to the first impossible unit."""
    units: list[IndexUnit] = []
    view = memoryview(data)
    for at in range(0, len(data), INDEX_UNIT.size):
        unit = read_index_unit(view[at:], first + len(units))
        if unit is None:
            break
        units.append(unit)
    return units


def fitting(units: Sequence[IndexUnit], bytes_max: int, file_bytes: int) -> list[IndexUnit]:
    """The first units whose entries follow each other in one file, with bodies of at most `bytes_max` together; a larger entry
    is returned alone."""
    taken: list[IndexUnit] = []
    size = 0
    for unit in units:
        size += unit.size - ENTRY_HEADER_BYTES
        if taken and size > bytes_max:
            break
        end = taken[-1].end if taken else unit.position
        if unit.position != end or unit.position % file_bytes + unit.size > file_bytes:
            break
        if taken and unit.position // file_bytes != taken[0].position // file_bytes:
            break
        taken.append(unit)
    return taken


def decoded(units: Sequence[IndexUnit], check: int, data: bytes) -> list[Entry]:
    """The entries of `units` in `data`, up to the first entry that is not as it was written."""
    entries: list[Entry] = []
    view = memoryview(data)
    start = units[0].position
    for unit in units:
        stored = decode_entry(view[unit.position - start :], unit.position, check)
        if stored is None or stored.size != unit.size:
            break
        if stored.entry.index != unit.index or stored.entry.term != unit.term:
            break
        entries.append(stored.entry)
        check = stored.check
    return entries


async def begin_up_to(log: EntryLog, index: int) -> Begin:
    """The latest possible beginning after entry `index` or an earlier entry; the present beginning if there is no later one.
    Raises OSError."""
    found = log.begin
    for position in range(log.data.begin + log.data.file_bytes, log.data.end, log.data.file_bytes):
        unit = await first_of_file(log, position)
        if unit is None or not log.begin.index < unit.index - 1 <= index:
            break
        try:
            found = await begin_before(log, unit)
        except LogDamaged as error:  # the files are deleted with a later beginning
            logger.warning("%s does not begin at %d for now: %s", log.where, position, error)
    return found


async def begin_with_file(log: EntryLog, position: int) -> Begin:
    """The beginning at `position`, where a data file starts with an entry of the log. Raises LogDamaged, OSError."""
    unit = await first_of_file(log, position)
    if unit is None or unit.index <= log.begin.index:
        name = log.data.name_of(position // log.data.file_bytes)
        raise LogDamaged(f"{log.data.where}/{name}", "no entry is at its beginning")
    return await begin_before(log, unit)


async def first_of_file(log: EntryLog, position: int) -> IndexUnit | None:
    """The index unit of the entry at `position`, made from the entry's header; None if no entry begins there."""
    unit = index_header(await log.data.read(position, position + ENTRY_HEADER_BYTES))
    return unit if unit is not None and unit.position == position else None


async def begin_before(log: EntryLog, unit: IndexUnit) -> Begin:
    """The beginning of a log whose first entry has `unit`. Raises LogDamaged, OSError."""
    before = unit.index - 1
    start = before * INDEX_UNIT.size
    last = read_index_unit(memoryview(await log.index.read(start, start + INDEX_UNIT.size)), before)
    header = b"" if last is None else await log.data.read(last.position, last.position + ENTRY_HEADER_BYTES)
    if last is None or index_header(header) != last:
        raise log.unreadable(before)
    check = stored_check(header)
    if decode_entry(log.data.rest_of_file(unit.position), unit.position, check) is None:
        raise log.unreadable(before)
    return Begin(before, last.term, unit.position, check)
