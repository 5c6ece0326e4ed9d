"""The index of a ledger: the place of each entry (DLedger's index files, with 32 bytes for each entry).

Invariant: a unit (the index's 32 bytes for one entry) is used only if the physical offset in it is that of the entry."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sparkreplay.errors import StoreUnreadable
from sparkreplay.store.files import Files, FolderMember, OpenFile
from sparkreplay.store.ledgerframing import FIELDS, HEADER, LEDGER, MAGIC, entry_head, gathered
from sparkreplay.store.segments import Segment, is_segment_name, open_segment

UNIT = struct.Struct(
    ">"  # offset field
    "I"  #  0 magic   1
    "q"  #  4 pos
    "I"  # 12 size
    "q"  # 16 index
    "q"  # 24 term
)
UNIT_FIELDS = np.dtype([("magic", ">u4"), ("pos", ">i8"), ("size", ">u4"), ("index", ">i8"), ("term", ">i8")])
UNITS_READ = 1 << 16
DATA_READ_BYTES = 4 << 20


@dataclass(frozen=True)
class Unit:
    """The index's fields of one entry."""

    position: int
    size: int
    term: int

    @property
    def end(self) -> int:
        return self.position + self.size


class LedgerIndex:
    """The index files of a ledger. They are opened when first needed, and held until `close`. Raises StoreUnreadable."""

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
        magic, position, size, named, term = UNIT.unpack(self.bytes_at(at, UNIT.size))
        if magic != MAGIC or named != index or position < 0 or size < HEADER.size:
            raise StoreUnreadable(
                self.files.shown(self.folder),
                f"names no place for entry {index}, at byte {at} of its files; a broker that starts on the store mends it, or "
                "read another replica",
            )
        return Unit(position, size, term)

    def bytes_at(self, at: int, size: int) -> bytearray:
        """Bytes of the index; zeros if no file has them."""
        data = bytearray(size)
        for part in self.parts:
            start = int(part.name)
            low, high = max(at, start), min(at + size, start + part.size_bytes)
            if low < high:
                self.file(part).read_into(memoryview(data)[low - at : high - at], low - start)
        return data

    def disagreement(self, segment: Segment, end: int) -> tuple[int, str] | None:
        """The first entry of a ledger's segment, below `end`, whose fields in the index differ from its data: its physical
        offset, and a description. None if there is none. Raises SegmentGone."""
        with closing(open_segment(self.files, segment)) as file:
            head = entry_head(bytes(read_at(file, 0, HEADER.size)), segment.start_offset)
            if head is None:
                return None  # a walk reports this
            at, index = segment.start_offset, head.index
            while at < end:
                units = np.frombuffer(self.bytes_at(index * UNIT.size, UNITS_READ * UNIT.size), UNIT_FIELDS)
                sizes = units["size"].astype(np.int64)
                due = at + np.append(0, np.cumsum(sizes)[:-1])
                good = (
                    (units["magic"] == MAGIC) & (units["pos"] == due) & (sizes >= HEADER.size) & (due < end)
                )
                good &= units["index"] == index + np.arange(len(units))
                count = len(units) if good.all() else int(np.argmin(good))
                for first, heads in heads_at(file, segment, due[:count]):
                    named = units[first : first + len(heads)]
                    same = np.ones(len(heads), np.bool_)
                    for field in ("pos", "size", "index", "term"):
                        same &= heads[field] == named[field]
                    if not same.all():
                        place = first + int(np.argmin(same))
                        return int(due[place]), f"says of entry {index + place} what its data does not"
                at += int(sizes[:count].sum())
                index += count
                if count < len(units):
                    break
            if at < end and not LEDGER.ends_file(bytes(read_at(file, at - segment.start_offset, 8))):
                return at, f"does not name the place of entry {index}"
        return None

    def file(self, part: FolderMember) -> OpenFile:
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


def read_at(file: OpenFile, at: int, size: int) -> bytearray:
    """Bytes of a file; zeros after the file's end."""
    data = bytearray(size)
    file.read_into(memoryview(data), at)
    return data


def heads_at(
    file: OpenFile, segment: Segment, places: NDArray[np.int64]
) -> Iterator[tuple[int, NDArray[np.void]]]:
    """The headers at ascending `places`, with the number of the first of them, for a few MiB of the file at a time."""
    first = 0
    while first < len(places):
        low = int(places[first])
        last = max(first + 1, int(np.searchsorted(places + HEADER.size, low + DATA_READ_BYTES, "right")))
        held = read_at(file, low - segment.start_offset, int(places[last - 1]) + HEADER.size - low)
        found = gathered(np.frombuffer(held, np.uint8), places[first:last] - low, HEADER.size)
        yield first, found.view(FIELDS)
        first = last
