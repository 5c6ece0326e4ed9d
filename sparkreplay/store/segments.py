"""The files of a commit log.

Invariant: segments have one size, and their names are consecutive multiples of that size. Any other file in the folder is an
error that names the file. Folders in it are ignored."""

from __future__ import annotations

from dataclasses import dataclass

from sparkreplay.errors import SegmentGone, StoreUnreadable
from sparkreplay.store.files import Files, FolderMember, OpenFile
from sparkreplay.store.framing import PLAIN, Framing

FOLDER = "commitlog"
NAME_DIGITS = 20
BEING_MADE = ".new"
"""The suffix of a file that the broker has begun to make (mqruntime.segments)."""
SEGMENT_BYTES_MAX = (1 << 31) - 1
"""The largest mappedFileSizeCommitLog (upstream: an int)."""
SEVERAL_FOLDERS = "a log that storePathCommitLog spreads over several folders is read only after its files were put into one"


@dataclass(frozen=True)
class Segment:
    """One commit log file: its name below the root, the path for errors, the physical offset of its first byte."""

    name: str
    path: str
    start_offset: int
    size_bytes: int
    framing: Framing = PLAIN

    @property
    def end_offset(self) -> int:
        return self.start_offset + self.size_bytes


def list_segments(files: Files, folder: str = FOLDER, framing: Framing = PLAIN) -> tuple[Segment, ...]:
    """The segments of one folder, by offset; empty if the broker has stored nothing yet. An empty last file, or a file whose
    name ends in `.new`, is left out, because the broker is still creating it. Raises StoreUnreadable."""
    try:
        entries = files.entries(folder)
    except FileNotFoundError:
        return ()
    found = [
        segment_of(files, entry, folder, framing)
        for entry in entries
        if not entry.is_folder and not entry.name.endswith(BEING_MADE)
    ]
    segments = found[:-1] if found and not found[-1].size_bytes else found
    for segment in segments:
        if not segment.size_bytes:
            raise StoreUnreadable(
                segment.path, "is empty, but others follow it; copy it again, or read another replica"
            )
    for before, after in zip(segments, segments[1:], strict=False):
        if after.size_bytes != before.size_bytes:
            raise StoreUnreadable(
                after.path,
                f"is {after.size_bytes} bytes long, the one before it {before.size_bytes}; copy it again, or read "
                "another replica",
            )
        if after.start_offset != before.end_offset:
            raise StoreUnreadable(
                after.path,
                f"does not follow {before.name}: a segment is missing; copy it again, or read another replica "
                f"({SEVERAL_FOLDERS})",
            )
    return tuple(segments)


def is_segment_name(name: str) -> bool:
    return name.isascii() and name.isdecimal() and len(name) == NAME_DIGITS


def open_segment(files: Files, segment: Segment) -> OpenFile:
    """Raises SegmentGone, StoreUnreadable."""
    try:
        return files.open(segment.name)
    except FileNotFoundError:
        raise SegmentGone(segment.path) from None


def segment_of(files: Files, entry: FolderMember, folder: str, framing: Framing) -> Segment:
    name = f"{folder}/{entry.name}"
    path = files.shown(name if entry.name.isprintable() else f"{folder}/{ascii(entry.name)}")
    if not is_segment_name(entry.name):
        raise StoreUnreadable(path, f"is not named as a segment is ({NAME_DIGITS} digits); move it elsewhere")
    if entry.is_link:
        raise StoreUnreadable(
            path, "is a symbolic link; segments are read from the store itself only, copy the file"
        )
    if not entry.is_file:
        raise StoreUnreadable(path, "is no plain file; remove it, or read another replica")
    start_offset = int(entry.name)
    if entry.size_bytes > SEGMENT_BYTES_MAX or start_offset + entry.size_bytes >= 1 << 63:
        raise StoreUnreadable(
            path,
            f"is {entry.size_bytes} bytes long, more than a segment can be ({SEGMENT_BYTES_MAX}); it is no broker's "
            "file, read another replica",
        )
    if entry.size_bytes and start_offset % entry.size_bytes:
        raise StoreUnreadable(
            path, f"does not start at a multiple of its size, {entry.size_bytes}; copy it again, whole"
        )
    return Segment(name, path, start_offset, entry.size_bytes, framing)
