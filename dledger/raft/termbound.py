"""How far a message may carry the term: one member, broken or forged, cannot use up the terms of a group.

Invariant: a term more than TERM_JUMP_MAX above the own one counts only when as many others as elect a leader tell of
about it, all of them in the own list; above TERM_COUNTED_MAX none ever does. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from dledger.raft.messages import TERM_MAX

TERM_JUMP_MAX = 1 << 20
"""Twelve days of an election won each second: who was cut off for longer finds a majority that says the same, and using
up all terms in such steps takes 2^41 messages, each of them synced."""
TERM_COUNTED_MAX = TERM_MAX // 2
"""No election gets there, and what is above is never written to a disk."""


class TermBound:
    """`others` are those of the own list, `quorum` of whom elect a leader. Who is in another list only may have made it up,
    with as many names as are a majority: its word is no proof."""

    def __init__(self, others: Iterable[str], quorum: int) -> None:
        self.quorum = quorum
        self._others = frozenset(others)
        self._told: dict[str, int] = {}
        """Of each other member, the term beyond the bound that it told last."""

    def members_are(self, others: Iterable[str], quorum: int) -> None:
        """Of the own log, from now on: what anybody else told is forgotten."""
        self._others, self.quorum = frozenset(others), quorum
        self._told = {peer: term for peer, term in self._told.items() if peer in self._others}

    def allows(self, sender: str, term: int, own_term: int) -> bool:
        """Whether `sender` may carry a member from `own_term` to `term`."""
        if term <= own_term + TERM_JUMP_MAX:
            self._told.pop(sender, None)
            return True
        if term > TERM_COUNTED_MAX:
            return False
        if sender in self._others:
            self._told[sender] = term
        return sum(told >= term - TERM_JUMP_MAX for told in self._told.values()) >= self.quorum
