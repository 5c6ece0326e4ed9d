"""The durable state of a member: its vote, its log and its commit index. The module also recovers a log at a member's start:
its end, its terms and its last entries.

A start reads entries whole and in order, from the last entry that the checkpoint vouches for. It reads from the log's beginning
if there is no such entry. So a start takes as long as the writes since the last checkpoint, and memory only for the recent
entries. Entries are deleted only once a snapshot that covers them is durable; the snapshot itself says which entries are
deleted. A full disk is no failure: the refused write changes nothing, and waits with all later writes.

Invariant: when `persist` returns, all of its steps survive a power cut; when it raises, the member must not answer any more. A
cut is first announced in the checkpoint file, so that a crash during the cut cannot bring back half of the old tail. After a
recovery the only bytes after the last whole entry are those that a crash may have torn."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from dledger.raft.actions import PersistThenSend, Vote
from dledger.raft.entries import NO_INDEX, Entry
from dledger.raft.errors import EMPTY_AND_RESTART, EntryMisplaced, LogDamaged, LogOfAnother
from dledger.raft.log import RaftLog, TermRuns, TermsFall, runs_of
from dledger.raft.membership import ConfigurationAt, ConfigurationHistory
from dledger.raft.settings import DLedgerSettings
from dledger.raft.snapshot import WHOLE, Begin, Snapshot
from dledger.storage.checkpoint import CheckpointFile, LedgerCheckpoint
from dledger.storage.entry import INDEX_UNIT, StoredEntry, decode_entry, encode_index_unit, stored_check
from dledger.storage.entrylog import EntryLog, PositionInBody, begin_up_to, begin_with_file, nowhere
from dledger.storage.hardstate import TermFile
from dledger.storage.snapshot import Origin, note_in, position_in, snapshot_at
from dledger.storage.snapshotfile import SnapshotFile
from mqruntime.diskfull import DISK_FULL, RETRY_S, RetriedWrite
from mqruntime.segments import SegmentDirectory
from mqruntime.smallfiles import SmallFiles

logger = logging.getLogger(__name__)

FOLDER_PREFIX = "dledger-"
"""The prefix of a member's folder; the member's id follows."""


async def nothing_else() -> None: ...


@dataclass(frozen=True, slots=True)
class Recovered:
    vote: Vote
    log: RaftLog
    committed_index: int
    snapshot: Snapshot | None = None
    configurations: tuple[ConfigurationAt, ...] = ()
    """The lists of members in the log and in the snapshot."""


class Store:
    """The store in the folder `name` below the roots of `files` and `segments`, which must be the same folder."""

    def __init__(
        self,
        files: SmallFiles,
        segments: SegmentDirectory,
        name: str,
        settings: DLedgerSettings,
        members: Iterable[str],
        position_in_body: PositionInBody = nowhere,
        on_replaced: Callable[[int], None] | None = None,
    ) -> None:
        """`on_replaced(position)` is called once another member's snapshot is durable and replaces the log, and before the
        first file is deleted. The new log begins at `position`."""
        self.name = name
        self.on_replaced = on_replaced
        self.position_in_body = position_in_body
        self.settings = settings
        self.root = segments
        self.directory = segments.subdirectory(name)
        self.term_file = TermFile(files, f"{name}/currterm", ",".join(sorted(members)))
        self.checkpoint_file = CheckpointFile(files, f"{name}/checkpoint")
        self.snapshot_file = SnapshotFile(files, f"{name}/snapshot")
        self.whole = WHOLE
        """The beginning of a log without a snapshot."""
        self.snapshot_index = NO_INDEX
        """The last entry in the newest snapshot."""
        self.note = b""
        """With `same_positions`, the log owner's note about the deleted entries."""
        self.committed_index = NO_INDEX
        self.synced_index = NO_INDEX
        """Entries up to this index and their index units are durable according to the checkpoint."""
        self.cut_from: int | None = None
        """The index from which on entries are being cut; None if no cut is in progress."""
        self.unsettled = False
        """Whether a write was begun and has not succeeded. The files are then left as they are."""
        self.history = ConfigurationHistory()
        """The lists of members in the entries on the disk."""
        self.log: EntryLog | None = None
        self._entry_write = RetriedWrite(
            logger,
            f"{name} takes no entries, retrying",
            again=f"{name} takes entries again",
            server="member",
        )

    @property
    def waits_for_room(self) -> bool:
        """Whether the disk is full and entries wait for space."""
        return self._entry_write.refused

    async def open(self) -> Recovered:
        """Recovers the member's state.

        Raises: LogDamaged, LogOfAnother, MembersChanged, SnapshotDamaged, SnapshotUnknown, MembersUnknown, BadKeyValues,
        OSError. Only the index, and files that a snapshot covers, may have changed then."""
        present = self.root.subdirectories()
        others = [name for name in present if name.startswith(FOLDER_PREFIX)]
        if others and self.name not in present:
            raise LogOfAnother(self.name, others[0])
        vote = await self.term_file.load()
        checkpoint = await self.checkpoint_file.load()
        snapshot = await self.snapshot_file.load()
        begin = self.whole if snapshot is None else snapshot.begin
        self.history = ConfigurationHistory(
            sorted(dict([*checkpoint.configurations, *(snapshot.configurations if snapshot else ())]).items())
        )
        log = EntryLog(self.directory, self.settings, self.name, begin, self.position_in_body)
        if snapshot is not None and snapshot.replaces_files:
            await log.wipe()
            snapshot = replace(snapshot, replaces_files=False)
            await self.snapshot_file.replace(snapshot)
        await log.open()
        held = await recover(log, checkpoint.synced_index, self.settings.recent_bytes_max, self.history)
        if checkpoint.cut_from is None or held.last_index + 1 < checkpoint.cut_from:
            refuse_later_entries(log, held.last_term)
        elif begin.index < checkpoint.cut_from <= held.last_index:
            held.cut(checkpoint.cut_from)
        end = held.last_index + 1
        if snapshot is not None:
            self.snapshot_index = snapshot.last_index
            self.take_note(snapshot)
        for index, why in (
            (checkpoint.committed_index, "committed"),
            (checkpoint.synced_index, "durable"),
            (self.snapshot_index, f"in {self.snapshot_file.name}"),
        ):
            if index >= end:
                what = f"ends before entry {end}, but entries up to {index} are {why}"
                raise LogDamaged(self.name, f"{what}: {log.place(log.end)}; {EMPTY_AND_RESTART}")
        if vote is None and end:
            raise LogDamaged(
                self.term_file.name,
                "is missing although there is a log; without it this member could vote twice",
            )
        self.history.cut(end)
        committed = max(checkpoint.committed_index, self.snapshot_index)
        if self.history.up_to(committed) is None:
            self.term_file.check_members()
        self.history.forget(begin.index)
        self.log = log
        self.committed_index = committed
        self.synced_index = checkpoint.synced_index
        await log.cut(end)
        if checkpoint.cut_from is not None:
            log.erase_again()
        log.rewrite_last_batch()
        await log.sync()
        if checkpoint.cut_from is not None:
            await self.save_checkpoint(self.committed_index)
        configurations = tuple(self.history.span(NO_INDEX, end))
        return Recovered(vote or Vote(newcomer=True), held, self.committed_index, snapshot, configurations)

    async def persist(
        self, steps: Sequence[PersistThenSend], meanwhile: Callable[[], Awaitable[None]] = nothing_else
    ) -> None:
        """Makes the steps durable, in an order in which no crash can leave a state that never existed. The steps wait while the
        disk is full. Before each further attempt to write entries, `meanwhile` is called and may free space. Raises OSError."""
        assert self.log is not None
        self.unsettled = True
        try:
            await self.write(self.log, steps, meanwhile)
        except OSError:
            await self.disown_unsynced(self.log)
            raise
        self.unsettled = False

    async def write(
        self, log: EntryLog, steps: Sequence[PersistThenSend], meanwhile: Callable[[], Awaitable[None]]
    ) -> None:
        votes = [step.vote for step in steps if step.vote is not None]
        if votes:
            await self.replace(self.term_file.name, lambda: self.term_file.store(votes[-1]))
        for step in steps:
            if step.snapshot is not None:
                await self.install(log, step.snapshot)
            if step.cut_from is not None:
                await self.cut(log, step.cut_from)
            await self.append(log, step.entries, meanwhile)
            self.history.take(step.entries)
        await log.sync()

    async def append(
        self, log: EntryLog, entries: Sequence[Entry], meanwhile: Callable[[], Awaitable[None]]
    ) -> None:
        """Appends entries once there is room. Written entries stay, and the other entries are tried again."""
        behind = log.end_index + 1 + len(entries)
        while entries and not await self._entry_write.attempt(log.append(entries)):
            await asyncio.sleep(RETRY_S)
            await meanwhile()
            entries = entries[len(entries) - (behind - log.end_index - 1) :]

    async def cut(self, log: EntryLog, index: int) -> None:
        """Cuts the entries from `index` on. Raises LogDamaged, OSError."""
        if index <= log.end_index:
            await self.vouch_for_kept(log, index)
        self.cut_from = index
        self.vouch_below(index)
        announced = self.checkpoint(index - 1, cut_from=index)
        await self.replace(self.checkpoint_file.name, lambda: self.checkpoint_file.store(announced))
        await log.cut(index)
        self.history.cut(index)
        await log.sync()
        done = self.checkpoint(index - 1)
        await self.replace(self.checkpoint_file.name, lambda: self.checkpoint_file.store(done))
        self.cut_from = None

    async def vouch_for_kept(self, log: EntryLog, index: int) -> None:
        """Checks that the entries before `index` can be kept without the later entries. If an entry is too corrupt for this,
        nothing is cut, and the checkpoint records which entries were durable. Without this record, a start that finds fewer
        entries would take the missing ones for torn, although other members may count on them. Raises LogDamaged, OSError."""
        try:
            log.kept(index)
        except LogDamaged:
            await self.sync_index()
            await self.save_checkpoint(self.committed_index)
            raise

    async def install(self, log: EntryLog, snapshot: Snapshot) -> None:
        """Replaces the whole log by another member's `snapshot`. The old log counts until the snapshot is durable, and no
        longer. The next start deletes old files that are left; if the snapshot marks them as void, it deletes all files. The
        checkpoint is reset first, because the old log may have had uncommitted entries after the snapshot's end."""
        await log.sync()
        self.vouch_below(self.committed_index + 1)
        modest = self.checkpoint(log.end_index)
        await self.replace(self.checkpoint_file.name, lambda: self.checkpoint_file.store(modest))
        begin = Begin(snapshot.last_index, snapshot.last_term, self.begin_of(log, snapshot))
        behind = replace(snapshot.behind(begin), replaces_files=begin.position < log.data.end)
        await self.replace(
            self.snapshot_file.name, lambda: self.snapshot_file.store(behind, Origin.INSTALLED)
        )
        self.snapshot_index = snapshot.last_index
        self.take_note(snapshot)
        self.history.restart(snapshot.configurations)
        if self.on_replaced is not None:
            self.on_replaced(begin.position)
        await log.restart(begin)
        if behind.replaces_files:
            begun = replace(behind, replaces_files=False)
            await self.replace(self.snapshot_file.name, lambda: self.snapshot_file.replace(begun))

    def begin_of(self, log: EntryLog, snapshot: Snapshot) -> int:
        """The position where the log continues after `snapshot`: after all files, or with `same_positions` where the leader's
        log begins.

        Raises: SnapshotUnknown, EntryMisplaced."""
        if not self.settings.same_positions:
            return log.data.end
        position = position_in(snapshot)
        if position % log.data.file_bytes:
            raise EntryMisplaced(snapshot.last_index + 1, position, position - position % log.data.file_bytes)
        return position

    async def save_snapshot(self, snapshot: Snapshot) -> None:
        """Stores `snapshot`, which was made here from committed and durable entries. The log then begins after the covered
        entries, except for a margin for slow followers. Raises OSError; a full disk changes nothing."""
        assert self.log is not None
        kept_behind = snapshot.last_index - self.settings.snapshot_margin_entries
        await self.begin_behind(snapshot, await begin_up_to(self.log, kept_behind))

    def take_note(self, snapshot: Snapshot) -> None:
        if self.settings.same_positions:
            self.note = note_in(snapshot)

    async def begin_at(self, position: int, note: bytes) -> None:
        """Moves the log's beginning with `same_positions`, by a snapshot without state. The log then begins with the data file
        at `position`, whose first entry follows a committed and durable entry. Raises OSError, LogDamaged; a full disk changes
        nothing."""
        assert self.log is not None and self.settings.same_positions
        begin = await begin_with_file(self.log, position)
        configurations = tuple(self.history.span(begin.index, begin.index))
        await self.begin_behind(snapshot_at(begin, configurations, note), begin)
        self.note = note

    async def rewrite_log_start(self) -> None:
        """Rewrites the snapshot that only contains the log's beginning. Raises OSError."""
        assert self.log is not None and self.settings.same_positions
        begin = self.log.begin
        configurations = tuple(self.history.span(begin.index, begin.index))
        await self.snapshot_file.replace(snapshot_at(begin, configurations, self.note))

    async def begin_behind(self, snapshot: Snapshot, begin: Begin) -> None:
        assert self.log is not None
        await self.snapshot_file.store(snapshot.behind(begin), Origin.MADE)
        self.snapshot_index = snapshot.last_index
        self.history.forget(begin.index)
        self.log.begin_after(begin)

    async def reclaim(self) -> None:
        """Deletes the files that end before the log's beginning. Without `same_positions` the log continues in a new file, so
        that the present file can be deleted later. Raises OSError."""
        assert self.log is not None
        await self.log.delete_before()
        if not self.settings.same_positions:
            await self.log.close_file()

    async def replace(self, name: str, write: Callable[[], Awaitable[object]]) -> None:
        """Performs `write` of the small file `name`, once there is room. Later writes wait. So a member with a full disk is
        silent, like a member whose disk hangs, and the other members continue without it."""
        refusal = f"{name} cannot be written and this member takes no part until it is"

        async def once() -> None:
            await write()

        if await RetriedWrite(logger, refusal, server="controller").perform(once):
            logger.info("%s is written, this member takes part again", name)

    async def disown_unsynced(self, log: EntryLog) -> None:
        """Marks entries for a cut at the next start, because after a failed sync the page cache may show data that the disk
        does not have. These entries were never acknowledged. If the disk refuses this write too, the next start rewrites the
        entries."""
        index = log.unsynced_from if self.cut_from is None else self.cut_from
        with suppress(OSError):
            await self.checkpoint_file.store(self.checkpoint(index - 1, cut_from=index))

    def vouch_below(self, index: int) -> None:
        """Lets the checkpoint vouch only for entries below `index`."""
        self.synced_index = min(self.synced_index, index - 1)

    def checkpoint(self, end_index: int, *, cut_from: int | None = None) -> LedgerCheckpoint:
        """The checkpoint to store. It has all lists of members from the log's beginning on, because a later snapshot may need
        the list at any entry of the log."""
        begin = NO_INDEX if self.log is None else self.log.begin.index
        configurations = self.history.span(begin, self.synced_index)
        return LedgerCheckpoint(
            end_index, self.committed_index, cut_from, self.synced_index, tuple(configurations)
        )

    async def sync_index(self) -> None:
        """Lets the next checkpoint vouch for all entries that are durable now. Raises OSError, also for a full disk, because
        the kernel forgets pages that it could not write."""
        assert self.log is not None
        synced_index = self.log.unsynced_from - 1
        await self.log.sync_index()
        self.synced_index = synced_index

    async def save_checkpoint(self, committed_index: int) -> None:
        """Stores `committed_index`, up to which entries are durable here. Raises OSError; a full disk does not change the
        file."""
        assert self.log is not None
        saved = replace(self.checkpoint(self.log.end_index), committed_index=committed_index)
        await self.checkpoint_file.store(saved)
        self.committed_index = committed_index

    def size_bytes(self) -> int:
        """The length of all files of the log, unused space included."""
        folders = (self.directory.subdirectory(name) for name in self.directory.subdirectories())
        return sum(size for folder in folders for _, size in folder.names())

    async def close(self, committed_index: int) -> None:
        """Completes the index and the checkpoint, unless a write failed or was given up. On a full disk an older checkpoint
        stays. Raises OSError."""
        if self.log is None:
            return
        if not self.unsettled:
            saved = self.committed_index, self.synced_index
            await self.sync_index()
            committed = max(committed_index, self.committed_index)
            if (committed, self.synced_index) != saved:
                try:
                    await self.save_checkpoint(committed)
                except OSError as error:
                    if error.errno not in DISK_FULL:
                        raise
        self.log.close()


