"""The simulated worlds by name, with the features that seeds of each may play and the bugs that may be planted.

A world is imported when it is asked for: each brings much of the product with it."""

from __future__ import annotations

from importlib import import_module

from simulation.kernel.plants import Bugs

MODULES = {
    "cluster": "simulation.cluster.world",
    "raft": "simulation.raft.world",
    "controllers": "simulation.controllers.world",
    "pairs": "simulation.pairs.world",
    "groups": "simulation.groups.world",
    "registers": "simulation.raft.registerworld",
}


def features_of(world: str) -> frozenset[str]:
    """The features of a world; empty where it has none, as for crash images."""
    if world not in MODULES:
        return frozenset()
    features: frozenset[str] = import_module(MODULES[world]).features()
    return features


def bugs_of(world: str) -> Bugs:
    """Raises KeyError for an unknown world."""
    bugs: Bugs = import_module(MODULES[world]).BUGS
    return bugs
