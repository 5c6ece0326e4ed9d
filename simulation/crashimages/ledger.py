"""Crash tests of a Raft member's log (the ledger) on a disk that loses unsynced data. At many steps of a script the process is
killed, or the machine loses power, and the ledger is recovered."""

from __future__ import annotations

import asyncio
import errno
import os
import random
from dataclasses import dataclass, field, replace
from unittest.mock import patch

from dledger.raft.actions import PersistThenSend, Vote
from dledger.raft.entries import NO_INDEX, NO_TERM, Entry
from dledger.raft.settings import DLedgerSettings
from dledger.raft.snapshot import Snapshot
from dledger.storage import store
from dledger.storage.entrylog import begin_with_file, read_entries
from dledger.storage.inspection import inspect
from dledger.storage.memberfolder import read_store
from dledger.storage.snapshot import PLACE, PLACE_MAGIC, position_in, snapshot_at
from dledger.storage.store import Recovered, Store
from mqruntime.runtime import Runtime
from mqruntime.slices import whole
from simulation.kernel.node import Node
from simulation.kernel.world import World

SCRIPT_STEPS = 40
LAST_SCRIPT_STEPS = 10
"""Steps of the last life, which nothing crashes. What it recovered is checked before its first step."""
CRASHES = 60
FULL_EVERY, FULL_SHARE = 3, 0.15
"""In every third seed, the disk at first refuses blocks for this share of what is persisted."""
FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@dataclass
class WrittenEntries:
    """What the script knows about the ledger: which entries were promised to be durable, and what the ledger was doing at the
    crash."""

    vote: Vote = field(default_factory=lambda: Vote(newcomer=True))
    entries: list[Entry] = field(default_factory=list)
    under_way: PersistThenSend | None = None
    committed_index: int = NO_INDEX
    snapshot: Snapshot | None = None
    saving: Snapshot | None = None
    """The snapshot that the ledger was saving, or behind which it was beginning, when it died."""

    def persisted(self, step: PersistThenSend) -> None:
        self.vote = step.vote or self.vote
        if step.snapshot is not None:
            self.saved(step.snapshot)
            self.committed_index = step.snapshot.last_index
            gone = range(step.snapshot.last_index + 1)
            self.entries = [Entry(index, step.snapshot.last_term, b"in a snapshot") for index in gone]
        self.entries = [*self.entries[: step.cut_from], *step.entries]
        self.under_way = None

    def saved(self, snapshot: Snapshot) -> None:
        self.snapshot, self.saving = snapshot, None

    def check_recovered(self, found: Recovered, entries: list[Entry]) -> None:
        """Check that no promised entry is missing, and that there is no entry that was never written or was truncated.
        `entries` are the entries after the log's beginning; their terms are known from what was written. All earlier entries
        are in the snapshot."""
        step = self.under_way or PersistThenSend(None, None, (), ())
        vote, committed_index, begin = found.vote, found.committed_index, found.log.prev_index
        assert vote in (self.vote, step.vote or self.vote)
        if found.snapshot is None:
            assert self.snapshot is None and begin == NO_INDEX
        else:
            states = [saved.state for saved in (self.snapshot, self.saving) if saved is not None]
            assert found.snapshot.state in states and begin <= found.snapshot.last_index
            if step.snapshot is not None and found.snapshot.state == step.snapshot.state:
                self.persisted(step)
                step = PersistThenSend(None, None, (), ())
            self.saved(found.snapshot)
            assert found.log.term_at(begin) == (self.entries[begin].term if begin >= 0 else NO_TERM)
        entries = [*self.entries[: begin + 1], *entries]
        kept = self.entries[: step.cut_from]
        new = entries[len(kept) :]
        assert entries == self.entries or (
            entries[: len(kept)] == kept and new == list(step.entries[: len(new)])
        )
        assert self.committed_index <= committed_index < len(entries)
        self.vote, self.entries, self.under_way, self.committed_index = vote, entries, None, committed_index


