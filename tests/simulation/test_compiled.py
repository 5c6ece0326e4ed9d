"""A cluster with the compiled module writes and says, byte for byte and at the same times, what one without it does."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from nativepath import presence
from simulation.cluster.world import ClusterWorld
from simulation.groups.world import GroupWorld
from tests.simulation.played import played

pytestmark = pytest.mark.skipif(presence.native is None, reason=f"the compiled module is {presence.why_not}")


@pytest.mark.parametrize(
    ("kind", "seed"),
    [
        (ClusterWorld, 6),
        (GroupWorld, 2),
        pytest.param(ClusterWorld, 7, marks=pytest.mark.long),
        pytest.param(GroupWorld, 1, marks=pytest.mark.long),
    ],
)
def test_a_seed_has_the_same_trace_either_way(kind: type[ClusterWorld | GroupWorld], seed: int) -> None:
    pure, compiled = kind(seed), played(kind, seed)
    assert not (isinstance(pure, ClusterWorld) and pure.in_bulk), "another seed"
    with patch.object(presence, "native", None):
        pure.run()
    assert compiled.appended_plainly > 100
    assert compiled.digest == pure.world.trace.digest
