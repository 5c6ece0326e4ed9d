"""Acknowledged end of a Raft group's leader: the committed end.

Invariant: 0 while it accepts no sends, so nothing is answered OK on the way out of mastership."""

from __future__ import annotations

from broker.role.membership import Membership
from ha.service.replication import Replication


class GroupAcknowledgement:
    def __init__(self, membership: Membership, group: Replication) -> None:
        self._membership = membership
        self._group = group

    def enough_in_sync(self) -> bool:
        """True: a serving leader just had a majority; each send shows whether it still has."""
        return True

    def acked_end(self) -> int:
        """The log end below which sends may be answered OK."""
        return self._group.acked_end() if self._membership.accepts_sends else 0

    def replicated_end(self) -> int:
        return self.acked_end()

    def stored_end(self) -> int:
        return self.acked_end()

    def followed_end(self) -> int:
        return self.acked_end()

    def reachable(self, end: int) -> bool:
        """True: the present followers are not known; without a majority in time a send ends as unknown."""
        return True
