"""Positions of entries before they are written: gathered, appended, cut, and after a snapshot."""

from __future__ import annotations

from dledger.node.positions import PositionTracker
from dledger.raft.actions import PersistThenSend
from dledger.raft.entries import Block, Entry
from dledger.raft.snapshot import Begin, Snapshot
from dledger.storage.entry import ENTRY_HEADER_BYTES
from dledger.storage.snapshot import snapshot_at

FILE = 1000


class Disk:
    """Two entries that end at 148 and 296; the first one is committed."""

    begin = Begin(-1, -1, 0)
    end = 296

    def start_of(self, size: int, end: int) -> int:
        left = FILE - end % FILE
        return end + left if size + 8 > left else end

    def stretch(self, block: Block, end: int) -> tuple[int, int]:
        start = self.start_of(ENTRY_HEADER_BYTES + block.size(1), end)
        return start, block.fitting(FILE - start % FILE - 8, ENTRY_HEADER_BYTES)

    def end_of(self, index: int) -> int:
        return {-1: 0, 0: 148, 1: 296}[index]


def step(
    *sizes: int, first: int, cut: int | None = None, snapshot: Snapshot | None = None
) -> PersistThenSend:
    entries = [Entry(index, 1, bytes(size)) for index, size in enumerate(sizes, first)]
    return PersistThenSend(None, cut, tuple(entries), (), snapshot)


def test_reserved_positions_follow_the_gathered_ones() -> None:
    positions = PositionTracker(Disk(), 0)
    assert (positions.readable, positions.gathered_end, positions.waiting_bytes) == ((0, 148), 296, 148)
    assert positions.reserve([100, 700, 5]) == [296, 1000, 1748], "a file ends with room for a blank"
    assert not positions.matches_reservation([100], []), "another number of bodies"
    assert positions.reserve([100]) == [296]
    assert not positions.matches_reservation([100], [(0, 297)])
    assert positions.reserve([100]) == [296] and positions.matches_reservation([100], [(0, 296)])
    assert not positions.matches_reservation([100], [(0, 296)]), "a reservation is used once"
    positions.gather([100])
    assert positions.reserve([5]) == [444]
    positions.gather([7])
    assert not positions.matches_reservation([5], []), "something came between"
    assert positions.ends_where_it_did and positions.end == 296
    positions.took(step(9, first=2))
    assert not positions.ends_where_it_did, "something else was appended first"
    positions.nothing_gathered()
    assert (positions.gathered_end, positions.end) == (353, 353)


def test_the_readable_end_grows_with_commits_and_survives_cuts() -> None:
    positions = PositionTracker(Disk(), 0)
    assert not positions.reached(0) and positions.reached(1) and positions.readable == (1, 296)
    positions.took(step(52, 600, 52, first=2))
    assert positions.end == 1748
    assert positions.reached(2) and positions.readable == (2, 396)
    positions.took(step(12, first=3, cut=3))
    assert positions.end == 456
    positions.took(step(first=2, cut=3))
    assert positions.end == 396
    early = PositionTracker(Disk(), -1)
    early.took(step(2, first=1, cut=1))
    assert early.end == 198 and early.reached(1) and early.readable == (1, 198)


def test_after_a_snapshot_positions_continue_from_the_position_in_it() -> None:
    positions = PositionTracker(Disk(), 0)
    positions.took(step(2, 2, first=2))
    positions.took(step(first=0, snapshot=snapshot_at(Begin(3, 7, 3000), ())))
    positions.took(step(102, first=4))
    assert positions.end == 3150
    assert positions.reached(2) and positions.readable == (2, 346)
    assert positions.reached(3) and positions.readable == (3, 3000)
    assert positions.reached(4) and positions.readable == (4, 3150)


def test_a_commit_of_entries_that_a_snapshot_has_replaced_on_the_disk_is_passed_over() -> None:
    """One batch of the disk can hold both: the disk has the snapshot before the commit of older entries is performed."""
    disk = Disk()
    positions = PositionTracker(disk, 0)
    positions.took(step(first=0, snapshot=snapshot_at(Begin(3, 7, 3000), ())))
    disk.begin = Begin(3, 7, 3000)
    assert not positions.reached(2) and positions.readable == (0, 148)
    assert positions.reached(3) and positions.readable == (3, 3000)
