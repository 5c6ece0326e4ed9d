"""Raft under RocketMQ's names: elections, a replicated log on disk, and the node that drives them.

`from dledger import DLedger` is what programs write that use it; docs/dledger.md shows one."""

from __future__ import annotations

from dledger.actions import Role
from dledger.entry import Entry
from dledger.errors import (
    CallbackFailed,
    EntryRefused,
    IndexOutOfRange,
    NotLeader,
    OutcomeUnknown,
    TooManyProposals,
)
from dledger.ledger import Appended, DLedger, Metadata
from dledger.settings import DLedgerSettings

__all__ = [
    "Appended",
    "CallbackFailed",
    "DLedger",
    "DLedgerSettings",
    "Entry",
    "EntryRefused",
    "IndexOutOfRange",
    "Metadata",
    "NotLeader",
    "OutcomeUnknown",
    "Role",
    "TooManyProposals",
]
