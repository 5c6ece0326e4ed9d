"""How much room a copy of the master's log needs, and how much there is."""

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
def test_whole_segments_are_counted_and_the_one_that_is_made_ahead(log: LogSpan, segments: int) -> None:
    assert copy_bytes(log, 100) == 100 * segments


def test_there_is_room_up_to_where_retention_deletes_by_force() -> None:
    space = DiskSpace(600, 400)
    assert room_bytes(space, RULES) == 250
    assert room_bytes(space, replace(RULES, may_clean_forcibly=False)) == 400
    assert room_bytes(DiskSpace(900, 100), RULES) == 0


def test_a_log_is_where_its_broker_says() -> None:
    told = b'{"table":{"commitLogMinOffset":"100","commitLogMaxOffset":"250"}}'
    assert log_span(told) == LogSpan(100, 250)


@pytest.mark.parametrize(
    "told",
    [
        None,
        b"",
        b"{}",
        b"[]",
        b'{"table":{"commitLogMinOffset":"1"}}',
        b'{"table":{"commitLogMinOffset":"x"}}',
    ],
)
def test_who_does_not_say_is_not_guessed_at(told: bytes | None) -> None:
    with pytest.raises(MasterUnread, match="does not report"):
        log_span(told)
