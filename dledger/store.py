"""Everything that a member must not forget: its vote, its log, and how far the log is decided.

Invariant: when `persist` returns, all of its steps survive a power cut; when it raises, the member must
fall silent. A cut is announced in the checkpoint file first, so that a crash inside it cannot bring back
half of the old tail."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from dledger.actions import PersistThenSend, Vote
from dledger.checkpoint import Checkpoint, CheckpointFile
from dledger.entry import NO_INDEX, Entry
from dledger.errors import LogDamaged, LogOfAnother
from dledger.log import EntryLog
from dledger.settings import DLedgerSettings
from dledger.termfile import TermFile
from mqruntime.diskfull import DISK_FULL, RetriedWrite
from mqruntime.segments import SegmentDirectory
from mqruntime.smallfiles import SmallFiles

logger = logging.getLogger(__name__)

FOLDER_PREFIX = "dledger-"
"""A member's id follows."""


@dataclass(frozen=True, slots=True)
class Recovered:
    vote: Vote
    entries: list[Entry]
    committed_index: int


class Store:
    """The folder `name` below the roots of `files` and `segments`, which are one."""

    def __init__(
        self,
        files: SmallFiles,
        segments: SegmentDirectory,
        name: str,
        settings: DLedgerSettings,
        members: Iterable[str],
    ) -> None:
        self.name = name
        self.settings = settings
        self.root = segments
        self.directory = segments.subdirectory(name)
        self.term_file = TermFile(files, f"{name}/currterm", ",".join(sorted(members)))
        self.checkpoint_file = CheckpointFile(files, f"{name}/checkpoint")
        self.committed_index = NO_INDEX
        self.cut_from: int | None = None
        """A cut is under way."""
        self.unsettled = False
        """A write was begun and has not ended well: the files are left as they are."""
        self.log: EntryLog | None = None

    async def open(self) -> Recovered:
        """Raises LogDamaged, LogOfAnother, MembersChanged, BadKeyValues, OSError; nothing was changed then."""
        present = self.root.subdirectories()
        others = [name for name in present if name.startswith(FOLDER_PREFIX)]
        if others and self.name not in present:
            raise LogOfAnother(self.name, others[0])
        vote = await self.term_file.load()
        checkpoint = await self.checkpoint_file.load()
        log = EntryLog(self.directory, self.settings, self.name)
        await log.open()
        entries = log.recover()
        if checkpoint.cut_from is None:
            log.refuse_later_entries()
        else:
            del entries[checkpoint.cut_from :]
        if checkpoint.committed_index >= len(entries):
            decided = checkpoint.committed_index
            raise LogDamaged(
                self.name, f"ends before entry {len(entries)}, but entries up to {decided} are decided"
            )
        if vote is None and entries:
            raise LogDamaged(
                self.term_file.name, "is missing beside a log; without it this member could vote twice"
            )
        self.log = log
        self.committed_index = checkpoint.committed_index
        await log.cut(len(entries))
        log.rewrite_last_batch()
        await log.sync()
        if checkpoint.cut_from is not None:
            await self.save_checkpoint(self.committed_index)
        return Recovered(vote or Vote(newcomer=True), entries, self.committed_index)

    async def persist(self, steps: Sequence[PersistThenSend]) -> None:
        """Makes the steps durable, in an order that a crash cannot turn into a state that never was. A small file waits for
        room on the disk. Raises OSError."""
        assert self.log is not None
        self.unsettled = True
        try:
            await self.write(self.log, steps)
        except OSError:
            await self.disown_unsynced(self.log)
            raise
        self.unsettled = False

    async def write(self, log: EntryLog, steps: Sequence[PersistThenSend]) -> None:
        votes = [step.vote for step in steps if step.vote is not None]
        if votes:
            await self.replace(self.term_file.name, lambda: self.term_file.store(votes[-1]))
        for step in steps:
            if step.cut_from is not None:
                await self.cut(log, step.cut_from)
            await log.append(step.entries)
        await log.sync()

    async def cut(self, log: EntryLog, index: int) -> None:
        self.cut_from = index
        announced = Checkpoint(index - 1, self.committed_index, index)
        await self.replace(self.checkpoint_file.name, lambda: self.checkpoint_file.store(announced))
        await log.cut(index)
        await log.sync()
        done = Checkpoint(index - 1, self.committed_index)
        await self.replace(self.checkpoint_file.name, lambda: self.checkpoint_file.store(done))
        self.cut_from = None

    async def replace(self, name: str, write: Callable[[], Awaitable[None]]) -> None:
        """Performs `write` of the small file `name`, once there is room. What comes after it does not happen before: a member
        whose disk is full falls silent like one whose disk hangs, and the others go on without it."""
        refusal = f"{name} cannot be written and this member takes no part until it is"
        if await RetriedWrite(logger, refusal, server="controller").perform(write):
            logger.info("%s is written, this member takes part again", name)

    async def disown_unsynced(self, log: EntryLog) -> None:
        """After a failed sync the page cache may show the next process what the disk does not have. Nobody
        was told of those entries: the next start cuts them. On a disk that refuses this too, rewriting them
        at the start has to do."""
        index = log.unsynced_from if self.cut_from is None else self.cut_from
        with suppress(OSError):
            await self.checkpoint_file.store(Checkpoint(index - 1, self.committed_index, index))

    async def save_checkpoint(self, committed_index: int) -> None:
        """`committed_index` is decided, and durable here. Raises OSError; a full disk leaves the file as it was."""
        assert self.log is not None
        await self.checkpoint_file.store(Checkpoint(self.log.end_index, committed_index))
        self.committed_index = committed_index

    def size_bytes(self) -> int:
        """The length of all files of the log, filled or not."""
        folders = (self.directory.subdirectory(name) for name in self.directory.subdirectories())
        return sum(size for folder in folders for _, size in folder.names())

    async def close(self, committed_index: int) -> None:
        """Leaves a complete index and checkpoint behind, unless a write failed or was given up before; a full disk keeps an
        older checkpoint. Raises OSError."""
        if self.log is None:
            return
        if not self.unsettled:
            await self.log.sync_index()
            if committed_index > self.committed_index:
                try:
                    await self.save_checkpoint(committed_index)
                except OSError as error:
                    if error.errno not in DISK_FULL:
                        raise
        self.log.close()
