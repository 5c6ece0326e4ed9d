"""A table that is stored in one small file, as in upstream's ConfigManager.

Invariant: when `save` returns, the table as it was at the call is on disk, and so is the data on which it depends. Saves of one
table do not overlap; several requests during a write cause one more write. The file names the last journal record that it
includes (`"journal"`, which upstream ignores and does not write) and the tables that had a file then (`"tables"`). If a file is
corrupt, empty or missing, its `.bak` is used if a Java broker wrote both. Otherwise the broker does not start, because clients
rely on the data. A file with `{}` is an operator's request for an empty table."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable

import orjson

from mqruntime.log import fields
from mqruntime.runtime import StartRefused
from mqruntime.smallfiles import SmallFiles
from remoting.errors import BodyError

logger = logging.getLogger("broker.tables")

BACKUP_SUFFIX = ".bak"
MARK = re.compile(rb'\{"journal":([0-9]{1,18})[,}]')
TABLES = re.compile(rb'\{"journal":[0-9]{1,18},"tables":"([^"\\]*)"')
EMPTY = b"{}"
"""A file with this content is an empty table, although it does not have `member`."""


class TableUnreadable(StartRefused):
    """A table's file, or the folder of all tables, is missing or does not parse, and no backup may replace it. To continue
    without the content, an operator writes {} into the file `begins_empty`, or into the table's own file."""

    def __init__(self, name: str, why: str, *, backup: bool = False, begins_empty: str = "it") -> None:
        older = f", rename {name}{BACKUP_SUFFIX} to it to go back to that older copy" if backup else ""
        super().__init__(
            f"{name}: {why}; restore it from another replica of this broker{older}, or write {{}} into {begins_empty} to "
            "start empty"
        )
        self.name = name


async def nothing() -> None: ...


