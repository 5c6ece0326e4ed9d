"""Small files that must be whole or absent after any crash: manifests and ledgers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def replace_durably(path: Path, data: bytes) -> None:
    """Replace the file's content durably. On return the file holds `data`, also after a power loss. Until then it keeps its
    former content.

    Raises OSError, which names the file, and leaves no temporary file."""
    path = path.resolve()  # a symbolic link stays a link
    unfinished = path.with_name(path.name + ".unfinished")
    with naming(path):
        try:
            with open(unfinished, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(path)
        except OSError:
            unfinished.unlink(missing_ok=True)
            raise
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Add the file's name to an OSError of a write or a sync. The system names a file only if opening fails."""
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        raise
