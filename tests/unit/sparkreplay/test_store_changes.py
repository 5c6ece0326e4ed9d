"""A broker writes, rolls, truncates and deletes while its log is read: the rows are exact, or the read fails by name."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from sparkreplay.errors import EpochChanged, LogCorrupted, ReplayError, SegmentGone, StoreUnreadable
from sparkreplay.records.walk import Stretch
from sparkreplay.store.files import FolderMember, LocalFiles
from sparkreplay.store.snapshot import StoreSnapshot, check_epochs, open_store
from tests.unit.sparkreplay.storefolder import StoreFolder
from tests.unit.sparkreplay.storerows import rows_in, stretches_of

SEGMENT_BYTES = 16384
EPOCHS = ((1, 0), (2, SEGMENT_BYTES))
SPLIT_BYTES = 5000


class RunningStore(StoreFolder):
    """A broker's folder: 100 records in five segments, 80 of them committed, the rest on their way to the others."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, SEGMENT_BYTES)
        self.grow(100)
        self.committed = self.ends[79]
        self.write(confirm=self.committed, epochs=EPOCHS)
        self.epochs = EPOCHS

    def grow(self, count: int, fill: int = 7) -> None:
        for _ in range(count):
            self.add(body=bytes([fill]) * 640)

    def cut(self, end: int, epoch: int) -> None:
        """As a slave does: the cut is zeroed, then the new epoch's entry is durable, then its bytes come."""
        self.ends = [place for place in self.ends if place <= end]
        assert self.ends[-1] == end
        del self.log[end:]
        self.epochs = (*((number, start) for number, start in self.epochs if start < end), (epoch, end))

    def retire(self, segments: int) -> None:
        """As retention does: files go from the front, then epochs that ended there."""
        low = segments * SEGMENT_BYTES
        for start in range(0, low, SEGMENT_BYTES):
            (self.root / f"commitlog/{start:020d}").unlink()
        kept = [entry for entry, after in zip(self.epochs, self.epochs[1:], strict=False) if after[1] > low]
        self.write_epochs((*kept, self.epochs[-1]))


def append(store: RunningStore) -> None:
    store.grow(2)
    store.write(confirm=store.ends[-1], epochs=store.epochs)


def roll(store: RunningStore) -> None:
    store.grow(60)
    store.write(confirm=store.ends[-1], epochs=store.epochs)


def elect(store: RunningStore) -> None:
    """A new master's epoch starts above the committed bound: the uncommitted tail is overwritten."""
    store.cut(store.ends[84], epoch=5)
    store.grow(40, fill=9)
    store.write(confirm=store.ends[-1], epochs=store.epochs)


def cut_below(store: RunningStore) -> None:
    store.cut(store.ends[59], epoch=5)
    store.grow(60, fill=9)
    store.write(confirm=store.ends[-1], epochs=store.epochs)


def cut_to_the_bound_less_one(store: RunningStore) -> None:
    store.cut(store.ends[78], epoch=5)
    store.grow(1, fill=9)
    store.write(confirm=store.ends[-1], epochs=store.epochs)


def cut_an_older_epoch(store: RunningStore) -> None:
    store.cut(store.ends[9], epoch=5)
    store.grow(90, fill=9)
    store.write(confirm=store.ends[-1], epochs=store.epochs)


def retire_one(store: RunningStore) -> None:
    store.retire(1)


def retire_three(store: RunningStore) -> None:
    store.retire(3)


STAGES = (
    "between opening and planning",
    "between planning and reading",
    "between two stretches",
    "before the end",
)
HARMLESS = (append, roll, elect)
TRUNCATIONS = (cut_below, cut_to_the_bound_less_one, cut_an_older_epoch)
DELETIONS = (retire_one, retire_three)
Change = Callable[[RunningStore], None]


def read_while(change: Change, stage: str, running: RunningStore) -> list[dict[str, object]]:
    """The rows of a read during which `change` happens."""

    def at(now: str) -> None:
        if stage == now:
            change(running)

    store = open_store(str(running.root))
    at(STAGES[0])
    stretches = stretches_of(store, SPLIT_BYTES)
    assert len(stretches) >= 5
    at(STAGES[1])
    rows = rows_in(store, stretches[:4])
    at(STAGES[2])
    rows += rows_of_the_rest(store, stretches[4:], lambda: at(STAGES[3]))
    return rows


def rows_of_the_rest(
    store: StoreSnapshot, stretches: list[Stretch], before_the_end: Callable[[], None]
) -> list[dict[str, object]]:
    rows = rows_in(store, stretches)
    before_the_end()
    check_epochs(store)
    return rows


