"""The folder of a Raft-mode broker's store, for those who only look at it.

Invariant: nothing is written, made or deleted."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dledger.memberfolder import mapped, read_folder
from raftstore.census import OLD_LOG
from raftstore.messagelog import MessageLog

TABLES = "config"


def read_log(folder: Path) -> MessageLog:
    """`folder` is what storePathRootDir names, with one member's folder in it. Raises NoMember, OSError."""
    return MessageLog(mapped(folder / OLD_LOG), read_folder(folder))


def tables_of(folder: Path) -> Mapping[str, bytes]:
    """Topics, groups, offsets: content by name below `folder`. OSError."""
    return {f"{TABLES}/{path.name}": path.read_bytes() for path in sorted((folder / TABLES).glob("*.json"))}
