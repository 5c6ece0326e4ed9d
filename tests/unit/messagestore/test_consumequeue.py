"""One consume queue on a real directory of small files (20 entries each)."""

from __future__ import annotations

import asyncio
import mmap
import random
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from messagestore.errors import BadSegments
from messagestore.queues.consumequeue import ENTRY, PRE_BLANK, ConsumeQueue, file_size_for, filler
from messagestore.walker import segment_name
from mqruntime import segments
from mqruntime.segments import RealSegmentDirectory

FILE_SIZE = 400


def queue_in(path: Path) -> ConsumeQueue:
    return ConsumeQueue(RealSegmentDirectory(path), FILE_SIZE, "T", 0)


def filled(path: Path, count: int, first: int = 0) -> ConsumeQueue:
    queue = queue_in(path)
    for number in range(first, first + count):
        assert queue.append(number, number * 100, 100, number)
    return queue


def reopened(path: Path, *, log_min: int = 0, phy_limit: int = 1 << 40, trusted: bool = True) -> ConsumeQueue:
    queue = queue_in(path)
    run(queue.load(log_min, phy_limit, trusted=trusted))
    return queue


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


def test_file_sizes_are_rounded_up_to_whole_entries() -> None:
    assert [file_size_for(size) for size in (1, 20, 21, 6_000_000)] == [20, 20, 40, 6_000_000]


@pytest.mark.parametrize("trusted", [True, False])
@pytest.mark.parametrize("count", [0, 1, 19, 20, 21, 65])
def test_entries_are_found_after_a_restart_with_any_number_of_files(
    tmp_path: Path, count: int, trusted: bool
) -> None:
    queue = filled(tmp_path, count)
    assert list(queue.entries(0, 1000)) == [(number * 100, 100, number) for number in range(count)]
    again = reopened(tmp_path, trusted=trusted)
    assert (again.min_queue_offset, again.max_queue_offset) == (0, count)
    assert list(again.entries(0, 1000)) == list(queue.entries(0, 1000))
    assert again.phy_end == count * 100


FOUR_PAGES = 16_400


def content(chance: random.Random) -> bytes:
    """A file of FOUR_PAGES: entries, and up to two invalid ones."""
    entries, phy = [], chance.choice([0, 0, 5_000])
    for _ in range(chance.choice([0, 1, 3, 203, 204, 205, 820, chance.randrange(820)])):
        entries.append((phy, 100, 7))
        phy += chance.choice([100, 100, 250])
    strange = [
        PRE_BLANK,
        filler(phy),
        (phy, 0, 0),
        (phy, -1, 0),
        (-1, 100, 0),
        (3, 100, 0),
        (0, 0, 9),
        (1 << 40, 5, 5),
    ]
    for _ in range(chance.choice([0, 0, 1, 2])):
        entries.insert(
            chance.choice([0, len(entries), chance.randrange(len(entries) + 1)]), chance.choice(strange)
        )
    held = bytearray(b"".join(ENTRY.pack(*entry) for entry in entries[:820]).ljust(FOUR_PAGES, b"\0"))
    if chance.random() < 0.3:
        held[chance.randrange(FOUR_PAGES)] ^= 1 << chance.randrange(8)
    return bytes(held)


def loaded(
    folder: Path, name: str, held: bytes, *, limits: tuple[int, int], trusted: bool
) -> dict[str, object]:
    """The state of a queue with this one file after its start, and the content of the file."""
    folder.mkdir()
    with (folder / name).open("wb") as file:  # as a queue leaves it: sparse after the written entries
        file.write(held.rstrip(b"\0"))
        file.truncate(FOUR_PAGES)
    queue = ConsumeQueue(RealSegmentDirectory(folder), FOUR_PAGES, "T", 0)
    run(queue.load(*limits, trusted=trusted))
    state = {key: getattr(queue, key) for key in queue.__slots__}
    shown = {key: value for key, value in state.items() if isinstance(value, int | list) and key != "_used"}
    shown["_files"] = len(queue._files)
    queue.close()
    return shown | {"content": {path.name: path.read_bytes() for path in folder.iterdir()}}


