"""The log on disk: entries and index units in DLedger 0.3's formats.

Invariant: an entry that `sync` covered is found again after any crash, and one that `cut` removed is not.
Entries are chained: each check value starts from the one before, so what an earlier life of a position left
behind is never taken for the next entry. The index files are derived: rewritten from the data where they
disagree, and synced only at a clean stop."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from dledger.entry import (
    BLANK,
    BLANK_MAGIC,
    ENTRY_HEADER,
    ENTRY_HEADER_BYTES,
    INDEX_UNIT,
    MAGIC,
    NO_INDEX,
    Entry,
    decode_entry,
    encode_entry,
    encode_index_unit,
    stored_check,
)
from dledger.errors import LogDamaged
from dledger.filelist import FileList
from dledger.settings import DLedgerSettings
from mqruntime.segments import SegmentDirectory


class EntryLog:
    """Files below `directory`: data/ and index/. Use `open`, then `recover`, once, first."""

    def __init__(self, directory: SegmentDirectory, settings: DLedgerSettings, where: str) -> None:
        self.where = where
        self.data = FileList(directory.subdirectory("data"), settings.data_file_bytes, f"{where}/data")
        self.index = FileList(directory.subdirectory("index"), settings.index_file_bytes, f"{where}/index")
        self.positions = array("q")
        """Where each entry stands, by its index."""
        self.end = 0
        self.check = 0
        """The last entry's check value."""
        self.batch_count = 0
        """Entries written since the last sync."""

    @property
    def end_index(self) -> int:
        return len(self.positions) - 1

    @property
    def unsynced_from(self) -> int:
        """The first index that no sync has covered."""
        return len(self.positions) - self.batch_count

    async def open(self) -> None:
        """Raises LogDamaged, OSError."""
        self.data.open()
        await self.index.open_derived()

    def recover(self) -> list[Entry]:
        """The entries that the data files hold, whole and in order; what stands behind the last of them a
        crash may have torn."""
        entries: list[Entry] = []
        while True:
            position = self.skip_blank(self.end)
            stored = decode_entry(self.data.rest_of_file(position), position, self.check)
            if stored is None or not follows(stored.entry, entries):
                break
            entries.append(stored.entry)
            self.positions.append(position)
            self.write_index_unit(stored.entry)
            self.end = position + stored.size
            self.check = stored.check
            self.batch_count = stored.batch_position + 1
        return entries

    def rewrite_last_batch(self) -> None:
        """What recovery read may stand in the page cache alone: a killed process had not synced it, or a
        sync failed and the kernel forgot which pages it dropped. Only the last batch can be meant; written
        again, the next `sync` covers it."""
        first = max(0, len(self.positions) - self.batch_count)
        for position in self.positions[first:]:
            stored_size = ENTRY_HEADER.unpack_from(self.data.rest_of_file(position))[1]
            self.data.write(position, bytes(self.data.rest_of_file(position)[:stored_size]))

    def refuse_later_entries(self) -> None:
        """A crash tears only entries of the last sync. So an intact entry of a later one proves that what
        is missing was durable once: the disk lost it, and going on without it could lose what was decided.
        Raises LogDamaged."""
        missing = self.end_index + 1
        index, before = missing + 1, self.unit_position(missing)
        while before is not None and (position := self.unit_position(index)) is not None:
            check = stored_check(self.data.rest_of_file(before))
            stored = decode_entry(self.data.rest_of_file(position), position, check)
            if stored is not None and stored.entry.index == index and index - stored.batch_position > missing:
                raise LogDamaged(
                    self.where, f"entry {missing} is unreadable, but entry {index}, written later, is intact"
                )
            index, before = index + 1, position

    def skip_blank(self, position: int) -> int:
        """The next file's start when a blank closes this one at `position`."""
        rest = self.data.rest_of_file(position)
        closed = len(rest) < BLANK.size or BLANK.unpack_from(rest) == (BLANK_MAGIC, len(rest))
        return position + len(rest) if closed else position

    async def append(self, entries: Sequence[Entry]) -> None:
        """Durable at the next `sync`. Raises OSError when the disk fails or is full."""
        for entry in entries:
            assert entry.index == self.end_index + 1, f"entry {entry.index} cannot follow {self.end_index}"
            await self.close_file_before(ENTRY_HEADER_BYTES + len(entry.body))
            data, self.check = encode_entry(entry, self.end, self.batch_count, self.check)
            self.data.write(self.end, data)
            self.positions.append(self.end)
            self.write_index_unit(entry)
            self.end += len(data)
            self.batch_count += 1

    async def close_file_before(self, size: int) -> None:
        """Goes on in a new file when `size` bytes do not fit. A file is durable before the next one exists,
        so one that is missing in the middle was lost by the disk."""
        remaining = self.data.file_bytes - self.end % self.data.file_bytes
        if size + BLANK.size > remaining:
            self.data.write(self.end, BLANK.pack(BLANK_MAGIC, remaining))
            await self.sync()
            self.end += remaining

    async def sync(self) -> None:
        """What was appended is durable on return. Raises OSError."""
        await self.data.sync()
        self.batch_count = 0

    async def cut(self, count: int) -> None:
        """Keeps `count` entries, and erases all that is known to stand behind them; durable at the next
        `sync`."""
        end = self.end
        if count < len(self.positions):
            self.end = self.positions[count]
            self.check = stored_check(self.data.rest_of_file(self.positions[count - 1])) if count else 0
            self.batch_count = max(0, self.batch_count - (len(self.positions) - count))
        await self.data.erase(self.end, end + ENTRY_HEADER_BYTES)
        units_end = (len(self.positions) + 1) * INDEX_UNIT.size
        await self.index.erase(count * INDEX_UNIT.size, units_end)
        del self.positions[count:]

    def write_index_unit(self, entry: Entry) -> None:
        unit = encode_index_unit(entry, self.positions[entry.index])
        at = entry.index * INDEX_UNIT.size
        if self.index.rest_of_file(at)[: len(unit)] != unit:
            self.index.write(at, unit)

    def unit_position(self, index: int) -> int | None:
        """Where the index file says that entry `index` stands."""
        rest = self.index.rest_of_file(index * INDEX_UNIT.size)
        if len(rest) < INDEX_UNIT.size:
            return None
        magic, position, _, stored_index, _ = INDEX_UNIT.unpack_from(rest)
        return (
            position if magic == MAGIC and stored_index == index and 0 <= position < self.data.end else None
        )

    async def sync_index(self) -> None:
        """The index files are durable too. Raises OSError."""
        await self.index.sync()

    def close(self) -> None:
        self.data.close()
        self.index.close()


def follows(entry: Entry, entries: Sequence[Entry]) -> bool:
    last = entries[-1] if entries else Entry(NO_INDEX, 0, b"")
    return entry.index == last.index + 1 and entry.term >= last.term
