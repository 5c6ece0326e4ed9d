"""Notifications to the program that runs a member. Upstream: DLedgerRoleChangeHandler, for the role alone.

Invariant: a method returns at once; an exception in it ends the member."""

from __future__ import annotations

from collections.abc import Collection

from dledger.raft.actions import Role


class NodeListener:
    """Derive from it; `failed` is the one method that each program needs."""

    def role_changed(self, role: Role, term: int) -> None:
        """LEADER only once this member has applied all that earlier leaders committed."""

    def failed(self, error: BaseException) -> None:
        """The first failed write, or a bug. This member sends, answers and applies nothing from now on."""
        raise NotImplementedError("a program notices when its member has ended")

    def committed(self, index: int) -> None:
        """The commit index has moved to `index`. The entries up to there are applied after this call."""

    def transfer_began(self) -> None:
        """A leadership transfer began: this leader takes no proposals before it ends."""

    def transfer_failed(self) -> None:
        """The transfer ended, and this member still leads."""

    def entry_unreadable(self, index: int) -> None:
        """A follower is missing entry `index`, and this leader cannot read it from its disk."""

    def memory_lost(self) -> None:
        """This member starts as a newcomer, or its disk was set back: it may have forgotten votes and acknowledgements."""

    def refusal_of_ids(self, ids: Collection[str]) -> str | None:
        """The reason why members may not have these ids; None where they may."""
        return None

    # Logs with `same_positions`

    def readable_to(self, end: int) -> None:
        """The last entry that is committed and durable here ends at position `end`, further on than before."""

    def log_replaced(self, position: int) -> None:
        """A durable snapshot of another member replaces the log, which begins at `position`; no file is deleted yet."""

    def log_restarted(self, position: int) -> None:
        """The log begins at `position` from now on: a snapshot of another member has replaced it."""
