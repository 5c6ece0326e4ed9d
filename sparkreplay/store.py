"""A store folder as a reader sees it: segments, epochs, the committed bound. Nothing in it is ever written.

Invariant: segments have one size, their names are consecutive multiples of it, and `bound` is the confirm offset that the
checkpoint held when the folder was opened: no election can take back what lies below it."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path

from epochfile.format import EpochFileDamaged, decode
from sparkreplay.errors import EpochChanged, StoreUnreadable

CONFIRM_OFFSET = struct.Struct(">q")
CONFIRM_OFFSET_AT = 32
"""Where the checkpoint file keeps confirmPhyOffset (upstream: StoreCheckpoint)."""


@dataclass(frozen=True)
class Segment:
    """One commit log file: its path and the physical offset of its first byte."""

    path: str
    start_offset: int
    size_bytes: int

    @property
    def end_offset(self) -> int:
        return self.start_offset + self.size_bytes


@dataclass(frozen=True)
class StoreSnapshot:
    """What the driver saw, frozen for the whole job."""

    root: str
    broker_name: str
    segments: tuple[Segment, ...]
    epochs: tuple[tuple[int, int], ...]
    """(epoch, start offset), oldest first."""
    bound: int

    @property
    def min_offset(self) -> int:
        return self.segments[0].start_offset if self.segments else 0

    def epochs_below(self, offset: int) -> tuple[tuple[int, int], ...]:
        return tuple(entry for entry in self.epochs if entry[1] < offset)


def open_store(root: str) -> StoreSnapshot:
    """Reads epochs, bound and segments, in this order twice: epochs that changed in between are read again."""
    folder = Path(root)
    if not (folder / "commitlog").is_dir():
        raise StoreUnreadable(root, "has no folder commitlog; name a broker's storePathRootDir")
    epochs = read_epochs(root)
    bound = read_bound(root)
    segments = list_segments(root)
    if read_epochs(root) != epochs:
        return open_store(root)
    if segments and bound > segments[-1].end_offset:
        raise StoreUnreadable(root, f"confirm offset {bound} lies beyond the last segment's end")
    return StoreSnapshot(root, read_broker_name(root), segments, epochs, bound)


def read_epochs(root: str) -> tuple[tuple[int, int], ...]:
    path = Path(root) / "epochFileCheckpoint"
    try:
        return tuple((epoch, start_offset) for epoch, start_offset in decode(path.read_bytes()))
    except FileNotFoundError:
        raise StoreUnreadable(
            root, "has no epochFileCheckpoint; only stores of controller mode can be read"
        ) from None
    except EpochFileDamaged as error:
        raise StoreUnreadable(str(path), str(error)) from error


def read_bound(root: str) -> int:
    """The confirm offset of the checkpoint: at most a second old, and never above what every member of the set holds."""
    path = Path(root) / "checkpoint"
    try:
        page = path.read_bytes()
    except FileNotFoundError:
        raise StoreUnreadable(root, "has no checkpoint file, so nothing says what is committed") from None
    if len(page) < CONFIRM_OFFSET_AT + CONFIRM_OFFSET.size:
        raise StoreUnreadable(str(path), f"is {len(page)} bytes long, too short to hold a confirm offset")
    return max(0, int(CONFIRM_OFFSET.unpack_from(page, CONFIRM_OFFSET_AT)[0]))


def read_broker_name(root: str) -> str:
    """The broker set's name from the identity file `cluster#brokerName#id`; the folder's name where there is none."""
    try:
        parts = (Path(root) / "brokerIdentity").read_text().split("#")
    except FileNotFoundError:
        parts = []
    return parts[1] if len(parts) >= 3 else Path(root).name


def list_segments(root: str) -> tuple[Segment, ...]:
    found: list[Segment] = []
    with os.scandir(Path(root) / "commitlog") as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.is_dir():
                continue
            if not (entry.name.isdecimal() and len(entry.name) == 20):
                raise StoreUnreadable(entry.path, "is not named as a segment is (20 digits)")
            if entry.is_symlink():
                raise StoreUnreadable(
                    entry.path, "is a symbolic link; segments are read from the store itself only"
                )
            size = entry.stat().st_size
            if size:
                found.append(Segment(entry.path, int(entry.name), size))
    for before, after in zip(found, found[1:], strict=False):
        if after.size_bytes != before.size_bytes:
            raise StoreUnreadable(
                after.path, f"is {after.size_bytes} bytes long, the others {before.size_bytes}"
            )
        if after.start_offset != before.end_offset:
            raise StoreUnreadable(
                after.path, f"does not follow {Path(before.path).name}; a segment is missing"
            )
    return tuple(found)


def check_epochs(store: StoreSnapshot) -> None:
    """Raises EpochChanged when the log was truncated below the bound since the snapshot was taken."""
    now = tuple(entry for entry in read_epochs(store.root) if entry[1] < store.bound)
    if now != store.epochs_below(store.bound):
        raise EpochChanged(store.root, store.bound, store.epochs_below(store.bound), now)
