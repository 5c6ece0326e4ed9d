"""Snapshots: their bytes, deleted files, installation, and starts after an interruption of each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger import DLedger
from dledger.node.applying import Applier
from dledger.node.catchup import SnapshotSender
from dledger.raft.actions import Commit, LoadChunk, PersistThenSend, Restore, Vote
from dledger.raft.entries import Entry
from dledger.raft.errors import LogDamaged, SnapshotDamaged, SnapshotUnknown
from dledger.raft.log import RaftLog, TermRuns
from dledger.raft.messages import (
    InstallRequest,
    InstallResponse,
    PushRequest,
    PushResponse,
    PushType,
    ResultCode,
)
from dledger.raft.progress import Chunk
from dledger.raft.raft import Raft
from dledger.raft.settings import DLedgerSettings
from dledger.raft.snapshot import Begin, IncomingSnapshot, Snapshot
from dledger.storage.entrylog import read_entries
from dledger.storage.snapshot import Origin, decode_snapshot, encode_snapshot
from dledger.storage.store import Store
from mqruntime.segments import RealSegmentDirectory
from mqruntime.slices import run_without_loop
from mqruntime.smallfiles import RealSmallFiles
from mqruntime.tasks import Tasks
from tests.support.doubles import ManualClock
from tests.unit.dledger import ledgergroup
from tests.unit.dledger.raftharness import core, elected, entries, held, replies, sent

SETTINGS = DLedgerSettings(
    data_file_bytes=8192, index_file_bytes=32 * 32, entry_bytes_max=1024, snapshot_margin_entries=5
)
SNAPSHOT = Snapshot(41, 3, b"state", Begin(7, 2, 8192, 99))

# Bytes


def test_a_snapshot_reads_back_and_any_damage_is_detected() -> None:
    data = run_without_loop(encode_snapshot(SNAPSHOT))
    assert run_without_loop(decode_snapshot("s", data)) == SNAPSHOT
    for at in range(len(data)):
        damaged = data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]
        with pytest.raises(SnapshotDamaged, match="^s: "):
            run_without_loop(decode_snapshot("s", damaged))
        with pytest.raises(SnapshotDamaged):
            run_without_loop(decode_snapshot("s", data[:at]))


def test_a_snapshot_of_a_newer_version_is_rejected() -> None:
    data = bytearray(run_without_loop(encode_snapshot(SNAPSHOT))[:-4])
    data[5] = 4
    with pytest.raises(SnapshotUnknown, match="form 4"):
        run_without_loop(decode_snapshot("s", bytes(data) + crc32(data).to_bytes(4, "big")))


# A log with a later start


@given(st.lists(st.integers(0, 3), min_size=1, max_size=30), st.data())
def test_a_log_with_a_later_start_knows_all_later_terms(steps: list[int], data: st.DataObject) -> None:
    terms = [sum(steps[: index + 1]) for index in range(len(steps))]
    index = data.draw(st.integers(0, len(terms) - 1))
    whole, later = RaftLog(entries(*terms)), RaftLog(entries(*terms))
    later.begin_after(index)
    assert (later.prev_index, later.last_index, later.last_term) == (index, whole.last_index, whole.last_term)
    assert [later.term_at(at) for at in range(index, len(terms))] == terms[index:]
    assert held_by(later) == entries(*terms)[index + 1 :]
    assert (
        later.recent_bytes
        == RaftLog(entries(*terms)[index + 1 :], older=TermRuns(index, terms[index])).recent_bytes
    )
    later.append([Entry(len(terms), terms[-1] + 1, b"")])
    for at in range(index + 1, len(terms) + 1):
        wanted = max(index + 1, terms.index(terms[at]) if at < len(terms) else at)
        assert later.term_and_its_first_index(at) == (later.term_at(at), wanted)
    if index + 1 < len(terms):
        later.cut(index + 1)
        assert later.last_index == index and later.last_term == terms[index]


def held_by(log: RaftLog) -> list[Entry]:
    return [log.entry(index) for index in range(log.first_index, log.last_index + 1)]


# On disk


def numbered(first: int, count: int, term: int = 1, size: int = 200) -> list[Entry]:
    return [Entry(index, term, b"%d " % index + b"x" * size) for index in range(first, first + count)]


def opened(root: Path) -> Store:
    return Store(RealSmallFiles(root), RealSegmentDirectory(root), "n", SETTINGS, ["n", "m"])


def step(*new: Entry, snapshot: Snapshot | None = None) -> PersistThenSend:
    return PersistThenSend(Vote(1), None, new, (), snapshot)


async def all_of(store: Store) -> list[Entry]:
    assert store.log is not None
    found: list[Entry] = []
    while (first := store.log.begin.index + 1 + len(found)) <= store.log.end_index:
        found += await read_entries(store.log, first, 7, 2000)
    return found


def data_files(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "n/data").iterdir())


async def with_snapshot(root: Path) -> Store:
    """A store of 200 entries with a snapshot at entry 150."""
    store = opened(root)
    await store.open()
    await store.persist([step(*numbered(0, 200))])
    await store.save_snapshot(Snapshot(150, 1, b"made of 151"))
    return store


def test_files_covered_by_a_snapshot_are_deleted_and_a_start_begins_there(tmp_path: Path) -> None:
    async def run() -> None:
        store = await with_snapshot(tmp_path)
        assert store.log is not None
        counts = store.snapshot_file.counts
        size = (tmp_path / "n/snapshot").stat().st_size
        assert (counts.written[Origin.MADE], counts.last_index, counts.last_bytes) == (1, 150, size)
        assert sum(counts.latency_ms.counts) == 1
        before, begin = data_files(tmp_path), store.log.begin
        assert 100 < begin.index <= 145 and begin.position > 0
        await store.reclaim()
        assert data_files(tmp_path) == [name for name in before if int(name) >= begin.position]
        indexes = sorted((tmp_path / "n/index").iterdir())
        assert (
            int(indexes[0].name) <= (begin.index + 1) * 32 < int(indexes[0].name) + SETTINGS.index_file_bytes
        )
        await store.persist([step(*numbered(200, 3, term=2))])
        assert await all_of(store) == (numbered(0, 200) + numbered(200, 3, term=2))[begin.index + 1 :]
        last = data_files(tmp_path)[-1]
        await store.save_checkpoint(180)
        again = opened(tmp_path)
        found = await again.open()
        assert found.snapshot is not None and found.snapshot.state == b"made of 151"
        assert (found.log.prev_index, found.log.term_at(begin.index), found.committed_index) == (
            begin.index,
            1,
            180,
        )
        assert await all_of(again) == await all_of(store)
        assert int(last) > int(before[-1]), "entries after the snapshot begin a new file"

    asyncio.run(run())


@pytest.mark.parametrize("gone", [0, 1, 2, 100])
def test_a_start_completes_an_interrupted_reclaim(tmp_path: Path, gone: int) -> None:
    async def run() -> None:
        store = await with_snapshot(tmp_path)
        assert store.log is not None
        behind = [name for name in data_files(tmp_path) if int(name) < store.log.begin.position]
        for name in behind[:gone]:
            (tmp_path / "n/data" / name).unlink()
        again = opened(tmp_path)
        found = await again.open()
        assert found.committed_index == 150 and found.log.last_index == 199
        assert await all_of(again) == numbered(store.log.begin.index + 1, 199 - store.log.begin.index)
        assert not set(behind) & set(data_files(tmp_path))

    asyncio.run(run())


def test_a_log_with_a_damaged_or_missing_snapshot_is_rejected(tmp_path: Path) -> None:
    async def run() -> None:
        store = await with_snapshot(tmp_path)
        await store.reclaim()
        path = tmp_path / "n/snapshot"
        data = path.read_bytes()
        path.write_bytes(data[:-1])
        with pytest.raises(SnapshotDamaged, match="^n/snapshot: "):
            await opened(tmp_path).open()
        path.unlink()
        with pytest.raises(LogDamaged, match="00000000000000000000"):
            await opened(tmp_path).open()
        path.write_bytes(data)
        await opened(tmp_path).open()

    asyncio.run(run())


def test_a_log_that_ends_before_its_snapshot_is_damaged(tmp_path: Path) -> None:
    async def run() -> None:
        store = await with_snapshot(tmp_path)
        for name in data_files(tmp_path)[3:]:
            (tmp_path / "n/data" / name).unlink()
        assert store.log is not None
        (tmp_path / "n/snapshot").write_bytes(run_without_loop(encode_snapshot(Snapshot(150, 1, b"s"))))
        with pytest.raises(LogDamaged, match="up to 150 are in n/snapshot"):
            await opened(tmp_path).open()

    asyncio.run(run())


def test_an_installed_snapshot_replaces_the_log_and_its_leftover_files(tmp_path: Path) -> None:
    async def run() -> None:
        store = opened(tmp_path)
        await store.open()
        assert store.log is not None
        await store.persist([step(*numbered(0, 100))])
        await store.sync_index()
        await store.save_checkpoint(60)
        old = {name: (tmp_path / "n/data" / name).read_bytes() for name in data_files(tmp_path)}
        heard: list[tuple[int, list[str], bool]] = []

        def replaced(position: int) -> None:
            heard.append(
                (position, data_files(tmp_path), b"theirs" in (tmp_path / "n/snapshot").read_bytes())
            )

        store.on_replaced = replaced
        await store.persist([step(snapshot=Snapshot(80, 2, b"theirs"))])
        assert data_files(tmp_path) == []
        assert heard == [(store.log.begin.position, [*old], True)], (
            "readers are notified before a file is deleted"
        )
        for name, data in old.items():  # as if it was killed before they were deleted
            (tmp_path / "n/data" / name).write_bytes(data)
        again = opened(tmp_path)
        found = await again.open()
        assert found.snapshot is not None and found.snapshot.state == b"theirs"
        was, now = store.snapshot_file.counts, again.snapshot_file.counts
        assert (was.written[Origin.INSTALLED], now.written.total()) == (1, 0)
        assert (was.last_index, was.last_bytes) == (now.last_index, now.last_bytes) == (80, was.last_bytes)
        assert (found.log.prev_index, found.log.last_index, found.log.last_term) == (80, 80, 2)
        assert found.committed_index == 80 and data_files(tmp_path) == []
        await again.persist([step(*numbered(81, 50, term=3))])
        last = opened(tmp_path)
        assert (await last.open()).log.last_index == 130
        assert await all_of(last) == numbered(81, 50, term=3)

    asyncio.run(run())


# In the core


def install(
    index: int, state: bytes, offset: int, end: int, *, term: int = 5, check: int | None = None
) -> InstallRequest:
    check = crc32(state) if check is None else check
    return InstallRequest(term, index, 4, len(state), check, offset, state[offset:end])


def test_a_follower_installs_a_snapshot_in_chunks_and_its_log_begins_there() -> None:
    raft = core("b", log=entries(1, 1, 2), committed_index=0)
    first = replies(raft.receive("a", install(9, b"abcdef", 0, 4), 10, ticket=1))
    assert first == [InstallResponse(5, ResultCode.SUCCESS, 9, 4)]
    raft.persisted(10)
    assert replies(raft.receive("a", install(9, b"abcdef", 0, 4), 11, ticket=2)) == first, (
        "a repeated chunk is taken once"
    )
    actions = raft.receive("a", install(9, b"abcdef", 4, 6), 12, ticket=3)
    snapshot = Snapshot(9, 4, b"abcdef")
    persist, *rest = actions
    assert isinstance(persist, PersistThenSend) and persist.snapshot == snapshot
    assert replies([persist]) == [InstallResponse(5, ResultCode.SUCCESS, 9, 6)]
    assert rest == [Restore(snapshot), Commit(9)]
    assert (raft.log.prev_index, raft.log.last_index, raft.log.last_term, raft.durable_index) == (9, 9, 4, 0)
    raft.persisted(13)
    assert raft.durable_index == 9
    old = PushRequest(5, PushType.APPEND, 7, 4, 9, (Entry(8, 4, b"x"), Entry(9, 4, b"x"), Entry(10, 5, b"y")))
    answer = replies(raft.receive("a", old, 14, ticket=4))
    assert answer == [PushResponse(5, ResultCode.SUCCESS, 8, 3, 10)] and held(raft) == [Entry(10, 5, b"y")]
    other = PushRequest(5, PushType.APPEND, 8, 3, 9, (Entry(9, 3, b"x"), Entry(10, 5, b"y")))
    assert replies(raft.receive("a", other, 15, ticket=5))[0].code is ResultCode.INCONSISTENT_INDEX  # type: ignore[attr-defined]


def test_a_snapshot_with_a_wrong_checksum_is_rejected_and_restarts() -> None:
    raft = core("b", log=entries(1, 1), committed_index=0)
    answer = replies(raft.receive("a", install(9, b"abc", 0, 3, check=1), 10, ticket=1))
    assert answer == [InstallResponse(5, ResultCode.INCONSISTENT_STATE, 9, 0)]
    assert held(raft) == entries(1, 1) and raft.committed_index == 0


def test_a_log_that_holds_the_snapshots_last_entry_is_kept() -> None:
    raft = core("b", log=entries(1, 4, 4, 4), committed_index=0)
    actions = raft.receive("a", install(1, b"abc", 0, 1), 10, ticket=1)
    assert replies(actions) == [InstallResponse(5, ResultCode.SUCCESS, 1, 3)] and Commit(1) in actions
    assert held(raft) == entries(1, 4, 4, 4)


def test_a_snapshot_above_the_size_limit_is_rejected() -> None:
    raft = core("b")
    request = replace(install(9, b"abc", 0, 3), size=raft.settings.snapshot_bytes_max + 1)
    assert replies(raft.receive("a", request, 10, ticket=1)) == [
        InstallResponse(5, ResultCode.UNEXPECTED_ARGUMENT, 9, 0)
    ]


def test_a_leader_sends_its_snapshot_when_entries_are_no_longer_in_its_log() -> None:
    raft = core("a", log=entries(1, 1, 1, 1), committed_index=3)
    elected(raft)
    raft.persisted(600)
    raft.reclaimed(2)
    (push,) = raft.progress["b"].in_flight.requests
    assert isinstance(push, PushRequest)
    mismatch = PushResponse(raft.term, ResultCode.INCONSISTENT_STATE, 4, 1, -1)
    actions = raft.receive("b", mismatch, 601)
    load = LoadChunk("b", -1, 0)
    assert load in actions
    load = loading(raft)
    chunk = Chunk(2, 1, 6, 77, 0, b"abcd")
    request = InstallRequest(raft.term, 2, 1, 6, 77, 0, b"abcd")
    assert sent(raft.loaded(load, chunk, 602)) == [("b", request)]
    actions = raft.receive("b", InstallResponse(raft.term, ResultCode.SUCCESS, 2, 4), 603)
    assert actions == [LoadChunk("b", 2, 4)]
    raft.loaded(loading(raft), Chunk(2, 1, 6, 77, 4, b"ef"), 604)
    actions = raft.receive("b", InstallResponse(raft.term, ResultCode.SUCCESS, 2, 6), 605)
    assert raft.progress["b"].match_index == 2
    assert [
        (to, request.prev_index) for to, request in sent(actions) if isinstance(request, PushRequest)
    ] == [("b", 2)]


def loading(raft: Raft) -> LoadChunk:
    load = raft.progress["b"].loading
    assert isinstance(load, LoadChunk)
    return load


def test_a_refused_snapshot_is_sent_again_from_the_start_at_the_next_heartbeat() -> None:
    raft = core("a", log=entries(1, 1, 1, 1), committed_index=3)
    elected(raft)
    raft.reclaimed(2)
    progress = raft.progress["b"]
    progress.in_flight.clear()
    progress.next_index = 0
    assert LoadChunk("b", -1, 0) in raft.tick(raft.next_tick_ms)
    raft.loaded(loading(raft), Chunk(2, 1, 2, 77, 0, b"ab"), raft.now_ms)
    refused = InstallResponse(raft.term, ResultCode.INCONSISTENT_STATE, 2, 0)
    assert raft.receive("b", refused, raft.now_ms) == []
    assert LoadChunk("b", -1, 0) in raft.tick(raft.next_tick_ms)


async def nothing() -> None:
    """Make no snapshot."""


def sender_of(
    read: Callable[[], Awaitable[Snapshot | None]],
    chunk_bytes: int,
    remake: Callable[[], Awaitable[None]] = nothing,
) -> SnapshotSender:
    return SnapshotSender(read, chunk_bytes, remake=remake, clock=ManualClock())


@pytest.mark.parametrize(
    "why",
    [SnapshotDamaged("s", "a test says so"), OSError(5, "a test says so"), None],
    ids=["damaged", "disk", "gone"],
)
def test_an_unreadable_or_missing_snapshot_is_made_again(
    why: Exception | None, caplog: pytest.LogCaptureFixture
) -> None:
    held: list[Snapshot] = []

    async def read() -> Snapshot | None:
        if not held and why is not None:
            raise why
        return held[0] if held else None

    async def remake() -> None:
        held.append(Snapshot(9, 2, b"new"))

    async def run() -> None:
        sender = sender_of(read, 100, remake)
        assert await sender.chunk(LoadChunk("b", 7, 2)) is None
        chunk = await sender.chunk(LoadChunk("b", 7, 2))
        assert chunk is not None and (chunk.index, chunk.offset, chunk.data) == (9, 0, b"new")

    asyncio.run(run())
    assert "another one is made" in caplog.text


@given(st.binary(max_size=40), st.integers(1, 9))
def test_a_snapshot_arrives_as_it_was_sent(state: bytes, chunk_bytes: int) -> None:
    async def read() -> Snapshot:
        return Snapshot(7, 2, state)

    async def run() -> None:
        sender, arriving, index, offset = sender_of(read, chunk_bytes), IncomingSnapshot(), -1, 0
        while True:
            chunk = await sender.chunk(LoadChunk("b", index, offset))
            assert chunk is not None and len(chunk.data) <= chunk_bytes
            request = InstallRequest(3, chunk.index, 2, chunk.size, chunk.check, chunk.offset, chunk.data)
            index, offset = chunk.index, arriving.take(request)
            if offset == chunk.size:
                assert arriving.complete() == state
                return

    asyncio.run(run())


# Snapshots of the applied state


class Sum:
    """A state machine whose state is the concatenation of its bodies."""

    def __init__(self) -> None:
        self.state = b""

    def apply(self, index: int, body: bytes) -> object:
        self.state += body
        return None

    def snapshot_save(self) -> Iterator[bytes]:
        for at in range(len(self.state)):
            yield self.state[at : at + 1]

    def snapshot_load(self, data: bytes | bytearray) -> Iterator[None]:
        for _ in data:
            yield
        self.state = data

    def monotonic_ms(self) -> int:
        return 0

    now_ms = work_us = monotonic_ms


class Watched(Applier):
    """Waits until an entry is applied."""

    async def until(self, index: int) -> None:
        while self.applied_index < index:
            self._moved.clear()
            await self._moved.wait()


def applier_of(
    machine: Sum, made: list[tuple[int, bytes]], ended: list[BaseException], every: int
) -> Watched:
    return Watched(
        machine, snapshots=machine, every=every, every_bytes=1 << 20,
        on_snapshot=lambda index, state: made.append((index, state)), clock=machine, tasks=Tasks(ended.append),
        on_applied=lambda index, result: None, on_turn=lambda: None, on_failure=ended.append,
    )  # fmt: skip


def test_snapshots_are_made_of_the_applied_state_and_restored(tmp_path: Path) -> None:
    bodies = [b"%d," % index for index in range(100)]
    log = [Entry(index, 1, body) for index, body in enumerate(bodies)]
    made, ended = list[tuple[int, bytes]](), list[BaseException]()

    async def run() -> None:
        store = opened(tmp_path)
        found = await store.open()
        found.log.append(log)
        assert store.log is not None
        applier = applier_of(Sum(), made, ended, 30)
        applier.begin(found.log, store.log, -1)
        applier.commit(99)
        await applier.until(99)
        assert [(index, state) for index, state in made] == [
            (index, b"".join(bodies[: index + 1])) for index in (29, 59, 89)
        ]
        other = applier_of(resumed := Sum(), [], ended, 0)
        other.begin(found.log, store.log, 95, Snapshot(89, 1, made[-1][1]))
        assert other.replays
        await other.replayed()
        assert (other.applied_index, resumed.state) == (95, b"".join(bodies[:96]))
        other.restore(Snapshot(97, 1, b"theirs"))
        other.commit(99)
        await other.until(99)
        assert resumed.state == b"theirs98,99,"

    asyncio.run(run())
    assert not ended


class LargeGroup(ledgergroup.LedgerGroup):
    """Members whose state is above the size limit; a snapshot is due every tenth entry."""

    def made(self, name: str) -> DLedger:
        self.options["settings"] = replace(
            ledgergroup.SETTINGS, snapshot_bytes_max=1000, snapshot_entries=10, snapshot_margin_entries=0
        )
        machine = Sum()
        machine.state = b"." * 1001
        self.options |= {"state_machine": machine, "snapshots": machine}
        return DLedger(self_id=name, peers=self.peers, runtime=self.files[name].runtime(), **self.options)


def test_a_state_above_the_size_limit_makes_no_snapshot_and_the_log_is_sent() -> None:
    async def story() -> None:
        async with LargeGroup() as group:
            leader = await group.leader()
            absent = next(name for name in group.members if name != leader.self_id)
            await group.stop(absent)
            for _ in range(30):
                last = (await leader.append(b"z" * 1000)).index
            member = await group.start(absent)
            await ledgergroup.until(lambda: member.metadata.applied_index >= last)
            assert leader.metadata.first_index == 0 and leader.snapshots.last_index == -1

    asyncio.run(story())