ENTRIES_A_SLICE = 1024
"""Recovery reads this number of entries in a slice. Other tasks run between two slices."""


async def recover(
    log: EntryLog, synced_index: int, recent_bytes_max: int, history: ConfigurationHistory
) -> RaftLog:
    """Moves the end of `log` from its beginning to its real end. `synced_index` is from the checkpoint. `history` gets the
    lists of members in the entries that are read. Raises MembersUnknown, OSError."""
    older = begin_at(log, synced_index) if synced_index > log.begin.index else None
    if older is None:
        older = TermRuns(log.begin.index, log.begin.term)
    held = RaftLog(older=older, recent_bytes_max=recent_bytes_max)
    while entries := take_some(log, held.last_term):
        held.append(entries)
        history.take(entries)
        held.forget(log.end_index)
        await asyncio.sleep(0)
    return held


def begin_at(log: EntryLog, index: int) -> TermRuns | None:
    """Moves the end of `log` to before entry `index`, and returns the terms of all entries before. If the entry or its index
    unit is missing, returns None, and the end stays at the log's beginning. An operator may have removed the index, or Java or
    an older version may have continued the log and its checkpoint."""
    try:
        position = log.stored_unit(index).position
        check = log.check_of(index - 1)
        before = TermRuns(log.begin.index, log.begin.term)
        runs = runs_of(index - 1, lambda asked: log.believed_unit(asked).term, before)
        stored = entry_at(log, position, check)
    except (LogDamaged, TermsFall):
        stored = None
    if stored is None or not follows(stored.entry, index, runs.last_term):
        logger.warning(
            "%s: the whole log is read, because its index up to entry %d cannot be used", log.where, index
        )
        return None
    log.end, log.end_index, log.check = position, index - 1, check
    return runs


