"""Runs each planted bug on the seed that is recorded for it, searches another where that one finds it no more, and rewrites
simulation/foundby.json. A bug that none of --searched seeds finds keeps its record and is told."""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import sys
from collections.abc import Iterator
from typing import NamedTuple

from scripts.prove import WORLDS
from simulation.kernel.foundby import NotFoundAnyMore, find, record, recorded
from simulation.kernel.seeds import first_failure


class Search(NamedTuple):
    """One planted bug of a world, and where to look for it."""

    world: str
    bug: str
    seed: int
    searched: int


def searched(search: Search) -> tuple[Search, int | None]:
    """The recorded seed while it or a neighbour finds the bug, or the first of all that does; None if there is none."""
    logging.getLogger().addHandler(logging.NullHandler())

    def run(seed: int) -> None:
        WORLDS[search.world](seed, search.bug)

    try:
        return search, find(run, search.seed).failure.seed
    except NotFoundAnyMore:
        found = first_failure(run, 1, search.searched)
        return search, found.seed if found else None


def all_of(worlds: list[str], bugs: list[str], searched: int) -> Iterator[Search]:
    for world, seeds in recorded().items():
        for bug, seed in seeds.items():
            if world in worlds and (not bugs or bug in bugs):
                yield Search(world, bug, seed, searched)


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
    lost = 0
    searches = list(all_of(asked.only or list(record_of_all), asked.bug, asked.searched))
    with multiprocessing.get_context("spawn").Pool(asked.processes, maxtasksperchild=10) as pool:
        for search, seed in pool.imap_unordered(searched, searches):
            if seed is None:
                lost += 1
                print(f"{search.world} {search.bug}: none of {search.searched} seeds finds it", flush=True)
            elif seed != search.seed:
                print(f"{search.world} {search.bug}: {search.seed} -> {seed}", flush=True)
                record_of_all[search.world][search.bug] = seed
                record(record_of_all)
    print(f"{len(searches)} planted bugs, {lost} not found")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
