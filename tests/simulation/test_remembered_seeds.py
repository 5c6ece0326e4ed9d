"""Seeds that once found a fault of the product or of a world, run as they were drawn."""

from __future__ import annotations

import pytest

from simulation.kernel.features import NOTHING_ASKED
from simulation.kernel.totals import Totals
from simulation.worlds import run_seed_of

REMEMBERED = {
    "cluster": {
        3_088_769_975_582_787: "retention of a copy of a broker",
        33_000_005: "a full disk stops dispatch between a queue entry and its index entry",
        7_010: "queue files are lost, then the disk is full",
        7_034: "a queue whose messages and files are gone assigned offsets twice",
        20_000_004: "more outcomes of transactions than the bound",
        30_000_100: "clocks an hour apart, and a log kept for ten seconds",
        30_000_139: "the only file of the only queue is cut short",
        30_000_728: "a stranger that dials often is cut off",
        30_000_596: "the due time in a queue's last entry is partly zeroed",
        30_000_529: "a hold comes while queues follow the log's beginning",
        30_000_379: "another master after the consumers have stopped",
        30_000_186: "a copy registers while its original is disconnected for a moment",
    },
    "groups": {
        5_044: "a stop in the midst of a start",
        3_088_769_975_582_728: "a second disk is lost before the first member votes",
        32_000_400: "a log begins later while the commit of older entries waits for the disk",
        1_469_714_995_871_766: "the clock jumps back while retention deletes",
    },
    "pairs": {3_088_769_975_583_422: "an ASYNC_MASTER loses an end of a transaction"},
    "raft": {
        3_088_769_975_583_516: "one entry a push, and a long log",
        3_088_769_975_583_584: "a leader that was removed and added again",
    },
}
SEEDS = [(world, seed) for world, seeds in REMEMBERED.items() for seed in seeds]


@pytest.mark.long
@pytest.mark.parametrize(("world", "seed"), SEEDS)
def test_a_seed_that_once_failed_passes(world: str, seed: int) -> None:
    """A change of timing may give the seed another history, which must pass too."""
    totals = Totals()
    run_seed_of(world)(seed, None, totals, NOTHING_ASKED)
    assert totals.faults.total() if world != "raft" else totals.counts["commits"]
