"""Measures the sizes of all containers (dictionaries, lists, ...) that can be reached from a process's app.

Invariant: a count only reads, and calls no method of the objects."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from types import MethodType
from typing import Any

CONTAINERS = (dict, list, set, deque, Mapping)
PASSED_OVER = (int, str, bytes, bytearray, memoryview, float, type(None), type)


def sizes(app: object, packages: frozenset[str]) -> dict[str, int]:
    """Class.attribute -> size of the largest such container among the objects of these packages. `Class.attribute[]` is for
    the containers in it."""
    found: dict[str, int] = {}
    seen: set[int] = set()
    waiting: list[tuple[str, Any]] = [("", app)]
    while waiting:
        place, thing = waiting.pop()
        if isinstance(thing, PASSED_OVER) or id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, CONTAINERS):
            if place:
                found[place] = max(len(thing), found.get(place, 0))
            inner = place if place.endswith("[]") else f"{place}[]"
            waiting += [(inner, one) for one in _held(thing) if not isinstance(one, PASSED_OVER)]
        elif isinstance(thing, tuple | frozenset):
            waiting += [("", one) for one in thing]
        elif isinstance(thing, MethodType):
            waiting.append(("", thing.__self__))
        elif isinstance(thing, partial):
            waiting += [("", thing.func), ("", thing.args), ("", thing.keywords)]
        elif type(thing).__module__.partition(".")[0] in packages:
            name = type(thing).__name__
            waiting += [(f"{name}.{attribute}", value) for attribute, value in _attributes(thing)]
    return found


def _held(container: Any) -> Iterable[Any]:
    if isinstance(container, Mapping):
        return [*container.keys(), *container.values()]
    return list(container)


def _attributes(thing: object) -> Iterator[tuple[str, Any]]:
    yield from getattr(thing, "__dict__", {}).items()
    for kind in type(thing).__mro__:
        slots = vars(kind).get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            descriptor = vars(kind).get(slot)
            if descriptor is not None:
                try:
                    yield slot, descriptor.__get__(thing)
                except AttributeError:
                    continue
