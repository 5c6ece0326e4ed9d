"""What is decided on its way to the state machine.

Invariant: entries are applied once in a life of the process, in order, a few in each turn of the loop; of those that are in
memory no more, as at a start, a limited number is read at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

from dledger.entry import NO_INDEX, Entry
from dledger.errors import EntryRefused
from dledger.log import EntryLog
from dledger.oldentries import read_entries
from dledger.raftlog import RaftLog
from mqruntime.clock import Clock
from mqruntime.tasks import Tasks

APPLIED_A_TURN = 64
TURN_MS_MAX = 10
"""However slow a state machine is, others have their turn once it took so long."""
READ_ENTRIES_MAX = 1024
READ_BYTES_MAX = 256 << 10


class StateMachine(Protocol):
    def apply(self, index: int, body: bytes) -> object:
        """Called once for each decided entry in order, again from the first one at each start of the
        process; never with an empty body. What it returns goes to the proposer, if that is here. EntryRefused, which every
        member must raise alike, leaves the state as it was and goes to the proposer in the same way; the next entry is
        applied. Any other exception ends the process."""
        ...


class Applier:
    """`on_applied` gets the index of each entry, and what the state machine returned; `on_turn` is called when a few were
    applied, or none; `on_failure` gets what the state machine raised in a turn of its own."""

    def __init__(
        self,
        state_machine: StateMachine,
        *,
        clock: Clock,
        tasks: Tasks,
        on_applied: Callable[[int, object], None],
        on_turn: Callable[[], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self.state_machine = state_machine
        self.applied_index = NO_INDEX
        self.decided_index = NO_INDEX
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

    def begin(self, log: RaftLog, disk: EntryLog, decided_index: int) -> None:
        """Nothing of `log` is applied yet; `disk` has what it holds no more, and `decided_index` is what is known of it."""
        self._log, self._disk, self._replay_end = log, disk, decided_index
        self.decide(decided_index)

    def decide(self, index: int) -> None:
        """All entries up to there are decided: some are applied now, others in later turns."""
        self.decided_index = index
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
        for _ in range(APPLIED_A_TURN):
            entry = self._next_entry()
            if entry is None:
                break
            result = self._result_of(entry)
            self.applied_index = entry.index
            self._on_applied(entry.index, result)
            if self._clock.monotonic_ms() >= until_ms:
                break
        self._moved.set()
        self._on_turn()
        self._arrange_more()

    def _next_entry(self) -> Entry | None:
        """The next decided one, if it is at hand."""
        index = self.applied_index + 1
        if index > self.decided_index:
            return None
        if self._log.holds(index):
            return self._log.entry(index)
        if not self._read:
            return None
        entry = self._read.popleft()
        assert entry.index == index, f"entry {entry.index} is not the next one, {index}"
        return entry

    def _result_of(self, entry: Entry) -> object:
        if not entry.body:
            return None
        try:
            return self.state_machine.apply(entry.index, entry.body)
        except EntryRefused as refusal:
            return refusal

    def _arrange_more(self) -> None:
        if self.applied_index == self.decided_index or self._closed or self._reading:
            return
        if not self._read and not self._log.holds(self.applied_index + 1):
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
        wanted = min(self.decided_index + 1, self._log.recent_from) - first
        entries = await read_entries(self._disk, first, min(wanted, READ_ENTRIES_MAX), READ_BYTES_MAX)
        self._read.extend(entries)
        self._reading = False
        if not self._closed:
            self._apply_some()
