"""Errors that end a resend. Each error says how far the resend came and how to continue."""

from __future__ import annotations

from sparkreplay.errors import ReplayError


class ResendLedgerUnusable(ReplayError):
    """The ledger of progress cannot be continued, because it is damaged or belongs to another resend."""

    def __init__(
        self,
        path: str,
        why: str,
        cure: str = "name another ledger to start over (messages sent before will be there twice)",
    ) -> None:
        super().__init__(f"{path}: {why}; {cure}")
        self.path = path


class ResendFailed(ReplayError):
    """A message cannot be sent, the target rejects it, or the target has not accepted it in time. The ledger is kept."""

    def __init__(self, origin: str, why: str) -> None:
        super().__init__(
            f"{origin}: {why}; correct that and run the same command again to continue from the ledger"
        )
        self.origin = origin
