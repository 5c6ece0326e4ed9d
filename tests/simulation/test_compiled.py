"""A cluster with the compiled module has the same trace, byte for byte, as one without it."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from nativepath import presence
from simulation.cluster.world import ClusterWorld
from simulation.groups.world import GroupWorld
from tests.simulation.played import Scenario, played, scenario

pytestmark = pytest.mark.skipif(presence.native is None, reason=f"the compiled module is {presence.why_not}")


@pytest.mark.parametrize(
    ("kind", "scenario"),
    [
        (ClusterWorld, scenario(8, "learner")),
        (GroupWorld, scenario(2, "retention", "preferred")),
        pytest.param(ClusterWorld, scenario(14, "ordered readers", "forger"), marks=pytest.mark.long),
        pytest.param(GroupWorld, scenario(1, "facts"), marks=pytest.mark.long),
    ],
    ids=str,
)
def test_a_seed_has_the_same_trace_with_and_without_the_compiled_module(
    kind: type[ClusterWorld | GroupWorld], scenario: Scenario
) -> None:
    pure, compiled = kind(scenario.seed, asked=scenario.asked), played(kind, scenario)
    assert not (isinstance(pure, ClusterWorld) and pure.in_bulk), "another seed"
    with patch.object(presence, "native", None):
        pure.run()
    assert compiled.appended_plainly > 100
    assert compiled.digest == pure.world.trace.digest
