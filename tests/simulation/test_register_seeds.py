"""Seeds of the register world, and planted bugs that the clients' histories reveal."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from simulation.kernel.foundby import find, found_by
from simulation.kernel.totals import Totals
from simulation.kernel.world import NotReached
from simulation.raft.registerworld import RegisterWorld, Unordered, run_seed

SEEDS = range(1, 4)

FOUND_BY = found_by("registers")


@pytest.mark.parametrize("seed", SEEDS)
def test_the_histories_of_registers_are_linearizable(seed: int, tally: Callable[[str, int], None]) -> None:
    totals = Totals()
    RegisterWorld(seed, totals).run()
    counts = totals.counts
    assert counts["linearized"] > 300
    for name in ("seeds", "linearized"):
        tally(f"registers {name}", counts[name])


@pytest.mark.long
@pytest.mark.parametrize("bug", FOUND_BY)
def test_a_planted_bug_is_found(bug: str) -> None:
    found = find(lambda seed: run_seed(seed, bug, Totals()), FOUND_BY[bug])
    wanted = NotReached if bug == "preferred-never-lead" else Unordered
    assert isinstance(found.failure.error, wanted), found.failure
