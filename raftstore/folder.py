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
"""This file holds terms of the Raft group. It is not exported, because another group, or controllers, count from the
beginning."""


class NotClosed(StoreError):
    """The store was not closed cleanly: its log may be longer than the checkpoint says."""

    def __init__(self, folder: Path) -> None:
        super().__init__(
            f"{folder} was not closed by a broker of this implementation: start one on it, let it lead, and stop it (SIGTERM)"
        )
        self.folder = folder


def read_log(folder: Path) -> MessageLog:
    """Read the log in `folder`. `folder` is storePathRootDir and contains one member's folder. Raises NoMember, OSError."""
    return MessageLog(mapped(folder / OLD_LOG), read_folder(folder))


def confirmed_end(folder: Path) -> int:
    """The confirm offset that a broker of this implementation stored when it closed the log. Raises NotClosed,
    CheckpointDamaged, OSError."""
    found = decode_checkpoint(small(folder / CHECKPOINT))
    if not was_closed(small(folder / ABORT_FILE)) or not found.ours:
        raise NotClosed(folder)
    return found.confirm_phy_offset


def plain_log(folder: Path, end: int) -> Iterator[PlacedMessage]:
    """The messages of the plain log in `folder`, up to `end`. Raises BadSegments, StoreCorrupted, OSError."""
    return plain_messages(mapped(folder / OLD_LOG), end)


def tables_of(folder: Path) -> Mapping[str, bytes]:
    """The files of topics, groups and offsets: name below `folder` -> content. Raises OSError."""
    found = sorted((folder / TABLES).glob("*.json"))
    return {f"{TABLES}/{path.name}": path.read_bytes() for path in found if path.name != OF_THE_GROUP}
