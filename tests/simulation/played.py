"""Seeds that several tests use: each is run once in a process."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple
from unittest.mock import patch

from messagestore.store.brokerstore import BrokerStore
from simulation.cluster.world import ClusterWorld
from simulation.groups.world import GroupWorld
from simulation.kernel.features import Asked
from simulation.kernel.totals import Totals


class Played(NamedTuple):
    """The result of a seed; `appended_plainly` is the number of batches on the plain send path."""

    events: int
    digest: int
    totals: Totals
    appended_plainly: int


class Scenario(NamedTuple):
    """A seed, and features that it always plays."""

    seed: int
    features: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join([str(self.seed), *self.features])

    @property
    def asked(self) -> Asked:
        return Asked.to_play(self.features)


def scenario(seed: int, *features: str) -> Scenario:
    return Scenario(seed, features)


@cache
def played(kind: type[ClusterWorld | GroupWorld], scenario: Scenario) -> Played:
    appended = 0
    append_plain = BrokerStore.append_plain

    def counted(*arguments: object) -> object:
        nonlocal appended
        placed = append_plain(*arguments)  # type: ignore[arg-type]
        appended += placed is not None
        return placed

    made = kind(scenario.seed, asked=scenario.asked)
    with patch.object(BrokerStore, "append_plain", counted):
        made.run()
    return Played(made.world.trace.events, made.world.trace.digest, made.totals, appended)
