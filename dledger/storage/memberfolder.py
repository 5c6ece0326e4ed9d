"""Read-only access to the folder of a member.

Invariant: nothing is written, created or deleted, and no lock is taken."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from dledger.storage.inspection import MemberFiles, NamedFile
from dledger.storage.snapshotfile import read_snapshot
from mqruntime.segments import SegmentDirectory
from mqruntime.smallfiles import SmallFiles

PREFIX = "dledger-"


class NoMember(Exception):
    """The folder holds no member's files."""

    def __init__(self, folder: Path, found: Sequence[str]) -> None:
        has = f"holds {', '.join(found)}; name one of them" if found else f"is no {PREFIX}ID and holds none"
        super().__init__(f"{folder} {has}")


def read_folder(folder: Path) -> MemberFiles:
    """Reads the files of a member. `folder` is the member's folder, or a store folder that contains one member's folder. Raises
    NoMember, OSError."""
    if not folder.name.startswith(PREFIX):
        inside = sorted(path.name for path in folder.glob(f"{PREFIX}*") if path.is_dir())
        if len(inside) != 1:
            raise NoMember(folder, inside)
        folder = folder / inside[0]
    if not folder.is_dir():
        raise NoMember(folder, [])
    return MemberFiles(
        folder.name,
        small(folder / "currterm"),
        small(folder / "checkpoint"),
        small(folder / "snapshot"),
        mapped(folder / "data"),
        mapped(folder / "index"),
    )


def small(file: Path) -> bytes | None:
    """The content of a small file. None if the file does not exist, or is a folder, as in stores of Java controllers from 5.4.0
    on."""
    with suppress(FileNotFoundError, IsADirectoryError):
        return file.read_bytes()
    return None


def mapped(folder: Path) -> list[NamedFile]:
    """The mapped files whose names are positions. An empty file is damaged and cannot be mapped."""
    found: list[NamedFile] = []
    for path in sorted(folder.glob("[0-9]*")):
        with path.open("rb") as file:
            size = path.stat().st_size
            view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
            found.append((path.name, memoryview(view)))
    return found


async def read_store(files: SmallFiles, segments: SegmentDirectory, name: str) -> MemberFiles:
    """The files of the member `name` below the roots of `files` and `segments`, which are the same folder. Raises OSError."""
    folder = segments.subdirectory(name)
    currterm, checkpoint = [await files.read(f"{name}/{part}") for part in ("currterm", "checkpoint")]
    snapshot = await read_snapshot(files, f"{name}/snapshot")
    data, index = [viewed(folder.subdirectory(part)) for part in ("data", "index")]
    return MemberFiles(name, currterm, checkpoint, snapshot, data, index)


def viewed(folder: SegmentDirectory) -> list[NamedFile]:
    found: list[NamedFile] = []
    for name, size in folder.names():
        if size:
            file = folder.open(name)
            found.append((name, file.view()))
            file.close()
    return found
