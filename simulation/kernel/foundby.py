"""Reads and searches the seeds that find planted bugs. foundby.json records a seed for each bug, and `scripts/refind` rewrites
that file.

Any change of timing changes what happens in a seed's run, and so which seeds find a bug. Therefore the seeds are data and not
part of tests. Tests run only recorded seeds, and a command searches for new ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from simulation.kernel.seeds import Failure, first_failure

RECORD = Path(__file__).parents[1] / "foundby.json"
NEAR = 4
"""This many seeds, from the recorded seed on, are searched before all others."""
FOUND_WITHIN = 20
"""In a test, one of this many seeds, from the recorded seed on, must find the bug."""


class NotFoundAnyMore(AssertionError):
    """No seed near the recorded one finds the bug."""

    def __init__(self, recorded: int) -> None:
        super().__init__(
            f"none of the {FOUND_WITHIN} seeds from {recorded} on finds the bug: does the check still see it?"
            " If only timing changed, scripts/refind searches another seed and records it"
        )


class Find(NamedTuple):
    """The failure of a seed, and how many seeds were run to find it."""

    failure: Failure
    tried: int


class Honest(NamedTuple):
    """The seed that finds a bug and does not fail without the bug, or None. `alarms` are failures of seeds without the bug."""

    seed: int | None
    alarms: tuple[Failure, ...]


def recorded() -> dict[str, dict[str, int]]:
    """World -> planted bug -> the seed that finds it."""
    record: dict[str, dict[str, int]] = json.loads(RECORD.read_text())
    return record


def found_by(world: str) -> Mapping[str, int]:
    """Planted bug of `world` -> the seed that finds it."""
    return recorded()[world]


def record(found: Mapping[str, Mapping[str, int]]) -> None:
    """Replace the record."""
    RECORD.write_text(json.dumps(found, indent=2, sort_keys=True) + "\n")


def find(run: Callable[[int], object], seed: int) -> Find:
    """The failure of `seed`, or of one of the next seeds. Raises NotFoundAnyMore."""
    failure = first_failure(run, seed, FOUND_WITHIN)
    if failure is None:
        raise NotFoundAnyMore(seed)
    return Find(failure, failure.seed - seed + 1)


def honest_find(
    run: Callable[[int, str | None], object], bug: str, seed: int, searched: int, failing: frozenset[int]
) -> Honest:
    """Try `seed`, the next seeds, and then the first `searched` of all seeds. Seeds in `failing` are left out, because they
    fail without a bug. A seed counts if it fails with `bug` and not without it."""
    alarms: list[Failure] = []
    for tried in dict.fromkeys([*range(seed, seed + NEAR), *range(1, searched + 1)]):
        if tried in failing or first_failure(lambda each: run(each, bug), tried, 1) is None:
            continue
        alone = None if tried == seed else first_failure(lambda each: run(each, None), tried, 1)
        if alone is None:
            return Honest(tried, tuple(alarms))
        alarms.append(alone)
    return Honest(None, tuple(alarms))
