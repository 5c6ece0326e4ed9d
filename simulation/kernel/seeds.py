"""Seeds, one after another until one fails: of tests, and of a command line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from typing import NamedTuple


class Failure(NamedTuple):
    """What a seed found."""

    seed: int
    error: Exception


def first_failure(run: Callable[[int], None], first: int, count: int) -> Failure | None:
    """Runs `count` seeds from `first` on, up to the one that fails."""
    for seed in range(first, first + count):
        try:
            run(seed)
        except Exception as error:  # noqa: BLE001 - reported with its seed
            return Failure(seed, error)
    return None


def main(
    about: str | None,
    bugs: Iterable[str],
    count: int,
    run: Callable[[int, str | None], None],
    told: Callable[[], Iterable[str]],
) -> int:
    """A command that runs `count` seeds, if not told otherwise, with a bug of `bugs` planted, if it is told to, and says
    what is `told` of them. Returns the exit code: 0 when nothing failed, or when a seed found the bug.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=count, help="how many")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    parser.add_argument("--bug", choices=sorted(bugs), help="plant this bug; succeeds when a seed finds it")
    arguments = parser.parse_args()
    failure = first_failure(lambda seed: run(seed, arguments.bug), arguments.first, arguments.seeds)
    print("\n".join(told()))
    if failure is not None:
        print(f"seed {failure.seed}: {type(failure.error).__name__}: {failure.error}", file=sys.stderr)
        if arguments.bug is None:
            raise failure.error
    return int((failure is None) != (arguments.bug is None))
