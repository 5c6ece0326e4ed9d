"""Seeds of the controllers' world, and bugs that are planted in it to prove that its check sees. Many more seeds:
`python -m simulation.controllers.world`."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from simulation.controllers.bugs import BUGS
from simulation.controllers.world import FEATURES, Totals, run_seed
from simulation.kernel.foundby import find, found_by
from tests.simulation.played import Scenario, scenario
from tests.simulation.unitfind import assert_found

FOUND_BY = found_by("controllers")
FOUND_BY_UNIT = {
    "former-holder-speaks": "controller/test_controller_live_brokers.py"
    "::test_a_former_holder_of_an_id_shuts_its_new_one_out_neither_by_a_registration_nor_by_heartbeats",
    "eligible-comes-back-short": "controller/test_controller_live_brokers.py"
    "::test_who_is_eligible_and_comes_back_with_an_older_log_lacks_what_it_held",
    "operator-elects-one-that-may-miss-data": "controller/test_controller_eligibility.py"
    "::test_an_operator_designates_one_that_may_lack_something_only_once_nobody_better_lives",
    "holders-cleaned": "controller/test_controller_commands.py"
    "::test_who_may_alone_hold_what_was_acknowledged_is_not_cleaned",
    "late-heartbeat-revives": "controller/test_controller_live_brokers.py"
    "::test_a_heartbeat_of_a_dead_process_revives_nobody_once_its_successor_registered",
    "older-connection-reports": "controller/test_controller_holdings.py"
    "::test_a_late_heartbeat_of_before_an_emptied_log_makes_up_for_nothing",
    "one-that-cannot-lead-is-able": "controller/test_controller_eligibility.py"
    "::test_a_damaged_log_leads_before_one_that_cannot_and_after_one_that_is_sound",
}
"""Planted bug -> the unit test that finds it; of seeds hardly one in a hundred does."""
TABLE = Path(__file__).parents[2] / "docs" / "proofs.md"


SCENARIOS = [
    scenario(10),
    scenario(13, "elections"),
    scenario(17, "learner"),
    scenario(157, "unclean"),
    scenario(18, "fifty sets"),
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_controllers_keep_their_promises_whatever_is_asked_killed_or_late(
    scenario: Scenario, tally: Callable[[str, int], None]
) -> None:
    totals = Totals()
    run_seed(scenario.seed, totals=totals, asked=scenario.asked)
    assert totals.counts["asks"] > 100
    assert totals.counts["elections"] > 1
    tally("seeds", 1)
    tally("faults", totals.faults.total())


def test_every_planted_bug_has_a_seed_that_finds_it() -> None:
    assert FOUND_BY.keys() | FOUND_BY_UNIT.keys() == BUGS.keys()


def test_the_document_tells_of_every_planted_bug() -> None:
    section = TABLE.read_text().split("## The controllers")[1]
    rows = re.findall(r"^\| `([\w-]+)` \| .*?( \(unit test\))? \|$", section, re.MULTILINE)
    told = {bug: "a unit test" if by_unit_test else "a seed" for bug, by_unit_test in rows}
    assert told == {bug: "a seed" if bug in FOUND_BY else "a unit test" for bug in BUGS}


@pytest.mark.parametrize("bug", sorted(FOUND_BY_UNIT))
def test_a_planted_bug_is_found_by_its_unit_test(bug: str) -> None:
    assert_found("simulation.controllers.bugs", FOUND_BY_UNIT, bug)


@pytest.mark.long
@pytest.mark.parametrize("bug", sorted(FOUND_BY))
def test_a_planted_bug_is_found(bug: str, tally: Callable[[str, int], None]) -> None:
    asked = BUGS.asked(bug, FEATURES)
    found = find(lambda seed: run_seed(seed, bug, asked=asked), FOUND_BY[bug])
    tally("seeds", found.tried)
