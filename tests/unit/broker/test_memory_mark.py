"""The mark by which a starting broker knows whether its store may have lost data that was only in memory."""

from __future__ import annotations

import asyncio

import pytest

from broker.role.memorymark import CLOSED, FILE, KeptMemoryMark
from tests.unit.broker.fullfiles import Files


def opened(files: Files, boot_id: str) -> KeptMemoryMark:
    mark = KeptMemoryMark(files, boot_id)
    asyncio.run(mark.open())
    return mark


def closed(mark: KeptMemoryMark, *, synced: bool = True) -> None:
    asyncio.run(mark.close(synced=synced))


def test_a_process_kill_loses_no_data() -> None:
    files = Files()
    assert not opened(files, "boot 1").may_have_lost_data
    assert not opened(files, "boot 1").may_have_lost_data
    assert files.replaced == 1, "an unchanged mark is not written"


def test_a_reboot_under_an_open_store_may_have_lost_data() -> None:
    files = Files()
    opened(files, "boot 1")
    assert opened(files, "boot 2").may_have_lost_data
    assert opened(files, "boot 2").may_have_lost_data, "the log has not caught up since"


def test_a_reboot_after_an_orderly_stop_loses_no_data() -> None:
    files = Files()
    closed(opened(files, "boot 1"))
    assert files.content == {FILE: CLOSED} and not opened(files, "boot 2").may_have_lost_data


def test_a_stop_without_a_synced_log_is_not_orderly() -> None:
    files = Files()
    closed(opened(files, "boot 1"), synced=False)
    assert opened(files, "boot 2").may_have_lost_data


def test_catching_up_with_a_master_clears_the_mark_durably() -> None:
    files = Files()
    opened(files, "boot 1")
    mark = opened(files, "boot 2")
    asyncio.run(mark.caught_up())
    assert not mark.may_have_lost_data and not opened(files, "boot 2").may_have_lost_data
    assert opened(files, "boot 3").may_have_lost_data


def test_an_orderly_stop_does_not_clear_an_earlier_loss() -> None:
    files = Files()
    opened(files, "boot 1")
    closed(opened(files, "boot 2"))
    assert opened(files, "boot 2").may_have_lost_data


def test_without_a_boot_id_every_unclean_end_may_have_lost_data() -> None:
    files = Files()
    opened(files, "")
    assert opened(files, "").may_have_lost_data


@pytest.mark.parametrize("damaged", [b"", b"boot", b"boost=1\n", b"\xff\x00", b"boot=boot 1\nboo"])
def test_a_damaged_mark_means_that_data_may_be_lost(damaged: bytes) -> None:
    files = Files()
    files.content[FILE] = damaged
    assert opened(files, "boot 1").may_have_lost_data


def test_a_full_disk_does_not_prevent_the_start_after_a_reboot() -> None:
    files = Files()
    opened(files, "boot 1")
    files.full = True
    assert opened(files, "boot 2").may_have_lost_data
    files.full = False
    assert opened(files, "boot 2").may_have_lost_data


def test_a_disk_that_filled_up_after_an_orderly_stop_does_not_prevent_the_start() -> None:
    files = Files()
    closed(opened(files, "boot 1"))
    files.full = True
    assert not opened(files, "boot 2").may_have_lost_data
    assert opened(files, "boot 3").may_have_lost_data, "the last process did not stop orderly"


def test_a_full_disk_does_not_prevent_clearing_the_mark_after_catching_up() -> None:
    files = Files()
    opened(files, "boot 1")
    mark = opened(files, "boot 2")
    files.full = True
    asyncio.run(mark.caught_up())
    assert not mark.may_have_lost_data and not opened(files, "boot 2").may_have_lost_data


def test_no_stop_is_orderly_under_a_boot_with_a_failed_sync() -> None:
    files = Files()
    mark = opened(files, "boot 1")
    asyncio.run(mark.sync_failed())
    mark = opened(files, "boot 1")
    assert mark.may_have_lost_data, "its pages may be gone from the page cache, too"
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
    assert files.content[FILE] == CLOSED, "under another boot all data is read from the disk"


def test_a_failed_sync_is_recorded_in_place_when_no_file_can_be_replaced() -> None:
    files = Files()
    mark = opened(files, "boot 1")
    files.full = True
    asyncio.run(mark.sync_failed())
    assert opened(files, "boot 1").may_have_lost_data


def test_a_reboot_of_a_store_that_acknowledged_flushed_data_only_loses_nothing() -> None:
    files = Files()
    asyncio.run(KeptMemoryMark(files, "boot 1", acks_flushed=True).open())
    assert not opened(files, "boot 2").may_have_lost_data
    assert opened(files, "boot 3").may_have_lost_data, "since boot 2 the store acknowledges unflushed data"


def test_acknowledging_flushed_data_only_hides_no_earlier_loss_or_failed_sync() -> None:
    files = Files()
    opened(files, "boot 1")
    asyncio.run(KeptMemoryMark(files, "boot 2", acks_flushed=True).open())
    assert opened(files, "boot 3").may_have_lost_data
    files = Files()
    mark = KeptMemoryMark(files, "boot 1", acks_flushed=True)
    asyncio.run(mark.open())
    asyncio.run(mark.sync_failed())
    assert opened(files, "boot 2").may_have_lost_data


def test_a_failed_sync_counts_after_a_reboot_even_if_the_log_caught_up() -> None:
    """After a failed sync unwritten pages may count as clean: a reboot loses them despite later syncs."""
    files = Files()
    mark = KeptMemoryMark(files, "boot 1", acks_flushed=True)
    asyncio.run(mark.open())
    asyncio.run(mark.sync_failed())
    asyncio.run(mark.caught_up())
    assert not mark.may_have_lost_data
    again = KeptMemoryMark(files, "boot 1", acks_flushed=True)
    asyncio.run(again.open())
    assert again.sync_failed_before and not again.may_have_lost_data, "only the process ended"
    power_cut = KeptMemoryMark(files, "boot 2", acks_flushed=True)
    asyncio.run(power_cut.open())
    assert power_cut.may_have_lost_data and not power_cut.sync_failed_before


def test_a_disk_that_was_set_back_may_miss_data_until_it_caught_up_across_boots() -> None:
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
