"""How far one message may carry the term."""

from __future__ import annotations

import pytest

from dledger.raft.election import TERM_COUNTED_MAX, TERM_JUMP_MAX, TermBound

OTHERS = ("b", "c", "d")
FAR = 5 * TERM_JUMP_MAX


def test_a_small_step_is_anybodys() -> None:
    assert TermBound(OTHERS, 2).allows("b", 7 + TERM_JUMP_MAX, 7)


def test_a_jump_needs_as_many_others_as_elect_a_leader() -> None:
    bound = TermBound(OTHERS, 2)
    assert [bound.allows(peer, FAR, 0) for peer in ("b", "b", "c", "b")] == [False, False, True, True]


def test_the_majority_vouches_for_its_own_terms_only() -> None:
    bound = TermBound(OTHERS, 2)
    assert not bound.allows("b", FAR, 0)
    assert not bound.allows("c", TERM_COUNTED_MAX, 0)
    assert bound.allows("b", FAR, 0) is True, "c tells of more, so it knows of this one"
    assert not bound.allows("c", TERM_COUNTED_MAX, 0)


def test_who_told_of_a_near_term_since_vouches_no_more() -> None:
    bound = TermBound(OTHERS, 2)
    assert not bound.allows("b", FAR, 0)
    assert bound.allows("b", 3, 0)
    assert not bound.allows("c", FAR, 0)


def test_no_majority_is_made_of_names_that_are_in_no_list_of_the_own_log() -> None:
    bound = TermBound(OTHERS, 2)
    assert [bound.allows(peer, FAR, 0) for peer in ("x", "y", "z", "b")] == [False] * 4
    bound.members_are(("x", "y"), 2)
    assert [bound.allows(peer, FAR, 0) for peer in ("x", "b", "y")] == [False, False, True]


@pytest.mark.parametrize("peers", [("b", "c", "d")])
def test_nobody_carries_a_member_to_the_last_terms(peers: tuple[str, ...]) -> None:
    bound = TermBound(OTHERS, 2)
    assert not any(bound.allows(peer, TERM_COUNTED_MAX + 1, 0) for peer in peers)
