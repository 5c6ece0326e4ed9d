"""Raft under RocketMQ's names: elections, a replicated log on disk, and the node that runs both.

Programs use `from dledger import DLedger`; docs/dledger.md shows such a program."""

from __future__ import annotations

from dledger.ledger import Appended, DLedger, Metadata
from dledger.raft.actions import Role
from dledger.raft.entries import Entry
from dledger.raft.errors import (
    CallbackFailed,
    EntryRefused,
    IndexOutOfRange,
    NotLeader,
    OutcomeUnknown,
    TooManyProposals,
)
from dledger.raft.membership import parsed_peers
from dledger.raft.settings import DLedgerSettings

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
    "parsed_peers",
]
