"""A cluster with the compiled module writes and says, byte for byte and at the same times, what one without it does."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from messagestore.brokerstore import BrokerStore
from nativepath import presence
from simulation.cluster.world import ClusterWorld
from simulation.groups.world import GroupWorld

pytestmark = pytest.mark.skipif(presence.native is None, reason=f"the compiled module is {presence.why_not}")


@pytest.mark.parametrize(
    ("kind", "seed"), [(ClusterWorld, 3), (ClusterWorld, 4), (GroupWorld, 1), (GroupWorld, 2)]
)
def test_a_seed_has_the_same_trace_either_way(kind: type[ClusterWorld | GroupWorld], seed: int) -> None:
    taken = 0
    append_plain = BrokerStore.append_plain

    def counted(*arguments: object) -> object:
        nonlocal taken
        appended = append_plain(*arguments)  # type: ignore[arg-type]
        taken += appended is not None
        return appended

    compiled, pure = kind(seed), kind(seed)
    assert not (isinstance(compiled, ClusterWorld) and compiled.in_bulk), "another seed"
    with patch.object(BrokerStore, "append_plain", counted):
        compiled.run()
    with patch.object(presence, "native", None):
        pure.run()
    assert taken > 100
    assert compiled.world.trace.digest == pure.world.trace.digest
