"""Errors that end a resend; each says how far it came and how to continue."""

from __future__ import annotations

from sparkreplay.errors import ReplayError


class ResendLedgerUnusable(ReplayError):
    """A ledger of progress that cannot be continued: damaged, or of another resend."""

    def __init__(
        self,
        path: str,
        why: str,
        cure: str = "name another ledger to start over (messages sent before will be there twice)",
    ) -> None:
        super().__init__(f"{path}: {why}; {cure}")
        self.path = path


class ResendFailed(ReplayError):
    """The target rejects a message, or has not accepted it for too long. The ledger is kept."""

    def __init__(self, origin: str, why: str) -> None:
        super().__init__(
            f"{origin}: {why}; correct that and run the same command again to continue from the ledger"
        )
        self.origin = origin
