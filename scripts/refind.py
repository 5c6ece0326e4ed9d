"""Run each planted bug with its recorded seed, search another seed if that seed no longer finds the bug, and rewrite
simulation/foundby.json. If none of --searched seeds finds a bug, its record stays, and the bug is printed.

First each recorded seed runs once without a bug. A seed that fails then cannot prove any bug, so it is printed at once, other
seeds are searched for its bugs, and the command fails."""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import sys
from collections.abc import Iterator
from typing import NamedTuple

from scripts.prove import WORLDS
from simulation.kernel.features import Asked
from simulation.kernel.foundby import honest_find, record, recorded
from simulation.kernel.seeds import described, first_failure, options_of
from simulation.worlds import bugs_of, features_of


class Alone(NamedTuple):
    """A seed of a world to be run without a bug. `asked` are the features that its recorded bugs need."""

    world: str
    seed: int
    asked: Asked


class Search(NamedTuple):
    """One planted bug of a world, and the seeds to search. `failing` seeds are left out, because they fail without the bug."""

    world: str
    bug: str
    seed: int
    asked: Asked
    searched: int
    failing: frozenset[int]


def alone(run: Alone) -> tuple[Alone, str | None]:
    """The failure of the seed without a bug."""
    quiet()
    failure = first_failure(lambda seed: WORLDS[run.world](seed, None, run.asked), run.seed, 1)
    return run, None if failure is None else described(failure.error)


def searched(search: Search) -> tuple[Search, int | None, list[tuple[Alone, str]]]:
    """The seed that finds the bug: the recorded seed, a neighbour, or the first of all seeds that does. Also the seeds that
    fail without the bug, each with its error as text, because not every error can be sent between processes."""
    quiet()
    found = honest_find(
        lambda seed, bug: WORLDS[search.world](seed, bug, search.asked),
        search.bug,
        search.seed,
        search.searched,
        search.failing,
    )
    alarms = [
        (Alone(search.world, failure.seed, search.asked), described(failure.error))
        for failure in found.alarms
    ]
    return search, found.seed, alarms


def quiet() -> None:
    logging.getLogger().addHandler(logging.NullHandler())


def all_of(worlds: list[str], bugs: list[str]) -> Iterator[tuple[str, str, int, Asked]]:
    """All searches: world, planted bug, recorded seed, and the features that the seed plays for the bug."""
    for world, seeds in recorded().items():
        if world in worlds:
            features, planted = features_of(world), bugs_of(world)
            for bug, seed in seeds.items():
                if not bugs or bug in bugs:
                    yield world, bug, seed, planted.asked(bug, features)


class Alarms:
    """Seeds that fail without a bug. Each is printed once, when it is found."""

    def __init__(self) -> None:
        self.seeds: set[Alone] = set()

    def found(self, run: Alone, error: str) -> None:
        if run not in self.seeds:
            self.seeds.add(run)
            again = f"scripts/prove --only {run.world} --first {run.seed} --count 1{options_of(run.asked)}"
            print(f"{run.world} seed {run.seed} fails WITHOUT A BUG: {error} | again: {again}", flush=True)

    def of(self, world: str, asked: Asked) -> frozenset[int]:
        return frozenset(run.seed for run in self.seeds if (run.world, run.asked) == (world, asked))


def main() -> int:
    record_of_all = recorded()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only", action="append", choices=sorted(record_of_all), help="this world; may be repeated"
    )
    parser.add_argument("--bug", action="append", default=[], help="this bug; may be repeated")
    parser.add_argument("--searched", type=int, default=250, help="how many seeds to search (default: 250)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="default: one a core")
    given = parser.parse_args()
    lost, alarms = 0, Alarms()
    planted = list(all_of(given.only or list(record_of_all), given.bug))
    with multiprocessing.get_context("spawn").Pool(given.processes, maxtasksperchild=10) as pool:
        distinct = list(dict.fromkeys(Alone(world, seed, asked) for world, _, seed, asked in planted))
        for run, error in pool.imap_unordered(alone, distinct):
            if error is not None:
                alarms.found(run, error)
        print(f"{len(distinct)} recorded seeds, {len(alarms.seeds)} fail without a bug", flush=True)
        searches = [Search(*each, given.searched, alarms.of(each[0], each[3])) for each in planted]
        for search, found, met in pool.imap_unordered(searched, searches):
            for run, error in met:
                alarms.found(run, error)
            if found is None:
                lost += 1
                print(f"{search.world} {search.bug}: none of {search.searched} seeds finds it", flush=True)
            elif found != search.seed:
                print(f"{search.world} {search.bug}: {search.seed} -> {found}", flush=True)
                record_of_all[search.world][search.bug] = found
                record(record_of_all)
    print(f"{len(planted)} planted bugs, {lost} not found, {len(alarms.seeds)} seeds fail without a bug")
    return 1 if lost or alarms.seeds else 0


if __name__ == "__main__":
    sys.exit(main())
