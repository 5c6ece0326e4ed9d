"""A leader whose snapshot is corrupted or lost makes a new one of its applied state for followers that need
it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dledger.raft.actions import PersistThenSend, Vote
from dledger.raft.entries import Entry
from dledger.raft.settings import DLedgerSettings
from dledger.storage.snapshot import position_in
from dledger.storage.store import Store
from mqruntime.segments import RealSegmentDirectory
from mqruntime.smallfiles import RealSmallFiles
from tests.unit.dledger.ledgergroup import played, until
from tests.unit.dledger.servedgroup import Clients, SavingGroup, written

SETTLED_S = 0.02


def corrupt(group: SavingGroup) -> None:
    """Corrupt the snapshots of all running members."""
    for small, file in snapshots_of(group):
        data = bytearray(small[file])
        data[-5] ^= 1
        small[file] = bytes(data)


def lose(group: SavingGroup) -> None:
    for small, file in snapshots_of(group):
        del small[file]


def snapshots_of(group: SavingGroup) -> Iterator[tuple[dict[str, bytes], str]]:
    """The small files of each running member, and the name of its snapshot."""
    for name in group.members:
        small = group.files[name].small
        (file,) = (each for each in small if each.endswith("/snapshot"))
        yield small, file


@pytest.mark.parametrize("damage", [corrupt, lose])
@pytest.mark.parametrize("behind", [0, 3], ids=["of all that is applied", "with entries behind it"])
def test_a_member_that_needs_a_corrupted_or_lost_snapshot_gets_a_new_one(
    behind: int, damage: Callable[[SavingGroup], None]
) -> None:
    async def story() -> None:
        async with SavingGroup() as group, Clients(group) as clients:
            lead = (await group.leader()).metadata.self_id
            late = next(name for name in group.members if name != lead)
            end = await written(group, clients, b"+1")
            await group.stop(late)
            while True:
                count = await written(group, clients, b"+1")
                await asyncio.sleep(SETTLED_S)
                running = list(group.members.values())
                if count > end + 60 and all(each.snapshots.last_index == count for each in running):
                    break
                assert count < end + 5_000, "snapshots are made"
            for _ in range(behind):
                count = await written(group, clients, b"+1")
            damage(group)
            await group.start(late)
            await until(lambda: group.members[late].metadata.applied_index >= count)
            assert len({group.sums[name].value for name in group.members}) == 1

    played(story)


def test_a_lost_log_start_snapshot_is_rewritten_with_the_same_bytes(tmp_path: Path) -> None:
    """A log with the same positions on every member has no other state than its owner's note."""

    def opened() -> Store:
        settings = DLedgerSettings(
            data_file_bytes=256, index_file_bytes=32 * 32, entry_bytes_max=100, same_positions=True
        )
        return Store(RealSmallFiles(tmp_path), RealSegmentDirectory(tmp_path), "n", settings, ["n"])

    async def run() -> None:
        store = opened()
        await store.open()
        written = tuple(Entry(index, 1, b"body %d" % index) for index in range(20))
        await store.persist([PersistThenSend(Vote(1), None, written, ())])
        await store.begin_at(512, b"what went")
        path = tmp_path / "n/snapshot"
        kept = path.read_bytes()
        path.unlink()
        await store.rewrite_log_start()
        assert path.read_bytes() == kept
        again = opened()
        found = await again.open()
        assert again.log is not None and again.log.begin.position == 512 and again.note == b"what went"
        assert found.snapshot is not None and position_in(found.snapshot) == 512
        assert found.log.prev_index == again.log.begin.index > 0

    asyncio.run(run())
