"""The acknowledged end of a Raft group's leader: the committed end.

Invariant: the acknowledged end is 0 while the broker accepts no sends, so no send is answered OK on the way out of
mastership."""

from __future__ import annotations

from broker.role.membership import Membership
from ha.service.replication import Replication


class GroupAcknowledgement:
    def __init__(self, membership: Membership, group: Replication) -> None:
        self._membership = membership
        self._group = group

    def enough_in_sync(self) -> bool:
        """Always True: a serving leader had a majority a moment ago, and each send shows whether it still has one."""
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
        """Always True: the present followers are not known. Without a majority in time the outcome of a send is unknown (code
        12)."""
        return True
