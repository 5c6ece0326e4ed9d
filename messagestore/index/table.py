"""All index files of a store, which find records by key or tag. Upstream: IndexService.

Invariant: files follow each other in log order. A record below `phy_end` is indexed, or lies in a gap: a range that no file
lists, between two files or after the last file. No gap follows the file that takes new records. A record is indexed completely
or not at all, whatever fails on the way. Everything can be rebuilt from the commit log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from messagestore.index.file import (
    DOUBT,
    FIRST_ENTRY,
    HEADER,
    SLOT,
    IndexFile,
    file_size_for,
    key_hash,
    longer_hash,
    topic_prefix_hash,
)
from messagestore.index.soundness import ends_fault, header_fault
from messagestore.record import TRANSACTION_MASK, TRANSACTION_ROLLBACK, QueueFacts
from mqruntime.log import fields
from mqruntime.segments import SegmentDirectory, SegmentFile

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FOLDER = "index"
BEGINNINGS_REMEMBERED_MAX = TAGS_REMEMBERED_MAX = 10_000
TAG_LED = b"T#"
"""Precedes a tag in the text that is hashed after `topic#`. Upstream, since 5.4: IndexService.buildIndex."""
SHARED_BYTES = 20  # a unique key's prefix: the producer's address, process and class loader
NAME_FORMAT = "%Y%m%d%H%M%S"
NAMES_IN_FRONT = 1_000_000
"""Numbers reserved for names of files before the oldest file. A name is a number of 17 digits."""

logger = logging.getLogger(__name__)


class Gap(NamedTuple):
    """No file lists the records between the last record of `before` (None: the log's beginning) and the first record of
    `behind` (None: new records)."""

    before: IndexFile | None
    behind: IndexFile | None


class Doubt(NamedTuple):
    """A chain of `file` is broken, or an entry of `file` leads to `phy`, where the log has no record."""

    file: IndexFile
    phy: int | None


class TagsSince(NamedTuple):
    """Records from `phy` on have an entry for their tag. Older records, none of them stored after `store_ms`, were or may have
    been indexed by a version that writes no tags."""

    phy: int
    store_ms: int


ALL_TAGS = TagsSince(0, 0)


class IndexTable:
    """`now_ms` gives the time for names of new files; `slots` and `entries` are the geometry of all files."""

    def __init__(
        self, directory: SegmentDirectory, slots: int, entries: int, now_ms: Callable[[], int]
    ) -> None:
        self.phy_end = 0  # position of the last indexed record, plus 1
        self._directory = directory
        self._slots = slots
        self._entries = entries
        self._now_ms = now_ms
        self._files: list[IndexFile] = []
        self._sealed = False  # whether new records go into a new file
        self._gapless = True  # but for the part behind a sealed last file
        self.changes = 0
        """Counts deletions and cuts of files."""
        self._doubts: dict[IndexFile, Doubt] = {}
        self.doubted = asyncio.Event()
        self._unsynced: dict[IndexFile, None] = {}
        self._prefixes: dict[tuple[bytes, bytes], int] = {}
        self._tag_hashes: dict[tuple[bytes, bytes], int] = {}
        self.tags_since = ALL_TAGS
        self.asks_files = False
        """Whether it is still unknown if older records have tags; then files of other versions are sampled."""
        self._disk = asyncio.Lock()  # a sync and a truncation exclude each other

    async def load(self, phy_limit: int, *, trusted: bool) -> None:
        """Open the files and keep their entries of records below `phy_limit`. Damaged files and files of another geometry are
        deleted, and the caller must index their records again. After a clean stop the files are `trusted`."""
        fitting = self.fits
        if not fitting:
            logger.warning("index files have another geometry than the settings: they are rebuilt")
        for name, size_bytes in self._directory.names():
            if self._has_our_size(name, size_bytes):
                await self._open(name)
                continue
            if fitting:
                log_damage(name, f"it has {size_bytes} bytes")
            await self._directory.delete(name)
        self._files.sort(key=lambda file: file.begin_phy)
        if not trusted and (torn := self._last_below(phy_limit)) is not None:
            torn.mend(phy_limit)
        while self._files:
            newest = self._files[-1]
            if not newest.empty and newest.begin_phy < phy_limit:
                why = await self._ends_fault(newest)
                if why is None:
                    break
                log_damage(newest.file.name, why)
            await self._drop(self._files.pop())
        self._unsynced = dict.fromkeys(self._files)
        await self.truncate(phy_limit)
        self.resume()
        self._gapless = False

    async def _open(self, name: str) -> None:
        opened = self._directory.open(name)
        header = await opened.read_cold(0, HEADER.size)
        file = IndexFile(opened, self._slots, self._entries, header)
        why = header_fault(header, self._entries)
        if why is None and not file.empty:
            self._files.append(file)
            return
        if why is not None and any(header):
            log_damage(name, why)
        await self._drop(file)

    async def _ends_fault(self, file: IndexFile) -> str | None:
        header, last = file.header(), file.index_count - 1
        first = await file.read_entries(FIRST_ENTRY, FIRST_ENTRY + 1)
        return ends_fault(header, first, await file.read_entries(last, last + 1))

    @property
    def fits(self) -> bool:
        """Whether there are no files on disk, or some files have this geometry. A file of 0 bytes has no geometry."""
        found = [(name, size_bytes) for name, size_bytes in self._directory.names() if size_bytes]
        return not found or any(self._has_our_size(*each) for each in found)

    def _has_our_size(self, name: str, size_bytes: int) -> bool:
        return name.isdigit() and size_bytes == file_size_for(self._slots, self._entries)

    @property
    def exists(self) -> bool:
        return bool(self._files)

    @property
    def files(self) -> list[IndexFile]:
        """The files that have entries, oldest first."""
        return [file for file in self._files if not file.empty]

    def holds(self, file: IndexFile) -> bool:
        return file in self._files

    def named(self, name: str) -> IndexFile | None:
        return next((file for file in self.files if file.file.name == name), None)

    def resume(self) -> None:
        """Note that all records up to the last listed record are listed. New records go into the newest file."""
        self._sealed = False
        self.phy_end = self._files[-1].end_phy + 1 if self._files else 0

    def seal(self, phy_end: int) -> None:
        """Put records from the boundary `phy_end` on into a new file. Unlisted records before `phy_end` are a gap."""
        self._sealed, self.phy_end = True, phy_end

    def filled(self) -> None:
        """Note that no record before `phy_end` is missing. New records go into the newest file."""
        self._sealed, self._gapless = False, True

    def gaps(self) -> list[Gap]:
        """Ranges that no file lists, oldest first. Most ranges hold no record with keys, but only the log shows that."""
        found: list[Gap] = []
        before: IndexFile | None = None
        for file in self.files:
            if before is None or file.begin_phy > before.end_phy:
                found.append(Gap(before, file))
            if before is None or file.end_phy > before.end_phy:
                before = file
        if self._sealed and (before is None or before.end_phy < self.phy_end):
            found.append(Gap(before, None))
        return found

    def listed_in_part(self, gap: Gap) -> dict[int, set[int]]:
        """Hashes that files list for the records around a gap, by position. If a file is full, upstream puts a record's last
        entries into the next file, and either file may be lost."""
        listed: dict[int, set[int]] = {}
        files = self.files
        if gap.before is not None and not gap.before.places_left:
            phy = gap.before.end_phy
            listed[phy] = set[int]().union(*(file.hashes_of_last() for file in files if file.end_phy == phy))
        if gap.behind is not None:
            phy = gap.behind.begin_phy
            lists = (file.hashes_of_first() for file in files if file.begin_phy == phy)
            listed[phy] = listed.get(phy, set()).union(*lists)
        return listed

    def put(self, phy: int, facts: QueueFacts, tag: bytes, unique: bytes, keys: bytes) -> None:
        """Index the record at `phy` with its values of TAGS, UNIQ_KEY and KEYS, unless it is indexed. Raises OSError (ENOSPC);
        the caller tries again."""
        if phy < self.phy_end or facts.sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK:
            return
        hashes = self.hashes_of(facts.topic, tag, unique, keys)
        if not hashes:
            return
        file = self.newest
        if file is None or file.index_count + len(hashes) > file.ready_end:
            if file is None or not file.room_for(len(hashes)):
                file = self._new_file()
            file.reserve(len(hashes))
        file.put(hashes, phy, facts.store_timestamp)
        self.phy_end = phy + 1
        self._written(file)

    def hashes_of(self, topic: bytes, tag: bytes, unique: bytes, keys: bytes) -> list[int]:
        """Hashes of the unique key, of each word of the keys and of the tag, in upstream's order; at most as many as one file
        can hold."""
        hashes = [self._hash_of(topic, unique)] if unique else []
        if keys:
            hashes += [self._hash_of(topic, key) for key in keys.split(b" ") if key]
        if tag:
            hashes.append(self.tag_hash_of(topic, tag))
        return hashes if len(hashes) < self._entries else hashes[: self._entries - 1]

    def tag_hash_of(self, topic: bytes, tag: bytes) -> int:
        """The hash of a whole value of TAGS. Few tags are in use, so hashes are cached."""
        value = self._tag_hashes.get((topic, tag))
        if value is None:
            if len(self._tag_hashes) >= TAGS_REMEMBERED_MAX:
                self._tag_hashes.clear()
            value = self._tag_hashes[topic, tag] = self._hash_of(topic, TAG_LED + tag)
        return value

    @property
    def places_left(self) -> int:
        """The number of keys for which the newest file has room."""
        newest = self.newest
        return 0 if newest is None else newest.places_left

    @property
    def newest(self) -> IndexFile | None:
        """The file that takes new records; None if the next record begins a new file."""
        return None if self._sealed or not self._files else self._files[-1]

    def newest_grew(self, index_count: int, used_slots: int, phy: int, store_timestamp: int) -> None:
        """Call IndexFile.grew of the newest file."""
        file = self._files[-1]
        file.grew(index_count, used_slots, phy, store_timestamp)
        self.phy_end = phy + 1
        self._written(file)

    def put_many(
        self, hashes: NDArray[np.int64], phys: NDArray[np.int64], store_timestamps: NDArray[np.int64]
    ) -> None:
        """Put entries of one or more records that are not indexed yet, one row for each hash. The newest file must have room.
        Raises OSError (ENOSPC), with nothing done."""
        file = self._files[-1]
        file.reserve(len(hashes))
        file.put_many(hashes, phys, store_timestamps)
        self.phy_end = file.end_phy + 1
        self._written(file)

    def put_into_gap(
        self, before: IndexFile | None, hashes: list[int], phy: int, store_timestamp: int
    ) -> IndexFile:
        """Put entries of a record in a gap into the file `before`, or into a new file after it, and return the file. In the log
        the record follows all records of `before`. Raises OSError (ENOSPC); the caller tries again."""
        file = before
        if file is None or not file.room_for(len(hashes)):
            file = self._file_behind(before)
        file.reserve(len(hashes))
        file.put(hashes, phy, store_timestamp)
        self._written(file)
        return file

    def find(
        self, topic: str, key: str, begin_ms: int, end_ms: int, *, by_tag: bool = False
    ) -> Iterator[int]:
        """Positions of records that may have `key` (a tag if `by_tag`), newest first, and PAUSE from time to time."""
        led = TAG_LED if by_tag else b""
        value = self._hash_of(topic.encode(), led + key.encode())
        for file in self._files[::-1]:
            for phy in file.find(value, begin_ms, end_ms):
                if phy == DOUBT:
                    self._doubt(Doubt(file, None))
                else:
                    yield phy

    def leads_nowhere(self, phy: int) -> None:
        """Note that an entry leads to `phy`, where the log has no record."""
        for file in self.files:
            if file.begin_phy <= phy <= file.end_phy:
                self._doubt(Doubt(file, phy))

    def _doubt(self, doubt: Doubt) -> None:
        if doubt.file not in self._doubts:
            logger.warning(
                "a chain of an index file is broken, the file is checked",
                extra=fields(file=doubt.file.file.name, leads_to=doubt.phy),
            )
        self._doubts[doubt.file] = doubt
        self.doubted.set()

    def take_doubt(self) -> Doubt | None:
        self.doubted.clear()
        while self._doubts:
            doubt = self._doubts.pop(next(iter(self._doubts)))
            if doubt.file in self._files:
                return doubt
        return None

    def last(self) -> tuple[int, int]:
        """(store time in ms, position) of the last indexed record; zeros when there is none."""
        return (self._files[-1].end_timestamp, self._files[-1].end_phy) if self._files else (0, 0)

    async def truncate(self, phy: int) -> None:
        """Forget the records from `phy` on."""
        async with self._disk:
            self.changes += 1
            if phy < self.tags_since.phy:  # records written there are indexed with their tags
                self.tags_since = self.tags_since._replace(phy=phy)
            count = len(self._files)
            while self._files and (self._files[-1].empty or self._files[-1].begin_phy >= phy):
                await self._drop(self._files.pop())
            if self._files:
                self._files[-1].cut(phy)
                self._written(self._files[-1])
                if self._files[-1].empty:
                    await self._drop(self._files.pop())
            if self._sealed or (len(self._files) < count and not self._gapless):
                self.seal(min(self.phy_end, phy))
            else:
                self.resume()

    async def drop(self, file: IndexFile, dispatched: Callable[[], int]) -> None:
        """Delete a damaged file. The records that it listed become a gap. Records from `dispatched()` on count as new. Raises
        OSError."""
        async with self._disk:
            if file in self._files:
                self.changes += 1
                self._gapless = False
                if file is self.newest:
                    self.seal(dispatched())
                self._files.remove(file)
                await self._drop(file)

    async def delete_below(self, phy: int) -> list[SegmentFile]:
        """Delete the files whose records are all below `phy`, oldest first. The caller releases them. The last file stays,
        because a store without any file indexes all of its log again. Raises OSError."""
        deleted: list[SegmentFile] = []
        async with self._disk:
            while len(self._files) > 1 and (self._files[0].empty or self._files[0].end_phy < phy):
                with suppress(FileNotFoundError):  # already deleted by somebody else
                    await self._directory.delete(self._files[0].file.name)
                self.changes += 1
                former = self._files.pop(0)
                self._unsynced.pop(former, None)
                deleted.append(former.file)
        return deleted

    async def sync(self) -> None:
        """Sync the entries put before the call. Raises OSError when the disk fails."""
        async with self._disk:
            files, self._unsynced = self._unsynced, {}
            try:
                for file in files:
                    await file.sync()
            except OSError:
                self._unsynced = files | self._unsynced
                raise

    def close(self) -> None:
        for file in self._files:
            file.file.close()
        self._files.clear()
        self._unsynced.clear()
        self._doubts.clear()

    def _last_below(self, phy: int) -> IndexFile | None:
        """The file that holds the last records below `phy`; None if no file does."""
        return next((file for file in reversed(self._files) if not file.empty and file.begin_phy < phy), None)

    def _written(self, file: IndexFile) -> None:
        self._unsynced[file] = None

    async def _drop(self, file: IndexFile) -> None:
        self._unsynced.pop(file, None)
        with suppress(FileNotFoundError):  # already deleted by somebody else
            await self._directory.delete(file.file.name)
        file.file.close()

    def _new_file(self) -> IndexFile:
        """Create a file named after its creation time, as upstream does. It sorts after all other files even if the clock goes
        back."""
        name = _name(datetime.fromtimestamp(self._now_ms() / 1000, UTC))
        newest = max((file.file.name for file in self._files), default="")
        if name <= newest:
            name = str(int(newest) + 1).zfill(len(newest))
        file = self._created(name)
        self._files.append(file)
        self._sealed = False
        file.file.reserve(HEADER.size + SLOT.size * self._slots)
        return file

    def _created(self, name: str) -> IndexFile:
        made = self._directory.create(name, file_size_for(self._slots, self._entries), reserve=0)
        return IndexFile(made, self._slots, self._entries, bytes(HEADER.size))

    def _file_behind(self, before: IndexFile | None) -> IndexFile:
        """An empty file for a gap, named between its neighbours. If a full disk left such a file empty, that file is used
        again."""
        place = 0 if before is None else self._files.index(before) + 1
        behind = self._files[place] if place < len(self._files) else None
        if behind is not None and behind.empty and behind is not self.newest:
            return behind
        if before is not None:
            number, length = int(before.file.name) + 1, len(before.file.name)
        elif behind is not None:
            number, length = max(int(behind.file.name) - NAMES_IN_FRONT, 0), len(behind.file.name)
        else:
            name = _name(datetime.fromtimestamp(self._now_ms() / 1000, UTC))
            number, length = int(name) - NAMES_IN_FRONT, len(name)
        taken = {file.file.name for file in self._files}
        while (name := str(number).zfill(length)) in taken:
            number += 1
        file = self._created(name)
        self._files.insert(place, file)
        return file

    def _hash_of(self, topic: bytes, key: bytes) -> int:
        """The hash of `topic#key`. Unique keys of one producer share a prefix, whose hash is cached."""
        split = SHARED_BYTES if len(key) > SHARED_BYTES and key.isascii() else 0
        beginning = (topic, key[:split])
        prefix = self._prefixes.get(beginning)
        if prefix is None:
            if len(self._prefixes) >= BEGINNINGS_REMEMBERED_MAX:
                self._prefixes.clear()
            prefix = self._prefixes[beginning] = longer_hash(topic_prefix_hash(topic), key[:split])
        return key_hash(prefix, key[split:])


def log_damage(name: str, why: str) -> None:
    logger.warning(
        "index file is damaged and deleted, its records are indexed again from the log",
        extra=fields(file=name, why=why),
    )


def _name(moment: datetime) -> str:
    return f"{moment.strftime(NAME_FORMAT)}{moment.microsecond // 1000:03d}"
