"""What the slave of a pair does before it connects: whose log it goes on from."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from ha.classic.client import PairSlave
from ha.counters import HACounters
from ha.errors import MasterUnread
from ha.settings import HASettings
from mqruntime.clock import SystemClock
from mqruntime.tasks import Tasks
from tests.unit.ha.memorylog import MemoryLog, record

SETTINGS = HASettings(reconnect_ms_max=11, full_log_wait_ms=22)
LAST = record("last", 40)


class Records:
    """A master that says what is given for any place; asked for `asked`."""

    def __init__(self, there: bytes | None | MasterUnread, begins: int | MasterUnread = 0) -> None:
        self.there = there
        self.begins = begins
        self.asked: list[int] = []

    async def record_at(self, offset: int) -> bytes | None:
        self.asked.append(offset)
        if isinstance(self.there, MasterUnread):
            raise self.there
        return self.there

    async def begins_at(self) -> int:
        if isinstance(self.begins, MasterUnread):
            raise self.begins
        return self.begins


def prepared(log: MemoryLog, records: Records | None) -> int | None:
    """What the slave waits before it connects; None when it connects."""

    async def scene() -> int | None:
        tasks = Tasks(lambda error: None)
        slave = PairSlave(
            log,
            records,
            settings=SETTINGS,
            clock=SystemClock(),
            tasks=tasks,
            counters=HACounters(),
            on_confirm=lambda: None,
            on_caught_up=lambda: None,
        )
        prepare: Callable[[], Awaitable[int | None]] = slave._prepare  # noqa: SLF001 - connects otherwise
        try:
            return await prepare()
        finally:
            await slave.stop()

    return asyncio.run(scene())


def log_with(*records: bytes, segment_size: int = 16384) -> MemoryLog:
    log = MemoryLog(segment_size)
    log.append(*records)
    return log


def test_a_master_that_has_the_last_record_in_its_place_is_followed() -> None:
    records = Records(LAST)
    assert prepared(log_with(record("first", 30), LAST), records) is None
    assert records.asked == [30]


@pytest.mark.parametrize("there", [None, record("lost", 40), LAST + b"more", b""])
def test_a_master_that_has_not_is_left_alone_and_that_is_told(
    there: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        assert prepared(log_with(LAST), Records(there)) == SETTINGS.full_log_wait_ms
    assert "does not follow its master" in caplog.text


@pytest.mark.parametrize("begins, left_behind", [(0, False), (40, True), (1 << 20, True)])
def test_a_slave_whose_last_record_retention_deleted_at_its_master_says_so(
    begins: int, left_behind: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        assert prepared(log_with(LAST), Records(None, begins)) == SETTINGS.full_log_wait_ms
    [line] = caplog.records
    hint = line.__dict__["fields"]["hint"]
    assert ("retention has deleted" in hint) is left_behind
    assert ("does not have the last record" in hint) is not left_behind


def test_a_master_that_does_not_say_where_its_log_begins_is_asked_again_soon() -> None:
    records = Records(None, MasterUnread("it is down"))
    assert prepared(log_with(LAST), records) == SETTINGS.reconnect_ms_max


def test_one_that_does_not_say_is_asked_again_soon() -> None:
    records = Records(MasterUnread("it is down"))
    assert prepared(log_with(LAST), records) == SETTINGS.reconnect_ms_max


def test_an_empty_log_and_one_whose_master_cannot_be_asked_are_not_compared() -> None:
    records = Records(None)
    assert prepared(MemoryLog(), records) is None and records.asked == []
    assert prepared(log_with(LAST), None) is None


def test_the_rest_of_a_segment_behind_the_last_record_is_cut() -> None:
    """The master may have lost it, and have written there since."""
    log = log_with(LAST, segment_size=64)
    log.append_blank()
    assert log.max_offset() == 64
    assert prepared(log, Records(LAST)) is None
    assert log.truncated == [(64, 40)]
