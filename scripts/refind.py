"""Runs each planted bug on the seed that is recorded for it, searches another where that one finds it no more, and rewrites
simulation/foundby.json. A bug that none of --searched seeds finds keeps its record and is told.

First each recorded seed runs once without a bug. One that fails then finds no bug, whatever is planted: it is told at once, its
bugs are searched anew, and the command fails."""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import sys
from collections.abc import Iterator
from typing import NamedTuple

from scripts.prove import WORLDS
from simulation.kernel.foundby import Honest, honest_find, record, recorded
from simulation.kernel.seeds import Failure, first_failure


class Alone(NamedTuple):
    """A seed of a world, to be run without a bug."""

    world: str
    seed: int


class Search(NamedTuple):
    """One planted bug of a world, and where to look for it: not among `failing` seeds, which fail without it."""

    world: str
    bug: str
    seed: int
    searched: int
    failing: frozenset[int]


def alone(run: Alone) -> tuple[Alone, str | None]:
    """What that seed finds without a bug."""
    quiet()
    failure = first_failure(lambda seed: run_one(run.world, seed, None), run.seed, 1)
    return run, None if failure is None else told(failure)


def searched(search: Search) -> tuple[Search, Honest]:
    """The recorded seed while it or a neighbour finds the bug, or the first of all that does."""
    quiet()
    return search, honest_find(
        lambda seed, bug: run_one(search.world, seed, bug),
        search.bug,
        search.seed,
        search.searched,
        search.failing,
    )


def run_one(world: str, seed: int, bug: str | None) -> None:
    WORLDS[world](seed, bug)


def quiet() -> None:
    logging.getLogger().addHandler(logging.NullHandler())


def told(failure: Failure) -> str:
    return " ".join(f"{type(failure.error).__name__}: {failure.error}".split())[:400]


def all_of(worlds: list[str], bugs: list[str]) -> Iterator[tuple[str, str, int]]:
    for world, seeds in recorded().items():
        for bug, seed in seeds.items():
            if world in worlds and (not bugs or bug in bugs):
                yield world, bug, seed


class Alarms:
    """Seeds that fail without a bug, each told once, as it is found."""

    def __init__(self) -> None:
        self.seeds: set[Alone] = set()

    def found(self, run: Alone, error: str) -> None:
        if run not in self.seeds:
            self.seeds.add(run)
            again = f"scripts/prove --only {run.world} --first {run.seed} --count 1"
            print(f"{run.world} seed {run.seed} fails WITHOUT A BUG: {error} | again: {again}", flush=True)

    def of(self, world: str) -> frozenset[int]:
        return frozenset(run.seed for run in self.seeds if run.world == world)


def main() -> int:
    record_of_all = recorded()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only", action="append", choices=sorted(record_of_all), help="this world; may be repeated"
    )
    parser.add_argument("--bug", action="append", default=[], help="this bug; may be repeated")
    parser.add_argument("--searched", type=int, default=250, help="how many seeds to search (default: 250)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="default: one a core")
    asked = parser.parse_args()
    lost, alarms = 0, Alarms()
    planted = list(all_of(asked.only or list(record_of_all), asked.bug))
    with multiprocessing.get_context("spawn").Pool(asked.processes, maxtasksperchild=10) as pool:
        distinct = sorted({Alone(world, seed) for world, _, seed in planted})
        for run, error in pool.imap_unordered(alone, distinct):
            if error is not None:
                alarms.found(run, error)
        print(f"{len(distinct)} recorded seeds, {len(alarms.seeds)} fail without a bug", flush=True)
        searches = [Search(*each, asked.searched, alarms.of(each[0])) for each in planted]
        for search, found in pool.imap_unordered(searched, searches):
            for failure in found.alarms:
                alarms.found(Alone(search.world, failure.seed), told(failure))
            if found.seed is None:
                lost += 1
                print(f"{search.world} {search.bug}: none of {search.searched} seeds finds it", flush=True)
            elif found.seed != search.seed:
                print(f"{search.world} {search.bug}: {search.seed} -> {found.seed}", flush=True)
                record_of_all[search.world][search.bug] = found.seed
                record(record_of_all)
    print(f"{len(planted)} planted bugs, {lost} not found, {len(alarms.seeds)} seeds fail without a bug")
    return 1 if lost or alarms.seeds else 0


if __name__ == "__main__":
    sys.exit(main())
