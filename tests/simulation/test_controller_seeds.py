"""Seeds of the controllers' world, and bugs that are planted in it to prove that its check sees. Many more seeds:
`python -m simulation.controllers.world`."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from simulation.controllers.world import FEATURES, run_seed
from simulation.kernel.foundby import find, found_by
from simulation.kernel.totals import Totals
from simulation.mutants.controllers import BUGS
from tests.simulation.played import Scenario, scenario
from tests.simulation.unitfind import assert_found

FOUND_BY = found_by("controllers")
FOUND_BY_UNIT = {
    "former-holder-speaks": "unit/controller/test_controller_live_brokers.py"
    "::test_a_former_holder_of_an_id_does_not_block_the_new_holder",
    "eligible-comes-back-short": "unit/controller/test_controller_live_brokers.py"
    "::test_an_eligible_broker_with_an_older_log_is_missing_data",
    "operator-elects-one-that-may-miss-data": "unit/controller/test_controller_eligibility.py"
    "::test_an_operator_cannot_elect_a_broker_with_possible_loss_over_a_better_one",
    "holders-cleaned": "unit/controller/test_controller_commands.py"
    "::test_the_only_broker_with_acknowledged_data_is_not_cleaned",
    "late-heartbeat-revives": "unit/controller/test_controller_live_brokers.py"
    "::test_a_late_heartbeat_of_a_dead_process_is_ignored_after_a_restart",
    "older-connection-reports": "unit/controller/test_controller_holdings.py"
    "::test_a_late_report_from_before_the_loss_is_ignored",
    "one-that-cannot-lead-is-able": "unit/controller/test_controller_eligibility.py"
    "::test_a_damaged_log_ranks_below_an_intact_one_and_above_an_unfit_broker",
}
"""Planted bug -> the unit test that finds it; hardly one seed in a hundred does."""
TABLE = Path(__file__).parents[2] / "docs" / "proofs.md"


SCENARIOS = [
    scenario(10),
    scenario(13, "elections"),
    scenario(17, "learner"),
    scenario(157, "unclean"),
    scenario(18, "fifty sets"),
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_controllers_keep_their_guarantees_under_requests_and_faults(
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


def test_the_document_lists_every_planted_bug() -> None:
    section = TABLE.read_text().split("## The controllers")[1]
    rows = re.findall(r"^\| `([\w-]+)` \| .*?( \(unit test\))? \|$", section, re.MULTILINE)
    listed = {bug: "a unit test" if by_unit_test else "a seed" for bug, by_unit_test in rows}
    assert listed == {bug: "a seed" if bug in FOUND_BY else "a unit test" for bug in BUGS}


@pytest.mark.long
@pytest.mark.parametrize("bug", sorted(FOUND_BY_UNIT))
def test_a_planted_bug_is_found_by_its_unit_test(bug: str) -> None:
    assert_found("simulation.mutants.controllers", FOUND_BY_UNIT, bug)


@pytest.mark.long
@pytest.mark.parametrize("bug", sorted(FOUND_BY))
def test_a_planted_bug_is_found(bug: str, tally: Callable[[str, int], None]) -> None:
    asked = BUGS.asked(bug, FEATURES)
    found = find(lambda seed: run_seed(seed, bug, asked=asked), FOUND_BY[bug])
    tally("seeds", found.tried)
