"""The segments that retention may delete, with literals."""

from __future__ import annotations

from dataclasses import replace

import pytest

from messagestore.log.retention import (
    HOUR_MS,
    Moment,
    RetainedSegment,
    RetentionDecision,
    RetentionHold,
    Rules,
    decide,
    hours_of,
)
from messagestore.store.settings import StoreSettings
from mqruntime.changedsettings import SettingsRefused, asked_for
from mqruntime.settings import SettingsError

RULES = Rules(
    reserved_ms=72 * HOUR_MS,
    delete_hours=frozenset({4}),
    clean_above=0.75,
    clean_forcibly_above=0.85,
    refuse_above=0.90,
    may_clean_forcibly=True,
    segments_max=10,
)
NOW_MS = 1_000 * HOUR_MS
AT_FOUR = Moment(NOW_MS, 4, 0.5, asked=False)
AT_FIVE = Moment(NOW_MS, 5, 0.5, asked=False)
CONFIRMED = RetentionHold(10_000, "the confirm offset")


def log(*hours_ago: int | None) -> list[RetainedSegment]:
    """Segments of 100 bytes from 300 on; the newest record of each was stored that many hours ago."""
    return [
        RetainedSegment(300 + 100 * n, 400 + 100 * n, None if ago is None else NOW_MS - ago * HOUR_MS)
        for n, ago in enumerate(hours_ago)
    ]


def test_expired_segments_are_deleted_at_the_delete_hour() -> None:
    assert decide(log(100, 72, 71, 1), [CONFIRMED], AT_FOUR, RULES) == RetentionDecision(500, 2, 0, None)
    assert decide(log(71, 1), [CONFIRMED], AT_FOUR, RULES) == RetentionDecision(300, 0, 0, None)


def test_at_other_hours_nothing_is_deleted_without_a_request_or_a_fuller_disk() -> None:
    aged = log(100, 100, 1)
    assert decide(aged, [CONFIRMED], AT_FIVE, RULES).segments == 0
    assert decide(aged, [CONFIRMED], AT_FIVE._replace(asked=True), RULES) == RetentionDecision(
        500, 2, 0, None
    )
    assert decide(aged, [CONFIRMED], AT_FIVE._replace(disk_used=0.75), RULES).segments == 0
    assert decide(aged, [CONFIRMED], AT_FIVE._replace(disk_used=0.76), RULES).segments == 2


def test_a_full_disk_deletes_segments_that_have_not_expired_if_allowed() -> None:
    full = AT_FIVE._replace(disk_used=0.86)
    assert decide(log(100, 1, 0), [CONFIRMED], full, RULES) == RetentionDecision(600, 3, 2, None)
    forbidden = replace(RULES, may_clean_forcibly=False)
    assert decide(log(100, 1, 0), [CONFIRMED], full, forbidden) == RetentionDecision(400, 1, 0, None)


def test_one_round_deletes_a_limited_number_of_segments() -> None:
    few = replace(RULES, segments_max=2)
    assert decide(log(100, 100, 100), [CONFIRMED], AT_FOUR, few) == RetentionDecision(500, 2, 0, None)


@pytest.mark.parametrize("moment", [AT_FOUR, AT_FOUR._replace(disk_used=0.99, asked=True)])
@pytest.mark.parametrize(("offset", "end"), [(300, 300), (399, 300), (400, 400), (450, 400), (500, 500)])
def test_no_segment_above_the_lowest_hold_is_deleted(moment: Moment, offset: int, end: int) -> None:
    hold = RetentionHold(offset, "a slave reads there")
    decision = decide(log(100, 100, 100), [CONFIRMED, hold], moment, RULES)
    assert (decision.end, decision.held) == (end, hold)


def test_a_segment_of_unknown_age_is_as_old_as_the_next_one() -> None:
    assert decide(log(None, 100), [CONFIRMED], AT_FOUR, RULES).segments == 2
    assert decide(log(None, 1), [CONFIRMED], AT_FOUR, RULES).segments == 0
    assert decide(log(None), [CONFIRMED], AT_FOUR, RULES).segments == 0
    assert decide(log(None), [CONFIRMED], AT_FOUR._replace(disk_used=0.9), RULES).by_force == 1


def test_a_corrupted_store_time_keeps_a_segment_no_longer_than_the_next_one() -> None:
    assert decide(log(-1_000_000, 100), [CONFIRMED], AT_FOUR, RULES).segments == 2
    assert decide(log(-1_000_000, 1), [CONFIRMED], AT_FOUR, RULES).segments == 0
    assert decide(log(71, 100), [CONFIRMED], AT_FOUR, RULES).segments == 0
    assert decide(log(72, 101), [CONFIRMED], AT_FOUR, RULES).segments == 2


def test_a_store_time_too_far_back_deletes_no_young_segment_before_it() -> None:
    """A Java broker's clock was wrong when it began a file: neither a CRC nor a later record shows that."""
    assert decide(log(5, 4, 500_000, 2), [CONFIRMED], AT_FOUR, RULES).segments == 0
    assert decide(log(100, 4, 500_000, 2), [CONFIRMED], AT_FOUR, RULES).segments == 1
    assert decide(log(None, 4, 500_000), [CONFIRMED], AT_FOUR, RULES).segments == 0


def test_store_times_in_the_future_keep_no_segment_once_a_later_one_expired() -> None:
    """A Java broker's clock was a century ahead for a while: its files would stay and fill the disk."""
    assert decide(log(-900_000, -900_000, -900_000, 80, 1), [CONFIRMED], AT_FOUR, RULES).segments == 4
    assert decide(log(-900_000, -900_000, 1), [CONFIRMED], AT_FOUR, RULES).segments == 0


def test_sends_stay_refused_until_disk_use_is_below_the_forced_limit() -> None:
    assert not RULES.refuses_sends(False, 0.90)
    assert RULES.refuses_sends(False, 0.91)
    assert RULES.refuses_sends(True, 0.86)
    assert not RULES.refuses_sends(True, 0.85)
    crossed = replace(RULES, clean_forcibly_above=0.99)
    assert crossed.refuses_sends(True, 0.91), "a disk that was too full is not free at once"


def test_delete_hours_are_parsed_as_in_upstream() -> None:
    assert hours_of("04") == {4}
    assert hours_of("00;12;") == {0, 12}
    assert hours_of(" 0; 5 ") == {0, 5}


@pytest.mark.parametrize(
    "wrong", ["", ";", "24", "-1", "four", "4,5", "00;;05", ";05", "05;;", "+4", "1_0", "\u0664"]
)
def test_invalid_delete_hours_are_rejected_with_the_key_and_the_format(wrong: str) -> None:
    with pytest.raises(SettingsError) as refused:
        StoreSettings.load(None, [f"deleteWhen={wrong}"])
    why = "must be hours of the day, 00 to 23, separated by semicolons, as 04 or 00;12"
    assert str(refused.value) == f"command line: deleteWhen={wrong}: {why}"
    with pytest.raises(SettingsRefused) as changed:
        asked_for(StoreSettings(), f"deleteWhen={wrong}\n".encode(), {"deleteWhen"})
    assert str(changed.value) == f"deleteWhen={wrong}: {why}"
