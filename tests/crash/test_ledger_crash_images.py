"""A member's ledger on a disk that loses unsynced data; see simulation.crashimages.ledger."""

from __future__ import annotations

from itertools import product

import pytest

from simulation.crashimages.ledger import CRASHES, crash_everywhere
from simulation.kernel.loop import SimulationError
from simulation.mutants.raft import planted
from tests.support.longtests import long

SEEDS = range(6)
"""`scripts/prove --only ledger-images` runs thousands."""


@pytest.mark.parametrize("power_cut", [False, True], ids=["kill", "power-cut"])
@pytest.mark.parametrize("seed", [*SEEDS[:3], *long(SEEDS[3:])])
def test_after_a_crash_at_any_step_the_ledger_recovers_all_durable_entries(
    seed: int, power_cut: bool
) -> None:
    assert crash_everywhere(seed, power_cut=power_cut) > CRASHES


@pytest.mark.long
@pytest.mark.parametrize(
    ("bug", "first"),
    [
        ("ack-before-fsync", 0),
        ("begin-not-in-the-snapshot", 0),
        ("cut-in-the-page-cache", 1),
        ("cut-keeps-the-blank", 0),
        ("cut-not-durable", 0),
        ("cut-still-vouched-for", 0),
        ("index-not-synced", 0),
        ("reclaims-before-the-snapshot", 4),
        ("void-files-count", 8),
    ],
)
def test_a_planted_bug_of_the_disk_is_found_by_crashes(bug: str, first: int) -> None:
    """`first` is the seed that found the bug; earlier ones are skipped."""
    with planted(bug), pytest.raises((AssertionError, SimulationError)):
        for seed, power_cut in product(range(first, first + 3), (True, False)):
            crash_everywhere(seed, power_cut=power_cut)
