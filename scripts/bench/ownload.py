"""Members, ours and Java's, that append by themselves once they lead, like a program that uses the library.

Invariant: both sides get the same load, on the command line of each member. Only the member that leads writes an outcome, next
to its folder."""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

import orjson

from scripts.ledgergroup import LedgerGroup

WRITTEN_S_MAX = 60.0
LOOK_AGAIN_S = 0.1


@dataclass(frozen=True)
class OwnLoad:
    """A load with that many entries of `size` bytes in flight. It is measured for `seconds` after a warm-up."""

    warm_up_s: float
    seconds: float
    size: int
    in_flight: int

    @property
    def words(self) -> list[str]:
        return [f"{self.warm_up_s:g}", f"{self.seconds:g}", str(self.size), str(self.in_flight)]


@dataclass(frozen=True)
class OwnOutcome:
    """The outcome. p50 and p99 are times from an append to its commit. CPU is that of the member that led, including the
    load."""

    entries: int
    refused: int
    seconds: float
    p50_ms: float
    p99_ms: float
    cpu_s: float


def parser_of_members(about: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=about)
    for name in ("--group", "--peers", "--id", "--store"):
        parser.add_argument(name, required=True)
    parser.add_argument("--load", nargs=4, default=[], metavar=("WARM_UP_S", "SECONDS", "SIZE", "IN_FLIGHT"))
    return parser


def outcome_file(store: str) -> Path:
    """The outcome's file of the member with that folder."""
    return Path(f"{store}.outcome")


def own_outcome(group: LedgerGroup, load: OwnLoad) -> OwnOutcome:
    """Wait for the outcome and return it."""
    deadline = time.monotonic() + load.warm_up_s + load.seconds + WRITTEN_S_MAX
    while time.monotonic() < deadline:
        for name in group.peers:
            path = outcome_file(str(group.root / name))
            if path.exists():
                return OwnOutcome(**orjson.loads(path.read_bytes()))
        time.sleep(LOOK_AGAIN_S)
    raise SystemExit(f"no member appended the load; their output\n{group.said()}")
