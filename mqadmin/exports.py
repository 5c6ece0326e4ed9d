"""Writes JSON files for other tools, in the folder that upstream's tool uses.

Invariant: a file is written whole, or the command fails. A link with the file's name is not followed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from mqadmin.errors import AdminError

FOLDER = "/tmp/rocketmq/export"  # noqa: S108 (upstream's; files are made as the invariant says)


def write_json(folder: str | None, name: str, content: Any) -> Path:
    """Write `content` as `name` into `folder`, which is created if missing. Raises `AdminError`."""
    text = json.dumps(content, ensure_ascii=False, indent="\t", sort_keys=True) + "\n"
    return write_text(Path(folder or FOLDER) / name, text)


def write_text(path: Path, text: str) -> Path:
    """Write `text`, and create the folder if missing. Raises `AdminError`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise AdminError(f"{path} cannot be written: {error}") from error
    return path
