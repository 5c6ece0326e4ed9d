"""The limit on how far one message may raise the term."""

from __future__ import annotations

from dledger.raft.election import TERM_COUNTED_MAX, TERM_JUMP_MAX, TermBound

OTHERS = ("b", "c", "d")
FAR = 5 * TERM_JUMP_MAX


def test_any_member_may_raise_the_term_by_a_small_step() -> None:
    assert TermBound(OTHERS, 2).allows("b", 7 + TERM_JUMP_MAX, 7)


def test_a_jump_of_the_term_needs_as_many_members_as_elect_a_leader() -> None:
    bound = TermBound(OTHERS, 2)
    assert [bound.allows(peer, FAR, 0) for peer in ("b", "b", "c", "b")] == [False, False, True, True]


def test_a_majority_confirms_only_terms_up_to_those_it_reported() -> None:
    bound = TermBound(OTHERS, 2)
    assert not bound.allows("b", FAR, 0)
    assert not bound.allows("c", TERM_COUNTED_MAX, 0)
    assert bound.allows("b", FAR, 0) is True, "c reported a higher term, so it confirms this one"
    assert not bound.allows("c", TERM_COUNTED_MAX, 0)


def test_a_member_that_since_reported_a_near_term_no_longer_confirms_a_far_one() -> None:
    bound = TermBound(OTHERS, 2)
    assert not bound.allows("b", FAR, 0)
    assert bound.allows("b", 3, 0)
    assert not bound.allows("c", FAR, 0)


def test_unknown_members_do_not_count_towards_the_majority() -> None:
    bound = TermBound(OTHERS, 2)
    assert [bound.allows(peer, FAR, 0) for peer in ("x", "y", "z", "b")] == [False] * 4
    bound.members_are(("x", "y"), 2)
    assert [bound.allows(peer, FAR, 0) for peer in ("x", "b", "y")] == [False, False, True]


def test_no_member_may_raise_the_term_to_the_highest_values() -> None:
    peers = ("b", "c", "d")
    bound = TermBound(OTHERS, 2)
    assert not any(bound.allows(peer, TERM_COUNTED_MAX + 1, 0) for peer in peers)