@pytest.fixture
def running(tmp_path: Path) -> RunningStore:
    return RunningStore(tmp_path)


def expected_rows(running: RunningStore) -> list[dict[str, object]]:
    store = open_store(str(running.root))
    rows = rows_in(store, stretches_of(store, 1 << 20))
    assert len(rows) == 80
    return rows


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("change", HARMLESS)
def test_changes_above_the_bound_change_no_row(running: RunningStore, change: Change, stage: str) -> None:
    expected = expected_rows(running)
    assert read_while(change, stage, running) == expected


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("change", TRUNCATIONS)
def test_a_truncation_below_the_bound_fails_the_read_at_any_stage(
    running: RunningStore, change: Change, stage: str
) -> None:
    with pytest.raises((EpochChanged, LogCorrupted)):
        read_while(change, stage, running)


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("change", DELETIONS)
def test_a_read_during_retention_gives_every_row_or_names_the_deleted_segment(
    running: RunningStore, change: Change, stage: str
) -> None:
    expected = expected_rows(running)
    if stage == STAGES[3] or (stage == STAGES[2] and change is retire_one):  # the deleted segments were read
        assert read_while(change, stage, running) == expected
        return
    with pytest.raises(SegmentGone, match="was deleted after the read was planned") as gone:
        read_while(change, stage, running)
    assert str(running.root / "commitlog") in str(gone.value)


def test_a_segment_that_is_deleted_while_it_is_open_is_read_to_its_end(running: RunningStore) -> None:
    store = open_store(str(running.root))
    file = store.files.open(store.segments[0].name)
    expected = (running.root / store.segments[0].name).read_bytes()
    running.retire(1)
    buffer = bytearray(SEGMENT_BYTES)
    assert file.read_into(memoryview(buffer), 0) == SEGMENT_BYTES and buffer == expected
    file.close()


def test_a_read_fails_when_all_its_epochs_are_gone(running: RunningStore) -> None:
    store = open_store(str(running.root))
    running.write_epochs(((7, running.committed + 4000),))
    with pytest.raises(EpochChanged):
        check_epochs(store)
    (running.root / "epochFileCheckpoint").unlink()
    with pytest.raises(StoreUnreadable, match="has no epochFileCheckpoint"):
        check_epochs(store)


class Interrupted(LocalFiles):
    """Runs an action when a name is read for the first time."""

    def at(self, name: str, change: Callable[[], None]) -> Interrupted:
        self.__dict__["pending"] = {name: change}
        return self

    def happen(self, name: str) -> None:
        if change := self.__dict__["pending"].pop(name, None):
            change()

    def read(self, name: str) -> bytes:
        data = super().read(name)
        self.happen(name)
        return data

    def entries(self, folder: str) -> list[FolderMember]:
        found = super().entries(folder)
        self.happen(folder)
        return found


@pytest.mark.parametrize("change", [*HARMLESS, *TRUNCATIONS, *DELETIONS])
@pytest.mark.parametrize("name", ["brokerIdentity", "epochFileCheckpoint", "checkpoint", "commitlog"])
def test_a_store_that_changes_during_opening_is_seen_before_or_after_the_change(
    running: RunningStore, change: Change, name: str
) -> None:
    files = Interrupted(str(running.root)).at(name, lambda: change(running))
    try:
        store = open_store(files)
        rows = rows_in(store, stretches_of(store, SPLIT_BYTES))
    except SegmentGone:
        assert change in DELETIONS
        return
    except (EpochChanged, LogCorrupted):
        assert change in TRUNCATIONS
        return
    now = bytes(running.log)
    for row in rows:
        at, size = row["physical_offset"], row["store_size"]
        assert now[at : at + size][:4] == struct.pack(">i", size), "a row is a record of the log as it is now"  # type: ignore[operator,misc]
        assert now[at + 88 : at + 89] == row["body"][:1]  # type: ignore[operator,index]
    ends = [row["physical_offset"] + row["store_size"] for row in rows]  # type: ignore[operator]
    assert ends == [end for end in running.ends if store.min_offset < end <= store.bound]


def test_a_store_whose_epochs_keep_changing_is_refused(running: RunningStore) -> None:
    class Restless(LocalFiles):
        def read(self, name: str) -> bytes:
            data = super().read(name)
            if name == "epochFileCheckpoint":
                running.epochs = (*running.epochs, (running.epochs[-1][0] + 1, running.epochs[-1][1] + 1))
                running.write_epochs(running.epochs)
            return data

    with pytest.raises(ReplayError, match="its epochs change all the time; run the job after the elections"):
        open_store(Restless(str(running.root)))
