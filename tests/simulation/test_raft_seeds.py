"""Seeds of the Raft world, and bugs that are planted in it to prove that its checkers see."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from simulation.kernel.seeds import find
from simulation.raft.bugs import BUGS
from simulation.raft.world import RaftWorld, Totals, run_seed
from tests.simulation.test_register_seeds import FOUND_BY as FOUND_BY_REGISTERS

SEEDS = [*range(1, 11), 201, 3833194175529075, 3833194175529110, 20365285785812]
"""The last: pages that failed to reach the disk twice, a failed sync of an index, an answer that came after its entries had
been compared, and a snapshot that came while entries were to be read."""

FOUND_BY = {
    "ack-before-fsync": 1,
    "ack-told-before-durable": 1,
    "admitted-at-once": 3,
    "admitted-unheard": 13,
    "any-address-believed": 8,
    "any-term-believed": 12,
    "change-before-its-own-entry": 9,
    "checkpoint-forgets-members": 10,
    "begin-not-in-the-snapshot": 1,
    "commit-beyond-proven": 13,
    "commit-by-counting": 2,
    "conflict-ignored": 12,
    "cut-members-stay": 10,
    "cut-not-durable": 14,
    "cut-still-vouched-for": 6,
    "cuts-without-conflict": 16,
    "dropped-push-in-flight": 1,
    "early-durable-count": 1,
    "forgets-what-the-disk-lacks": 7,
    "former-life-counts": 12,
    "index-not-synced": 1,
    "late-pre-vote-counts": 1,
    "leader-leaves-itself-out": 9,
    "learner-counts": 10,
    "members-when-decided": 10,
    "newcomer-counts": 13,
    "newcomer-votes": 3,
    "old-term-push-accepted": 6,
    "old-terms-are-the-last": 5,
    "pre-vote-counts": 1,
    "quorum-of-half": 1,
    "read-without-round": 6,
    "reclaims-before-the-snapshot": 1,
    "removed-member-stands": 20,
    "serves-before-its-no-op": 4,
    "silent-peers-count-as-new": 3,
    "snapshot-forgets-members": 10,
    "snapshot-forgets-its-term": 1,
    "snapshot-of-what-is-decided": 1,
    "stale-read-round": 6,
    "term-before-ignored": 13,
    "transfer-of-any-term": 14,
    "two-changes-at-once": 10,
    "vote-compares-terms-alone": 1,
    "vote-not-persisted": 44,
    "vote-told-before-durable": 1,
    "vote-without-comparing-logs": 1,
    "votes-twice": 5,
}
"""Planted bug -> the first seed that finds it."""
FOUND_BY_SCENARIO = {
    "bodies-again-unanswered",
    "checkpoint-ahead-of-disk",
    "ended-connection-is-a-dead-leader",
    "heartbeat-answered-before-vote",
    "push-answered-before-entries",
    "restarted-untold",
}
"""In tests/simulation/test_raft_group.py: seeds meet them seldom."""


@pytest.mark.parametrize("seed", SEEDS)
def test_a_group_keeps_its_promises_under_faults(seed: int, tally: Callable[[str, int], None]) -> None:
    totals = Totals()
    RaftWorld(seed, totals=totals).run(10_000)
    for name in ("seeds", "elections", "commits"):
        tally(f"raft {name}", totals.counts[name])


def test_a_seed_repeats_itself() -> None:
    def digest() -> int:
        raft_world = RaftWorld(21)
        raft_world.run(3_000)
        return raft_world.world.trace.digest

    assert digest() == digest()


def test_every_planted_bug_has_a_seed_or_a_scenario_that_finds_it() -> None:
    assert FOUND_BY.keys() | FOUND_BY_SCENARIO | FOUND_BY_REGISTERS.keys() == BUGS.keys()


@pytest.mark.parametrize("bug", sorted(FOUND_BY))
def test_a_planted_bug_is_found(bug: str) -> None:
    found = find(lambda seed: run_seed(seed, bug, Totals()), FOUND_BY[bug])
    assert found is not None, f"{bug} was not found"
    error = found.failure.error
    assert type(error).__name__ in ("Violation", "SimulationError", "NotReached", "Livelock"), error
