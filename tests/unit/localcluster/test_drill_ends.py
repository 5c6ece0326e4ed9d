"""What became of transactions is judged without knowing how they are ended."""

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


def test_each_is_there_as_it_was_decided_and_once() -> None:
    for read in (["committed"], ["perhaps", "committed"]):
        verdict = judge_ends(DECIDED, read)
        assert verdict.holds
        assert (verdict.committed, verdict.rolled_back, verdict.unknown) == (2, 1, 2)


def test_a_committed_one_that_is_nowhere_is_lost_and_one_that_is_there_again_came_twice() -> None:
    assert judge_ends(DECIDED, []).lost == ["committed was committed and is nowhere"]
    assert judge_ends(DECIDED, ["committed", "perhaps", "committed"]).twice == ["committed is there 2 times"]


def test_what_was_rolled_back_refused_or_never_sent_may_not_be_there() -> None:
    verdict = judge_ends(DECIDED, ["committed", "rolled-back", "perhaps-not", "refused", "stranger"])
    assert verdict.uninvited == [
        "stranger was never sent",
        "rolled-back is there, and was rolled back",
        "perhaps-not is there, and was rolled back",
        "refused is there, and was refused",
    ]
