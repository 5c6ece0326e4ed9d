"""What the shell of a member was told last.

Invariant: nothing is told twice, and what has changed is told once. Pure."""

from __future__ import annotations

from dledger.raft.actions import Action, BecomeRole, Commit, Vote


class Told:
    """Begins with what the shell knows by itself, from the disk."""

    def __init__(self, vote: Vote, role: BecomeRole, committed_index: int) -> None:
        self._vote = vote
        self._role = role
        self._committed_index = committed_index

    def new_vote(self, vote: Vote) -> Vote | None:
        """`vote`, unless it is the one that was told last."""
        if vote == self._vote:
            return None
        self._vote = vote
        return vote

    def news(self, role: BecomeRole, committed_index: int) -> list[Action]:
        news: list[Action] = []
        if role != self._role:
            news.append(role)
            self._role = role
        if committed_index != self._committed_index:
            news.append(Commit(committed_index))
            self._committed_index = committed_index
        return news
