"""Which kind of log a store has.

Invariant: an epoch file says that it is a commit log, whatever else the folder holds; a ledger beside it is another's."""

from __future__ import annotations

from sparkreplay.errors import StoreUnreadable
from sparkreplay.store.epochs import FILE as EPOCH_FILE
from sparkreplay.store.files import Files
from sparkreplay.store.ledger import PREFIX, LedgerLog
from sparkreplay.store.log import PLAIN_LOG, Log
from sparkreplay.store.segments import is_segment_name


def log_of(files: Files) -> Log:
    """Raises StoreUnreadable for a store with several ledgers."""
    try:
        files.read(EPOCH_FILE)
        return PLAIN_LOG
    except FileNotFoundError:
        pass
    try:
        ledgers = [
            entry.name for entry in files.entries("") if entry.name.startswith(PREFIX) and not entry.is_file
        ]
    except FileNotFoundError:
        ledgers = []
    if len(ledgers) > 1:
        raise StoreUnreadable(
            files.root,
            f"has several ledgers, {' and '.join(ledgers)}; move those elsewhere that are not its broker's",
        )
    return LedgerLog(ledgers[0]) if ledgers else PLAIN_LOG


def log_min_now(files: Files) -> int:
    """Where the log begins at this moment: retention may have deleted what a snapshot still has."""
    begins = []
    for folder in log_of(files).folders:
        try:
            names = [entry.name for entry in files.entries(folder) if entry.size_bytes]
        except FileNotFoundError:
            continue
        begins += [int(name) for name in names if is_segment_name(name)]
    return min(begins, default=0)
