"""What is decided on its way to the state machine.

Invariant: entries are applied once in a life of the process, in order, a few in each turn of the loop; of those that are in
memory no more, as at a start, a limited number is read at a time. A snapshot stands for all entries up to one: it is made, and
taken in their place, in slices, and nothing is applied meanwhile.

A log without a state machine: what is decided counts as applied at once, and nothing is read for it.

Invariant: `applied_index` is what is known to be decided; at a start that is what the disk knew."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, runtime_checkable

from dledger.node.callbacks import calling, iterator, piece_of_bytes
from dledger.raft.entries import NO_INDEX, Entry
from dledger.raft.errors import EntryRefused, SnapshotUnknown
from dledger.raft.log import RaftLog
from dledger.raft.membership import is_members
from dledger.raft.snapshot import Snapshot
from dledger.storage.entrylog import EntryLog
from dledger.storage.oldentries import read_entries
from mqruntime.clock import Clock
from mqruntime.tasks import Tasks

APPLIED_A_TURN = 64
TURN_MS_MAX = 10
"""However slow a state machine is, others have their turn once it took so long."""
READ_ENTRIES_MAX = 1024
READ_BYTES_MAX = 256 << 10


class StateMachine(Protocol):
    def apply(self, index: int, body: bytes) -> object:
        """Called once for each decided entry in order, again at each start of the process from the first one that no snapshot
        stands for; never with an empty body, nor with a list of members. What it returns goes to the proposer, if that is
        here. EntryRefused, which every member must raise alike, leaves the state as it was and goes to the proposer in the same
        way; the next entry is applied. Any other exception ends the process, a cancellation too."""
        ...


@runtime_checkable
class BatchedStateMachine(Protocol):
    """A state machine that takes several entries at a call, where a call costs more than an entry."""

    def apply_batch(self, entries: Sequence[Entry]) -> Sequence[object]:
        """Called with decided entries, each once and in order, none that `StateMachine.apply` is not called with. Returns what
        became of each, from the first on: a result, or an EntryRefused, which leaves the state as it was and holds up nothing
        behind it. It may end before the last entry when some ms have passed, but not before the first: what it leaves is in the
        next batch. What it raises ends the process."""
        ...


AnyStateMachine = StateMachine | BatchedStateMachine


class OneByOne:
    """Batches for a state machine that takes one entry at a call."""

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
    """A state machine whose state can be written down."""

    def snapshot_save(self) -> Iterator[bytes]:
        """The state as it is now, in pieces of which none takes longer than some ms; nothing is applied before the last one."""
        ...

    def snapshot_load(self, data: bytes | bytearray) -> Iterator[None]:
        """Replaces the state by one that `snapshot_save` made, whatever it was; each step takes some ms at most, and until the
        last one the former state stands. Raises SnapshotUnknown."""
        ...


class NoSnapshots:
    """A state machine that is made anew from the first entry on at each start."""

    def snapshot_save(self) -> Iterator[bytes]:
        raise SnapshotUnknown("a snapshot is to be made", "none: this state machine has no form for it")

    def snapshot_load(self, data: bytes | bytearray) -> Iterator[None]:
        raise SnapshotUnknown(
            f"there is a snapshot of {len(data)} bytes", "none: this state machine has no form for it"
        )


def is_told(entry: Entry) -> bool:
    """Whether state machines hear of it."""
    return bool(entry.body) and not is_members(entry.body)


class Applier:
    """`on_applied` gets the index of each entry, and what the state machine returned; `on_turn` is called when a few were
    applied, or none; `on_failure` gets what the state machine raised in a turn of its own. `on_snapshot` gets the last entry
    and the bytes of each snapshot that is made: whenever `every` entries, or bodies of `every_bytes`, were applied since the
    last one; never where `every` is 0."""

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
        """Entries and bytes of bodies that were applied since the last snapshot."""
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
        """Nothing of `log` is applied yet; `disk` has what it holds no more, `committed_index` is what is known of it, and
        `snapshot` stands for what is at its beginning, or before that."""
        self._log, self._disk, self._replay_end = log, disk, committed_index
        if snapshot is not None:
            self.restore(snapshot)
        self.commit(committed_index)

    def save(self) -> None:
        """Makes a snapshot of what is applied now, unless one is being made, or taken."""
        if self._saving is None and self._loading is None:
            self._begin_saving()
            self._arrange_more()

    def restore(self, snapshot: Snapshot) -> None:
        """`snapshot` stands for all that was applied, and for more; a decision of what it ends with follows."""
        self._saving, self._saved = None, bytearray()
        self._read.clear()
        with calling("snapshot_load"):
            loading = self._snapshots.snapshot_load(snapshot.state)
        self._loading, self._loading_index = iterator("snapshot_load", loading), snapshot.last_index

    def commit(self, index: int) -> None:
        """All entries up to there are decided: some are applied now, others in later turns."""
        self.committed_index = index
        self._apply_some()

    @property
    def replays(self) -> bool:
        """Whether something that was known to be decided at the beginning is not applied yet."""
        return self.applied_index < self._replay_end

    async def replayed(self) -> None:
        """Returns once that is applied, or will never be."""
        while self.replays and not self._closed:
            self._moved.clear()
            await self._moved.wait()

    def close(self) -> None:
        """Nothing is applied any more."""
        self._closed = True
        self._moved.set()
        if self._next_turn is not None:
            self._next_turn.cancel()

    def _apply_some(self) -> None:
        until_ms = self._clock.monotonic_ms() + TURN_MS_MAX
        room = APPLIED_A_TURN
        while room > 0:
            if self._loading is not None or self._saving is not None:
                self._go_on()
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
        """As many of them as the state machine takes now."""
        told = [entry for entry in batch if is_told(entry)]
        with calling("apply"):
            results = deque(self._batches.apply_batch(told) if told else ())
        count = len(results)
        assert min(1, len(told)) <= count <= len(told), f"{len(told)} entries have {count} results"
        for entry in batch:
            if is_told(entry) and not results:
                break
            self.applied_index = entry.index
            self._on_applied(entry.index, results.popleft() if is_told(entry) else None)
            self._count(entry)
        while self._read and self._read[0].index <= self.applied_index:
            self._read.popleft()

    def _count(self, entry: Entry) -> None:
        """Begins a snapshot when it is time."""
        self._since += 1
        self._since_bytes += len(entry.body)
        if self._is_due(0, 0, entry.index):
            self._begin_saving()

    def _begin_saving(self) -> None:
        self._since = self._since_bytes = 0
        with calling("snapshot_save"):
            saving = self._snapshots.snapshot_save()
        self._saving = iterator("snapshot_save", saving)

    def _go_on(self) -> None:
        """A slice of a snapshot's work."""
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
        """The next decided ones, as far as they are at hand; it ends where a snapshot is due."""
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
        """Whether a snapshot is, once so many more entries are applied. While the log is replayed it is not: many would be."""
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
        """What the log has forgotten the disk has, as it is in the log; and nothing that is decided is ever cut."""
        assert self._disk is not None
        first = self.applied_index + 1
        if first <= self._disk.begin.index:  # a snapshot that stands for it is about to come
            self._reading = False
            return
        wanted = min(self.committed_index + 1, self._log.recent_from) - first
        entries: list[Entry] = []
        if wanted > 0:  # else a snapshot has come since
            entries = await read_entries(self._disk, first, min(wanted, READ_ENTRIES_MAX), READ_BYTES_MAX)
        if first == self.applied_index + 1 and self._loading is None:  # no snapshot stands for them meanwhile
            self._read.extend(entries)
        self._reading = False
        if not self._closed:
            self._apply_some()


class NullApplier:
    """For a log without a state machine. Calls `on_committed` with each new commit index, and `on_turn` after it."""

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
        """Nobody is told of what was decided before."""
        self.commit(committed_index)

    def restore(self, snapshot: Snapshot) -> None:
        """A decision of what it ends with follows, and is all that is to be known."""

    def commit(self, index: int) -> None:
        self.applied_index = index
        self._on_committed(index)
        self._on_turn()

    async def replayed(self) -> None:
        """At once."""

    def close(self) -> None:
        """Nothing is under way."""
