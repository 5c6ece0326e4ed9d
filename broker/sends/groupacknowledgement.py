"""Up to where the leader of a Raft group may answer what it stored: all that is decided.

Invariant: 0 while it accepts no sends, so nothing is answered OK on the way out of mastership."""

from __future__ import annotations

from broker.role.membership import Membership
from ha.replication import Replication


class GroupAcknowledgement:
    def __init__(self, membership: Membership, group: Replication) -> None:
        self._membership = membership
        self._group = group

    def enough_in_sync(self) -> bool:
        """Who serves as leader has just been followed by a majority; whether it still is each send shows."""
        return True

    def acked_end(self) -> int:
        """Sends that end here or below may be answered OK."""
        return self._group.acked_end() if self._membership.accepts_sends else 0

    def replicated_end(self) -> int:
        return self.acked_end()

    def stored_end(self) -> int:
        return self.acked_end()

    def followed_end(self) -> int:
        return self.acked_end()

    def reachable(self, end: int) -> bool:
        """Who follows is not known; a send that a majority does not get in time ends as unknown."""
        return True
