"""The plain log that a member's broker had before Raft mode, if it had one: closed at the first start, opened at each, and gone
once retention has come so far, or another member's log replaced all of it.

Invariant: what it was is in the member's folder, durably, before the first entry behind it is written; and a DLedger log is
opened behind a plain log only where it goes on from just that one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from dledger.raft.entries import NO_INDEX
from dledger.storage.entry import ENTRY_HEADER_BYTES, index_header
from dledger.storage.store import FOLDER_PREFIX
from messagestore.errors import BadSegments, LogsPart, StoreError
from messagestore.log.commitlog import FOLDER
from messagestore.settings import StoreSettings
from mqruntime.runtime import Runtime
from raftstore.closing import close_plain_log
from raftstore.divide import FILE, Divide, decode_divide, encode_divide
from raftstore.member import Member
from raftstore.oldlog import OldLog
from raftstore.queueends import QueueEnd

PIECE_BYTES = 1 << 20
Piece = Callable[[int, int], Awaitable[bytes]]
"""Bytes of another member's log, from an offset on, so many at most; one at least."""


class FormerLog:
    """Of the store at the root of `runtime`."""

    def __init__(self, runtime: Runtime, settings: StoreSettings, member: Member) -> None:
        self._runtime = runtime
        self._settings = settings
        self._folder = member.node.store.name
        self._file = f"{self._folder}/{FILE}"
        directory = runtime.segments.subdirectory(FOLDER)
        self.log = OldLog(directory, settings.mapped_file_size_commit_log, last_goes=self._last_goes)
        self._divide: Divide | None = None

    async def close_if_new(self) -> None:
        """Closes a plain log beside which there is no ledger yet. Raises as close_plain_log."""
        segments = self._runtime.segments
        begun = any(name.startswith(FOLDER_PREFIX) for name in segments.subdirectories())
        if begun or not segments.subdirectory(FOLDER).names():
            return
        await close_plain_log(self._runtime, self._settings)

    async def open(self) -> Divide | None:
        """Where the ledger goes on from a plain log, and which; None where it has none before it. Raises LogsPart, BadSegments,
        StoreCorrupted, BadKeyValues, QueueEndsUnreadable, OSError."""
        self.log.open()
        told = None
        if any(name == FILE for name, _ in self._runtime.segments.subdirectory(self._folder).names()):
            told = await self._runtime.files.read(self._file)
        if told is not None:
            self._divide = decode_divide(self._file, told)
            if self._divide.filling:
                return await self._filled_in_vain()
            if self.log.end != self._divide.at and not (self._divide.gone and not self.log.files):
                raise LogsPart(self._folder, self._divide.at, FOLDER, self.log.end)
            return self._divide
        begins, first = self._ledger_begins()
        if self.log.files and begins is not None and (begins != self.log.end or first > 0):
            raise LogsPart(self._folder, begins, FOLDER, self.log.end)
        if self.log.files:
            self._divide = await self.log.divide()
        elif begins and first == 0:  # Java's, whose plain log retention has deleted
            self._divide = Divide(begins, begins, 0, gone=True)
        if self._divide is not None:
            await self._runtime.files.replace(self._file, encode_divide(self._divide))
        return self._divide

    def told(self, queue_ends: tuple[QueueEnd, ...]) -> bytes | None:
        """What a member is to know that has nothing; None where there is no divide."""
        if self._divide is None:
            return None
        gone, begins = not self.log.files, self.log.first
        return encode_divide(self._divide._replace(gone=gone, begins=begins, queue_ends=queue_ends))

    async def fill(self, told: Divide, piece: Piece) -> None:
        """Makes what another member `told` of, whose bytes `piece` gives, this one's, which has nothing. On return it is on
        disk and is that. Raises LogsPart, what `piece` raises, OSError: it is void, to be tried again."""
        size = self._settings.mapped_file_size_commit_log
        if told.at % size or told.begins % size:
            raise BadSegments(FOLDER, "*", f"the other's has other files than mappedFileSizeCommitLog={size}")
        await self._runtime.files.replace(self._file, encode_divide(told._replace(filling=True)))
        await self.log.wipe()
        if not told.gone:
            for start in range(told.begins, told.at, size):
                await self._copy(start, size, piece)
            await self._check_is(told)
            self.log.close()
        await self._runtime.files.replace(self._file, encode_divide(told))

    async def _copy(self, start: int, size: int, piece: Piece) -> None:
        file, at = self.log.create(start), 0
        while at < size:
            content = (await piece(start + at, min(PIECE_BYTES, size - at)))[: size - at]
            file.view()[at : at + len(content)] = content
            at += len(content)
        await file.sync(0, size)

    async def _check_is(self, told: Divide) -> None:
        found = await self.log.divide()
        if found[:3] != told[:3]:
            raise LogsPart(self._folder, told.records_end, FOLDER, found.records_end)

    async def _filled_in_vain(self) -> Divide | None:
        """A copy was broken off; None: there is nothing, as before it. One that an operator made since is taken."""
        assert self._divide is not None
        told, self._divide = self._divide, None
        try:
            await self._check_is(told)
        except (StoreError, IndexError):
            await self.log.wipe()
            await self._runtime.files.remove(self._file)
            return None
        self._divide = told._replace(filling=False)
        await self._runtime.files.replace(self._file, encode_divide(self._divide))
        return self._divide

    async def _last_goes(self) -> None:
        """Files that are missing otherwise were lost."""
        assert self._divide is not None, "it was opened behind its divide"
        self._divide = self._divide._replace(gone=True)
        await self._runtime.files.replace(self._file, encode_divide(self._divide))

    def _ledger_begins(self) -> tuple[int | None, int]:
        """Where the ledger's first file begins, None without one, and which entry stands there, NO_INDEX for none."""
        data = self._runtime.segments.subdirectory(self._folder).subdirectory("data")
        names = data.names()
        if not names or not names[0][0].isdigit():  # what is no file of a log the member tells of
            return None, NO_INDEX
        name, size = names[0]
        file = data.open(name)
        try:
            first = index_header(file.read_now(0, min(ENTRY_HEADER_BYTES, size)))
        finally:
            file.close()
        return int(name), first.index if first is not None and first.position == int(name) else NO_INDEX

    async def begins_at(self, position: int) -> None:
        """The ledger begins at `position` now: where that is behind the divide, another member's log replaced what was here,
        and the plain log before it."""
        if self._divide is not None and position > self._divide.at:
            for file in await self.log.delete_below(self._divide.at):
                file.close()

    def close(self) -> None:
        self.log.close()
