"""The simulated worlds by name, with the features that seeds of each may play and the bugs that may be planted.

A world is imported only when it is needed, because each imports much of the product."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from simulation.kernel.features import Asked
from simulation.kernel.plants import Bugs
from simulation.kernel.totals import Totals

RunSeed = Callable[[int, str | None, Totals, Asked], object]

MODULES = {
    "cluster": "simulation.cluster.world",
    "raft": "simulation.raft.world",
    "controllers": "simulation.controllers.world",
    "pairs": "simulation.pairs.world",
    "groups": "simulation.groups.world",
    "registers": "simulation.raft.registerworld",
}


def features_of(world: str) -> frozenset[str]:
    """The features of a world; empty if it has none, as for crash images."""
    if world not in MODULES:
        return frozenset()
    features: frozenset[str] = import_module(MODULES[world]).features()
    return features


def run_seed_of(world: str) -> RunSeed:
    """Play one seed, with a bug planted if one is named, and return the counts. Raises KeyError for an unknown world."""
    run_seed: RunSeed = import_module(MODULES[world]).run_seed
    return run_seed


def bugs_of(world: str) -> Bugs:
    """Raises KeyError for an unknown world."""
    bugs: Bugs = import_module(MODULES[world]).BUGS
    return bugs
