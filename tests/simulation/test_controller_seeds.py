"""Seeds of the controllers' world, and bugs that are planted in it to prove that its check sees. Many more seeds:
`python -m simulation.controllers.world`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from simulation.controllers.bugs import BUGS
from simulation.controllers.world import Totals, run_seed
from simulation.kernel.seeds import find
from tests.simulation.unitfind import assert_found

FOUND_BY = {
    "altered-by-anyone": 1,
    "another-clusters-heartbeat": 1,
    "answered-members-awaited": 1,
    "commands-side-by-side": 1,
    "dead-elected": 14,
    "dead-member-enters": 1,
    "elected-outside-the-set": 7,
    "elects-again": 1,
    "eligible-kept-though-the-set-is-large-enough": 1,
    "empty-set": 1,
    "epoch-not-bumped": 1,
    "epoch-reused": 3,
    "forgotten-is-not-told": 1,
    "former-connections-kept": 4,
    "former-holder-speaks": 3733224131920579,
    "frozen-silence-counts": 11,
    "holders-cleaned": 35,
    "id-granted-twice": 1,
    "id-taken-over": 1,
    "impatient-leader": 2,
    "late-heartbeat-revives": 10,
    "late-registration-deposes": 10,
    "learner-elected": 6,
    "little-patience": 3,
    "living-cleaned": 1,
    "master-cleaned": 1,
    "master-left-out": 1,
    "no-settling": 7,
    "read-without-barrier": 6,
    "reads-by-followers": 3,
    "refusal-not-fenced": 106,
    "refusal-settles-all": 105,
    "restarted-master-leads-on": 11,
    "set-epoch-not-bumped": 1,
    "snapshot-counts-no-epochs": 2,
    "snapshot-forgets-the-eligible": 6,
    "stale-master-epoch": 1,
    "stale-set-epoch": 1,
    "strangers-in-the-set": 1,
    "told-before-decided": 1,
    "unfit-elected": 94,
    "unknown-is-refused": 1,
    "who-may-lack-is-elected": 49,
}
"""Planted bug -> the first seed that is known to find it. What each breaks stands in docs/proofs.md."""
FOUND_BY_UNIT = {
    "eligible-comes-back-short": "controller/test_controller_live_brokers.py"
    "::test_who_is_eligible_and_comes_back_with_an_older_log_lacks_what_it_held",
    "operator-elects-who-may-lack": "controller/test_controller_eligibility.py"
    "::test_an_operator_designates_one_that_may_lack_something_only_once_nobody_better_lives",
    "who-cannot-lead-is-able": "controller/test_controller_eligibility.py"
    "::test_a_damaged_log_leads_before_one_that_cannot_and_after_one_that_is_sound",
}
"""Planted bug -> the unit test that finds it; of seeds hardly one in a hundred does."""
TABLE = Path(__file__).parents[2] / "docs" / "proofs.md"


@pytest.mark.parametrize("seed", [10, 13, 17, 157, 1417070283588186])
def test_controllers_keep_their_promises_whatever_is_asked_killed_or_late(
    seed: int, tally: Callable[[str, int], None]
) -> None:
    totals = Totals()
    run_seed(seed, totals=totals)
    assert totals.counts["asks"] > 100
    assert totals.counts["elections"] > 1
    tally("seeds", 1)
    tally("faults", totals.faults.total())


def test_every_planted_bug_has_a_seed_that_finds_it() -> None:
    assert FOUND_BY.keys() | FOUND_BY_UNIT.keys() == BUGS.keys()


def test_the_document_tells_the_same_seeds() -> None:
    rows = [line.split("|") for line in TABLE.read_text().splitlines() if line.startswith("| `")]
    told = {row[1].strip(" `"): int(row[3]) for row in rows if row[3].strip().isdigit()}
    assert told == FOUND_BY


@pytest.mark.parametrize("bug", sorted(FOUND_BY_UNIT))
def test_a_planted_bug_is_found_by_its_unit_test(bug: str) -> None:
    assert_found("simulation.controllers.bugs", bug, FOUND_BY_UNIT[bug])


@pytest.mark.parametrize("bug", sorted(FOUND_BY))
def test_a_planted_bug_is_found(bug: str, tally: Callable[[str, int], None]) -> None:
    found = find(lambda seed: run_seed(seed, bug), FOUND_BY[bug])
    assert found is not None, f"{bug} was not noticed"
    tally("seeds", found.tried)
    tally("planted bugs whose seed moved", found.moved)
