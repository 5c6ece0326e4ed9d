"""Entries on their way to the state machine: in order, from memory or from the disk, a few in each turn of
the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from dledger.node.applying import APPLIED_A_TURN, TURN_MS_MAX, Applier
from dledger.raft.actions import PersistThenSend, Vote
from dledger.raft.entries import Entry
from dledger.raft.errors import EntryRefused
from dledger.raft.settings import DLedgerSettings
from dledger.storage.store import Store
from mqruntime.segments import RealSegmentDirectory
from mqruntime.smallfiles import RealSmallFiles
from mqruntime.tasks import Tasks

COUNT = 300


class Machine:
    """A state machine whose clock advances by `took_ms` with each entry."""

    def __init__(self, took_ms: int) -> None:
        self.took_ms = took_ms
        self.at_ms = 0
        self.applied: list[tuple[int, bytes]] = []

    def monotonic_ms(self) -> int:
        return self.at_ms

    def now_ms(self) -> int:
        return self.at_ms

    def work_us(self) -> int:
        return 1_000 * self.at_ms

    def apply(self, index: int, body: bytes) -> object:
        self.at_ms += self.took_ms
        self.applied.append((index, body))
        return len(body)


class Batched(Machine):
    """Applies at most ten entries of a batch and refuses every fifth."""

    calls = 0

    def apply_batch(self, entries: Sequence[Entry]) -> Sequence[object]:
        self.calls += 1
        results: list[object] = []
        for entry in entries[:10]:
            result = self.apply(entry.index, entry.body)
            results.append(EntryRefused("a fifth") if entry.index % 5 == 0 else result)
        return results


def applied_from(machine: Machine, folder: Path, recent_bytes_max: int) -> list[tuple[int, object]]:
    """Apply the committed entries, check what holds for any state machine, and return the results."""
    results, turns = list[tuple[int, object]](), [0]
    entries = [Entry(index, 1, b"%d" % index if index % 7 else b"") for index in range(COUNT)]

    async def run() -> None:
        settings = DLedgerSettings(
            data_file_bytes=8192,
            index_file_bytes=32 * 64,
            entry_bytes_max=1024,
            recent_bytes_max=recent_bytes_max,
        )
        store = Store(RealSmallFiles(folder), RealSegmentDirectory(folder), "n", settings, ["n"])
        found = await store.open()
        await store.persist([PersistThenSend(Vote(1), None, tuple(entries), ())])
        found.log.append(entries)
        found.log.forget(COUNT - 1)
        assert store.log is not None and found.log.holds(0) == (recent_bytes_max > 0)
        ended: list[BaseException] = []
        applier = Applier(
            machine,
            clock=machine,
            tasks=Tasks(ended.append),
            on_applied=lambda index, result: results.append((index, result)),
            on_turn=lambda: turns.append(applier.applied_index),
            on_failure=ended.append,
        )
        applier.begin(found.log, store.log, COUNT - 10)
        assert applier.replays
        await applier.replayed()
        assert not applier.replays and applier.applied_index == COUNT - 10 and not ended
        applier.close()

    asyncio.run(run())
    assert machine.applied == [(entry.index, entry.body) for entry in entries[: COUNT - 9] if entry.body]
    assert [index for index, _ in results] == list(range(COUNT - 9))
    a_call = 10 if isinstance(machine, Batched) else 1
    took_ms = machine.took_ms
    most = (
        APPLIED_A_TURN if not took_ms else -(-TURN_MS_MAX // took_ms) + 2 * a_call
    )  # and some without a body
    assert max(after - before for before, after in pairwise(turns)) <= most
    return results


@pytest.mark.parametrize("recent_bytes_max", [0, 1 << 20], ids=["from-the-disk", "from-memory"])
@pytest.mark.parametrize("took_ms", [0, 4, 50])
def test_committed_entries_are_applied_a_few_per_loop_turn(
    tmp_path: Path, recent_bytes_max: int, took_ms: int
) -> None:
    results = applied_from(Machine(took_ms), tmp_path, recent_bytes_max)
    assert all((result is None) == (index % 7 == 0) for index, result in results)


@pytest.mark.parametrize("recent_bytes_max", [0, 1 << 20], ids=["from-the-disk", "from-memory"])
@pytest.mark.parametrize("took_ms", [0, 4])
def test_a_batch_continues_after_a_refused_entry_and_the_rest_is_offered_again(
    tmp_path: Path, recent_bytes_max: int, took_ms: int
) -> None:
    machine = Batched(took_ms)
    results = applied_from(machine, tmp_path, recent_bytes_max)
    refused = [index for index, result in results if isinstance(result, EntryRefused)]
    assert refused == [index for index in range(COUNT - 9) if index % 5 == 0 and index % 7]
    assert machine.calls < len(machine.applied) / 5


def test_a_state_machine_that_applies_nothing_of_a_batch_fails_its_member(tmp_path: Path) -> None:
    class Idle(Machine):
        def apply_batch(self, entries: Sequence[Entry]) -> Sequence[object]:
            return ()

    with pytest.raises(AssertionError, match="have 0 results"):
        applied_from(Idle(0), tmp_path, 1 << 20)
