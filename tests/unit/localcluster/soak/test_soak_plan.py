"""The plan of a soak: numbered messages, strikes in turn, short retention; and its command."""

from __future__ import annotations

import random
from itertools import islice
from pathlib import Path

import pytest
from click.testing import CliRunner

from localcluster.soak.cli import soak
from localcluster.soak.message import Messages
from localcluster.soak.plan import SoakPlan, page_after_s, reserved_s_for
from localcluster.soak.strikekinds import StrikeKind, kinds

MESSAGES = Messages("1x2f", "Soak", "SoakDelayed", 1000)


def test_a_message_key_gives_its_number_only_for_its_own_run() -> None:
    assert MESSAGES.number(MESSAGES.key(17)) == 17
    for key in ("1x2e-17", "1x2f-", "1x2f", "", "1x2f-x", "1x2f-1-7", "1x2f-²"):
        assert MESSAGES.number(key) is None


def test_bodies_are_determined_by_their_numbers_and_have_the_given_mean() -> None:
    bodies = [MESSAGES.body(number) for number in range(500)]
    assert bodies == [MESSAGES.body(number) for number in range(500)]
    assert len(set(bodies)) == 500
    assert min(map(len, bodies)) >= 64
    assert sum(map(len, bodies)) / 500 == pytest.approx(1000, rel=0.1)
    assert len(Messages("r", "a", "b", 10).body(1)) == 64


def test_each_kind_of_strike_occurs_once_before_any_repeats() -> None:
    drawn = list(islice(kinds(random.Random(3), tuple(StrikeKind)), 3 * len(StrikeKind)))
    for begin in range(0, len(drawn), len(StrikeKind)):
        assert set(drawn[begin : begin + len(StrikeKind)]) == set(StrikeKind)
    assert drawn == list(islice(kinds(random.Random(3), tuple(StrikeKind)), 3 * len(StrikeKind)))
    assert set(islice(kinds(random.Random(3), [StrikeKind.ELECT]), 5)) == {StrikeKind.ELECT}


@pytest.mark.parametrize(("seconds", "reserved_s"), [(3600, 300), (1800, 150), (40, 60)])
def test_an_hour_of_retention_is_shortened_to_minutes(seconds: float, reserved_s: int) -> None:
    assert reserved_s_for(seconds) == reserved_s


@pytest.mark.parametrize(("elapsed_s", "after_s"), [(0, 5), (200, 10), (4000, 60)])
def test_pages_are_written_often_at_first(elapsed_s: float, after_s: float) -> None:
    assert page_after_s(elapsed_s) == after_s


def test_brokers_delete_files_by_age_only_and_check_often_enough() -> None:
    settings = SoakPlan(3600, 1, 200, 8192, 64 << 20, 300, tuple(StrikeKind)).broker_settings()
    assert settings["fileReservedSeconds"] == "300"
    assert settings["cleanResourceInterval"] == "10000"
    assert settings["cleanFileForciblyEnable"] == "false"
    assert SoakPlan(40, 1, 200, 8192, 1 << 20, 5, ()).broker_settings()["cleanResourceInterval"] == "200"


def test_an_unwritable_page_is_reported_before_anything_starts(tmp_path: Path) -> None:
    result = CliRunner().invoke(soak, ["--out", str(tmp_path / "no" / "page.html")])
    assert (result.exit_code, result.output.count("\n")) == (1, 1)
    assert "no/page.html" in result.output


@pytest.mark.parametrize(
    "options", [["--hours", "0"], ["--hours", "-1"], ["--rate", "0"], ["--only", "nothing"]]
)
def test_invalid_soak_options_are_refused(options: list[str]) -> None:
    assert CliRunner().invoke(soak, options).exit_code == 2
