"""The store on a disk that loses unsynced data; see simulation.crashimages.store."""

from __future__ import annotations

import pytest

from simulation.crashimages.store import CRASHES, crash_everywhere
from tests.support.longtests import long


@pytest.mark.parametrize("power_cut", [False, True], ids=["kill", "power-cut"])
@pytest.mark.parametrize("seed", [*range(5), *long(range(5, 12))])
def test_after_a_crash_at_any_step_the_store_recovers_all_durable_records(seed: int, power_cut: bool) -> None:
    assert crash_everywhere(seed, power_cut=power_cut) > CRASHES
