"""A member's DLedger log as a broker's store reads it, built from given bytes."""

from __future__ import annotations

import asyncio
import errno
import os
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dledger.node.node import DLedgerNode
from dledger.raft.entries import Entry
from dledger.storage.entry import BLANK, BLANK_MAGIC, header_of
from messagestore.errors import LogReplaced, OffsetOutOfRange
from messagestore.record import encode
from raftstore.ledgerlog import LedgerLog
from tests.unit.raftstore.raftstores import TIME_MS, message

FILE = 1024


class File:
    def __init__(self, content: bytes) -> None:
        self.content = content.ljust(FILE, b"\0")

    def view(self) -> memoryview:
        return memoryview(self.content)

    async def read_cold(self, start: int, end: int) -> bytes:
        assert 0 <= start <= end <= FILE
        return self.content[start:end]


def entry(index: int, position: int, body: bytes) -> bytes:
    return header_of(Entry(index, 1, body), position, 0, 0)[0] + body


def log_of(*files: bytes, end: int) -> LedgerLog:
    opened = [File(content) for content in files]
    node: Any = SimpleNamespace(
        settings=SimpleNamespace(data_file_bytes=FILE, proposal_bytes_max=FILE),
        data=SimpleNamespace(
            files=opened, file=lambda number: opened[number] if number < len(opened) else None
        ),
        log_begin=lambda: 0,
        log_end=lambda: end,
        readable=lambda: (9, end),
        store=SimpleNamespace(
            log=SimpleNamespace(
                data=SimpleNamespace(rest_of_file=lambda at: opened[at // FILE].view()[at % FILE :]),
                check_of=lambda index: 0,
            )
        ),
    )
    log = LedgerLog(cast(DLedgerNode, node), hot_segments=2, queue_ends=lambda: b"")
    log.opened(0)
    return log


def closed(content: bytes) -> bytes:
    """Add the blank that ends a file."""
    return content + BLANK.pack(BLANK_MAGIC, FILE - len(content))


def test_a_file_with_only_no_ops_is_skipped() -> None:
    """The first message did not fit after the no-op of the term."""
    first = message(1, b"x", 0)
    first.physical_offset = 2 * FILE + 48
    stored = entry(3, 2 * FILE, encode(first))
    files = closed(entry(0, 0, b"") + entry(1, 48, b"")), closed(entry(2, FILE, b"")), stored
    log = log_of(*files, end=2 * FILE + len(stored))
    assert log.first_record() == 2 * FILE + 48
    (oldest, second) = asyncio.run(log.segments_behind_first(2))
    assert (oldest.start, oldest.end, second.end) == (0, FILE, 2 * FILE)
    assert [oldest.newest_ms, second.newest_ms] == [TIME_MS + 1, TIME_MS + 1]


def test_the_time_of_a_corrupted_message_is_ignored() -> None:
    first = message(1, b"x", 0)
    first.physical_offset = FILE + 48
    stored = bytearray(entry(1, FILE, encode(first)))
    stored[104 + 2] ^= 1
    log = log_of(closed(entry(0, 0, b"")), bytes(stored), end=FILE + len(stored))
    assert [each.newest_ms for each in asyncio.run(log.segments_behind_first(2))] == [None]


def test_a_file_with_an_unreadable_age_is_as_old_as_the_next_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One bad sector once kept all files for ever, also those that forced deletion of a full disk should
    remove."""
    first = message(1, b"x", 0)
    first.physical_offset = 2 * FILE + 48
    stored = entry(2, 2 * FILE, encode(first))
    log = log_of(closed(entry(0, 0, b"")), closed(entry(1, FILE, b"")), stored, end=2 * FILE + len(stored))
    read_cold = log.read_cold

    async def fails(offset: int, size_max: int) -> bytes:
        if offset == FILE:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return await read_cold(offset, size_max)

    monkeypatch.setattr(log, "read_cold", fails)
    for _ in range(3):
        ages = [each.newest_ms for each in asyncio.run(log.segments_behind_first(2))]
        assert ages == [None, TIME_MS + 1]
    assert caplog.messages == ["how old a segment is cannot be read: it counts as old as the next one"]


def test_a_log_with_only_no_ops_has_no_first_message() -> None:
    content = entry(0, 0, b"")
    log = log_of(closed(content), entry(1, FILE, b""), end=FILE + 48)
    assert log.first_record() is None
    assert [each.newest_ms for each in asyncio.run(log.segments_behind_first(2))] == [None]


def test_a_log_that_is_being_replaced_rejects_reads() -> None:
    content = entry(0, 0, b"")
    log = log_of(closed(content), entry(1, FILE, b""), end=FILE + 48)
    assert len(log.segment_view(FILE)[0]) == FILE
    log.replaced_at(5 * FILE)
    for offset in (0, FILE):
        with pytest.raises(LogReplaced, match="about to be reopened"):
            log.segment_view(offset)
        with pytest.raises(OffsetOutOfRange):
            asyncio.run(log.read_cold(offset, 48))
    assert (log.min_offset, log.flushed_offset) == (5 * FILE, 5 * FILE)
    assert log.first_record() is None and not log.read(5 * FILE, 48)
