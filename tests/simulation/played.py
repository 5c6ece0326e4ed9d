"""Seeds that several tests look at: each is run once in a process."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple
from unittest.mock import patch

from messagestore.brokerstore import BrokerStore
from simulation.cluster.totals import Totals
from simulation.cluster.world import ClusterWorld
from simulation.groups.world import GroupWorld


class Played(NamedTuple):
    """What came of a seed; `appended_plainly` is how many batches took the way of plain sends."""

    events: int
    digest: int
    totals: Totals
    appended_plainly: int


@cache
def played(kind: type[ClusterWorld | GroupWorld], seed: int) -> Played:
    appended = 0
    append_plain = BrokerStore.append_plain

    def counted(*arguments: object) -> object:
        nonlocal appended
        placed = append_plain(*arguments)  # type: ignore[arg-type]
        appended += placed is not None
        return placed

    made = kind(seed)
    with patch.object(BrokerStore, "append_plain", counted):
        made.run()
    return Played(made.world.trace.events, made.world.trace.digest, made.totals, appended)
