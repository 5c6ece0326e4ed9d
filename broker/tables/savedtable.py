"""A table kept in one small file, as upstream's ConfigManager keeps its own.

Invariant: what `save` was called after is on disk when it returns, behind what it rests on; saves of one table run one after
the other and several requests during one write become one more write. The file says up to which record of the journal it has
what the journal has (`"journal"`, which upstream passes over; one that upstream wrote says nothing). A broken file is answered
by its `.bak`, if a Java broker left one, and otherwise stops the start: an emptied table would forget what clients rely on."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable

from mqruntime.smallfiles import SmallFiles
from remoting.errors import BodyError

BACKUP_SUFFIX = ".bak"
MARK = re.compile(rb'\{"journal":([0-9]{1,18})[,}]')


class TableUnreadable(Exception):
    """A configuration file that does not parse, and no readable backup beside it."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(
            f"{name}: {why}; restore it from another replica of this broker, or remove it to start empty"
        )
        self.name = name


async def nothing() -> None: ...


class SavedTable:
    """`encode` gives the file's content, a JSON object, `adopt` takes it in (raising BodyError). `behind` puts on disk what
    that content rests on (OSError). `journaled()` is the number of the last record of the journal that is on disk."""

    def __init__(
        self,
        files: SmallFiles,
        name: str,
        encode: Callable[[], bytes],
        adopt: Callable[[bytes], None],
        behind: Callable[[], Awaitable[None]] = nothing,
        *,
        journaled: Callable[[], int] = lambda: 0,
    ) -> None:
        self.name = name
        self._journaled = journaled
        self.mark: int | None = None
        """The number of the last record whose changes the file on disk has; None where it does not say so."""
        self._behind = behind
        self._files = files
        self._stands = False
        self._encode = encode
        self._adopt = adopt
        self._lock = asyncio.Lock()
        self._version = 0
        self._saved_version = 0
        self._fact_version = 0
        self._row_version = 0
        self._journal_version = 0

    def changed(self, *, fact: bool = True) -> None:
        """The table differs from the file now; by a fact that somebody may be told of, or by what can wait."""
        self._version += 1
        if fact:
            self._fact_version = self._version

    def row_changed(self) -> None:
        """By a fact that is a row, so that the journal may have it instead of the file."""
        self._version += 1
        self._row_version = self._version

    @property
    def version(self) -> int:
        return self._version

    def in_journal(self, version: int) -> None:
        """The journal on disk has the rows of this version."""
        self._journal_version = max(self._journal_version, version)

    @property
    def wants_journal(self) -> bool:
        """Whether a row changed that is not on disk."""
        return self._row_version > max(self._saved_version, self._journal_version)

    @property
    def wants_file(self) -> bool:
        """Whether a fact changed that is not on disk, and no journal can have."""
        return self._fact_version > self._saved_version or (self.wants_journal and self.mark is None)

    @property
    def dirty(self) -> bool:
        return self._version != self._saved_version

    @property
    def stands(self) -> bool:
        """Whether the disk has a file of it, no older one's backup, or will with the next `save_facts`."""
        return self._stands or self._has_news

    async def load(self) -> bool:
        """Take in the file; False when there is none. Raises TableUnreadable, OSError."""
        failure: BodyError | None = None
        for name in (self.name, self.name + BACKUP_SUFFIX):
            data = await self._files.read(name)
            if not data:
                continue
            try:
                self._adopt(data)
            except BodyError as error:
                failure = failure or error
            else:
                self._stands = name == self.name
                mark = MARK.match(data) if self._stands else None
                self.mark = None if mark is None else int(mark[1])
                return True
        if failure is not None:
            raise TableUnreadable(self.name, str(failure))
        return False

    def taken(self, *, in_journal_too: bool = False) -> tuple[int, bytes] | None:
        """The content as it is now, for `save_taken`; None when no fact has changed since the last write, or none that the
        journal does not have."""
        wanted = self.dirty if in_journal_too else self._has_news
        return (self._version, self._marked()) if wanted else None

    async def save(self) -> None:
        """Write the table if it changed since the last write. OSError leaves it changed."""
        async with self._lock:
            if self.dirty:
                await self._write(self._version, self._marked())

    async def save_facts(self) -> None:
        """The same if a fact changed: a full disk need not refuse what says nothing new."""
        async with self._lock:
            if self._has_news:
                await self._write(self._version, self._marked())

    async def save_taken(self, taken: tuple[int, bytes] | None) -> None:
        """Write the content of an earlier moment, unless a later one was written meanwhile."""
        async with self._lock:
            if taken is not None and taken[0] > self._saved_version:
                await self._write(*taken)

    @property
    def _has_news(self) -> bool:
        return self._fact_version > self._saved_version or self.wants_journal

    def _marked(self) -> bytes:
        content = self._encode()
        mark = b'{"journal":%d' % self._journaled()
        return mark + content[1:] if content == b"{}" else mark + b"," + content[1:]

    async def _write(self, version: int, data: bytes) -> None:
        await self._behind()
        await self._files.replace(self.name, data)
        self._stands = True
        mark = MARK.match(data)
        assert mark is not None, f"{self.name} is written with its mark"
        self.mark = int(mark[1])
        self._saved_version = version
