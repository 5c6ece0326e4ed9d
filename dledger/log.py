"""The log on disk: entries and index units in DLedger 0.3's formats.

Invariant: an entry that `sync` covered is found again after any crash, and one that `cut` removed is not.
Entries are chained: each check value starts from the one before, so what an earlier life of a position left
behind is never taken for the next entry. The index files are derived: made anew from the data where no `sync_index` covered
them. Nothing here grows with the log but the files."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dledger.entry import (
    BLANK,
    BLANK_MAGIC,
    ENTRY_HEADER,
    ENTRY_HEADER_BYTES,
    INDEX_UNIT,
    Entry,
    IndexUnit,
    encode_index_unit,
    header_of,
    index_unit_of,
    read_index_unit,
    stored_check,
)
from dledger.errors import EntryMisplaced, LogDamaged
from dledger.filelist import FileList
from dledger.membership import is_members
from dledger.settings import DLedgerSettings
from dledger.snapshot import WHOLE, Begin
from mqruntime.segments import SegmentDirectory

StandsAt = Callable[[bytes], int | None]
"""Where the body of an entry says that the entry stands; None for one that says nothing."""


def nowhere(body: bytes) -> int | None:
    return None


class EntryLog:
    """Files below `directory`: data/ and index/. Use `open`, then dledger.recovery, once, first."""

    def __init__(
        self,
        directory: SegmentDirectory,
        settings: DLedgerSettings,
        where: str,
        begin: Begin = WHOLE,
        stands_at: StandsAt = nowhere,
    ) -> None:
        self.where = where
        self.stands_at = stands_at
        self.begin = begin
        """Of what stands before it the files hold nothing that is looked at."""
        self.data = FileList(directory.subdirectory("data"), settings.data_file_bytes, f"{where}/data")
        self.index = FileList(directory.subdirectory("index"), settings.index_file_bytes, f"{where}/index")
        self.end_index = begin.index
        self.end = begin.position
        self.check = begin.check
        """The last entry's check value."""
        self.batch_count = 0
        """Entries written since the last sync."""
        self.cuts = 0
        """How often something was taken away: a read that this overtook may have seen anything."""

    @property
    def unsynced_from(self) -> int:
        """The first index that no sync has covered."""
        return self.end_index + 1 - self.batch_count

    async def open(self) -> None:
        """Raises LogDamaged, OSError."""
        await self.data.open(self.begin.position)
        await self.index.open_derived(self._first_unit, INDEX_UNIT.size)

    @property
    def _first_unit(self) -> int:
        """Where the index unit of the first entry stands."""
        return (self.begin.index + 1) * INDEX_UNIT.size

    def skip_blank(self, position: int) -> int:
        """The next file's start when a blank closes this one at `position`."""
        rest = self.data.rest_of_file(position)
        closed = len(rest) < BLANK.size or BLANK.unpack_from(rest) == (BLANK_MAGIC, len(rest))
        return position + len(rest) if closed else position

    # Where an entry stands

    def unit(self, index: int) -> IndexUnit | None:
        """What the index file says of entry `index`; None when nothing that can be."""
        unit = read_index_unit(self.index.rest_of_file(index * INDEX_UNIT.size), index)
        there = (
            unit is not None
            and self.begin.index < index
            and self.begin.position <= unit.position < self.data.end
        )
        return unit if there else None

    def stored_unit(self, index: int) -> IndexUnit:
        """The same of an entry of this log, once it has been compared with the entry's own header. Raises LogDamaged."""
        unit = self.unit(index)
        if unit is None or unit != index_unit_of(self.data.rest_of_file(unit.position)):
            raise self.unreadable(index)
        return unit

    def end_of(self, index: int) -> int:
        """Where entry `index` ends, which may be the one that the log begins after. Raises LogDamaged."""
        return self.begin.position if index == self.begin.index else self.stored_unit(index).end

    def check_of(self, index: int) -> int:
        """The check value from which that of the entry behind `index` starts. Raises LogDamaged."""
        if index == self.begin.index:
            return self.begin.check
        return stored_check(self.data.rest_of_file(self.stored_unit(index).position))

    def unreadable(self, index: int) -> LogDamaged:
        return LogDamaged(
            self.where,
            f"entry {index}, which was durable, or its index unit cannot be read; stop this member and remove its folder "
            "index, which it makes anew: if it still ends like this, its data is damaged",
        )

    # Writing

    async def append(self, entries: Sequence[Entry]) -> None:
        """Durable at the next `sync`. Raises EntryMisplaced; OSError when the disk fails or is full: then the log ends behind
        what of them is whole, and the rest can be appended once there is room."""
        at = 0
        while at < len(entries):
            await self.close_file_before(ENTRY_HEADER_BYTES + len(entries[at].body))
            at += self.append_to_file(entries[at:] if at else entries)

    def append_to_file(self, entries: Sequence[Entry]) -> int:
        """Appends those that fit into the file, the first of which does; how many. None is written if one is misplaced, or the
        disk has no room for all of them and for their index units."""
        ends: list[int] = []
        end = self.end
        for index, entry in enumerate(entries, self.end_index + 1):
            assert entry.index == index, f"entry {entry.index} cannot follow {index - 1}"
            size = ENTRY_HEADER_BYTES + len(entry.body)
            if self.start_of(size, end) != end:
                break
            self.check_place(entry, end)
            end += size
            ends.append(end)
        first_unit = (self.end_index + 1) * INDEX_UNIT.size
        self.index.make_room(first_unit, first_unit + len(ends) * INDEX_UNIT.size)
        room = self.data.room(self.end, end - self.end)
        begin, start, check, before = self.end, self.end, self.check, self.batch_count
        units = bytearray()
        for number, (entry, end) in enumerate(zip(entries, ends, strict=False)):
            header, check = header_of(entry, start, before + number, check)
            body_at = start - begin + ENTRY_HEADER_BYTES
            room[body_at : end - begin] = entry.body
            room[body_at - ENTRY_HEADER_BYTES : body_at] = header
            units += encode_index_unit(entry, start)
            start = end
        self.write_units(self.end_index + 1, units)
        self.end_index, self.end, self.check = self.end_index + len(ends), end, check
        self.batch_count = before + len(ends)
        return len(ends)

    def write_units(self, index: int, units: bytearray) -> None:
        """Those of the entries from `index` on."""
        start, view = index * INDEX_UNIT.size, memoryview(units)
        for position, size in self.index.parts(start, start + len(units)):
            self.index.write(position, view[position - start : position - start + size])

    def check_place(self, entry: Entry, position: int) -> None:
        """Where others know the next entry to stand is the place that it gets here. Raises EntryMisplaced."""
        told = self.stands_at(entry.body) if entry.body else None
        if told is not None and told != position and not is_members(entry.body):
            raise EntryMisplaced(entry.index, told, position)

    async def close_file_before(self, size: int) -> None:
        """Goes on in a new file when `size` bytes do not fit. A file is durable before the next one exists,
        so one that is missing in the middle was lost by the disk."""
        start = self.start_of(size, self.end)
        if start != self.end:
            self.data.write(self.end, BLANK.pack(BLANK_MAGIC, start - self.end))
            await self.sync()
            self.end = start

    def start_of(self, size: int, end: int) -> int:
        """Where an entry of `size` bytes, its header among them, goes in a log that ends at `end`: with a blank behind it it
        must fit into its file."""
        remaining = self.data.file_bytes - end % self.data.file_bytes
        return end + remaining if size + BLANK.size > remaining else end

    def rewrite_index_units(self, index: int, units: bytes) -> None:
        """Those of the entries from `index` on, which lie in one file: the page cache may show more of it than the disk has."""
        self.index.rewrite(index * INDEX_UNIT.size, units)

    async def sync(self) -> None:
        """What was appended is durable on return. Raises OSError."""
        await self.data.sync()
        self.batch_count = 0

    async def sync_index(self) -> None:
        """The index units of what was appended are durable too. Raises OSError."""
        await self.index.sync()

    def rewrite_last_batch(self) -> None:
        """What recovery read may stand in the page cache alone: a killed process had not synced it, or a
        sync failed and the kernel forgot which pages it dropped. Only the last batch can be meant; written
        again, the next `sync` covers it. Raises LogDamaged."""
        for index in range(max(self.begin.index + 1, self.unsynced_from), self.end_index + 1):
            position = self.stored_unit(index).position
            stored_size = ENTRY_HEADER.unpack_from(self.data.rest_of_file(position))[1]
            self.data.rewrite(position, bytes(self.data.rest_of_file(position)[:stored_size]))

    async def cut(self, count: int) -> None:
        """Keeps the entries before `count`, and erases all that is known to stand behind them, a blank too: what comes goes
        where it would go if that had never been there. Durable at the next `sync`. Raises LogDamaged, OSError."""
        self.cuts += 1
        end, units_end = self.end, (self.end_index + 2) * INDEX_UNIT.size
        if count <= self.end_index:
            self.end = self.end_of(count - 1)
            self.check = self.check_of(count - 1)
            self.batch_count = max(0, self.batch_count - (self.end_index + 1 - count))
            self.end_index = count - 1
        await self.data.erase(self.end, end + ENTRY_HEADER_BYTES)
        await self.index.erase(count * INDEX_UNIT.size, units_end)

    def erase_again(self) -> None:
        """A process that was killed inside a cut may have left its zeros in the page cache alone. Of what was cut the first
        header suffices: nothing follows it without that. Covered by the next `sync`."""
        room = min(ENTRY_HEADER_BYTES, len(self.data.rest_of_file(self.end)))
        if room:
            self.data.rewrite(self.end, bytes(room))

    # What a snapshot stands for

    async def close_file(self) -> None:
        """Goes on in a new file, so that the one before can go when it is needed no more. Raises OSError."""
        if self.end % self.data.file_bytes:
            await self.close_file_before(self.data.file_bytes)

    def begin_after(self, begin: Begin) -> None:
        """What stands before is not looked at any more: a durable snapshot stands for it."""
        self.cuts += 1
        self.begin = begin

    async def delete_before(self) -> None:
        """Deletes the files of that. Raises OSError."""
        await self.data.begin_at(self.begin.position)
        await self.index.begin_at(self._first_unit)

    async def restart(self, begin: Begin) -> None:
        """Deletes everything: a durable snapshot stands for it, and says so of what is left of files at or above
        `begin`. Raises OSError."""
        self.cuts += 1
        self.begin = begin
        self.end_index, self.end, self.check, self.batch_count = begin.index, begin.position, begin.check, 0
        await self.data.restart(begin.position)
        await self.index.restart(self._first_unit)

    async def wipe(self) -> None:
        """Before `open`: a durable snapshot says that the files are void. Raises OSError."""
        await self.data.wipe()
        await self.index.wipe()

    def close(self) -> None:
        self.data.close()
        self.index.close()
