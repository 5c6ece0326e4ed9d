"""Seeds of the Raft world, and bugs that are planted in it to prove that its checkers see."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from simulation.kernel.seeds import first_failure
from simulation.raft.world import RaftWorld, Totals, run_with

SEEDS = range(1, 9)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_group_keeps_its_promises_under_faults(seed: int, tally: Callable[[str, int], None]) -> None:
    totals = Totals()
    RaftWorld(seed, totals=totals).run(10_000)
    for name in ("seeds", "elections", "commits"):
        tally(f"raft {name}", totals.counts[name])


def test_a_seed_repeats_itself() -> None:
    def digest() -> int:
        raft_world = RaftWorld(21)
        raft_world.run(3_000)
        return raft_world.world.trace.digest

    assert digest() == digest()


@pytest.mark.parametrize(
    ("bug", "first"),
    [
        ("vote-not-persisted", 36),
        ("commit-by-counting", 2),
        ("ack-before-fsync", 1),
        ("vote-without-comparing-logs", 5),
        ("heartbeat-answered-before-vote", 7),
        ("late-pre-vote-counts", 1),
        ("transfer-of-any-term", 11),
        ("dropped-push-in-flight", 1),
    ],
)
def test_a_planted_bug_is_found(bug: str, first: int) -> None:
    failure = first_failure(lambda seed: run_with(bug, seed), first, 3)
    assert failure is not None, f"{bug} was not found"
    assert type(failure.error).__name__ in ("Violation", "SimulationError"), failure.error
