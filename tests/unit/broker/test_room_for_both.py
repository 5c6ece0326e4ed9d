"""The room that a copy of the master's log needs, and the room that a disk has."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.resync.logspan import LogSpan, log_span
from broker.resync.roomforboth import copy_bytes, room_bytes
from broker.settings.broker import BrokerSettings
from ha.errors import MasterUnread
from mqruntime.segments import DiskSpace

RULES = replace(BrokerSettings().retention, clean_forcibly_above=0.85, may_clean_forcibly=True)


@pytest.mark.parametrize(
    ("log", "segments"),
    [
        (LogSpan(0, 0), 2),
        (LogSpan(0, 99), 2),
        (LogSpan(0, 100), 3),
        (LogSpan(500, 600), 3),
        (LogSpan(512, 590), 2),
    ],
)
def test_a_copy_needs_room_for_whole_segments_and_the_preallocated_one(log: LogSpan, segments: int) -> None:
    assert copy_bytes(log, 100) == 100 * segments


def test_room_ends_at_the_ratio_of_forced_deletion() -> None:
    space = DiskSpace(600, 400)
    assert room_bytes(space, RULES) == 250
    assert room_bytes(space, replace(RULES, may_clean_forcibly=False)) == 400
    assert room_bytes(DiskSpace(900, 100), RULES) == 0


def test_the_log_span_is_read_from_the_runtime_information() -> None:
    body = b'{"table":{"commitLogMinOffset":"100","commitLogMaxOffset":"250"}}'
    assert log_span(body) == LogSpan(100, 250)


@pytest.mark.parametrize(
    "body",
    [
        None,
        b"",
        b"{}",
        b"[]",
        b'{"table":{"commitLogMinOffset":"1"}}',
        b'{"table":{"commitLogMinOffset":"x"}}',
    ],
)
def test_runtime_information_without_log_offsets_raises_master_unread(body: bytes | None) -> None:
    with pytest.raises(MasterUnread, match="does not report"):
        log_span(body)
