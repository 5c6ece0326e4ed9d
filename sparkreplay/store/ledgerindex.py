"""The index of a ledger: where each entry stands (DLedger's index files, 32 bytes an entry).

Invariant: a unit counts only as that of the entry whose place it has."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from sparkreplay.errors import StoreUnreadable
from sparkreplay.store.files import Entry, Files, OpenFile
from sparkreplay.store.ledgerframing import HEADER, MAGIC
from sparkreplay.store.segments import is_segment_name

UNIT = struct.Struct(
    ">"  # offset field
    "I"  #  0 magic   1
    "q"  #  4 pos
    "I"  # 12 size
    "q"  # 16 index
    "q"  # 24 term
)


@dataclass(frozen=True)
class Unit:
    """What the index says of one entry."""

    position: int
    size: int
    term: int

    @property
    def end(self) -> int:
        return self.position + self.size


class LedgerIndex:
    """Files are opened when they are first asked for, and held until `close`. Raises StoreUnreadable."""

    def __init__(self, files: Files, folder: str) -> None:
        self.files = files
        self.folder = f"{folder}/index"
        self.opened: dict[str, OpenFile] = {}
        try:
            self.parts = [entry for entry in files.entries(self.folder) if is_segment_name(entry.name)]
        except FileNotFoundError:
            self.parts = []

    def unit(self, index: int) -> Unit:
        at = index * UNIT.size
        data = bytearray(UNIT.size)
        for part in self.parts:
            start = int(part.name)
            if start <= at < start + part.size_bytes:
                self.file(part).read_into(memoryview(data), at - start)
        magic, position, size, named, term = UNIT.unpack(data)
        if magic != MAGIC or named != index or position < 0 or size < HEADER.size:
            raise StoreUnreadable(
                self.files.shown(self.folder),
                f"names no place for entry {index}, at byte {at} of its files; a broker that starts on the store mends it, or "
                "read another replica",
            )
        return Unit(position, size, term)

    def file(self, part: Entry) -> OpenFile:
        if part.name not in self.opened:
            name = f"{self.folder}/{part.name}"
            try:
                self.opened[part.name] = self.files.open(name)
            except FileNotFoundError:
                raise StoreUnreadable(
                    self.files.shown(name), "was deleted while it was read; run the job again"
                ) from None
        return self.opened[part.name]

    def close(self) -> None:
        for file in self.opened.values():
            file.close()
