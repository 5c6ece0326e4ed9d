"""The slave of a pair compares its log with the master's before it connects."""

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
from mqruntime.network import PLAIN
from mqruntime.tasks import Tasks
from tests.unit.ha.memorylog import MemoryLog, record

SETTINGS = HASettings(reconnect_ms_max=11, full_log_wait_ms=22)
LAST = record("last", 40)


class Records:
    """A master that returns `there` for any offset; `asked` lists the offsets."""

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
    """The time that the slave waits before it connects; None if it connects at once."""

    async def scene() -> int | None:
        tasks = Tasks(lambda error: None)
        slave = PairSlave(
            log,
            records,
            settings=SETTINGS,
            clock=SystemClock(),
            network=PLAIN,
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


def test_a_slave_follows_a_master_with_the_same_last_record() -> None:
    records = Records(LAST)
    assert prepared(log_with(record("first", 30), LAST), records) is None
    assert records.asked == [30]


@pytest.mark.parametrize("there", [None, record("lost", 40), LAST + b"more", b""])
def test_a_slave_does_not_follow_a_master_with_another_last_record(
    there: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        assert prepared(log_with(LAST), Records(there)) == SETTINGS.full_log_wait_ms
    assert "does not follow its master" in caplog.text


@pytest.mark.parametrize("begins, left_behind", [(0, False), (40, True), (1 << 20, True)])
def test_a_slave_logs_that_retention_deleted_its_last_record_at_the_master(
    begins: int, left_behind: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        assert prepared(log_with(LAST), Records(None, begins)) == SETTINGS.full_log_wait_ms
    [line] = caplog.records
    hint = line.__dict__["fields"]["hint"]
    assert ("retention has deleted" in hint) is left_behind
    assert ("does not have the last record" in hint) is not left_behind


def test_a_slave_retries_when_the_masters_log_start_is_unreadable() -> None:
    records = Records(None, MasterUnread("it is down"))
    assert prepared(log_with(LAST), records) == SETTINGS.reconnect_ms_max


def test_a_slave_retries_when_the_masters_record_is_unreadable() -> None:
    records = Records(MasterUnread("it is down"))
    assert prepared(log_with(LAST), records) == SETTINGS.reconnect_ms_max


def test_an_empty_log_or_a_slave_without_a_record_source_is_not_compared() -> None:
    records = Records(None)
    assert prepared(MemoryLog(), records) is None and records.asked == []
    assert prepared(log_with(LAST), None) is None


def test_the_blank_after_the_last_record_is_truncated() -> None:
    """The master may have lost the blank and have written other records there."""
    log = log_with(LAST, segment_size=64)
    log.append_blank()
    assert log.max_offset() == 64
    assert prepared(log, Records(LAST)) is None
    assert log.truncated == [(64, 40)]
