"""Entries that a leader reads for a follower and finds corrupted: the follower waits and no member fails."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from dledger.node.catchup import CatchupReader
from dledger.node.logstart import LogStart
from dledger.raft.actions import Load, PersistThenSend, Vote
from dledger.raft.entries import Entry
from dledger.raft.errors import EntryUnreadable, LogDamaged
from dledger.raft.messages import HeartBeatResponse, ResultCode
from dledger.raft.progress import Unreadable
from dledger.raft.settings import DLedgerSettings
from dledger.storage.entry import INDEX_UNIT
from dledger.storage.entrylog import read_entries
from dledger.storage.store import Store
from mqruntime.segments import RealSegmentDirectory
from mqruntime.smallfiles import RealSmallFiles
from tests.support.doubles import ManualClock
from tests.unit.dledger.raftharness import core, elected, entries

SETTINGS = DLedgerSettings(data_file_bytes=8192, index_file_bytes=32 * 32, entry_bytes_max=1024)


async def with_entries(root: Path) -> Store:
    store = Store(RealSmallFiles(root), RealSegmentDirectory(root), "n", SETTINGS, ["n"])
    await store.open()
    written = tuple(Entry(index, 1, b"body %d" % index) for index in range(20))
    await store.persist([PersistThenSend(Vote(1), None, written, (), None)])
    return store


def test_entries_before_a_corrupted_one_are_read_and_it_is_reported(tmp_path: Path) -> None:
    async def run() -> None:
        store, reported = await with_entries(tmp_path), list[int]()
        log, reads = store.log, CatchupReader(ManualClock(), reported.append)
        assert log is not None
        log.data.rest_of_file(log.stored_unit(9).position)[50] ^= 1
        found = await reads.read(log, Load("b", 5, 100), 1 << 20)
        assert not isinstance(found, Unreadable)
        assert [entry.index for entry in found if isinstance(entry, Entry)] == [5, 6, 7, 8]  # type: ignore[union-attr]
        assert await reads.read(log, Load("b", 9, 100), 1 << 20) == Unreadable(9)
        with pytest.raises(EntryUnreadable, match="entry 9"):
            await read_entries(log, 9, 1, 1 << 20)
        assert (reported, reads.unreadable) == ([9], 1)
        log.data.rest_of_file(log.stored_unit(9).position)[50] ^= 1
        again = await reads.read(log, Load("b", 9, 100), 1 << 20)
        assert not isinstance(again, Unreadable) and len(again) == 11  # type: ignore[arg-type]

    asyncio.run(run())


def test_two_followers_missing_a_corrupted_entry_are_logged_once_each(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        store, clock = await with_entries(tmp_path), ManualClock()
        log, reads = store.log, CatchupReader(clock, lambda index: None)
        assert log is not None
        log.data.rest_of_file(log.stored_unit(9).position)[50] ^= 1
        for clock.ms in range(0, 3_000, 100):
            for peer in ("b", "c"):
                assert await reads.read(log, Load(peer, 9, 100), 1 << 20) == Unreadable(9)
        assert [record.getMessage()[:20] for record in caplog.records] == [
            "b is missing entry 9",
            "c is missing entry 9",
        ]

    asyncio.run(run())


def test_a_corrupted_index_unit_is_rebuilt_from_its_entry(tmp_path: Path) -> None:
    async def run() -> None:
        store, reported = await with_entries(tmp_path), list[int]()
        log, reads = store.log, CatchupReader(ManualClock(), reported.append)
        assert log is not None
        unit = bytes(log.index.rest_of_file(9 * INDEX_UNIT.size)[: INDEX_UNIT.size])
        for at in range(INDEX_UNIT.size):
            log.index.rest_of_file(9 * INDEX_UNIT.size)[at] ^= 1
            assert await reads.read(log, Load("b", 9, 100), 1 << 20) == ()
            assert bytes(log.index.rest_of_file(9 * INDEX_UNIT.size)[: INDEX_UNIT.size]) == unit
        assert not reported and not log.rebuild_index_unit(9)

    asyncio.run(run())


def test_an_unreadable_entry_is_read_again_when_the_follower_answers() -> None:
    raft = core(log=entries(*[1] * 50), vote=Vote(1), recent_bytes_max=200)
    raft = elected(raft)
    raft.settings = replace(raft.settings, push_entries_max=4)
    raft.persisted(600)
    progress = raft.progress["b"]
    progress.unanswered()
    progress.next_index, progress.probing = 5, False
    loads = [action for action in raft.tick(raft.next_tick_ms) if isinstance(action, Load)]
    assert [(load.peer, load.first_index) for load in loads] == [("b", 5)]
    assert raft.loaded(loads[0], Unreadable(5), raft.now_ms) == [] and progress.held
    beat = HeartBeatResponse(raft.term, ResultCode.SUCCESS, 0, False, -1)
    again = [action for action in raft.receive("b", beat, raft.now_ms + 10) if isinstance(action, Load)]
    assert [(load.peer, load.first_index) for load in again] == [("b", 5)]


def test_a_corrupted_new_log_start_fails_the_request_and_may_be_retried(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        settings = replace(SETTINGS, same_positions=True, data_file_bytes=256, entry_bytes_max=100)
        store = Store(RealSmallFiles(tmp_path), RealSegmentDirectory(tmp_path), "n", settings, ["n"])
        await store.open()
        log, beginnings, begun = store.log, LogStart(store), list[int]()
        assert log is not None
        written = tuple(Entry(index, 1, b"body %d" % index) for index in range(20))
        await store.persist([PersistThenSend(Vote(1), None, written, (), None)])
        log.data.rest_of_file(256)[3] ^= 1
        asked = beginnings.ask()
        await beginnings.perform(256, b"", begun.append)
        with pytest.raises(LogDamaged):
            await asked
        assert (log.begin.position, begun) == (0, [])
        log.data.rest_of_file(256)[3] ^= 1
        asked = beginnings.ask()
        await beginnings.perform(256, b"", begun.append)
        await asked
        assert log.begin.position == 256 and begun == [log.begin.index]

    asyncio.run(run())
