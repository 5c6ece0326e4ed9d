"""What ends a resend; each error says where it stands and how to go on."""

from __future__ import annotations

from sparkreplay.errors import ReplayError


class LedgerUnusable(ReplayError):
    """A ledger of progress cannot be continued from: damaged, or of another resend."""

    def __init__(
        self,
        path: str,
        why: str,
        cure: str = "name another ledger to begin anew (what was sent before will be there twice)",
    ) -> None:
        super().__init__(f"{path}: {why}; {cure}")
        self.path = path


class ResendFailed(ReplayError):
    """A message that the target will not take, or has not taken for too long. The ledger is kept."""

    def __init__(self, origin: str, why: str) -> None:
        super().__init__(f"{origin}: {why}; mend it and run the same command again to go on from the ledger")
        self.origin = origin
