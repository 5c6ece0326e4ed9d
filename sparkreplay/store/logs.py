"""The kind of a store's log.

Invariant: a store with an epoch file has a commit log. If a ledger continues the commit log, the broker changed to Raft mode,
and the log is that ledger's. Any other ledger next to a commit log is another broker's. Segments without epoch file and ledger
are a classic commit log."""

from __future__ import annotations

from sparkreplay.errors import StoreUnreadable
from sparkreplay.store.classic import CLASSIC_LOG
from sparkreplay.store.epochs import FILE as EPOCH_FILE
from sparkreplay.store.files import Files
from sparkreplay.store.ledger import PREFIX, StoredLedger
from sparkreplay.store.log import PLAIN_LOG, Log
from sparkreplay.store.segments import FOLDER, is_segment_name

DIVIDE = "divide"
"""The file in a member's folder in which brokers of this project record where the plain log ended."""


def log_of(files: Files) -> Log:
    """The log of a store. Raises StoreUnreadable for a store with several ledgers."""
    try:
        ledgers = [
            entry.name for entry in files.entries("") if entry.name.startswith(PREFIX) and not entry.is_file
        ]
    except FileNotFoundError:
        ledgers = []
    try:
        files.read(EPOCH_FILE)
    except FileNotFoundError:
        if len(ledgers) > 1:
            raise StoreUnreadable(
                files.root,
                f"has several ledgers, {' and '.join(ledgers)}; move those elsewhere that are not its broker's",
            ) from None
        if ledgers:
            return StoredLedger(ledgers[0])
        return CLASSIC_LOG if files_of(files, FOLDER) else PLAIN_LOG
    going_on = [ledger for ledger in ledgers if continues(files, ledger)]
    return StoredLedger(going_on[0]) if len(going_on) == 1 else PLAIN_LOG


def continues(files: Files, ledger: str) -> bool:
    """Whether the ledger begins at the end of the plain log, or did before the plain log was deleted."""
    try:
        files.read(f"{ledger}/{DIVIDE}")
        return True
    except FileNotFoundError:
        plain, entries = files_of(files, FOLDER), files_of(files, f"{ledger}/data")
    return bool(plain and entries) and plain[-1][0] + plain[-1][1] == entries[0][0]


def files_of(files: Files, folder: str) -> list[tuple[int, int]]:
    """The (start, size) of the files that hold a part of a log."""
    try:
        found = files.entries(folder)
    except FileNotFoundError:
        return []
    return [(int(one.name), one.size_bytes) for one in found if one.size_bytes and is_segment_name(one.name)]


def log_min_now(files: Files) -> int:
    """Where the log begins now, because retention may have deleted segments of a snapshot."""
    begins = [start for folder in log_of(files).folders for start, _ in files_of(files, folder)]
    return min(begins, default=0)
