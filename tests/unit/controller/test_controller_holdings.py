"""Who came back with less than was confirmed, in literals."""

from __future__ import annotations

import asyncio

import pytest

from controller.holdings import RECORD_BYTES_MAX, Held, Holdings, HoldingsDamaged, LogReport
from controller.holdingsfile import FILE, HoldingsFile
from tests.unit.doubles import ManualClock, MemoryFiles

ONE, TWO, THREE = ("c", "a", 1), ("c", "a", 2), ("c", "a", 3)
GIB = 1 << 30


class Table:
    """Holdings of brokers that were granted their ids once; `changes` counts what it would save."""

    def __init__(self) -> None:
        self.check_codes = {key: f"h{key[2]}:1;7" for key in (ONE, TWO, THREE)}
        self.changes = 0
        self.holdings = Holdings(self.check_codes.get, self._changed)

    def _changed(self) -> None:
        self.changes += 1

    def hear(
        self,
        key: tuple[str, str, int],
        connection: int,
        end: int,
        confirm: int | None = None,
        *,
        epoch: int = 1,
        member: bool = True,
    ) -> Held | None:
        report = LogReport(epoch, end, end if confirm is None else confirm)
        return self.holdings.heard(key, connection, report, member=member)

    @staticmethod
    def report(end: int, confirmed: int, start_number: int) -> LogReport:
        """Of epoch 1."""
        return LogReport(1, end, confirmed, start_number)

    @property
    def lacking(self) -> frozenset[tuple[str, str, int]]:
        return self.holdings.lacking


def test_a_log_that_was_emptied_lacks_what_the_set_confirmed() -> None:
    table = Table()
    table.hear(ONE, 1, 900)
    assert table.hear(ONE, 2, 0, epoch=-1) == Held(1, 900)
    assert table.lacking == {ONE}
    assert table.hear(ONE, 2, 0, epoch=-1) is None, "told once"
    assert table.lacking == {ONE}


def test_an_empty_log_lacks_also_what_only_others_were_heard_to_hold() -> None:
    table = Table()
    table.hear(ONE, 1, 900)
    assert table.hear(TWO, 2, 0, epoch=-1) == Held(1, 1)


def test_an_empty_log_is_right_while_nothing_is_confirmed() -> None:
    table = Table()
    for connection, key in enumerate((ONE, TWO, THREE), 1):
        assert table.hear(key, connection, 0, epoch=1 if key == ONE else -1) is None
    table.hear(ONE, 1, 900, 0)
    assert table.hear(TWO, 4, 0, epoch=-1) is None, "it came back before the first message was confirmed"
    assert table.lacking == frozenset()


def test_within_a_connection_a_log_that_is_behind_lacks_nothing() -> None:
    table = Table()
    table.hear(TWO, 2, 0, epoch=-1)
    table.hear(ONE, 1, 900)
    assert table.hear(TWO, 2, 0, epoch=-1) is None, "its next report will have what the other already tells"
    assert table.hear(TWO, 2, 400) is None


def test_a_newcomer_outside_of_the_set_lacks_nothing_and_neither_does_who_was_let_in() -> None:
    table = Table()
    table.hear(ONE, 1, 900)
    assert table.hear(TWO, 2, 0, epoch=-1, member=False) is None
    assert table.hear(TWO, 2, 0, epoch=-1, member=True) is None, "its master says that it holds all of it"
    assert table.lacking == frozenset()


def test_who_has_left_the_set_lacks_nothing_any_more() -> None:
    table = Table()
    table.hear(ONE, 1, 900)
    table.hear(ONE, 2, 0, epoch=-1)
    table.hear(ONE, 2, 0, epoch=-1, member=False)
    assert table.lacking == frozenset()


def test_a_log_that_was_emptied_and_is_filled_again_lacks_something_until_it_is_as_long_as_it_was() -> None:
    table = Table()
    table.hear(ONE, 1, GIB)
    table.hear(TWO, 2, GIB)
    assert table.hear(ONE, 3, GIB // 2) == Held(1, GIB)
    for connection in (3, 4):
        assert table.hear(ONE, connection, GIB - 1) is None, "told once"
        assert table.lacking == {ONE}
    table.hear(ONE, 4, GIB)
    assert table.lacking == frozenset()


def test_a_record_that_was_cut_off_at_a_start_is_no_loss() -> None:
    table = Table()
    table.hear(ONE, 1, GIB)
    assert table.hear(ONE, 2, GIB - RECORD_BYTES_MAX) is None


def test_a_copy_of_before_the_last_epoch_lacks_what_was_confirmed_in_it_however_little() -> None:
    """Its epoch file would name that epoch: it is written before the first byte, and outlives a lost tail."""
    table = Table()
    table.hear(ONE, 1, 1000, epoch=1)
    table.hear(ONE, 1, 1300, epoch=2)
    assert table.hear(ONE, 2, 1000, epoch=1) == Held(2, 1300)
    assert table.hear(ONE, 3, 1200, epoch=2) is None and table.lacking == {ONE}
    assert table.hear(ONE, 3, 1300, epoch=2) is None and table.lacking == frozenset()


def test_a_newer_epoch_in_the_log_counts_more_than_its_end() -> None:
    table = Table()
    table.hear(ONE, 1, GIB, epoch=4)
    assert table.hear(ONE, 2, 100, epoch=5) is None, "the master of epoch 5 had no more"
    assert table.hear(ONE, 3, 0, epoch=4) == Held(5, 100)
    table.hear(ONE, 3, 0, epoch=6)
    assert table.lacking == frozenset()


def test_what_an_emptied_log_says_takes_nothing_back() -> None:
    table = Table()
    table.hear(ONE, 1, 900)
    for connection in (2, 3):
        table.hear(ONE, connection, 0, epoch=-1)
        assert table.lacking == {ONE}


def test_a_heartbeat_over_an_older_connection_counts_for_nothing() -> None:
    table = Table()
    table.hear(ONE, 2, 900)
    assert table.hear(ONE, 1, 0, epoch=-1) is None
    assert table.lacking == frozenset()
    assert table.hear(ONE, 2, 0, epoch=-1) is None, "the newer connection does not begin again"


def test_a_late_heartbeat_of_before_an_emptied_log_makes_up_for_nothing() -> None:
    table = Table()
    table.hear(ONE, 1, 900)
    table.hear(ONE, 2, 0, epoch=-1)
    assert table.hear(ONE, 1, 1_000) is None
    assert table.lacking == {ONE}
    assert table.hear(ONE, 2, 950) is None and table.lacking == frozenset(), "what it held confirmed was 900"


def test_an_end_that_was_not_said_is_not_an_empty_log() -> None:
    table = Table()
    table.hear(ONE, 1, 900)
    assert table.hear(ONE, 2, -1, -1, epoch=-1) is None


def test_an_id_that_is_granted_again_after_its_set_was_cleaned_begins_anew() -> None:
    table = Table()
    table.hear(ONE, 1, 900)
    table.hear(TWO, 2, 900)
    table.hear(ONE, 3, 0, epoch=-1)
    assert table.lacking == {ONE}
    table.check_codes.clear()
    table.check_codes[ONE] = "h9:1;8"
    assert table.hear(ONE, 4, 0, epoch=-1) is None
    assert table.lacking == frozenset()


def test_the_next_process_knows_what_was_told() -> None:
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
def test_bytes_that_no_table_wrote_are_refused(data: bytes) -> None:
    with pytest.raises(HoldingsDamaged):
        Table().holdings.restore(data)


def test_a_damaged_file_counts_as_none_and_is_replaced() -> None:
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
