"""Bugs that are planted into product code for the length of a run, to prove that the checks find them.

Invariant: nothing is left of a bug when its context ends. What stands in for a property is read as one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar
from unittest.mock import patch

Wrong = TypeVar("Wrong", bound=Callable[..., object])


class Bugs(dict[str, list[tuple[object, str, Any]]]):
    """Name of a bug -> what is replaced, where, and by what; a bug may have several."""

    def bug(self, name: str, owner: object, attribute: str) -> Callable[[Wrong], Wrong]:
        """The decorated function stands in for `owner`'s while the bug is planted. AttributeError: it has none."""
        getattr(owner, attribute)  # a run that fails for want of it would count as having found the bug

        def noted(wrong: Wrong) -> Wrong:
            self.setdefault(name, []).append((owner, attribute, wrong))
            return wrong

        return noted

    @contextmanager
    def planted(self, name: str | None) -> Iterator[None]:
        """Without a name nothing is planted."""
        with ExitStack() as patches:
            for owner, attribute, wrong in self[name] if name else ():
                is_property = isinstance(getattr(owner, attribute), property)
                stand_in = property(wrong) if is_property else wrong
                patches.enter_context(patch.object(owner, attribute, stand_in))
            yield
