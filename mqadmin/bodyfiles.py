"""Writes message bodies to files, in the folder that upstream's tool uses.

Invariant: a file is new or was created by the same user. Its name is the message's id, but never a path that a producer put
into the id."""

from __future__ import annotations

import os
import re
from pathlib import Path

from mqadmin.errors import AdminError

FOLDER = Path("/tmp/rocketmq/msgbodys")  # noqa: S108 (upstream's; files are made as the invariant says)
SAFE = re.compile(r"[0-9A-Za-z_-]{1,128}")


def save_body(message_id: str, otherwise: str, body: bytes, folder: Path = FOLDER) -> Path:
    """Write `body` to a file named `message_id`, or `otherwise` if `message_id` is no plain name. Raises `AdminError`."""
    path = folder / (message_id if SAFE.fullmatch(message_id) else otherwise)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(body)
    except OSError as error:
        raise AdminError(
            f"the message was found, but its body cannot be written to {path}: {error}"
        ) from error
    return path
