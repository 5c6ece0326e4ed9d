"""A store folder as a reader sees it: segments, epochs, the committed bound. Nothing in it is ever written.

Invariant: segments have one size, their names are consecutive multiples of it, and `bound` is the confirm offset that the
checkpoint held when the folder was opened: no election can take back what lies below it."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from epochfile.format import EpochFileDamaged, decode
from sparkreplay.errors import EpochChanged, StoreUnreadable
from sparkreplay.files import Files, LocalFiles

CONFIRM_OFFSET = struct.Struct(">q")
CONFIRM_OFFSET_AT = 32
"""Where the checkpoint file keeps confirmPhyOffset (upstream: StoreCheckpoint)."""


@dataclass(frozen=True)
class Segment:
    """One commit log file: its name below the root, the path that errors show, the physical offset of its first byte."""

    name: str
    path: str
    start_offset: int
    size_bytes: int

    @property
    def end_offset(self) -> int:
        return self.start_offset + self.size_bytes


@dataclass(frozen=True)
class StoreSnapshot:
    """What the driver saw, frozen for the whole job."""

    files: Files
    broker_name: str
    segments: tuple[Segment, ...]
    epochs: tuple[tuple[int, int], ...]
    """(epoch, start offset), oldest first."""
    bound: int

    @property
    def root(self) -> str:
        return self.files.root

    @property
    def min_offset(self) -> int:
        return self.segments[0].start_offset if self.segments else 0

    def epochs_below(self, offset: int) -> tuple[tuple[int, int], ...]:
        return tuple(entry for entry in self.epochs if entry[1] < offset)


def open_store(root: str) -> StoreSnapshot:
    """Reads epochs, bound and segments, in this order twice: epochs that changed in between are read again."""
    files = LocalFiles(root)
    epochs = read_epochs(files)
    bound = read_bound(files)
    segments = list_segments(files)
    if read_epochs(files) != epochs:
        return open_store(root)
    if segments and bound > segments[-1].end_offset:
        raise StoreUnreadable(root, f"confirm offset {bound} lies beyond the last segment's end")
    return StoreSnapshot(files, read_broker_name(files), segments, epochs, bound)


def read_epochs(files: Files) -> tuple[tuple[int, int], ...]:
    name = "epochFileCheckpoint"
    try:
        return tuple((epoch, start_offset) for epoch, start_offset in decode(files.read(name)))
    except FileNotFoundError:
        raise StoreUnreadable(
            files.root,
            "has no epochFileCheckpoint; name a broker's storePathRootDir (only stores of controller mode can be read)",
        ) from None
    except EpochFileDamaged as error:
        raise StoreUnreadable(files.shown(name), str(error)) from error


def read_bound(files: Files) -> int:
    """The confirm offset of the checkpoint: at most a second old, and never above what every member of the set holds."""
    try:
        page = files.read("checkpoint")
    except FileNotFoundError:
        raise StoreUnreadable(
            files.root, "has no checkpoint file, so nothing says what is committed"
        ) from None
    if len(page) < CONFIRM_OFFSET_AT + CONFIRM_OFFSET.size:
        raise StoreUnreadable(
            files.shown("checkpoint"), f"is {len(page)} bytes long, too short to hold a confirm offset"
        )
    return max(0, int(CONFIRM_OFFSET.unpack_from(page, CONFIRM_OFFSET_AT)[0]))


def read_broker_name(files: Files) -> str:
    """The broker set's name from the identity file `cluster#brokerName#id`; the folder's name where there is none."""
    try:
        parts = files.read("brokerIdentity").decode("utf-8", "replace").split("#")
    except FileNotFoundError:
        parts = []
    return parts[1] if len(parts) >= 3 else files.root.rstrip("/").rpartition("/")[2]


def list_segments(files: Files) -> tuple[Segment, ...]:
    found: list[Segment] = []
    try:
        entries = files.entries("commitlog")
    except FileNotFoundError:
        raise StoreUnreadable(
            files.root, "has no folder commitlog; name a broker's storePathRootDir"
        ) from None
    for entry in entries:
        name = f"commitlog/{entry.name}"
        if entry.is_folder:
            continue
        if not (entry.name.isascii() and entry.name.isdecimal() and len(entry.name) == 20):
            raise StoreUnreadable(files.shown(name), "is not named as a segment is (20 digits)")
        if entry.is_link:
            raise StoreUnreadable(
                files.shown(name), "is a symbolic link; segments are read from the store itself only"
            )
        if entry.size_bytes:
            found.append(Segment(name, files.shown(name), int(entry.name), entry.size_bytes))
    for before, after in zip(found, found[1:], strict=False):
        if after.size_bytes != before.size_bytes:
            raise StoreUnreadable(
                after.path, f"is {after.size_bytes} bytes long, the others {before.size_bytes}"
            )
        if after.start_offset != before.end_offset:
            raise StoreUnreadable(after.path, f"does not follow {before.name}; a segment is missing")
    return tuple(found)


def check_epochs(store: StoreSnapshot) -> None:
    """Raises EpochChanged when the log was truncated below the bound since the snapshot was taken."""
    now = tuple(entry for entry in read_epochs(store.files) if entry[1] < store.bound)
    if now != store.epochs_below(store.bound):
        raise EpochChanged(store.root, store.bound, store.epochs_below(store.bound), now)
