"""A member's store of small files on a real directory, and entries for it."""

from __future__ import annotations

from pathlib import Path

from dledger.raft.actions import PersistThenSend, Vote
from dledger.raft.entries import Entry
from dledger.raft.settings import DLedgerSettings
from dledger.storage.store import Store
from mqruntime.segments import RealSegmentDirectory
from mqruntime.smallfiles import RealSmallFiles

SETTINGS = DLedgerSettings(data_file_bytes=8192, index_file_bytes=32 * 32, entry_bytes_max=1024)


def store(root: Path) -> Store:
    return Store(RealSmallFiles(root), RealSegmentDirectory(root), "n", SETTINGS, ["n", "m"])


def step(*entries: Entry, vote: Vote | None = None, cut: int | None = None) -> PersistThenSend:
    return PersistThenSend(vote, cut, entries, ())


def entries(first: int, count: int, term: int = 1) -> list[Entry]:
    return [
        Entry(index, term, f"body {index} of term {term}".encode()) for index in range(first, first + count)
    ]
