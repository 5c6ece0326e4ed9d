"""The folder of a Raft-mode broker's store, for read-only use.

Invariant: nothing is written, created or deleted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from dledger.storage.memberfolder import mapped, read_folder, small
from messagestore.checkpoint import FILE as CHECKPOINT
from messagestore.checkpoint import decode_checkpoint
from messagestore.errors import StoreError
from messagestore.store.brokerstore import ABORT_FILE, was_closed
from raftstore.census import OLD_LOG
from raftstore.framing import PlacedMessage
from raftstore.messagelog import MessageLog
from raftstore.plainlog import plain_messages

TABLES = "config"
OF_THE_GROUP = "tablesVersion.json"
"""Terms of this group: another group, or controllers, start without them."""


class NotClosed(StoreError):
    """A store that may hold more than its checkpoint records."""

    def __init__(self, folder: Path) -> None:
        super().__init__(
            f"{folder} was not closed by a broker of this implementation: start one on it, let it lead, and stop it (SIGTERM)"
        )
        self.folder = folder


def read_log(folder: Path) -> MessageLog:
    """`folder` is storePathRootDir, with one member's folder in it. Raises NoMember, OSError."""
    return MessageLog(mapped(folder / OLD_LOG), read_folder(folder))


def confirmed_end(folder: Path) -> int:
    """Confirm offset of a log of this implementation, stored when it was closed. Raises NotClosed, CheckpointDamaged,
    OSError."""
    found = decode_checkpoint(small(folder / CHECKPOINT))
    if not was_closed(small(folder / ABORT_FILE)) or not found.ours:
        raise NotClosed(folder)
    return found.confirm_phy_offset


def plain_log(folder: Path, end: int) -> Iterator[PlacedMessage]:
    """The messages of such a log. Raises BadSegments, StoreCorrupted, OSError."""
    return plain_messages(mapped(folder / OLD_LOG), end)


def tables_of(folder: Path) -> Mapping[str, bytes]:
    """Topics, groups, offsets: content by name below `folder`. Raises OSError."""
    found = sorted((folder / TABLES).glob("*.json"))
    return {f"{TABLES}/{path.name}": path.read_bytes() for path in found if path.name != OF_THE_GROUP}