@pytest.mark.parametrize("trusted", [True, False])
@pytest.mark.parametrize("seed", range(40))
def test_a_short_check_of_a_plain_queue_equals_a_full_one(
    tmp_path: Path, seed: int, trusted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    held = [content(chance) for _ in range(8)]
    name = chance.choice([segment_name(0), segment_name(2 * FOUR_PAGES)])
    limits = [(chance.choice([0, 0, 5_100, 90_000]), chance.choice([1 << 39, 1 << 39, 60_000])) for _ in held]

    def found(where: str) -> list[dict[str, object]]:
        (tmp_path / where).mkdir()
        return [
            loaded(tmp_path / where / str(number), name, each, limits=limit, trusted=trusted)
            for number, (each, limit) in enumerate(zip(held, limits, strict=True))
        ]

    short = found("short")
    monkeypatch.setattr(ConsumeQueue, "_is_plain", lambda *_, **__: False)
    assert short == found("long")


@pytest.mark.parametrize(("pages", "count"), [(1, 203), (1, 204), (1, 205), (1, 400), (4, 819), (4, 820)])
def test_a_file_system_hole_is_not_read_as_the_end_of_a_queue(
    tmp_path: Path, pages: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = b"".join(ENTRY.pack(number * 100, 100, 7) for number in range(count))
    monkeypatch.setattr(segments, "written_end", lambda descriptor, limit: pages * mmap.PAGESIZE)
    found = loaded(tmp_path / "queue", segment_name(0), held, limits=(0, 1 << 39), trusted=False)
    assert found["max_queue_offset"] == count


def test_a_queue_file_with_an_unaligned_name_is_rejected(tmp_path: Path) -> None:
    held = ENTRY.pack(0, 100, 7)
    with pytest.raises(BadSegments, match="multiple"):
        loaded(tmp_path / "queue", segment_name(400), held, limits=(0, 1 << 39), trusted=False)


def test_the_same_record_is_indexed_once(tmp_path: Path) -> None:
    queue = filled(tmp_path, 3)
    assert not queue.append(1, 100, 100, 9)
    assert queue.max_queue_offset == 3


def test_an_offset_beyond_the_end_is_appended_after_fillers(tmp_path: Path) -> None:
    queue = filled(tmp_path, 3)
    assert queue.append(5, 400, 100, 7)
    assert list(queue.entries(2, 9)) == [(200, 100, 2), filler(400), filler(400), (400, 100, 7)]


def test_an_offset_assigned_twice_keeps_its_first_message(tmp_path: Path) -> None:
    queue = filled(tmp_path, 3)
    assert not queue.append(2, 900, 100, 7)
    assert queue.entry(2) == (200, 100, 2)


def test_a_queue_with_a_late_start_is_filled_with_pre_blank_entries(tmp_path: Path) -> None:
    queue = filled(tmp_path, 5, first=27)
    assert (queue.min_queue_offset, queue.max_queue_offset) == (27, 32)
    again = reopened(tmp_path, trusted=False)
    assert (again.min_queue_offset, again.max_queue_offset) == (27, 32)
    assert [file.name for file in tmp_path.iterdir()] == ["00000000000000000400"]
    assert list(again.entries(20, 7)) == [PRE_BLANK] * 7


@pytest.mark.parametrize("kept", [0, 1, 20, 33, 40])
def test_a_truncated_queue_keeps_entries_below_the_cut_and_grows_again(tmp_path: Path, kept: int) -> None:
    queue = filled(tmp_path, 50)
    run(queue.truncate(kept * 100 + 99))
    assert (queue.max_queue_offset, queue.phy_end) == (kept, kept * 100)
    assert queue.append(kept, kept * 100, 50, 5)
    for again in (reopened(tmp_path), reopened(tmp_path, trusted=False)):
        assert again.max_queue_offset == kept + 1
        assert again.entry(kept) == (kept * 100, 50, 5)


@pytest.mark.parametrize("trusted", [True, False])
def test_entries_above_the_limit_are_erased_when_a_queue_is_opened(tmp_path: Path, trusted: bool) -> None:
    filled(tmp_path, 50)
    assert reopened(tmp_path, phy_limit=2350, trusted=trusted).max_queue_offset == 23
    assert reopened(tmp_path).max_queue_offset == 23


def test_an_untrusted_queue_ends_at_its_first_torn_entry(tmp_path: Path) -> None:
    filled(tmp_path, 50)
    file = tmp_path / "00000000000000000800"
    content = bytearray(file.read_bytes())
    content[60:68] = bytes(8)  # the physical offset of entry 43, as if half a page had not reached the disk
    file.write_bytes(content)
    assert reopened(tmp_path, trusted=False).max_queue_offset == 43


def test_an_untrusted_queue_ends_at_a_missing_file(tmp_path: Path) -> None:
    filled(tmp_path, 50)
    (tmp_path / "00000000000000000400").unlink()
    assert reopened(tmp_path, trusted=False).max_queue_offset == 20
    assert [file.name for file in tmp_path.iterdir()] == ["00000000000000000000"]


def test_a_trusted_queue_with_a_missing_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    filled(tmp_path, 50)
    (tmp_path / "00000000000000000400").unlink()
    with pytest.raises(BadSegments, match="00000000000000000400 is missing"):
        reopened(tmp_path)


def test_a_queue_starts_at_the_first_message_in_the_log(tmp_path: Path) -> None:
    filled(tmp_path, 50)
    queue = reopened(tmp_path, log_min=2150)
    assert queue.min_queue_offset == 22
    queue.raise_min(1 << 40)
    assert queue.min_queue_offset == queue.max_queue_offset == 50


def test_the_first_entry_from_an_offset_is_searched_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = filled(tmp_path, 50)
    assert [queue.first_from(phy) for phy in (0, 1, 100, 4_901, 5_000, 1 << 40, 2_301)] == [
        0,
        1,
        1,
        50,
        50,
        50,
        24,
    ]
    assert queue.first_from(5_000) == 50
    for number in range(50, 60):
        queue.append(number, number * 100, 100, number)
    looked_at: list[int] = []
    entry = ConsumeQueue._entry

    def noted(self: ConsumeQueue, place: int) -> tuple[int, int, int]:
        looked_at.append(place)
        return entry(self, place)

    monkeypatch.setattr(ConsumeQueue, "_entry", noted)
    assert [queue.first_from(5_000) for _ in range(3)] == [50] * 3
    assert looked_at == [50] * 3
    run(queue.truncate(4_800))
    assert (queue.min_queue_offset, queue.first_from(5_000)) == (0, 48)
    queue.append(48, 6_000, 100, 0)
    assert queue.first_from(5_000) == 48, "truncated entries are forgotten"


def test_the_nearest_record_end_below_an_offset_is_found(tmp_path: Path) -> None:
    queue = filled(tmp_path, 50)
    assert [queue.boundary_at_or_below(phy) for phy in (99, 100, 2345, 1 << 40)] == [-1, 100, 2300, 5000]
    assert [queue.boundary_at_or_below(phy) for phy in range(0, 5000, 100)] == [-1, *range(100, 5000, 100)]


def test_a_record_end_near_the_end_is_found_without_reading_older_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that becomes a slave asks all queues for one; reads of uncached files would block everything
    else."""
    queue = filled(tmp_path, 2000)
    looked_at: list[int] = []
    entry = ConsumeQueue._entry

    def noted(self: ConsumeQueue, place: int) -> tuple[int, int, int]:
        looked_at.append(place)
        return entry(self, place)

    monkeypatch.setattr(ConsumeQueue, "_entry", noted)
    assert queue.boundary_at_or_below(queue.phy_end) == queue.phy_end and not looked_at
    assert queue.boundary_at_or_below(queue.phy_end - 1050) == queue.phy_end - 1100
    assert min(looked_at) >= 2000 - 32 and len(looked_at) <= 12


@pytest.mark.parametrize("kept", [0, 1, 25, 40])
def test_entries_can_be_read_while_files_behind_a_cut_are_deleted(tmp_path: Path, kept: int) -> None:
    class Watched(RealSegmentDirectory):
        async def delete(self, name: str) -> None:
            await super().delete(name)
            first, end = queue.min_queue_offset, queue.max_queue_offset
            seen.append([phy for phy, _, _ in queue.entries(first, end - first)])

    queue, seen = ConsumeQueue(Watched(tmp_path), FILE_SIZE, "T", 0), list[list[int]]()
    for number in range(65):
        queue.append(number, number * 100, 100, number)
    run(queue.truncate(kept * 100))
    assert seen and all(each == [number * 100 for number in range(kept)] for each in seen)
