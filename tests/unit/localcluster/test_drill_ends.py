"""The outcome of transactions is checked without knowledge of how they are ended."""

from __future__ import annotations

from localcluster.ends import ChosenEnd, judge_ends
from localcluster.history import SendOutcome

DECIDED = {
    "committed": ChosenEnd(SendOutcome.ACKNOWLEDGED, True),
    "rolled-back": ChosenEnd(SendOutcome.ACKNOWLEDGED, False),
    "perhaps": ChosenEnd(SendOutcome.UNKNOWN, True),
    "perhaps-not": ChosenEnd(SendOutcome.UNKNOWN, False),
    "refused": ChosenEnd(SendOutcome.REFUSED, True),
}


def test_each_transaction_is_read_once_as_it_was_ended() -> None:
    for read in (["committed"], ["perhaps", "committed"]):
        verdict = judge_ends(DECIDED, read)
        assert verdict.holds
        assert (verdict.committed, verdict.rolled_back, verdict.unknown) == (2, 1, 2)


def test_a_missing_committed_transaction_is_lost_and_a_repeated_one_is_twice() -> None:
    assert judge_ends(DECIDED, []).lost == ["committed was committed and is nowhere"]
    assert judge_ends(DECIDED, ["committed", "perhaps", "committed"]).twice == ["committed is there 2 times"]


def test_a_rolled_back_refused_or_unsent_transaction_that_is_read_is_a_fault() -> None:
    verdict = judge_ends(DECIDED, ["committed", "rolled-back", "perhaps-not", "refused", "stranger"])
    assert verdict.uninvited == [
        "stranger was never sent",
        "rolled-back is there, and was rolled back",
        "perhaps-not is there, and was rolled back",
        "refused is there, and was refused",
    ]