class SavedTable:
    """One table's file. `encode` returns its content, a JSON object; `adopt` parses the content (raises BodyError). `behind`
    syncs the data on which the content depends (raises OSError). `journaled()` is the number of the last journal record on
    disk, `present()` the names of the tables that have a file. Content without the key `member`, if given, belongs to another
    file."""

    def __init__(
        self,
        files: SmallFiles,
        name: str,
        encode: Callable[[], bytes],
        adopt: Callable[[bytes], None],
        behind: Callable[[], Awaitable[None]] = nothing,
        *,
        journaled: Callable[[], int] = lambda: 0,
        present: Callable[[], list[str]] = list,
        member: str | None = None,
    ) -> None:
        self.name = name
        self._present = present
        self._member = member
        self.names_tables: frozenset[str] = frozenset()
        """The tables that this file names: those that had a file when it was written."""
        self._journaled = journaled
        self.mark: int | None = None
        """The number of the last record whose changes the file has; None if the file names no record."""
        self._behind = behind
        self._files = files
        self._has_file = False
        self._encode = encode
        self._adopt = adopt
        self._lock = asyncio.Lock()
        self._version = 0
        self._saved_version = 0
        self._fact_version = 0
        self._row_version = 0
        self._journal_version = 0
        self._journal_record = 0

    def changed(self, *, fact: bool = True) -> None:
        """Record that the table differs from the file: by a `fact`, which may be acknowledged, or by a change that can wait."""
        self._version += 1
        if fact:
            self._fact_version = self._version

    def row_changed(self) -> None:
        """Record a changed fact that is a row. The journal may have the row instead of the file."""
        self._version += 1
        self._row_version = self._version

    @property
    def version(self) -> int:
        return self._version

    def in_journal(self, version: int, record: int) -> None:
        """Record that the journal on disk has the rows up to this version, the last of them in `record`."""
        self._journal_version = max(self._journal_version, version)
        self._journal_record = record

    @property
    def wants_journal(self) -> bool:
        """Whether a changed row is not on disk."""
        return self._row_version > max(self._saved_version, self._journal_version)

    @property
    def wants_file(self) -> bool:
        """Whether a changed fact is not on disk and cannot be written to the journal."""
        return self._fact_version > self._saved_version or (self.wants_journal and self.mark is None)

    @property
    def dirty(self) -> bool:
        """Whether the file differs from the table, or does not name the last record with rows of the table. The journal may be
        dropped only up to the records that the files name."""
        return self._version != self._saved_version or (self.mark or 0) < self._journal_record

    @property
    def has_file(self) -> bool:
        """Whether the table has a file on disk, which is no backup, or gets it with the next `save_facts`."""
        return self._has_file or self._has_news

    @property
    def on_disk(self) -> bool:
        """Whether the table has a file on disk, which is no backup."""
        return self._has_file

    async def load(self) -> bool:
        """Read the file. Returns False if there is none. Raises TableUnreadable, OSError."""
        data = await self._files.read(self.name)
        why = "the file is empty" if data is not None else None
        if data:
            try:
                self._take_in(data)
            except BodyError as error:
                why = str(error)
            else:
                self._has_file = True
                mark, tables = MARK.match(data), TABLES.match(data)
                self.mark = None if mark is None else int(mark[1])
                self.names_tables = frozenset(tables[1].decode().split(";")) if tables else frozenset()
                return True
        backup = await self._files.read(self.name + BACKUP_SUFFIX)
        # only upstream writes backups, so a backup is older than a file of this broker
        if data and MARK.match(data) and backup:
            raise TableUnreadable(self.name, str(why), backup=True)
        if backup:
            try:
                self._take_in(backup)
            except BodyError as error:
                why = why or f"the file is missing, and its backup does not parse: {error}"
            else:
                logger.warning(
                    "table read from its backup, later changes are lost",
                    extra=fields(file=self.name, why=why or "the file is missing"),
                )
                return True
        if why is not None:
            raise TableUnreadable(self.name, why)
        return False

    def _take_in(self, data: bytes) -> None:
        if self._member is not None and data.strip() != EMPTY and b'"%b"' % self._member.encode() not in data:
            raise BodyError(f"{self._member} is missing, the content is of another file")
        self._adopt(data)

    def taken(self, *, in_journal_too: bool = False) -> tuple[int, bytes] | None:
        """The present content, for `save_taken`. None if nothing must be written: all facts (changes that may be acknowledged)
        are in the file or the journal, or with `in_journal_too` the table is not `dirty`."""
        wanted = self.dirty if in_journal_too else self._has_news
        return (self._version, self._marked()) if wanted else None

    async def save(self) -> None:
        """Write the table if it changed since the last write. After an OSError it still counts as changed."""
        async with self._lock:
            if self.dirty:
                await self._write(self._version, self._marked())

    async def save_facts(self) -> None:
        """Write the table if a fact changed. Without a change the disk is not touched, so a full disk rejects nothing."""
        async with self._lock:
            if self._has_news:
                await self._write(self._version, self._marked())

    async def save_taken(self, taken: tuple[int, bytes] | None) -> None:
        """Write content that `taken` returned, unless later content was written meanwhile."""
        async with self._lock:
            if taken is not None and (taken[0], _mark_of(taken[1])) > (self._saved_version, self.mark or 0):
                await self._write(*taken)

    @property
    def _has_news(self) -> bool:
        return self._fact_version > self._saved_version or self.wants_journal

    def _marked(self) -> bytes:
        content, present = self._encode(), self._present()
        mark = b'{"journal":%d' % self._journaled()
        if present:
            mark += b',"tables":%b' % orjson.dumps(";".join(present))
        return mark + content[1:] if content == b"{}" else mark + b"," + content[1:]

    async def _write(self, version: int, data: bytes) -> None:
        await self._behind()
        await self._files.replace(self.name, data)
        self._has_file = True
        self.mark = _mark_of(data)
        self._saved_version = version


def _mark_of(written: bytes) -> int:
    mark = MARK.match(written)
    assert mark is not None, "a table is written with its mark"
    return int(mark[1])
