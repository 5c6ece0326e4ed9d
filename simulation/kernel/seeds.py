"""Runs seeds one after another until one fails. Tests and the worlds' commands use it."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Iterable
from typing import NamedTuple

from simulation.kernel.features import Asked, FeatureError
from simulation.kernel.totals import Totals


class Failure(NamedTuple):
    """A failing seed, and its error."""

    seed: int
    error: Exception


def first_failure(run: Callable[[int], object], first: int, count: int) -> Failure | None:
    """Run `count` seeds from `first` on, up to the first one that fails."""
    for seed in range(first, first + count):
        try:
            run(seed)
        except FeatureError:
            raise
        except Exception as error:  # noqa: BLE001 - reported with its seed
            return Failure(seed, error)
    return None


def described(error: Exception) -> str:
    """The type, text and notes of `error` in one line."""
    words = " ".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", [])]).split()
    return " ".join(words)[:1000]


def features_options(parser: argparse.ArgumentParser) -> None:
    """Add `--with` and `--without`. Then arguments.with_ and arguments.without are lists of names."""
    for option, destination, help_ in (
        ("--with", "with_", "a feature that each seed plays, whatever it draws; may be repeated"),
        ("--without", "without", "a feature that none plays; may be repeated"),
    ):
        parser.add_argument(
            option, dest=destination, metavar="FEATURE", action="append", default=[], help=help_
        )


def options_of(asked: Asked) -> str:
    """The options that request these features, for a shell, each after a blank."""
    pairs = [("--with", name) for name in sorted(asked.added)]
    pairs += [("--without", name) for name in sorted(asked.left_out)]
    return "".join(f" {option} {shlex.quote(name)}" for option, name in pairs)


def main(
    about: str | None,
    bugs: Iterable[str],
    count: int,
    run: Callable[[int, str | None, Totals, Asked], object],
) -> int:
    """Run a world's command: run `count` seeds by default, with a bug of `bugs` planted if an option names one, and print
    totals.

    Returns the exit code, which is 0 if no seed failed or a seed found the bug."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=count, help="how many")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    parser.add_argument("--bug", choices=sorted(bugs), help="plant this bug; succeeds when a seed finds it")
    features_options(parser)
    arguments = parser.parse_args()
    asked = Asked.to_play(arguments.with_, without=arguments.without)
    totals = Totals()
    failure = first_failure(
        lambda seed: run(seed, arguments.bug, totals, asked), arguments.first, arguments.seeds
    )
    print("\n".join(totals.lines()))
    if failure is not None:
        print(f"seed {failure.seed}: {described(failure.error)}", file=sys.stderr)
        if arguments.bug is None:
            raise failure.error
    return int((failure is None) != (arguments.bug is None))