class LedgerScript:
    """An app that opens a ledger, compares it with what was written, continues with it and notes what it promises."""

    def __init__(
        self, node: Node, runtime: Runtime, seed: int, life: str, written: WrittenEntries, script_steps: int
    ) -> None:
        self.disk = node.disk
        self.disk.mend()  # there is room at the start
        self.random = random.Random(f"{seed}/{life}")
        self.full_share = FULL_SHARE if seed % FULL_EVERY == 2 else 0.0
        self.fills = random.Random(f"{seed}/{life}/full disks")
        of_all_lives = random.Random(seed)
        settings = DLedgerSettings(
            data_file_bytes=of_all_lives.choice((2048, 16384)),
            index_file_bytes=32 * of_all_lives.choice((8, 64, 512)),
            entry_bytes_max=1024,
            snapshot_margin_entries=of_all_lives.choice((0, 4)),
            recent_bytes_max=self.random.choice((0, 3000, 1 << 20)),
        )
        settings = replace(settings, same_positions=of_all_lives.random() < 0.5)
        self.runtime = runtime
        self.store = Store(runtime.files, runtime.segments, "dledger-n0", settings, ["n0"])
        self.written = written
        self.script_steps = script_steps
        self.done = False

    async def start(self) -> None:
        looked = whole(inspect(await read_store(self.runtime.files, self.runtime.segments, self.store.name)))
        found = await self.store.open()
        assert looked.damage == "", "who only looks at it takes no crash for damage"
        assert (looked.first_index, looked.last_index) == (found.log.first_index, found.log.last_index)
        entries = await self.read_all()
        assert [found.log.term_at(entry.index) for entry in entries] == [entry.term for entry in entries]
        recent = range(found.log.recent_from, found.log.last_index + 1)
        assert [found.log.entry(index) for index in recent] == entries[recent.start - found.log.first_index :]
        self.written.check_recovered(found, entries)
        self.check_positions()
        for _ in range(self.script_steps):
            await self.step()
        self.done = True

    async def stop(self) -> None:
        await self.store.close(self.written.committed_index)

    async def wait_failed(self) -> BaseException:
        failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        return await failed

    async def read_all(self) -> list[Entry]:
        log = self.store.log
        assert log is not None
        entries: list[Entry] = []
        while (first := log.begin.index + 1 + len(entries)) <= log.end_index:
            entries += await read_entries(log, first, self.random.choice((1, 5, 200)), 3000)
        assert len(entries) == log.end_index - log.begin.index
        return entries

    def check_positions(self) -> None:
        """Check the positions of entries. They follow from the log's beginning, which the snapshot names, and from the
        entries' sizes."""
        log, snapshot = self.store.log, self.written.snapshot
        assert log is not None
        if not self.store.settings.same_positions:
            return
        end = 0 if snapshot is None else position_in(snapshot)
        assert log.begin.position == end
        for index in range(log.begin.index + 1, log.end_index + 1):
            unit = log.stored_unit(index)
            assert unit.position == log.start_of(unit.size, end)
            end = unit.end
        assert log.end == end

    async def step(self) -> None:
        choice, written = self.random.random(), self.written
        if choice < 0.6:
            await self.persist(cut=False)
        elif choice < 0.75:
            await self.persist(cut=len(written.entries) > written.committed_index + 1)
        elif choice < 0.82:
            await self.snapshot()
        elif choice < 0.84:
            await self.install()
        elif choice < 0.95:
            decided = self.random.randint(written.committed_index, len(written.entries) - 1)
            await self.store.sync_index()
            await self.store.save_checkpoint(decided)
            written.committed_index = decided
        else:
            assert self.store.log is not None
            assert await self.read_all() == written.entries[self.store.log.begin.index + 1 :]

    async def snapshot(self) -> None:
        """Take a snapshot that ends with a decided entry."""
        written = self.written
        index = written.committed_index
        if self.store.settings.same_positions:
            await self.begin_at()
            return
        if written.snapshot is not None and index <= written.snapshot.last_index or index < 0:
            return
        written.saving = Snapshot(index, written.entries[index].term, self.random.randbytes(20))
        await self.store.save_snapshot(written.saving)
        await self.store.reclaim()
        written.saved(written.saving)

    async def begin_at(self) -> None:
        """Begin the log at a file that has a decided entry."""
        written, log = self.written, self.store.log
        assert log is not None
        size = log.data.file_bytes
        starts = range(log.begin.position + size, log.end_of(written.committed_index), size)
        if starts:
            position = self.random.choice(starts)
            begin = await begin_with_file(log, position)
            assert begin.term == written.entries[begin.index].term
            written.saving = snapshot_at(begin, ())
            await self.store.begin_at(position, b"")
            await self.store.reclaim()
            written.saved(written.saving)
            self.check_positions()

    def place_of_a_leader(self) -> bytes:
        """A place where the log of a leader that has decided more entries may begin: after the decided entries of this ledger,
        perhaps before some of its undecided ones."""
        log = self.store.log
        assert log is not None
        size = log.data.file_bytes
        least = max(log.begin.position // size + 1, -(-log.end_of(self.written.committed_index) // size))
        return PLACE.pack(
            PLACE_MAGIC, size * self.random.randint(least, max(least, log.data.end // size + 1))
        )

    async def install(self) -> None:
        """Install a snapshot that ends after the decided entries. The log of another leader may continue there."""
        written = self.written
        term = max(written.vote.term, 1)
        index = written.committed_index + self.random.randint(1, 60)
        state = self.place_of_a_leader() if self.store.settings.same_positions else self.random.randbytes(20)
        written.saving = Snapshot(index, term, state)
        # a member follows its leader's term before it takes a snapshot
        vote = Vote(term) if term > written.vote.term else None
        step = written.under_way = PersistThenSend(vote, None, (), (), written.saving)
        await self.store.persist([step])
        written.persisted(step)
        self.check_positions()

    async def persist(self, *, cut: bool) -> None:
        written = self.written
        end = len(written.entries)
        first = self.random.randint(written.committed_index + 1, end - 1) if cut else end
        before = written.entries[first - 1].term if first else 0
        term = max(before, written.vote.term, 1) + (1 if cut else self.random.choice((0, 0, 1)))
        # mostly equal sizes, so that new entries end where cut entries ended
        sizes = [
            self.random.choice((0, 9, 9, 9, 9, 300, 900)) for _ in range(self.random.choice((1, 1, 3, 12)))
        ]
        entries = [
            Entry(first + number, term, self.random.randbytes(size)) for number, size in enumerate(sizes)
        ]
        vote = Vote(term, "n0") if term > written.vote.term else None
        step = PersistThenSend(vote, first if cut else None, tuple(entries), ())
        written.under_way = step
        if self.fills.random() < self.full_share:
            self.disk.fail_next(
                self.fills.choice(("reserve", "create")), FULL, times=self.fills.randint(1, 3)
            )
        await self.store.persist([step])
        self.disk.mend()
        written.persisted(step)


def live(
    world: World,
    node: Node,
    life: str,
    written: WrittenEntries,
    steps: int | None,
    script_steps: int = SCRIPT_STEPS,
) -> int:
    """One life of the ledger. It lasts until the event loop has taken that many steps, or to the end of the script."""
    apps: list[LedgerScript] = []
    taken = 0

    def make(runtime: Runtime) -> LedgerScript:
        apps.append(LedgerScript(node, runtime, world.seed, life, written, script_steps))
        return apps[-1]

    def over() -> bool:
        nonlocal taken
        taken += 1
        if node.failure is not None:
            raise AssertionError("the ledger failed") from node.failure
        return taken == steps or any(app.done for app in apps)

    node.start(make)
    world.run_until(over, limit_ms=600_000)
    return taken


def warned(message: str, *facts: object) -> None:
    raise AssertionError(message % facts)


@patch.object(store.logger, "warning", warned)
def crash_everywhere(seed: int, *, power_cut: bool, crashes: int = CRASHES) -> int:
    """Crash one script at many of its steps, recover it and crash it again. Returns the number of crashes. No start may log
    that data covered by a checkpoint is missing."""
    done = 0
    with World(seed) as world:
        total = live(world, world.node("n0", "10.0.0.1"), "first", WrittenEntries(), None)
    for steps in range(1, total, max(1, total // crashes)):
        chance = random.Random(f"{seed}/{steps}")
        with World(seed) as world:
            node, written = world.node("n0", "10.0.0.1"), WrittenEntries()
            live(world, node, "first", written, steps)
            node.kill(power_cut=power_cut)
            live(world, node, f"{steps}/second", written, chance.randrange(1, total))
            node.kill(power_cut=chance.random() < 0.5)
            live(world, node, "last", written, None, LAST_SCRIPT_STEPS)
        done += 2
    return done
