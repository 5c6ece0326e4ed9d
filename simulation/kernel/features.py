"""Features of a world, such as a kind of fault or of load. Each seed draws each feature independently, with the feature's own
chance.

This is swarm testing (Groce et al., ISSTA 2012): runs that leave out some of the features find more bugs than runs that have
all of them. Invariant: a draw follows only from the seed and the feature's name. So any two features can meet, and a new
feature does not change the draws of others."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


class FeatureError(ValueError):
    """The world does not have a requested feature, or cannot have the requested features together."""


@dataclass(frozen=True)
class Asked:
    """The features that a run must have, and those that it must not have, whatever its seed draws."""

    added: frozenset[str] = frozenset()
    left_out: frozenset[str] = frozenset()

    @staticmethod
    def to_play(names: Iterable[str], *, without: Iterable[str] = ()) -> Asked:
        """Raises FeatureError for a name that is added and left out."""
        asked = Asked(frozenset(names), frozenset(without))
        if both := asked.added & asked.left_out:
            raise FeatureError(f"added and left out: {', '.join(sorted(both))}")
        return asked

    def draws(self, seed: int, name: str, chance: float) -> bool:
        """Whether `seed` has the feature."""
        if name in self.added:
            return True
        return name not in self.left_out and random.Random(f"{seed}/plays {name}").random() < chance

    def check(self, known: Iterable[str]) -> None:
        """Raises FeatureError for a name that is not among those that are `known`."""
        names = frozenset(known)
        if unknown := (self.added | self.left_out) - names:
            has = ", ".join(sorted(names)) or "none"
            raise FeatureError(f"no such feature: {', '.join(sorted(unknown))}; this world has: {has}")


NOTHING_ASKED = Asked()


@dataclass(frozen=True)
class Feature:
    """One feature. `chance` is the chance that a seed draws it. `plays` are its events and `checks` the invariants that it
    adds, both for docs/simulation.md. `brings` are features that come with it. `excludes` are features with which it cannot be
    played, because one breaks the checks of the other."""

    name: str
    chance: float
    plays: str
    checks: str = ""
    brings: frozenset[str] = frozenset()
    excludes: frozenset[str] = frozenset()


class Features:
    """All features of a world. If two features exclude each other, the requested one is played, else the earlier one."""

    def __init__(self, *features: Feature) -> None:
        self._features = {feature.name: feature for feature in features}
        named = frozenset().union(*(feature.brings | feature.excludes for feature in features))
        if len(self._features) < len(features) or not named <= self._features.keys():
            raise FeatureError("a feature is there twice, or names one that is not there")

    def __iter__(self) -> Iterator[str]:
        return iter(self._features)

    def all(self) -> Iterable[Feature]:
        return self._features.values()

    def of(self, seed: int, asked: Asked = NOTHING_ASKED) -> frozenset[str]:
        """The names of the features that `seed` plays. Raises FeatureError if two requested features exclude each other, or
        one brings a feature that is left out. Asked.check reports unknown names."""
        played: frozenset[str] = frozenset()
        for name, feature in self._features.items():
            if name in asked.added:
                whole = feature.brings | {name}
                if whole & asked.left_out or self._exclude(played, whole):
                    raise FeatureError(f"{name} cannot be played with the other requested features")
                played |= whole
        for name, feature in self._features.items():
            whole = feature.brings | {name}
            if asked.draws(seed, name, feature.chance) and not whole & asked.left_out:
                played = played if self._exclude(played, whole) else played | whole
        return played

    def _exclude(self, some: frozenset[str], others: frozenset[str]) -> bool:
        return any(
            self._features[one].excludes & these
            for those, these in ((some, others), (others, some))
            for one in those
        )


@contextmanager
def named(played: Iterable[str]) -> Iterator[None]:
    """Add a note of the played features to an error that leaves the block."""
    try:
        yield
    except Exception as error:
        error.add_note(f"it plays {', '.join(sorted(played)) or 'no features'}")
        raise
