"""Brokers that came back with less than was confirmed, in literals."""

from __future__ import annotations

import asyncio

import pytest

from controller.holdings import RECORD_BYTES_MAX, Held, HoldingsDamaged, LogReport
from controller.holdingsfile import FILE, HoldingsFile
from tests.support.doubles import ManualClock, MemoryFiles
from tests.unit.controller.offsetstable import ONE, THREE, TWO, Table

GIB = 1 << 30


def test_an_emptied_log_is_missing_confirmed_data() -> None:
    table = Table()
    table.hear(ONE, 1, 900)
    assert table.hear(ONE, 2, 0, epoch=-1) == Held(1, 900)
    assert table.incomplete == {ONE}
    assert table.hear(ONE, 2, 0, epoch=-1) is None, "reported once"
    assert table.incomplete == {ONE}


def test_an_empty_log_is_missing_data_that_another_broker_reported() -> None:
    table = Table()
    table.hear(ONE, 1, 900)
    assert table.hear(TWO, 2, 0, epoch=-1) == Held(1, 1)


def test_an_empty_log_is_complete_while_nothing_is_confirmed() -> None:
    table = Table()
    for connection, key in enumerate((ONE, TWO, THREE), 1):
        assert table.hear(key, connection, 0, epoch=1 if key == ONE else -1) is None
    table.hear(ONE, 1, 900, 0)
    assert table.hear(TWO, 4, 0, epoch=-1) is None, "it came back before the first message was confirmed"
    assert table.incomplete == frozenset()


def test_a_log_that_is_behind_within_one_connection_is_not_missing_data() -> None:
    table = Table()
    table.hear(TWO, 2, 0, epoch=-1)
    table.hear(ONE, 1, 900)
    assert table.hear(TWO, 2, 0, epoch=-1) is None, (
        "its next report will include what the other already reports"
    )
    assert table.hear(TWO, 2, 400) is None


def test_a_new_replica_and_a_replica_that_joined_are_not_missing_data() -> None:
    table = Table()
    table.hear(ONE, 1, 900)
    assert table.hear(TWO, 2, 0, epoch=-1, member=False) is None
    assert table.hear(TWO, 2, 0, epoch=-1, member=True) is None, "its master reports that it is complete"
    assert table.incomplete == frozenset()


def test_a_broker_that_left_the_set_is_not_missing_data() -> None:
    table = Table()
    table.hear(ONE, 1, 900)
    table.hear(ONE, 2, 0, epoch=-1)
    table.hear(ONE, 2, 0, epoch=-1, member=False)
    assert table.incomplete == frozenset()


def test_an_emptied_log_is_missing_data_until_it_reaches_its_former_end() -> None:
    table = Table()
    table.hear(ONE, 1, GIB)
    table.hear(TWO, 2, GIB)
    assert table.hear(ONE, 3, GIB // 2) == Held(1, GIB)
    for connection in (3, 4):
        assert table.hear(ONE, connection, GIB - 1) is None, "reported once"
        assert table.incomplete == {ONE}
    table.hear(ONE, 4, GIB)
    assert table.incomplete == frozenset()


def test_one_torn_record_at_a_start_is_no_loss() -> None:
    table = Table()
    table.hear(ONE, 1, GIB)
    assert table.hear(ONE, 2, GIB - RECORD_BYTES_MAX) is None


def test_a_copy_from_before_the_last_epoch_is_missing_confirmed_data() -> None:
    """Otherwise its epoch file would name that epoch: it is written before the first byte and survives a lost
    tail."""
    table = Table()
    table.hear(ONE, 1, 1000, epoch=1)
    table.hear(ONE, 1, 1300, epoch=2)
    assert table.hear(ONE, 2, 1000, epoch=1) == Held(2, 1300)
    assert table.hear(ONE, 3, 1200, epoch=2) is None and table.incomplete == {ONE}
    assert table.hear(ONE, 3, 1300, epoch=2) is None and table.incomplete == frozenset()


def test_a_newer_epoch_in_the_log_outranks_its_end() -> None:
    table = Table()
    table.hear(ONE, 1, GIB, epoch=4)
    assert table.hear(ONE, 2, 100, epoch=5) is None, "the master of epoch 5 had no more"
    assert table.hear(ONE, 3, 0, epoch=4) == Held(5, 100)
    table.hear(ONE, 3, 0, epoch=6)
    assert table.incomplete == frozenset()


def test_reports_of_an_emptied_log_do_not_lower_its_recorded_offset() -> None:
    table = Table()
    table.hear(ONE, 1, 900)
    for connection in (2, 3):
        table.hear(ONE, connection, 0, epoch=-1)
        assert table.incomplete == {ONE}


def test_a_log_report_over_an_older_connection_is_ignored() -> None:
    table = Table()
    table.hear(ONE, 2, 900)
    assert table.hear(ONE, 1, 0, epoch=-1) is None
    assert table.incomplete == frozenset()
    assert table.hear(ONE, 2, 0, epoch=-1) is None, "the newer connection is not new again"


def test_a_late_report_from_before_the_loss_is_ignored() -> None:
    table = Table()
    table.hear(ONE, 1, 900)
    table.hear(ONE, 2, 0, epoch=-1)
    assert table.hear(ONE, 1, 1_000) is None
    assert table.incomplete == {ONE}
    assert table.hear(ONE, 2, 950) is None and table.incomplete == frozenset(), "its confirmed end was 900"


def test_an_unreported_log_end_is_not_an_empty_log() -> None:
    table = Table()
    table.hear(ONE, 1, 900)
    assert table.hear(ONE, 2, -1, -1, epoch=-1) is None


def test_an_id_granted_again_after_cleaning_has_no_recorded_offset() -> None:
    table = Table()
    table.hear(ONE, 1, 900)
    table.hear(TWO, 2, 900)
    table.hear(ONE, 3, 0, epoch=-1)
    assert table.incomplete == {ONE}
    table.check_codes.clear()
    table.check_codes[ONE] = "h9:1;8"
    assert table.hear(ONE, 4, 0, epoch=-1) is None
    assert table.incomplete == frozenset()


def test_the_next_process_restores_recorded_offsets() -> None:
    table, next_table = Table(), Table()
    table.hear(ONE, 1, 900)
    table.hear(TWO, 2, 0, epoch=-1)
    assert table.changes == 1
    rows = list(table.holdings.rows(table.holdings.keys()))
    assert rows == [b'["c", "a", 1, "h1:1;7", 1, 900]']
    next_table.holdings.restore(b"[" + rows[0] + b"]")
    assert next_table.hear(ONE, 1, 0, epoch=-1) == Held(1, 900)
    assert next_table.hear(TWO, 2, 0, epoch=-1) == Held(1, 1)


@pytest.mark.parametrize("data", [b"", b"{}x", b"[1]", b'[["c"]]', b'[["c","a","x","y",1,2]]', b"7", b"\xff"])
def test_a_malformed_offsets_table_is_rejected(data: bytes) -> None:
    with pytest.raises(HoldingsDamaged):
        Table().holdings.restore(data)


def test_a_damaged_offsets_file_is_ignored_and_replaced() -> None:
    async def scenario() -> None:
        files = MemoryFiles({FILE: b"nonsense"})
        file = HoldingsFile(files, lambda key: "h1:1;7", ManualClock())
        await file.load()
        file.holdings.heard(ONE, 1, LogReport(1, 900, 900), member=True)
        await file.save()
        assert files.content[FILE] == b'[["c", "a", 1, "h1:1;7", 1, 900]]'
        await file.save()
        assert files.replaced == 1, "nothing is new"

    asyncio.run(scenario())
