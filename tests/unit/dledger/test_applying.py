"""Entries on their way to the state machine: in order, from memory or from the disk, a few in each turn of the loop."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path

import pytest

from dledger.actions import PersistThenSend, Vote
from dledger.applying import APPLIED_A_TURN, TURN_MS_MAX, Applier
from dledger.entry import Entry
from dledger.settings import DLedgerSettings
from dledger.store import Store
from mqruntime.segments import RealSegmentDirectory
from mqruntime.smallfiles import RealSmallFiles
from mqruntime.tasks import Tasks

COUNT = 300


class Machine:
    """Its clock goes on by `took_ms` with each entry."""

    def __init__(self, took_ms: int) -> None:
        self.took_ms = took_ms
        self.at_ms = 0
        self.applied: list[tuple[int, bytes]] = []

    def monotonic_ms(self) -> int:
        return self.at_ms

    def now_ms(self) -> int:
        return self.at_ms

    def apply(self, index: int, body: bytes) -> object:
        self.at_ms += self.took_ms
        self.applied.append((index, body))
        return len(body)


@pytest.mark.parametrize("recent_bytes_max", [0, 1 << 20], ids=["from-the-disk", "from-memory"])
@pytest.mark.parametrize("took_ms", [0, 4, 50])
def test_all_that_is_decided_is_applied_a_few_a_turn(
    tmp_path: Path, recent_bytes_max: int, took_ms: int
) -> None:
    machine, results, turns = Machine(took_ms), list[tuple[int, object]](), [0]
    entries = [Entry(index, 1, b"%d" % index if index % 7 else b"") for index in range(COUNT)]

    async def run() -> None:
        settings = DLedgerSettings(
            data_file_bytes=8192,
            index_file_bytes=32 * 64,
            entry_bytes_max=1024,
            recent_bytes_max=recent_bytes_max,
        )
        store = Store(RealSmallFiles(tmp_path), RealSegmentDirectory(tmp_path), "n", settings, ["n"])
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
    most = APPLIED_A_TURN if not took_ms else -(-TURN_MS_MAX // took_ms) + 1  # and one without a body
    assert max(after - before for before, after in pairwise(turns)) <= most
