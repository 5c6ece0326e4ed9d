"""Pairs under load and faults: a few seeds. Many more: `python -m simulation.pairs.world`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from simulation.kernel.foundby import find, found_by
from simulation.kernel.totals import Totals
from simulation.mutants.pairs import BUGS
from simulation.pairs.members import FEATURES, kind_of
from simulation.pairs.world import ACKNOWLEDGED_MIN, PairWorld, run_seed
from tests.simulation.played import Scenario, scenario
from tests.support.longtests import long

FOUND_BY = found_by("pairs")


SCENARIOS = [
    *map(scenario, range(1, 5)),
    scenario(5, "transactions"),
    scenario(7, "facts"),
    scenario(31, "lost memory"),
    scenario(40, "lost masters"),
    scenario(86, "SYNC_MASTER", "retention"),
]
LONG_SCENARIOS = [
    *map(scenario, range(8, 13)),
    scenario(3, "forger"),
    scenario(158, "lost masters"),
    scenario(224, "delayed messages"),
    scenario(312, "facts", "retention"),
    scenario(437, "transactions", "retention"),
]


def test_each_feature_is_played_by_a_scenario() -> None:
    kinds = [kind_of(scenario.seed, scenario.asked) for scenario in (*SCENARIOS, *LONG_SCENARIOS)]
    assert frozenset().union(*(kind.played for kind in kinds)) == frozenset(FEATURES)


@pytest.mark.parametrize("scenario", [*SCENARIOS, *long(LONG_SCENARIOS)], ids=str)
def test_a_pair_keeps_its_guarantees_under_faults(
    scenario: Scenario, tally: Callable[[str, int], None]
) -> None:
    pair = PairWorld(scenario.seed, asked=scenario.asked)
    pair.run()
    assert pair.totals.counts["acknowledged"] >= ACKNOWLEDGED_MIN
    tally("seeds", 1)
    tally("faults", pair.totals.faults.total())


def test_every_planted_bug_has_a_seed_that_finds_it() -> None:
    assert FOUND_BY.keys() == BUGS.keys()


@pytest.mark.long
@pytest.mark.parametrize("bug", sorted(FOUND_BY))
def test_a_planted_bug_is_found(bug: str, tally: Callable[[str, int], None]) -> None:
    totals, asked = Totals(), BUGS.asked(bug, FEATURES)
    found = find(lambda seed: run_seed(seed, bug, totals, asked), FOUND_BY[bug])
    tally("seeds", found.tried)


def test_a_seed_gives_the_same_run_again() -> None:
    digests = []
    for _ in range(2):
        pair = PairWorld(2)
        pair.run()
        digests.append((pair.world.trace.events, pair.world.trace.digest))
    assert digests[0] == digests[1]
