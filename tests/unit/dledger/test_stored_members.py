"""The member lists in a member's files: over starts, cuts, snapshots, and a checkpoint without them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dledger.raft.actions import PersistThenSend, Vote
from dledger.raft.entries import Entry
from dledger.raft.errors import MembersChanged
from dledger.raft.membership import ConfigurationAt, Members, encode_members
from dledger.raft.settings import DLedgerSettings
from dledger.raft.snapshot import Begin, Snapshot
from dledger.storage.snapshot import decode_snapshot, encode_snapshot
from dledger.storage.store import Store
from mqruntime.segments import RealSegmentDirectory
from mqruntime.slices import run_without_loop
from mqruntime.smallfiles import RealSmallFiles
from tests.unit.dledger.smallstore import entries, step, store

TWO = Members({"m": "hm:1", "n": "hn:1"})
THREE = Members(TWO.voters, {"l": "hl:1"})
LINE = b'allMembers=[{"index":2,"voters":{"m":"hm:1","n":"hn:1"},"learners":{"l":"hl:1"}}]\n'


def said(index: int, members: Members) -> Entry:
    return Entry(index, 1, encode_members(members))


def opened(
    root: Path, *batches: object, committed: int = -1, clean: bool = True
) -> tuple[ConfigurationAt, ...]:
    """Return what a start finds; then persist `batches` and end cleanly or as a kill."""

    async def live() -> tuple[ConfigurationAt, ...]:
        made = store(root)
        found = await made.open()
        for batch in batches:
            await made.persist([batch])  # type: ignore[list-item]
        if clean:
            await made.close(committed)
        return found.configurations

    return asyncio.run(live())


def begun(root: Path) -> None:
    """A committed list in entry 2, followed by entry 3."""
    first = step(*entries(0, 2), said(2, THREE), *entries(3, 1), vote=Vote(1))
    assert opened(root, first, committed=3) == ()


def test_a_checkpoint_stores_the_lists_of_entries_that_a_start_does_not_read(tmp_path: Path) -> None:
    begun(tmp_path)
    checkpoint = tmp_path / "n/checkpoint"
    assert LINE in checkpoint.read_bytes()
    assert opened(tmp_path) == ((2, THREE),)
    checkpoint.write_bytes(b"endIndex=3\ncommittedIndex=3\n")  # as Java writes it
    assert opened(tmp_path) == ((2, THREE),)


def test_a_member_list_written_after_the_checkpoint_is_found(tmp_path: Path) -> None:
    begun(tmp_path)
    opened(tmp_path, step(said(4, TWO)), clean=False)
    assert opened(tmp_path) == ((2, THREE), (4, TWO))


def test_a_cut_removes_a_member_list(tmp_path: Path) -> None:
    begun(tmp_path)
    opened(tmp_path, step(said(4, TWO)), committed=3)
    assert opened(tmp_path) == ((2, THREE), (4, TWO))
    opened(tmp_path, step(*entries(4, 1, 2), cut=4), clean=False)
    assert opened(tmp_path) == ((2, THREE),)


def test_the_configured_members_may_change_only_after_a_list_is_committed(tmp_path: Path) -> None:
    first = step(*entries(0, 2), said(2, THREE), vote=Vote(1))
    opened(tmp_path, first, committed=1)
    term = tmp_path / "n/currterm"
    term.write_bytes(term.read_bytes().replace(b"members=m,n", b"members=m,n,o"))
    with pytest.raises(MembersChanged):
        opened(tmp_path)
    checkpoint = tmp_path / "n/checkpoint"
    checkpoint.write_bytes(checkpoint.read_bytes().replace(b"committedIndex=1", b"committedIndex=2"))
    assert opened(tmp_path) == ((2, THREE),)


def test_an_installed_snapshot_brings_its_member_list(tmp_path: Path) -> None:
    begun(tmp_path)
    taken = Snapshot(80, 2, b"theirs", configurations=((70, TWO),))
    opened(tmp_path, PersistThenSend(None, None, (), (), taken), clean=False)
    assert opened(tmp_path) == ((70, TWO),)


def test_a_snapshot_with_a_member_list_has_version_two_and_reads_back() -> None:
    plain = Snapshot(9, 3, b"state", Begin(7, 2, 8192, 99))
    configurations = Snapshot(9, 3, b"state", Begin(7, 2, 8192, 99), ((5, THREE),))
    assert (
        run_without_loop(encode_snapshot(plain))[4:6] == b"\0\1"
        and run_without_loop(encode_snapshot(configurations))[4:6] == b"\0\2"
    )
    assert run_without_loop(encode_snapshot(configurations))[58:-4] == b"state" + LINE[11:-1].replace(
        b":2,", b":5,", 1
    )
    for each in (plain, configurations):
        assert run_without_loop(decode_snapshot("s", run_without_loop(encode_snapshot(each)))) == each


def test_a_start_knows_all_member_lists_since_the_log_start(tmp_path: Path) -> None:
    """Otherwise a log start before the newest list would have no entry that names the members."""
    first = step(*entries(0, 2), said(2, THREE), *entries(3, 1), said(4, TWO), *entries(5, 1), vote=Vote(1))
    opened(tmp_path, first, committed=5)
    assert opened(tmp_path) == ((2, THREE), (4, TWO))


def test_a_checkpoint_of_an_older_version_makes_a_start_read_all_entries(tmp_path: Path) -> None:
    """It stored only the list in force at the commit index."""
    first = step(*entries(0, 2), said(2, THREE), *entries(3, 1), said(4, TWO), *entries(5, 1), vote=Vote(1))
    opened(tmp_path, first, committed=5)
    checkpoint = tmp_path / "n/checkpoint"
    older = LINE.replace(b"allMembers", b"members").replace(b":2,", b":4,", 1).replace(b'{"l":"hl:1"}', b"{}")
    kept = [line for line in checkpoint.read_bytes().splitlines(True) if not line.startswith(b"allMembers")]
    checkpoint.write_bytes(b"".join(kept) + older)
    assert opened(tmp_path) == ((2, THREE), (4, TWO))


def test_a_log_start_between_two_lists_keeps_the_older_one_after_a_restart(tmp_path: Path) -> None:
    """Raft seed 21: a follower got such a log start without a list and used the peers of its settings."""
    settings = DLedgerSettings(
        data_file_bytes=1024, index_file_bytes=32 * 32, entry_bytes_max=500, same_positions=True
    )

    def made() -> Store:
        return Store(RealSmallFiles(tmp_path), RealSegmentDirectory(tmp_path), "n", settings, ["n"])

    async def run() -> None:
        first = made()
        await first.open()
        written = (said(0, THREE), *(Entry(index, 1, bytes(200)) for index in range(1, 20)), said(20, TWO))
        await first.persist([PersistThenSend(Vote(1), None, written, ())])
        await first.close(20)
        again = made()
        await again.open()
        await again.begin_at(2048, b"")
        snapshot = await again.snapshot_file.load()
        assert snapshot is not None and 0 < snapshot.last_index < 20
        assert snapshot.configurations == ((0, THREE),)

    asyncio.run(run())
