"""Pairs under load and faults: a few seeds. Many more: `python -m simulation.pairs.world`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from simulation.cluster.totals import Totals
from simulation.kernel.foundby import find, found_by
from simulation.pairs.bugs import BUGS
from simulation.pairs.world import ACKNOWLEDGED_MIN, PairWorld, run_seed
from tests.longtests import long

FOUND_BY = found_by("pairs")


@pytest.mark.parametrize("seed", [*range(1, 7), 31, 33, 130, *long([*range(7, 13), 158, 224, 312, 437])])
def test_a_pair_keeps_its_promises_whatever_is_killed_cut_or_emptied(
    seed: int, tally: Callable[[str, int], None]
) -> None:
    pair = PairWorld(seed)
    pair.run()
    assert pair.totals.counts["acknowledged"] >= ACKNOWLEDGED_MIN
    tally("seeds", 1)
    tally("faults", pair.totals.faults.total())


def test_every_planted_bug_has_a_seed_that_finds_it() -> None:
    assert FOUND_BY.keys() == BUGS.keys()


@pytest.mark.long
@pytest.mark.parametrize("bug", sorted(FOUND_BY))
def test_a_planted_bug_is_found(bug: str, tally: Callable[[str, int], None]) -> None:
    totals = Totals()
    found = find(lambda seed: run_seed(seed, bug, totals), FOUND_BY[bug])
    tally("seeds", found.tried)


def test_a_seed_gives_the_same_run_again() -> None:
    digests = []
    for _ in range(2):
        pair = PairWorld(2)
        pair.run()
        digests.append((pair.world.trace.events, pair.world.trace.digest))
    assert digests[0] == digests[1]
