"""Seeds of the Raft world, and bugs that are planted in it to prove that its checkers see."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from simulation.kernel.foundby import find, found_by
from simulation.kernel.totals import Totals
from simulation.mutants.raft import BUGS
from simulation.raft.world import FEATURES, RaftWorld, run_seed
from tests.simulation.played import Scenario, scenario
from tests.simulation.unitfind import assert_found
from tests.support.longtests import long

PLACES = scenario(44, "positions", "kill")
SCENARIOS = [
    *map(scenario, range(1, 5)),
    scenario(5, "changes", "empty"),
    scenario(6, "old disks", "kill"),
    scenario(24, "positions", "power"),
    PLACES,
    scenario(201, "disk-error", "power"),
]
LONG_SCENARIOS = [
    *map(scenario, range(7, 11)),
    scenario(29, "late", "disk-error"),
    scenario(85, "positions", "disk-error", "power-all"),
]

FOUND_BY = found_by("raft")
FOUND_BY_REGISTERS = found_by("registers")
FOUND_BY_SCENARIO = {
    "bodies-again-unanswered",
    "checkpoint-ahead-of-disk",
    "ended-connection-is-a-dead-leader",
    "heartbeat-answered-before-vote",
    "lands-in-a-later-term",
    "push-answered-before-entries",
    "restarted-unreported",
}
"""In tests/simulation/test_raft_scenarios.py and test_raft_positions.py: seeds seldom find them."""
FOUND_BY_UNIT = {
    "confirmed-for-ever": "unit/dledger/test_newermembers.py::test_a_report_counts_for_a_while",
    "former-member-not-vouched": "unit/dledger/test_memberguard.py"
    "::test_a_member_that_was_added_again_is_a_confirmed_peer",
    "promoted-though-it-counts-for-nothing": "unit/dledger/test_transcripts.py"
    "::test_a_transcript_matches_the_result_of_its_commands[members.txt]",
    "old-disk-forgotten": "unit/dledger/test_dledger_store.py"
    "::test_the_newcomer_flag_and_the_members_are_stored_with_the_term",
    "answer-of-a-former-life-counts": "unit/dledger/test_raft_rejoin.py"
    "::test_a_late_acknowledgement_of_an_earlier_session_is_ignored",
    "vote-not-persisted": "unit/dledger/test_dledger_store.py"
    "::test_the_newcomer_flag_and_the_members_are_stored_with_the_term",
}
FOUND_BY_CRASH_IMAGES = {"cut-in-the-page-cache", "cut-keeps-the-blank", "void-files-count"}
"""In tests/crash/test_ledger_crash_images.py: they need a crash at one of few moments."""


@pytest.mark.parametrize("scenario", [*SCENARIOS, *long(LONG_SCENARIOS)], ids=str)
def test_a_group_keeps_its_guarantees_under_faults(
    scenario: Scenario, tally: Callable[[str, int], None]
) -> None:
    totals = Totals()
    RaftWorld(scenario.seed, totals, scenario.asked).run(10_000)
    for name in ("seeds", "elections", "commits"):
        tally(f"raft {name}", totals.counts[name])


def test_seeds_have_several_pushes_in_flight_and_apply_batches() -> None:
    totals = Totals()
    for seed in (1, 4, 5):
        RaftWorld(seed, totals=totals).run(2_500)
    assert totals.counts["pipelined"] > 100 and totals.counts["batched"] > 100


def test_a_log_with_reserved_positions_moves_its_log_start() -> None:
    totals = Totals()
    RaftWorld(PLACES.seed, totals, PLACES.asked).run(10_000)
    assert totals.counts["placed"] > 100 and totals.counts["readable"] > 300 and totals.counts["begun"] > 3


def test_a_seed_repeats_itself() -> None:
    def digest() -> int:
        raft_world = RaftWorld(21)
        raft_world.run(3_000)
        return raft_world.world.trace.digest

    assert digest() == digest()


def test_every_planted_bug_has_a_seed_or_a_scenario_that_finds_it() -> None:
    by_other_means = (
        FOUND_BY_SCENARIO | FOUND_BY_UNIT.keys() | FOUND_BY_CRASH_IMAGES | FOUND_BY_REGISTERS.keys()
    )
    assert FOUND_BY.keys() | by_other_means == BUGS.keys()


@pytest.mark.long
@pytest.mark.parametrize("bug", sorted(FOUND_BY_UNIT))
def test_a_planted_bug_is_found_by_its_unit_test(bug: str) -> None:
    assert_found("simulation.mutants.raft", FOUND_BY_UNIT, bug)


@pytest.mark.long
@pytest.mark.parametrize("bug", sorted(FOUND_BY))
def test_a_planted_bug_is_found(bug: str) -> None:
    asked = BUGS.asked(bug, FEATURES)
    found = find(lambda seed: run_seed(seed, bug, Totals(), asked), FOUND_BY[bug])
    error = found.failure.error
    assert type(error).__name__ in ("Violation", "SimulationError", "NotReached", "Livelock"), error
