"""The plain log that a member's broker wrote before Raft mode, if there is one. The first start in Raft mode closes the plain
log, and every start opens it. It is deleted by retention, or when another member's log replaced all of it.

Invariant: the identity of the plain log is durable in the member's folder before the first entry after the plain log is
written. A DLedger log is opened after a plain log only if it continues exactly this plain log."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from dledger.raft.entries import NO_INDEX
from dledger.storage.entry import ENTRY_HEADER_BYTES, index_header
from dledger.storage.store import FOLDER_PREFIX
from messagestore.errors import BadSegments, LogsPart, StoreError
from messagestore.log.commitlog import FOLDER
from messagestore.store.settings import StoreSettings
from mqruntime.runtime import Runtime
from raftstore.closing import close_plain_log
from raftstore.divide import FILE, Divide, decode_divide, encode_divide
from raftstore.member import Member
from raftstore.oldlog import OldLog
from raftstore.queueends import EmptiedQueueEnd

PIECE_BYTES = 1 << 20
Piece = Callable[[int, int], Awaitable[bytes]]
"""Called with an offset and a size. Returns bytes of another member's log from the offset on: at least one, at most the
size."""


class FormerLog:
    """The plain log of the store at the root of `runtime`."""

    def __init__(self, runtime: Runtime, settings: StoreSettings, member: Member) -> None:
        self._runtime = runtime
        self._settings = settings
        self._folder = member.node.store.name
        self._file = f"{self._folder}/{FILE}"
        directory = runtime.segments.subdirectory(FOLDER)
        self.log = OldLog(directory, settings.mapped_file_size_commit_log, last_goes=self._last_goes)
        self._divide: Divide | None = None

    async def close_if_new(self) -> None:
        """Close a plain log if there is no DLedger log yet. Raises what close_plain_log raises."""
        segments = self._runtime.segments
        begun = any(name.startswith(FOLDER_PREFIX) for name in segments.subdirectories())
        if begun or not segments.subdirectory(FOLDER).names():
            return
        await close_plain_log(self._runtime, self._settings)

    async def open(self) -> Divide | None:
        """Open the plain log that the DLedger log continues, and return its boundary; None if there is no plain log.

        Raises: LogsPart, BadSegments, StoreCorrupted, BadKeyValues, QueueEndsUnreadable, OSError."""
        self.log.open()
        stored = None
        if any(name == FILE for name, _ in self._runtime.segments.subdirectory(self._folder).names()):
            stored = await self._runtime.files.read(self._file)
        if stored is not None:
            self._divide = decode_divide(self._file, stored)
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
        elif begins and first == 0:  # a store of Java, in which retention has deleted the plain log
            self._divide = Divide(begins, begins, 0, gone=True)
        if self._divide is not None:
            await self._runtime.files.replace(self._file, encode_divide(self._divide))
        return self._divide

    def encoded_divide(self, queue_ends: tuple[EmptiedQueueEnd, ...]) -> bytes | None:
        """The description of the plain log for an empty member; None if the DLedger log continues no plain log."""
        if self._divide is None:
            return None
        gone, begins = not self.log.files, self.log.first
        return encode_divide(self._divide._replace(gone=gone, begins=begins, queue_ends=queue_ends))

    async def fill(self, wanted: Divide, piece: Piece) -> None:
        """Fetch the plain log described by `wanted` with `piece`, into an empty member. On return the log is on disk and
        matches `wanted`.

        Raises: BadSegments, with nothing done, if the other member has another file size. LogsPart, OSError and the errors of
        `piece`; the log is then still marked as incomplete, and the caller tries again."""
        size = self._settings.mapped_file_size_commit_log
        if wanted.at % size or wanted.begins % size:
            raise BadSegments(
                FOLDER, "*", f"the other member's file size is not mappedFileSizeCommitLog={size}"
            )
        await self._runtime.files.replace(self._file, encode_divide(wanted._replace(filling=True)))
        await self.log.wipe()
        if not wanted.gone:
            for start in range(wanted.begins, wanted.at, size):
                await self._copy(start, size, piece)
            await self._check_is(wanted)
            self.log.close()
        await self._runtime.files.replace(self._file, encode_divide(wanted))

    async def _copy(self, start: int, size: int, piece: Piece) -> None:
        file, at = self.log.create(start), 0
        while at < size:
            content = (await piece(start + at, min(PIECE_BYTES, size - at)))[: size - at]
            file.view()[at : at + len(content)] = content
            at += len(content)
        await file.sync(0, size)

    async def _check_is(self, wanted: Divide) -> None:
        found = await self.log.divide()
        if found[:3] != wanted[:3]:
            raise LogsPart(self._folder, wanted.records_end, FOLDER, found.records_end)

    async def _filled_in_vain(self) -> Divide | None:
        """Handle an interrupted copy: delete the copy and return None, unless an operator has completed the copy since."""
        assert self._divide is not None
        wanted, self._divide = self._divide, None
        try:
            await self._check_is(wanted)
        except (StoreError, IndexError):
            await self.log.wipe()
            await self._runtime.files.remove(self._file)
            return None
        self._divide = wanted._replace(filling=False)
        await self._runtime.files.replace(self._file, encode_divide(self._divide))
        return self._divide

    async def _last_goes(self) -> None:
        """Record that the last file is deleted on purpose. Without this record missing files count as lost."""
        assert self._divide is not None, "it was opened with its divide"
        self._divide = self._divide._replace(gone=True)
        await self._runtime.files.replace(self._file, encode_divide(self._divide))

    def _ledger_begins(self) -> tuple[int | None, int]:
        """Start of the DLedger log's first file (None without a file), and the index of the file's first entry (NO_INDEX
        without an entry)."""
        data = self._runtime.segments.subdirectory(self._folder).subdirectory("data")
        names = data.names()
        if not names or not names[0][0].isdigit():  # the member's own start reports such a file
            return None, NO_INDEX
        name, size = names[0]
        file = data.open(name)
        try:
            first = index_header(file.read_now(0, min(ENTRY_HEADER_BYTES, size)))
        finally:
            file.close()
        return int(name), first.index if first is not None and first.position == int(name) else NO_INDEX

    async def begins_at(self, position: int) -> None:
        """Handle a new start of the DLedger log, at `position`. If `position` is after the divide, another member's log has
        replaced the whole log, and the plain log is deleted."""
        if self._divide is not None and position > self._divide.at:
            for file in await self.log.delete_below(self._divide.at):
                file.close()

    def close(self) -> None:
        self.log.close()