def take_some(log: EntryLog, last_term: int) -> list[Entry]:
    """Reads a slice of entries, and rewrites their index units."""
    entries: list[Entry] = []
    units = bytearray()
    first = log.end_index + 1
    fit = (log.index.file_bytes - first * INDEX_UNIT.size % log.index.file_bytes) // INDEX_UNIT.size
    for index in range(first, first + min(fit, ENTRIES_A_SLICE)):
        position = log.skip_blank(log.end)
        stored = entry_at(log, position, log.check)
        if stored is None or not follows(stored.entry, index, last_term):
            break
        last_term = stored.entry.term
        entries.append(stored.entry)
        units += encode_index_unit(stored.entry, position)
        log.end = position + stored.size
        log.end_index = index
        log.check = stored.check
        log.batch_count = stored.batch_position + 1
    if entries:
        log.rewrite_index_units(first, bytes(units))
    return entries


def entry_at(log: EntryLog, position: int, check: int) -> StoredEntry | None:
    return decode_entry(log.data.rest_of_file(position), position, check)


def follows(entry: Entry, index: int, last_term: int) -> bool:
    return entry.index == index and entry.term >= last_term


def refuse_later_entries(log: EntryLog, last_term: int) -> None:
    """Raises LogDamaged if an intact entry of a later sync follows the log's end. A crash tears only entries of the last sync,
    so such an entry proves that the missing entry was durable and the disk lost it; continuing could lose committed entries. An
    entry with an older term than the log's last term proves nothing, because Java does not erase entries that a leader cut."""
    missing = log.end_index + 1
    index, before = missing + 1, log.unit(missing)
    while before is not None and (unit := log.unit(index)) is not None:
        check = stored_check(log.data.rest_of_file(before.position))
        stored = entry_at(log, unit.position, check)
        later = stored is not None and stored.entry.index == index and stored.entry.term >= last_term
        if later and stored is not None and index - stored.batch_position > missing:
            what = f"entry {missing} is unreadable, but entry {index}, written later, is intact"
            raise LogDamaged(log.where, f"{what}: {log.place(log.end)}; {EMPTY_AND_RESTART}")
        index, before = index + 1, unit
