"""What a broker knows at its start of the memory that it had before."""

from __future__ import annotations

import asyncio
import errno

import pytest

from broker.role.memorymark import CLOSED, FILE, KeptMemoryMark


class Files:
    """Small files in memory, on a disk that can be full."""

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}
        self.full = False
        self.writes = 0

    async def read(self, name: str) -> bytes | None:
        return self.content.get(name)

    async def replace(self, name: str, data: bytes | bytearray) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device", name)
        self.writes += 1
        self.content[name] = data

    async def overwrite(self, name: str, data: bytes) -> None:
        assert name in self.content
        self.content[name] = data

    async def rename(self, name: str, to: str) -> None:
        self.content[to] = self.content.pop(name)

    async def remove(self, name: str) -> None:
        self.content.pop(name, None)

    async def names(self, under: str) -> list[str]:
        return sorted(self.content)


def opened(files: Files, boot_id: str) -> KeptMemoryMark:
    mark = KeptMemoryMark(files, boot_id)
    asyncio.run(mark.open())
    return mark


def closed(mark: KeptMemoryMark, *, synced: bool = True) -> None:
    asyncio.run(mark.close(synced=synced))


def test_a_killed_process_loses_no_memory() -> None:
    files = Files()
    assert not opened(files, "boot 1").may_have_lost_data
    assert not opened(files, "boot 1").may_have_lost_data
    assert files.writes == 1, "a start that changes nothing writes nothing"


def test_a_machine_that_goes_down_under_an_open_store_may_have() -> None:
    files = Files()
    opened(files, "boot 1")
    assert opened(files, "boot 2").may_have_lost_data
    assert opened(files, "boot 2").may_have_lost_data, "it has not caught up since"


def test_not_after_an_orderly_end() -> None:
    files = Files()
    closed(opened(files, "boot 1"))
    assert files.content == {FILE: CLOSED} and not opened(files, "boot 2").may_have_lost_data


def test_an_end_at_which_the_log_was_not_synced_is_none() -> None:
    files = Files()
    closed(opened(files, "boot 1"), synced=False)
    assert opened(files, "boot 2").may_have_lost_data


def test_level_with_a_master_it_lacks_nothing_and_that_is_durable() -> None:
    files = Files()
    opened(files, "boot 1")
    mark = opened(files, "boot 2")
    asyncio.run(mark.caught_up())
    assert not mark.may_have_lost_data and not opened(files, "boot 2").may_have_lost_data
    assert opened(files, "boot 3").may_have_lost_data


def test_an_orderly_end_does_not_make_up_for_an_earlier_loss() -> None:
    files = Files()
    opened(files, "boot 1")
    closed(opened(files, "boot 2"))
    assert opened(files, "boot 2").may_have_lost_data


def test_where_the_system_names_no_boot_each_end_without_a_word_counts() -> None:
    files = Files()
    opened(files, "")
    assert opened(files, "").may_have_lost_data


@pytest.mark.parametrize("damaged", [b"", b"boot", b"boost=1\n", b"\xff\x00", b"boot=boot 1\nboo"])
def test_a_damaged_mark_says_that_memory_may_be_lost(damaged: bytes) -> None:
    files = Files()
    files.content[FILE] = damaged
    assert opened(files, "boot 1").may_have_lost_data


def test_a_full_disk_does_not_keep_a_broker_from_starting() -> None:
    files = Files()
    opened(files, "boot 1")
    files.full = True
    assert opened(files, "boot 2").may_have_lost_data
    files.full = False
    assert opened(files, "boot 2").may_have_lost_data


def test_nor_does_one_that_filled_up_after_an_orderly_end() -> None:
    files = Files()
    closed(opened(files, "boot 1"))
    files.full = True
    assert not opened(files, "boot 2").may_have_lost_data
    assert opened(files, "boot 3").may_have_lost_data, "that one ended without a word"


def test_nor_from_being_elected_again_once_its_log_is_level() -> None:
    files = Files()
    opened(files, "boot 1")
    mark = opened(files, "boot 2")
    files.full = True
    asyncio.run(mark.caught_up())
    assert not mark.may_have_lost_data and not opened(files, "boot 2").may_have_lost_data


def test_no_end_is_an_orderly_one_under_a_boot_in_which_a_sync_failed() -> None:
    files = Files()
    mark = opened(files, "boot 1")
    asyncio.run(mark.sync_failed())
    mark = opened(files, "boot 1")
    assert mark.may_have_lost_data, "its pages may be gone from memory, too"
    asyncio.run(mark.caught_up())
    assert not mark.may_have_lost_data
    closed(mark)
    mark = opened(files, "boot 1")
    assert not mark.may_have_lost_data
    closed(mark)
    mark = opened(files, "boot 2")
    assert mark.may_have_lost_data
    asyncio.run(mark.caught_up())
    closed(mark)
    assert files.content[FILE] == CLOSED, "under another boot all is read from the disk"


def test_a_failed_sync_is_noted_in_place_where_no_file_can_be_replaced() -> None:
    files = Files()
    mark = opened(files, "boot 1")
    files.full = True
    asyncio.run(mark.sync_failed())
    assert opened(files, "boot 1").may_have_lost_data


def test_a_store_that_acknowledged_only_what_was_on_disk_lacks_nothing() -> None:
    files = Files()
    asyncio.run(KeptMemoryMark(files, "boot 1", acks_flushed=True).open())
    assert not opened(files, "boot 2").may_have_lost_data
    assert opened(files, "boot 3").may_have_lost_data, "since boot 2 it acknowledges from memory"


def test_nor_does_it_hide_what_was_lost_before_or_a_failed_sync() -> None:
    files = Files()
    opened(files, "boot 1")
    asyncio.run(KeptMemoryMark(files, "boot 2", acks_flushed=True).open())
    assert opened(files, "boot 3").may_have_lost_data
    files = Files()
    mark = KeptMemoryMark(files, "boot 1", acks_flushed=True)
    asyncio.run(mark.open())
    asyncio.run(mark.sync_failed())
    assert opened(files, "boot 2").may_have_lost_data


def test_a_sync_that_failed_counts_though_the_log_caught_up_and_only_what_was_on_disk_was_acknowledged() -> (
    None
):
    """The kernel may keep pages that no disk has: they are gone with the machine, whatever later syncs say."""
    files = Files()
    mark = KeptMemoryMark(files, "boot 1", acks_flushed=True)
    asyncio.run(mark.open())
    asyncio.run(mark.sync_failed())
    asyncio.run(mark.caught_up())
    assert not mark.may_have_lost_data
    again = KeptMemoryMark(files, "boot 1", acks_flushed=True)
    asyncio.run(again.open())
    assert again.sync_failed_before and not again.may_have_lost_data, "the process alone ended"
    power_cut = KeptMemoryMark(files, "boot 2", acks_flushed=True)
    asyncio.run(power_cut.open())
    assert power_cut.may_have_lost_data and not power_cut.sync_failed_before


def test_a_disk_that_was_set_back_may_be_missing_something_until_it_is_level_whatever_boots() -> None:
    files = Files()
    mark = opened(files, "boot 1")
    assert not mark.was_set_back
    asyncio.run(mark.set_back())
    assert mark.may_have_lost_data and mark.was_set_back
    closed(mark)
    for boot in ("boot 1", "boot 2"):
        mark = opened(files, boot)
        assert mark.may_have_lost_data and mark.was_set_back
    asyncio.run(mark.caught_up())
    assert not mark.may_have_lost_data and not mark.was_set_back
    mark = opened(files, "boot 2")
    assert not mark.may_have_lost_data and not mark.was_set_back
