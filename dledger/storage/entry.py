"""The two forms of an entry on disk: DLedger 0.3.1's data entry and index unit. Pure."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from zlib import crc32

from dledger.raft.entries import BLOCK_HEAD_BYTES, Entry

ENTRY_HEADER = struct.Struct(
    ">"  # offset field
    "i"  #  0 magic           1
    "i"  #  4 size            48 + body
    "q"  #  8 index           from 0
    "q"  # 16 term
    "q"  # 24 pos             position of this entry in this node's data stream
    "i"  # 32 channel         0
    "I"  # 36 chain_crc       upstream 0, unchecked; here never 0: CRC-32 of all other bytes of the entry,
    #                         continued from the entry before
    "I"  # 40 body_crc        upstream 0, unchecked; here the number of earlier entries in the same sync
    "i"  # 44 body_size
)
INDEX_UNIT = struct.Struct(
    ">"  # offset field
    "i"  #  0 magic   1
    "q"  #  4 pos     position of the entry in this node's data stream
    "i"  # 12 size
    "q"  # 16 index
    "q"  # 24 term
)
BLANK = struct.Struct(">ii")  # magic -1, then the number of bytes left in the file; zeros follow
ENTRY_HEADER_BYTES = ENTRY_HEADER.size
CHECK_START, CHECK_END = 36, 40
BEFORE_CHECK, BEHIND_CHECK = struct.Struct(">iiqqqi"), struct.Struct(">Ii")
"""The two parts of the header, before and after the check value."""
CHECK_OF_ZERO = 0xFFFFFFFF
"""Written instead of a check value of 0."""
MAGIC = 1
BLANK_MAGIC = -1


@dataclass(frozen=True, slots=True)
class IndexUnit:
    """The index's unit of an entry."""

    position: int
    size: int
    index: int
    term: int

    @property
    def end(self) -> int:
        return self.position + self.size


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """An entry as a data file has it."""

    entry: Entry
    size: int
    check: int
    """The entry's chain_crc; 0 in stores that Java wrote."""
    batch_position: int
    """The entry's body_crc field: the number of earlier entries in the same sync."""


def header_of(entry: Entry, pos: int, batch_position: int, previous_check: int) -> tuple[bytes, int]:
    """The header of an entry at `pos` of the data stream, and the entry's check value."""
    body = entry.body
    size = ENTRY_HEADER_BYTES + len(body)
    before = BEFORE_CHECK.pack(MAGIC, size, entry.index, entry.term, pos, 0)
    behind = BEHIND_CHECK.pack(batch_position, len(body))
    check = crc32(body, crc32(behind, crc32(before, previous_check))) or CHECK_OF_ZERO
    return b"".join((before, check.to_bytes(4, "big"), behind)), check


def put_entries(
    room: memoryview,
    data: bytes | bytearray,
    begin: int,
    ends: tuple[int, ...],
    first_index: int,
    term: int,
    pos: int,
    batch_position: int,
    check: int,
) -> tuple[bytes, int]:
    """Writes the entries of a block (dledger.raft.entries) to `room`, which is at `pos` of the data stream. Returns the index
    units and the last entry's check value. `batch_position` is the number of entries before the first entry in the same batch
    (the entries of one sync), `check` the check value of the entry before."""
    at, start, units = 0, begin, bytearray()
    for number, end in enumerate(ends):
        entry = Entry(first_index + number, term, bytes(data[start + BLOCK_HEAD_BYTES : end]))
        header, check = header_of(entry, pos + at, batch_position + number, check)
        units += encode_index_unit(entry, pos + at)
        size = ENTRY_HEADER_BYTES + len(entry.body)
        room[at + ENTRY_HEADER_BYTES : at + size] = entry.body
        room[at : at + ENTRY_HEADER_BYTES] = header
        at, start = at + size, end
    assert at == len(room), "all of the room is filled"
    return bytes(units), check


def decode_entry(view: memoryview, pos: int, previous_check: int) -> StoredEntry | None:
    """The entry at the start of `view`, at `pos` of the data stream; None if there is no whole and intact entry.

    A check value of 0 means that Java wrote the entry, and is not compared."""
    if len(view) < ENTRY_HEADER_BYTES:
        return None
    magic, size, index, term, stored_pos, _, check, batch_position, body_size = ENTRY_HEADER.unpack_from(view)
    if magic != MAGIC or stored_pos != pos or index < 0 or term < 0:
        return None
    if body_size < 0 or size != ENTRY_HEADER_BYTES + body_size or size > len(view):
        return None
    if check and check != check_of(view[:size], previous_check):
        return None
    return StoredEntry(Entry(index, term, bytes(view[ENTRY_HEADER_BYTES:size])), size, check, batch_position)


def check_of(data: bytes | memoryview, previous_check: int) -> int:
    return crc32(data[CHECK_END:], crc32(data[:CHECK_START], previous_check)) or CHECK_OF_ZERO


def stored_check(view: bytes | memoryview) -> int:
    """The check value in the entry at the start of `view`."""
    return int.from_bytes(view[CHECK_START:CHECK_END], "big")


def synced_before(view: bytes | memoryview) -> int:
    """The number of earlier entries in the same sync, from the header of the entry at the start of `view`."""
    return int.from_bytes(view[CHECK_END : CHECK_END + 4], "big")


def encode_index_unit(entry: Entry, pos: int) -> bytes:
    """The index unit of an entry at `pos`."""
    return INDEX_UNIT.pack(MAGIC, pos, ENTRY_HEADER_BYTES + len(entry.body), entry.index, entry.term)


def read_index_unit(view: memoryview, index: int) -> IndexUnit | None:
    """The index unit at the start of `view`; None if it is not the unit of entry `index`."""
    if len(view) < INDEX_UNIT.size:
        return None
    magic, *fields = INDEX_UNIT.unpack_from(view)
    unit = IndexUnit(*fields)
    possible = magic == MAGIC and unit.position >= 0 and unit.size >= ENTRY_HEADER_BYTES
    return unit if possible and unit.index == index else None


def index_unit_of(view: memoryview) -> IndexUnit | None:
    """The index unit of the entry at the start of `view`, made from the entry's header; None if there is no whole entry."""
    unit = index_header(view)
    return unit if unit is not None and unit.size <= len(view) else None


def index_header(view: bytes | memoryview) -> IndexUnit | None:
    """Like `index_unit_of`, but the entry's body need not be in `view`."""
    if len(view) < ENTRY_HEADER_BYTES:
        return None
    magic, size, index, term, pos, _, _, _, body_size = ENTRY_HEADER.unpack_from(view)
    whole = magic == MAGIC and size == ENTRY_HEADER_BYTES + body_size
    return IndexUnit(pos, size, index, term) if whole else None
