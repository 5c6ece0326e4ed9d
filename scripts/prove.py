"""Run every simulated world, and the crash images of the store and of the ledger, with seeds that no run has tried before.

The seeds follow from the commit, so each commit has its own seeds and a failure can be repeated. A failure is printed in one
line, with the command that runs its seed again. No seed begins when the minutes are over, or after SIGINT or SIGTERM. Seeds
under way are completed, and all are counted. A seed that takes more CPU than SEED_S_MAX has failed, however busy the machine
is."""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from simulation.kernel.features import NOTHING_ASKED, Asked, FeatureError
from simulation.kernel.seeds import described, features_options, options_of
from simulation.worlds import MODULES, features_of

ROOT = Path(__file__).resolve().parents[1]
SEED_S_MAX = 300
"""Limit of CPU seconds for one seed."""
HANG_S_MAX = 20 * SEED_S_MAX
"""Limit for a process that waits for ever."""
SEEDS_OF_A_WORKER = 40
"""A process does not return the memory of its worlds to the system, so it has gigabytes after a thousand worlds. It is
replaced after this many seeds."""
SEEDS_APART = 1 << 20
"""The distance between the first seeds of two commits, so that seeds of neighbouring commits differ."""

Counts = Counter[str]


def of_world(name: str, seed: int, bug: str | None, asked: Asked) -> Counts:
    """Run one seed of a simulated world."""
    from simulation.kernel.totals import Totals
    from simulation.worlds import run_seed_of

    totals = Totals()
    run_seed_of(name)(seed, bug, totals, asked)
    faults = Counter({"faults": totals.faults.total()}) if totals.faults else Counts()
    return totals.counts + faults


def crash_images(seed: int, bug: str | None, asked: Asked) -> Counts:
    from simulation.crashimages.store import crash_everywhere

    if bug is not None:
        raise SystemExit("no bugs are kept for the crash images")
    return Counter(images=sum(crash_everywhere(seed, power_cut=power_cut) for power_cut in (False, True)))


def ledger_images(seed: int, bug: str | None, asked: Asked) -> Counts:
    from simulation.crashimages.ledger import crash_everywhere
    from simulation.mutants.raft import planted

    with planted(bug):
        return Counter(images=sum(crash_everywhere(seed, power_cut=power_cut) for power_cut in (False, True)))


WORLDS: dict[str, Callable[[int, str | None, Asked], Counts]] = {
    **{name: partial(of_world, name) for name in MODULES},
    "crash-images": crash_images,
    "ledger-images": ledger_images,
}
"""By name: a function that runs one seed, raises its failure, and counts its work."""


def serve(requests: Connection) -> None:
    """One worker. It receives (world, seed, bug, requested features) and sends (error or None, counts, seconds of CPU)."""
    sys.path.insert(0, str(ROOT))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal: the seed is completed and counted
    logging.getLogger().addHandler(logging.NullHandler())  # servers' logs are not printed here
    while True:
        try:
            name, seed, bug, asked = requests.recv()
        except EOFError:
            return
        began, error, counts = time.process_time(), None, Counter[str]()
        signal.setitimer(signal.ITIMER_PROF, SEED_S_MAX)  # SIGPROF ends the process
        try:
            counts = WORLDS[name](seed, bug, asked)
        except Exception as found:  # noqa: BLE001 - printed with its seed
            error = described(found)
        requests.send((error, counts, time.process_time() - began))


@dataclass
class Tally:
    """The results of one world's seeds."""

    seeds: int = 0
    failed: int = 0
    cpu_s: float = 0.0
    counts: Counts = field(default_factory=Counter)

    def line(self, name: str) -> str:
        counts = self.counts - Counter(seeds=self.counts["seeds"])
        did = " · ".join(f"{what} {count}" for what, count in sorted(counts.items()))
        return f"{name}: {self.seeds} seeds, {self.failed} failed, {self.cpu_s:.0f} s of CPU · {did}"


@dataclass
class Worker:
    """A worker process, and its present seed."""

    process: BaseProcess
    pipe: Connection
    at: tuple[str, int] | None = None
    began_s: float = 0.0
    seeds: int = 0


