"""The file that says where a log began which was fetched from a master whose own begins above 0.

Invariant: without it, and where it cannot be read, a log begins at 0, as its own master's does. Pure."""

from __future__ import annotations

BEGINNING_FILE = "logBeginning"


def beginning_in(data: bytes | None) -> int:
    """The offset in the content of that file."""
    text = (data or b"").strip()
    return int(text) if text.isdigit() else 0


def content_of(beginning: int) -> bytes:
    return b"%d\n" % beginning
