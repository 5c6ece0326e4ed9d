"""Plants bugs into product code for one run, to prove that the checks find them. A bug replaces attributes of the product's
classes or modules.

Invariant: when the context ends, the original attributes are back. A property is replaced by a property."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple, TypeVar
from unittest.mock import patch

from simulation.kernel.features import Asked

Wrong = TypeVar("Wrong", bound=Callable[..., object])


class Bugs(dict[str, list[tuple[object, str, Any]]]):
    """Name of a bug -> its replacements (owner, attribute, new value). A bug may have several."""

    def __init__(self) -> None:
        super().__init__()
        self._plays: dict[str, frozenset[str]] = {}

    def bug(
        self, name: str, owner: object, attribute: str, *, plays: tuple[str, ...] = ()
    ) -> Callable[[Wrong], Wrong]:
        """Replace `owner`'s attribute by the decorated function while the bug is planted. `plays` are features without which
        no seed finds the bug.

        Raises:
            AttributeError: `owner` does not have it.
        """
        getattr(owner, attribute)  # else a run without it would fail, and count as having found the bug

        def noted(wrong: Wrong) -> Wrong:
            self.setdefault(name, []).append((owner, attribute, wrong))
            self._plays[name] = self._plays.get(name, frozenset()) | frozenset(plays)
            return wrong

        return noted

    def playing(self, *plays: str) -> Planting:
        """A decorator like `bug`, for bugs that all need the same features."""
        return Planting(self, plays)

    def asked(self, name: str, features: Iterable[str]) -> Asked:
        """The features that a seed of a world with `features` must play to find the bug."""
        return Asked(self._plays[name] & frozenset(features))

    @contextmanager
    def planted(self, name: str | None) -> Iterator[None]:
        """Plant the bug; without a name nothing is planted."""
        with ExitStack() as patches:
            for owner, attribute, wrong in self[name] if name else ():
                is_property = isinstance(getattr(owner, attribute), property)
                stand_in = property(wrong) if is_property else wrong
                patches.enter_context(patch.object(owner, attribute, stand_in))
            yield


class Planting(NamedTuple):
    """`Bugs.bug` for bugs that need the same features."""

    bugs: Bugs
    plays: tuple[str, ...]

    def __call__(self, name: str, owner: object, attribute: str) -> Callable[[Wrong], Wrong]:
        return self.bugs.bug(name, owner, attribute, plays=self.plays)
