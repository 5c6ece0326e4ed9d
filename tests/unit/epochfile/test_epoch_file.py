"""The durable epoch file: second copy, damage, emptiness, and a crash between any two steps."""

from __future__ import annotations

import asyncio
import errno

import pytest

from epochfile.file import EpochFile, EpochFileUnreadable
from epochfile.history import EpochHistory
from tests.support.doubles import MemoryFiles

MAIN, BACKUP = "epochFileCheckpoint", "epochFileCheckpoint.bak"
OLD, NEW = EpochHistory([(1, 0)]), EpochHistory([(1, 0), (2, 1580)])


class PowerCut(Exception):
    pass


class Files(MemoryFiles):
    """Loses power before operation number `cut_before`."""

    def __init__(self, content: dict[str, bytes] | None = None, cut_before: int | None = None) -> None:
        super().__init__(content)
        self.left = cut_before

    def _step(self) -> None:
        if self.left is not None:
            if self.left == 0:
                raise PowerCut
            self.left -= 1

    async def replace(self, name: str, data: bytes | bytearray) -> None:
        self._step()
        await super().replace(name, data)

    async def remove(self, name: str) -> None:
        self._step()
        await super().remove(name)


def stored(history: EpochHistory) -> dict[str, bytes]:
    files = Files()
    asyncio.run(EpochFile(files).store(history))
    return files.content


def load(files: dict[str, bytes]) -> EpochHistory:
    return asyncio.run(EpochFile(Files(files)).load())


def test_a_stored_history_is_loaded_from_either_copy() -> None:
    files = stored(NEW)
    assert load(files) == NEW
    assert load({MAIN: files[MAIN]}) == NEW
    assert load({BACKUP: files[BACKUP]}) == NEW


def test_no_file_is_an_empty_history() -> None:
    assert load({}) == EpochHistory()


@pytest.mark.parametrize("damage", [b"", b"2\n13", b"\0" * 20, b"0\n0\n"])
def test_a_damaged_main_file_is_replaced_by_the_second_copy_r32(damage: bytes) -> None:
    assert load(stored(NEW) | {MAIN: damage}) == NEW


@pytest.mark.parametrize("name", [MAIN, BACKUP])
@pytest.mark.parametrize("damage", [None, b"garbage"])
def test_a_load_repairs_the_damaged_copy(name: str, damage: bytes | None) -> None:
    intact = stored(NEW)
    files = Files({other: data for other, data in intact.items() if other != name})
    if damage is not None:
        files.content[name] = damage
    assert asyncio.run(EpochFile(files).load()) == NEW
    assert files.content == intact


def test_a_full_disk_does_not_prevent_reading_an_intact_copy() -> None:
    class FullDisk(Files):
        async def replace(self, name: str, data: bytes | bytearray) -> None:
            raise OSError(errno.ENOSPC, "full")

    assert asyncio.run(EpochFile(FullDisk({BACKUP: stored(NEW)[BACKUP]})).load()) == NEW


@pytest.mark.parametrize("backup", [None, b"", b"garbage"])
def test_both_copies_damaged_is_an_error_and_not_an_empty_history_f7(backup: bytes | None) -> None:
    files = {MAIN: b""} | ({} if backup is None else {BACKUP: backup})
    with pytest.raises(EpochFileUnreadable, match="restore one of them"):
        load(files)


def test_a_lost_main_file_and_a_damaged_copy_are_an_error() -> None:
    with pytest.raises(EpochFileUnreadable):
        load({BACKUP: b"garbage"})


def test_storing_an_empty_history_leaves_nothing_that_could_come_back_r32() -> None:
    files = Files(stored(NEW))
    asyncio.run(EpochFile(files).store(EpochHistory()))
    assert files.content == {}
    assert load(files.content) == EpochHistory()


@pytest.mark.parametrize(
    ("before", "after"), [(OLD, NEW), (NEW, OLD), (NEW, EpochHistory()), (EpochHistory(), NEW)]
)
@pytest.mark.parametrize("cut_before", [0, 1, 2])
def test_a_power_cut_within_a_store_leaves_the_old_history_or_the_new(
    before: EpochHistory, after: EpochHistory, cut_before: int
) -> None:
    files = Files(stored(before) if len(before) else None, cut_before=cut_before)

    async def store() -> bool:
        try:
            await EpochFile(files).store(after)
        except PowerCut:
            return False
        return True

    returned = asyncio.run(store())
    assert load(files.content) in ([after] if returned else [before, after])


class FullDisk(Files):
    """Takes nothing new. A power cut in the middle of an overwrite leaves the first half of it."""

    async def replace(self, name: str, data: bytes | bytearray) -> None:
        raise OSError(errno.ENOSPC, "full")

    async def overwrite(self, name: str, data: bytes) -> None:
        if self.left == 0:
            half = len(data) // 2
            self.content[name] = data[:half] + self.content[name][half:]
        self._step()
        await super().overwrite(name, data)


def test_on_a_full_disk_a_new_history_overwrites_both_copies() -> None:
    files = FullDisk(stored(OLD))
    asyncio.run(EpochFile(files).store(NEW))
    assert files.content == stored(NEW)


@pytest.mark.parametrize("step", [0, 1])
def test_a_power_cut_during_a_store_on_a_full_disk_leaves_one_copy_intact(step: int) -> None:
    files = FullDisk(stored(OLD), cut_before=step)
    with pytest.raises(PowerCut):
        asyncio.run(EpochFile(files).store(NEW))
    assert files.content != stored(NEW)
    assert load(files.content) == (OLD, NEW)[step]


@pytest.mark.parametrize(
    "copies", [{}, {MAIN: b"damaged", BACKUP: stored(OLD)[BACKUP]}, {MAIN: stored(OLD)[MAIN]}]
)
def test_on_a_full_disk_the_only_copy_is_not_overwritten(copies: dict[str, bytes]) -> None:
    files = FullDisk(copies)
    with pytest.raises(OSError, match="full"):
        asyncio.run(EpochFile(files).store(NEW))
    assert files.content == copies
