"""Stores that do not scrub by themselves, and flipped bits in their segments."""

from __future__ import annotations

from pathlib import Path

from messagestore.store.messagestore import MessageStore
from tests.unit.messagestore.storehelp import open_store, small_settings

SEGMENT = 4096
IN_BODY, IN_SIZE, IN_MAGIC, IN_POSITION = 100, 3, 5, 30


async def opened(root: Path, **values: int) -> MessageStore:
    quiet = {"message_index_enable": False, "scrub_bytes_per_second": 0}
    store = open_store(root, small_settings(**{**quiet, **values}))
    await store.start()
    return store


def flip(root: Path, offset: int, *, at: int) -> None:
    """Flip a bit of the record at `offset`."""
    path = root / "commitlog" / f"{offset - offset % SEGMENT:020d}"
    content = bytearray(path.read_bytes())
    content[offset % SEGMENT + at] ^= 4
    path.write_bytes(content)
