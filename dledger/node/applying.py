"""Application of committed entries to the state machine. Upstream: StateMachineCaller.

Entries that are not in memory, as at a start, are read from the disk, a limited number at a time. A snapshot covers all entries
up to its last entry. A snapshot is made, or loaded instead of these entries, in slices, and nothing is applied meanwhile.
Without a state machine committed entries count as applied at once, and nothing is read.

Invariant: entries are applied in order, each once in the life of a process, a few in each turn of the event loop. Without a
state machine `applied_index` equals the known commit index, at a start the commit index on the disk."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, runtime_checkable

from dledger.node.listener import calling, iterator, piece_of_bytes
from dledger.raft.entries import NO_INDEX, Entry
from dledger.raft.errors import EntryRefused, SnapshotUnknown
from dledger.raft.log import RaftLog
from dledger.raft.membership import is_members
from dledger.raft.snapshot import Snapshot
from dledger.storage.entrylog import EntryLog, read_entries
from mqruntime.clock import Clock
from mqruntime.tasks import Tasks

APPLIED_A_TURN = 64
TURN_MS_MAX = 10
"""A turn ends after this time, even if the state machine is slow."""
READ_ENTRIES_MAX = 1024
READ_BYTES_MAX = 256 << 10


class StateMachine(Protocol):
    def apply(self, index: int, body: bytes) -> object:
        """Called once for each committed entry in order, and again at each start of the process from the first entry that no
        snapshot covers. Never called with an empty body or a list of members. The result is returned to the proposer, if the
        proposer is on this member. An EntryRefused must be raised on every member alike; it leaves the state unchanged, is
        returned like a result, and the next entry is applied. Any other exception ends the process, a CancelledError too."""
        ...


@runtime_checkable
class BatchedStateMachine(Protocol):
    """A state machine that applies several entries in one call; useful if a call costs more than an entry."""

    def apply_batch(self, entries: Sequence[Entry]) -> Sequence[object]:
        """Called with committed entries, each once and in order, except for those with which `StateMachine.apply` is not
        called. Returns for each applied entry a result or an EntryRefused, in order; a refused entry leaves the state unchanged
        and does not stop the next entry. After some ms the call may return early, but at least the first entry must be applied.
        The remaining entries are in the next batch. An exception ends the process."""
        ...


AnyStateMachine = StateMachine | BatchedStateMachine


class OneByOne:
    """Batches for a state machine that applies one entry in a call."""

    def __init__(self, state_machine: StateMachine, clock: Clock) -> None:
        self._state_machine = state_machine
        self._clock = clock

    def apply_batch(self, entries: Sequence[Entry]) -> Sequence[object]:
        until_ms = self._clock.monotonic_ms() + TURN_MS_MAX
        results: list[object] = []
        for entry in entries:
            try:
                results.append(self._state_machine.apply(entry.index, entry.body))
            except EntryRefused as refusal:
                results.append(refusal)
            if self._clock.monotonic_ms() >= until_ms:
                break
        return results


class Snapshots(Protocol):
    """A state machine whose state can be saved."""

    def snapshot_save(self) -> Iterator[bytes]:
        """The present state, in pieces that each take some ms at most. No entry is applied before the last piece is made."""
        ...

    def snapshot_load(self, data: bytes | bytearray) -> Iterator[None]:
        """Replaces the state by a state that `snapshot_save` made. Each step takes some ms at most; the last step replaces the
        old state. Raises SnapshotUnknown."""
        ...


class NoSnapshots:
    """A state machine that is rebuilt from the first entry on at each start."""

    def snapshot_save(self) -> Iterator[bytes]:
        raise SnapshotUnknown("a snapshot is to be made", "none: this state machine has no form for it")

    def snapshot_load(self, data: bytes | bytearray) -> Iterator[None]:
        raise SnapshotUnknown(
            f"there is a snapshot of {len(data)} bytes", "none: this state machine has no form for it"
        )


def is_for_state_machine(entry: Entry) -> bool:
    """Whether `entry` is applied to state machines."""
    return bool(entry.body) and not is_members(entry.body)


class Applier:
    """`on_applied` is called with the index and the result of each entry, `on_turn` at the end of each turn. `on_failure` is
    called with an exception that the state machine raised in a turn of the applier. `on_snapshot` is called with the last entry
    and the bytes of each new snapshot. A snapshot is made when `every` entries, or bodies of `every_bytes`, were applied since
    the last snapshot; if `every` is 0, no snapshot is made."""

    def __init__(
        self,
        state_machine: AnyStateMachine,
        *,
        snapshots: Snapshots | None = None,
        every: int = 0,
        every_bytes: int = 0,
        on_snapshot: Callable[[int, bytearray], None] = lambda index, state: None,
        clock: Clock,
        tasks: Tasks,
        on_applied: Callable[[int, object], None],
        on_turn: Callable[[], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self.state_machine = state_machine
        self._batches: BatchedStateMachine = (
            state_machine
            if isinstance(state_machine, BatchedStateMachine)
            else OneByOne(state_machine, clock)
        )
        self.applied_index = NO_INDEX
        self.committed_index = NO_INDEX
        self._snapshots = snapshots or NoSnapshots()
        self._every, self._every_bytes = every, every_bytes
        self._since = self._since_bytes = 0
        """The number of entries, and of the bytes of their bodies, applied since the last snapshot."""
        self._saving: Iterator[bytes] | None = None
        self._saved = bytearray()
        self._loading: Iterator[None] | None = None
        self._loading_index = NO_INDEX
        self._on_snapshot = on_snapshot
        self._clock = clock
        self._tasks = tasks
        self._on_applied = on_applied
        self._on_turn = on_turn
        self._on_failure = on_failure
        self._log = RaftLog()
        self._disk: EntryLog | None = None
        self._read: deque[Entry] = deque()
        self._reading = False
        self._next_turn: asyncio.Handle | None = None
        self._replay_end = NO_INDEX
        self._moved = asyncio.Event()
        self._closed = False

    def begin(
        self, log: RaftLog, disk: EntryLog, committed_index: int, snapshot: Snapshot | None = None
    ) -> None:
        """Begins with `log`, of which nothing is applied yet. `disk` has the entries that are not in memory, and
        `committed_index` is the commit index on the disk. `snapshot` covers at least the entries before the log's beginning."""
        self._log, self._disk, self._replay_end = log, disk, committed_index
        if snapshot is not None:
            self.restore(snapshot)
        self.commit(committed_index)

    def save(self) -> None:
        """Makes a snapshot of the present state, unless a snapshot is being made or loaded."""
        if self._saving is None and self._loading is None:
            self._begin_saving()
            self._arrange_more()

    def restore(self, snapshot: Snapshot) -> None:
        """Loads `snapshot`, which covers all applied entries and more. The caller then calls `commit` with the snapshot's last
        entry."""
        self._saving, self._saved = None, bytearray()
        self._read.clear()
        with calling("snapshot_load"):
            loading = self._snapshots.snapshot_load(snapshot.state)
        self._loading, self._loading_index = iterator("snapshot_load", loading), snapshot.last_index

    def commit(self, index: int) -> None:
        """Called when entries up to `index` are committed. Some of them are applied now, the others in later turns."""
        self.committed_index = index
        self._apply_some()

    @property
    def replays(self) -> bool:
        """Whether entries that were known as committed on the disk are not applied yet."""
        return self.applied_index < self._replay_end

    async def replayed(self) -> None:
        """Returns once these entries are applied, or once this applier is closed."""
        while self.replays and not self._closed:
            self._moved.clear()
            await self._moved.wait()

    def close(self) -> None:
        """Stops applying entries."""
        self._closed = True
        self._moved.set()
        if self._next_turn is not None:
            self._next_turn.cancel()

    def _apply_some(self) -> None:
        until_ms = self._clock.monotonic_ms() + TURN_MS_MAX
        room = APPLIED_A_TURN
        while room > 0:
            if self._loading is not None or self._saving is not None:
                self._continue_snapshot()
                room -= 1
            elif batch := self._next_batch(room):
                room -= len(batch)
                self._apply(batch)
            else:
                break
            if self._clock.monotonic_ms() >= until_ms:
                break
        self._moved.set()
        self._on_turn()
        self._arrange_more()

    def _apply(self, batch: Sequence[Entry]) -> None:
        """Applies as many entries of `batch` as the state machine applies in one call."""
        given = [entry for entry in batch if is_for_state_machine(entry)]
        with calling("apply"):
            results = deque(self._batches.apply_batch(given) if given else ())
        count = len(results)
        assert min(1, len(given)) <= count <= len(given), f"{len(given)} entries have {count} results"
        for entry in batch:
            if is_for_state_machine(entry) and not results:
                break
            self.applied_index = entry.index
            self._on_applied(entry.index, results.popleft() if is_for_state_machine(entry) else None)
            self._count(entry)
        while self._read and self._read[0].index <= self.applied_index:
            self._read.popleft()

    def _count(self, entry: Entry) -> None:
        """Counts an applied entry, and begins a snapshot if one is due."""
        self._since += 1
        self._since_bytes += len(entry.body)
        if self._is_due(0, 0, entry.index):
            self._begin_saving()

    def _begin_saving(self) -> None:
        self._since = self._since_bytes = 0
        with calling("snapshot_save"):
            saving = self._snapshots.snapshot_save()
        self._saving = iterator("snapshot_save", saving)

    def _continue_snapshot(self) -> None:
        """Makes or loads the next slice of a snapshot."""
        if self._loading is not None:
            with calling("snapshot_load"):
                is_loaded = next(self._loading, self) is self
            if is_loaded:
                self._loading, self.applied_index = None, self._loading_index
                self._since = self._since_bytes = 0
        elif self._saving is not None:
            with calling("snapshot_save"):
                piece = next(self._saving, self)
            if piece is not self:
                self._saved += piece_of_bytes("snapshot_save", piece)
                return
            state = self._saved
            self._saving, self._saved = None, bytearray()
            self._on_snapshot(self.applied_index, state)

    def _next_batch(self, count_max: int) -> list[Entry]:
        """The next committed entries that are in memory or were read. The batch ends where a snapshot is due."""
        batch: list[Entry] = []
        size = 0
        for index in range(self.applied_index + 1, self.committed_index + 1):
            if self._log.holds(index):
                entry = self._log.entry(index)
            elif len(batch) < len(self._read):
                entry = self._read[len(batch)]
            else:
                break
            assert entry.index == index, f"entry {entry.index} is not the next one, {index}"
            batch.append(entry)
            size += len(entry.body)
            if len(batch) == count_max or size >= READ_BYTES_MAX or self._is_due(len(batch), size, index):
                break
        return batch

    def _is_due(self, count: int, size: int, index: int) -> bool:
        """Whether a snapshot is due after `count` more entries, up to `index`. No snapshot is due while the log is replayed,
        because a replay would make many."""
        full = self._since + count >= self._every or self._since_bytes + size >= self._every_bytes
        return self._every > 0 and full and index >= self._replay_end

    def _arrange_more(self) -> None:
        if self._closed or self._reading:
            return
        works = self._loading is not None or self._saving is not None
        if not works and self.applied_index == self.committed_index:
            return
        if not works and not self._read and not self._log.holds(self.applied_index + 1):
            self._reading = True
            self._tasks.start(self._read_some(), name="dledger-replay")
        elif self._next_turn is None:
            self._next_turn = asyncio.get_running_loop().call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._next_turn = None
        try:
            if not self._closed:
                self._apply_some()
        except Exception as error:
            self._on_failure(error)
            raise

    async def _read_some(self) -> None:
        """Reads committed entries from the disk. All entries that are not in memory are there, and committed entries are never
        cut."""
        assert self._disk is not None
        first = self.applied_index + 1
        if first <= self._disk.begin.index:  # a snapshot that covers the entry is about to come
            self._reading = False
            return
        wanted = min(self.committed_index + 1, self._log.recent_from) - first
        entries: list[Entry] = []
        if wanted > 0:  # otherwise a snapshot has come since
            entries = await read_entries(self._disk, first, min(wanted, READ_ENTRIES_MAX), READ_BYTES_MAX)
        if first == self.applied_index + 1 and self._loading is None:  # no snapshot came meanwhile
            self._read.extend(entries)
        self._reading = False
        if not self._closed:
            self._apply_some()


class NullApplier:
    """The applier without a state machine: committed entries count as applied. Calls `on_committed` with each new commit index,
    and then `on_turn`."""

    replays = False

    def __init__(self, *, on_committed: Callable[[int], None], on_turn: Callable[[], None]) -> None:
        self.applied_index = NO_INDEX
        self._on_committed = on_committed
        self._on_turn = on_turn

    @property
    def committed_index(self) -> int:
        return self.applied_index

    def begin(
        self, log: RaftLog, disk: EntryLog, committed_index: int, snapshot: Snapshot | None = None
    ) -> None:
        """Begins at `committed_index`, without a call of `on_committed`."""
        self.commit(committed_index)

    def restore(self, snapshot: Snapshot) -> None:
        """Does nothing: the caller then calls `commit` with the snapshot's last entry."""

    def commit(self, index: int) -> None:
        self.applied_index = index
        self._on_committed(index)
        self._on_turn()

    async def replayed(self) -> None:
        """Returns at once."""

    def close(self) -> None:
        """Does nothing, because no work is running."""