class Proof:
    """Runs the seeds. Each world gets the same share of the CPU."""

    def __init__(
        self, names: list[str], first: int, count: int | None, bug: str | None, asked: Asked, end_s: float
    ) -> None:
        self.first = first
        self.count = count
        self.bug = bug
        self.asked = asked
        self.end_s = end_s
        self.tallies = {name: Tally() for name in names}
        self.given: Counter[str] = Counter()
        self.context = multiprocessing.get_context("spawn")

    def run(self, processes: int) -> int:
        """Run until the end, and return how many seeds failed."""
        workers = [self.worker() for _ in range(processes)]
        for worker in workers:
            self.give(worker)
        while busy := [worker for worker in workers if worker.at]:
            ready = wait([worker.pipe for worker in busy], timeout=1)
            for worker in busy:
                if worker.pipe in ready:
                    self.take(worker)
                    worker.seeds += 1
                    if worker.seeds == SEEDS_OF_A_WORKER:
                        worker.pipe.close()
                        worker.process.join()
                        self.replace(worker)
                elif time.monotonic() - worker.began_s > HANG_S_MAX:
                    self.failed(worker, f"it did not end within {HANG_S_MAX} s", Counter(), 0.0)
                    worker.process.kill()
                    self.replace(worker)
                else:
                    continue
                self.give(worker)
        for worker in workers:
            worker.pipe.close()
            worker.process.join()
        return sum(tally.failed for tally in self.tallies.values())

    def stop(self) -> None:
        """Begin no more seeds."""
        self.end_s = 0.0

    def worker(self) -> Worker:
        ours, theirs = self.context.Pipe()
        process = self.context.Process(target=serve, args=(theirs,), daemon=True)
        process.start()
        theirs.close()
        return Worker(process, ours)

    def replace(self, worker: Worker) -> None:
        """Replace a worker whose process has ended or is about to end."""
        fresh = self.worker()
        worker.process, worker.pipe, worker.seeds = fresh.process, fresh.pipe, 0

    def give(self, worker: Worker) -> None:
        """Give the worker the next seed of the world that has used the least CPU, unless the time is over."""
        worker.at = None
        open_ = [name for name in self.tallies if self.count is None or self.given[name] < self.count]
        if not open_ or time.monotonic() >= self.end_s:
            return
        name = min(open_, key=lambda name: (self.tallies[name].cpu_s, self.given[name]))
        worker.at = name, self.first + self.given[name]
        worker.began_s = time.monotonic()
        self.given[name] += 1
        worker.pipe.send((*worker.at, self.bug, self.asked))

    def take(self, worker: Worker) -> None:
        try:
            error, counts, cpu_s = worker.pipe.recv()
        except EOFError:
            worker.process.join()
            late = worker.process.exitcode == -signal.SIGPROF
            error = f"it took more than {SEED_S_MAX} s of CPU" if late else "its process died"
            counts, cpu_s = Counter(), SEED_S_MAX * late
            self.replace(worker)
        self.failed(worker, error, counts, cpu_s)

    def failed(self, worker: Worker, error: str | None, counts: Counts, cpu_s: float) -> None:
        """Count a failure, or a success if there is no `error`."""
        assert worker.at is not None
        name, seed = worker.at
        tally = self.tallies[name]
        tally.seeds += 1
        tally.cpu_s += cpu_s
        tally.counts.update(counts)
        if error is not None:
            tally.failed += 1
            again = f"scripts/prove --only {name} --first {seed} --count 1"
            again += f" --bug {self.bug}" if self.bug else ""
            again += options_of(self.asked)
            print(f"FAILED {name} seed {seed}: {error} | again: {again}", flush=True)


def first_of(commit: str) -> int:
    """The first seed of a commit. Raises SystemExit outside a repository."""
    command = ["git", "-C", str(ROOT), "rev-parse", "--verify", f"{commit}^{{commit}}"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    if found.returncode != 0:
        raise SystemExit(f"no commit {commit}: {found.stderr.strip()}; name the seeds with --first")
    return int(found.stdout.strip()[:8], 16) * SEEDS_APART


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=15, help="for all worlds together (default: 15)")
    seeds = parser.add_mutually_exclusive_group()
    seeds.add_argument("--from-commit", default="HEAD", help="whose seeds (default: HEAD)")
    seeds.add_argument("--first", type=int, help="the first seed, instead of a commit's")
    parser.add_argument("--count", type=int, help="no more than so many seeds of each world")
    parser.add_argument("--only", action="append", choices=sorted(WORLDS), help="this world; may be repeated")
    parser.add_argument("--bug", help="plant a bug of the world's, to see that it is found")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="default: one a core")
    features_options(parser)
    asked = parser.parse_args()
    features = Asked.to_play(asked.with_, without=asked.without)
    if features != NOTHING_ASKED and len(asked.only or ()) != 1:
        parser.error("features are of one world: name it with --only")
    try:
        features.check(features_of(asked.only[0]) if asked.only else ())
    except FeatureError as error:
        parser.error(str(error))
    first = first_of(asked.from_commit) if asked.first is None else asked.first
    names = asked.only or list(WORLDS)
    print(f"seeds from {first} on, of {' '.join(names)}, for {asked.minutes:g} minutes", flush=True)
    proof = Proof(names, first, asked.count, asked.bug, features, time.monotonic() + asked.minutes * 60)
    for asks_to_end in (signal.SIGINT, signal.SIGTERM):
        signal.signal(asks_to_end, lambda *_: proof.stop())
    failed = proof.run(asked.processes)
    for name, tally in proof.tallies.items():
        print(tally.line(name))
    print(f"{sum(tally.seeds for tally in proof.tallies.values())} seeds, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
