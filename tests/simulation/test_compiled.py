"""A cluster with the compiled module writes and says, byte for byte and at the same times, what one without it does."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from messagestore.store import MessageStore
from nativepath import presence
from simulation.cluster.world import ClusterWorld

pytestmark = pytest.mark.skipif(presence.native is None, reason=f"the compiled module is {presence.why_not}")


@pytest.mark.parametrize("seed", [3, 4])
def test_a_seed_has_the_same_trace_either_way(seed: int) -> None:
    taken = 0
    append_plain = MessageStore.append_plain

    def counted(*arguments: object) -> object:
        nonlocal taken
        appended = append_plain(*arguments)  # type: ignore[arg-type]
        taken += appended is not None
        return appended

    compiled, pure = ClusterWorld(seed), ClusterWorld(seed)
    assert not compiled.in_bulk, "another seed"
    with patch.object(MessageStore, "append_plain", counted):
        compiled.run()
    with patch.object(presence, "native", None):
        pure.run()
    assert taken > 100
    assert compiled.world.trace.digest == pure.world.trace.digest
