"""Compare our SQL92 filters with upstream's own classes on random expressions and messages. The exit code is 1 if they differ.

    python -m scripts.comparefilters --seconds 60 [--seed 1]

The seed is printed first. For each difference the expression, the messages and both results are printed. Needs a JDK, and the
files of scripts/fetch-peers."""

from __future__ import annotations

import sys
import time
from random import Random

from scripts.bench.options import bounded, options
from scripts.filtercases import MESSAGES, Java, compare
from scripts.peers.javapeer import broker_missing

ROUND = 500
DIFFERENCES_MAX = 10


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("--seconds", type=bounded(1, 36_000), default=60)
    parser.add_argument("--seed", type=bounded(0, 1 << 62), default=time.time_ns() % (1 << 32))
    asked = parser.parse_args()
    if why := broker_missing():
        raise SystemExit(why)
    print(f"seed {asked.seed}", flush=True)
    random, until, count, differences = Random(asked.seed), time.monotonic() + asked.seconds, 0, 0
    with Java() as java:
        while time.monotonic() < until and differences < DIFFERENCES_MAX:
            for difference in compare(java, random, ROUND):
                print(difference, flush=True)
                differences += 1
            count += ROUND
    print(f"{count} expressions, each of {MESSAGES} messages: {differences or 'no'} differences")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
