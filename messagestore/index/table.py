"""All index files of a store: which records have a key, newest first.

Invariant: files follow each other in log order, and all but the last are full. What lies below `phy_end` is indexed; a
record is indexed as a whole, whatever went wrong on the way. Everything can be rebuilt from the commit log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from messagestore.index.file import (
    HEADER,
    SLOT,
    IndexFile,
    file_size_for,
    key_hash,
    longer_hash,
    topic_prefix_hash,
)
from messagestore.record import TRANSACTION_MASK, TRANSACTION_ROLLBACK, QueueFacts
from mqruntime.segments import SegmentDirectory, SegmentFile

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FOLDER = "index"
BEGINNINGS_REMEMBERED_MAX = 10_000
SHARED_BYTES = (
    20  # of a unique key: address, process and class loader of its producer; time and number follow
)
NAME_FORMAT = "%Y%m%d%H%M%S"

logger = logging.getLogger(__name__)


class IndexTable:
    """`now_ms` names new files; `slots` and `entries` are the geometry of all of them."""

    def __init__(
        self, directory: SegmentDirectory, slots: int, entries: int, now_ms: Callable[[], int]
    ) -> None:
        self.phy_end = 0  # position of the last indexed record, plus 1
        self._directory = directory
        self._slots = slots
        self._entries = entries
        self._now_ms = now_ms
        self._files: list[IndexFile] = []
        self._unsynced: list[IndexFile] = []
        self._prefixes: dict[tuple[bytes, bytes], int] = {}
        self._disk = asyncio.Lock()  # a sync and a truncation exclude each other

    async def load(self, phy_limit: int, *, trusted: bool) -> None:
        """Opens the files and keeps what they say of records below `phy_limit`. Files that do not fit go: they are rebuilt.
        Files of a clean stop are `trusted`."""
        fitting = self.fits
        if not fitting:
            logger.warning("index files have another geometry than the settings: they are built anew")
        for name, _ in self._found():
            if not fitting:
                await self._directory.delete(name)
                continue
            file = self._directory.open(name)
            header = await file.read_cold(0, HEADER.size)
            self._files.append(IndexFile(file, self._slots, self._entries, header))
        if not trusted and (torn := self._last_below(phy_limit)) is not None:
            torn.mend(phy_limit)
        self._unsynced = list(self._files)
        await self.truncate(phy_limit)

    @property
    def fits(self) -> bool:
        """Whether all files on disk have this geometry."""
        size = file_size_for(self._slots, self._entries)
        return all(name.isdigit() and bytes_ == size for name, bytes_ in self._found())

    @property
    def exists(self) -> bool:
        return bool(self._files)

    def _found(self) -> list[tuple[str, int]]:
        return [(name, bytes_) for name, bytes_ in self._directory.names() if bytes_]

    def put(self, phy: int, facts: QueueFacts, unique: bytes, keys: bytes) -> None:
        """Index the record at `phy`, with these values of UNIQ_KEY and KEYS, unless it is; OSError (ENOSPC) leaves it to be
        done again."""
        if phy < self.phy_end or facts.sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK:
            return
        hashes = self.hashes_of(facts.topic, unique, keys)
        if not hashes:
            return
        file = self._files[-1] if self._files else None
        if file is None or file.index_count + len(hashes) > file.ready_end:
            if file is None or not file.room_for(len(hashes)):
                file = self._new_file()
            file.reserve(len(hashes))
        file.put(hashes, phy, facts.store_timestamp)
        self.phy_end = phy + 1
        self._written(file)

    def hashes_of(self, topic: bytes, unique: bytes, keys: bytes) -> list[int]:
        """Of the unique key and of each word of the keys, as many as one file can hold."""
        hashes = [self._hash_of(topic, unique)] if unique else []
        if keys:
            hashes += [self._hash_of(topic, key) for key in keys.split(b" ") if key]
        return hashes if len(hashes) < self._entries else hashes[: self._entries - 1]

    @property
    def places_left(self) -> int:
        """For so many keys the newest file has room."""
        return self._files[-1].places_left if self._files else 0

    @property
    def newest(self) -> IndexFile | None:
        return self._files[-1] if self._files else None

    def newest_grew(self, index_count: int, used_slots: int, phy: int, store_timestamp: int) -> None:
        """See IndexFile.grew, of the newest one."""
        file = self._files[-1]
        file.grew(index_count, used_slots, phy, store_timestamp)
        self.phy_end = phy + 1
        self._written(file)

    def put_many(
        self, hashes: NDArray[np.int64], phys: NDArray[np.int64], store_timestamps: NDArray[np.int64]
    ) -> None:
        """As `put` of many records that are not indexed yet, a hash a row, at least one; the newest file has room for them.
        OSError (ENOSPC), with nothing done."""
        file = self._files[-1]
        file.reserve(len(hashes))
        file.put_many(hashes, phys, store_timestamps)
        self.phy_end = file.end_phy + 1
        self._written(file)

    def find(self, topic: str, key: str, begin_ms: int, end_ms: int) -> Iterator[int]:
        """Positions of records that may have `key`, newest first, and PAUSE now and then."""
        value = self._hash_of(topic.encode(), key.encode())
        for file in self._files[::-1]:
            yield from file.find(value, begin_ms, end_ms)

    def last(self) -> tuple[int, int]:
        """(store time in ms, position) of the last indexed record; zeros when there is none."""
        return (self._files[-1].end_timestamp, self._files[-1].end_phy) if self._files else (0, 0)

    async def truncate(self, phy: int) -> None:
        """Forget the records from `phy` on."""
        async with self._disk:
            while self._files and (self._files[-1].empty or self._files[-1].begin_phy >= phy):
                await self._drop(self._files.pop())
            if self._files:
                self._files[-1].cut(phy)
                self._written(self._files[-1])
                if self._files[-1].empty:
                    await self._drop(self._files.pop())
            self.phy_end = self._files[-1].end_phy + 1 if self._files else 0

    async def delete_below(self, phy: int) -> list[SegmentFile]:
        """Deletes the files that lead to nothing from `phy` on, oldest first; they are to be released. The last one stays: a
        store without any indexes all of its log anew. OSError."""
        deleted: list[SegmentFile] = []
        async with self._disk:
            while len(self._files) > 1 and (self._files[0].empty or self._files[0].end_phy < phy):
                with suppress(FileNotFoundError):  # somebody else made room
                    await self._directory.delete(self._files[0].file.name)
                former = self._files.pop(0)
                self._unsynced = [file for file in self._unsynced if file is not former]
                deleted.append(former.file)
        return deleted

    async def sync(self) -> None:
        """What was put before the call is on disk on return; OSError when the disk fails."""
        async with self._disk:
            files, self._unsynced = self._unsynced, []
            try:
                for file in files:
                    await file.sync()
            except OSError:
                self._unsynced = files + [file for file in self._unsynced if file not in files]
                raise

    def close(self) -> None:
        for file in self._files:
            file.file.close()
        self._files.clear()
        self._unsynced.clear()

    def _last_below(self, phy: int) -> IndexFile | None:
        """The file that holds the last records below `phy`."""
        return next((file for file in reversed(self._files) if not file.empty and file.begin_phy < phy), None)

    def _written(self, file: IndexFile) -> None:
        if not self._unsynced or self._unsynced[-1] is not file:
            self._unsynced.append(file)

    async def _drop(self, file: IndexFile) -> None:
        await self._directory.delete(file.file.name)
        self._unsynced = [other for other in self._unsynced if other is not file]
        file.file.close()

    def _new_file(self) -> IndexFile:
        """A file named after its creation, as upstream does, and after all others also when the clock went back."""
        name = _name(datetime.fromtimestamp(self._now_ms() / 1000, UTC))
        newest = self._files[-1].file.name if self._files else ""
        if name <= newest:
            name = str(int(newest) + 1).zfill(len(newest))
        size = file_size_for(self._slots, self._entries)
        made = self._directory.create(name, size, reserve=0)
        file = IndexFile(made, self._slots, self._entries, bytes(HEADER.size))
        self._files.append(file)
        file.file.reserve(HEADER.size + SLOT.size * self._slots)
        return file

    def _hash_of(self, topic: bytes, key: bytes) -> int:
        """The unique keys of one producer begin alike: what their beginning hashes to is remembered."""
        split = SHARED_BYTES if len(key) > SHARED_BYTES and key.isascii() else 0
        beginning = (topic, key[:split])
        prefix = self._prefixes.get(beginning)
        if prefix is None:
            if len(self._prefixes) >= BEGINNINGS_REMEMBERED_MAX:
                self._prefixes.clear()
            prefix = self._prefixes[beginning] = longer_hash(topic_prefix_hash(topic), key[:split])
        return key_hash(prefix, key[split:])


def _name(moment: datetime) -> str:
    return f"{moment.strftime(NAME_FORMAT)}{moment.microsecond // 1000:03d}"
