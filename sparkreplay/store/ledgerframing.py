"""The entries of a Raft-mode broker's ledger (DLedger 0.3's data files), each around one record.

Two kinds of entries have no record, and readers skip them: an entry without a body, which opens a Raft term, and an entry with
a list of members, which changes the group. Invariant: bytes count as an entry only if they contain their own physical offset,
and as a record only if the record fills the rest of the entry. Pure."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from messagestore.record import MAGIC_V1, MAGIC_V2, RECORD_SIZE_MIN
from sparkreplay.errors import LogCorrupted
from sparkreplay.store.compact import without_gaps
from sparkreplay.store.cutrecord import contradiction
from sparkreplay.store.framing import (
    PREFIX,
    RECORD_SIZE_MAX,
    SIZE_AND_MAGIC,
    Places,
    RecordChunk,
    SegmentPart,
    impossible,
)

HEADER = struct.Struct(
    ">"  # offset field
    "I"  #  0 magic           1
    "I"  #  4 size            48 + body
    "q"  #  8 index           from 0
    "q"  # 16 term
    "q"  # 24 pos             where this entry begins
    "12s"  # 32             differs by member: checks, or zeros
    "i"  # 44 body_size
)
FIELDS = np.dtype(
    {
        "names": ["size", "index", "term", "pos", "body_size"],
        "formats": [">u4", ">i8", ">i8", ">i8", ">i4"],
        "offsets": [4, 8, 16, 24, 44],
        "itemsize": HEADER.size,
    }
)
MAGIC, BLANK_MAGIC = 1, 0xFFFFFFFF
"""A blank consists of this magic and the number of bytes left in its file."""
OWN_AT, OWN_END = 32, 44
CHECK_AT, CHECK_END = 36, 40
MEMBERS = b"\x00dledger members\x00"
"""The first bytes of a body that changes the group (dledger.raft.membership)."""


@dataclass(frozen=True)
class EntryHead:
    """The fields of an entry's header."""

    size: int
    index: int
    term: int
    check: int = field(default=0, compare=False)
    """The check, computed by the member that wrote the entry (ledgerchecks.py)."""


def entry_head(head: bytes | memoryview, offset: int) -> EntryHead | None:
    """Decode `head`, which has HEADER.size bytes. None if it is not the header of an entry at physical offset `offset`."""
    if len(head) < HEADER.size:
        return None
    magic, size, index, term, pos, own, body_size = HEADER.unpack_from(head)
    if magic != MAGIC or size != HEADER.size + body_size or pos != offset or index < 0 or term < 0:
        return None
    return EntryHead(size, index, term, int.from_bytes(own[CHECK_AT - OWN_AT : CHECK_END - OWN_AT], "big"))


def entry_place(data: bytes, offset: int) -> int | None:
    """The first position in `data` where an entry begins, recognised by the physical offset in it. `data` begins at physical
    offset `offset`. None if no entry begins there."""
    place = data.find(MAGIC.to_bytes(4, "big"))
    while place != -1:
        if entry_head(data[place : place + HEADER.size], offset + place) is not None:
            return place
        place = data.find(MAGIC.to_bytes(4, "big"), place + 1)
    return None


@dataclass(frozen=True)
class LedgerFraming:
    """A ledger's framing: the frame is the entry."""

    @property
    def lead_bytes(self) -> int:
        return HEADER.size

    def frames(self, buffer: bytearray, held: int, part: SegmentPart) -> tuple[Places, int, bool]:
        positions: list[int] = []
        append = positions.append
        unpack = SIZE_AND_MAGIC.unpack_from
        position, wrong, blank = 0, "", False
        while position + PREFIX.size <= held:
            word = unpack(buffer, position)[0]
            size = word & 0xFFFFFFFF
            if word >> 32 != MAGIC:
                blank = word >> 32 == BLANK_MAGIC
                if not blank:
                    wrong = f"no entry starts here, below the bound {part.bound}"
                elif part.start + position + size != part.segment_end:
                    wrong = "the blank that ends the file does not end it"
                break
            if not HEADER.size <= size <= HEADER.size + RECORD_SIZE_MAX:
                wrong = impossible(size - HEADER.size)
                break
            if position + size > held:
                break
            append(position)
            position += size
        found = np.array(positions, np.int64)
        if wrong:
            self.records(
                buffer, found, position, part
            )  # an entry before may be the cause and is then reported
            raise LogCorrupted(part.path, part.start + position, wrong)
        return found, position, blank

    def records(self, buffer: bytearray, frames: Places, used: int, part: SegmentPart) -> RecordChunk:
        data = np.frombuffer(buffer, np.uint8, used)
        offsets, end = part.start + frames, part.start + used
        heads = gathered(data, frames, HEADER.size).view(FIELDS)

        def require(good: NDArray[np.bool_], why: str) -> None:
            if not good.all():
                raise LogCorrupted(part.path, int(offsets[int(np.argmin(good))]), why)

        sizes = heads["size"].astype(np.int64)
        require(heads["pos"] == offsets, "the entry names another place")
        require(heads["body_size"] == sizes - HEADER.size, "the entry's body is not of the entry's size")
        require(
            np.diff(heads["index"].astype(np.int64), prepend=heads["index"][:1] - 1) == 1,
            "the entry's index is not the next",
        )
        require(
            np.diff(heads["term"].astype(np.int64), prepend=heads["term"][:1]) >= 0,
            "the entry's term is below the one before",
        )
        full = sizes >= HEADER.size + RECORD_SIZE_MIN
        places = frames + HEADER.size
        prefixes = gathered(data, places[full], PREFIX.size).view([("size", ">i4"), ("magic", ">u4")])
        magics = prefixes["magic"]
        holds = full.copy()
        holds[full] = (magics == MAGIC_V1) | (magics == MAGIC_V2)
        others = [
            heads["body_size"][row] == 0 or buffer.startswith(MEMBERS, int(places[row]))
            for row in np.flatnonzero(~holds).tolist()
        ]
        known = holds.copy()
        known[~holds] = others
        require(known, "the entry holds no record")
        fills = holds.copy()
        fills[full] = prefixes["size"] == sizes[full] - HEADER.size
        require(fills | ~holds, "the record does not fill its entry")
        if not holds.any():
            return RecordChunk(data[:0], frames[:0], frames[:0], end)
        sizes = sizes[holds] - HEADER.size
        records = without_gaps(data, places[holds], sizes)
        return RecordChunk(records, np.cumsum(sizes) - sizes, offsets[holds] + HEADER.size, end)

    def size_of(self, window: bytes | bytearray) -> int:
        return int(PREFIX.unpack_from(window)[1])

    def contradiction(self, window: memoryview, offset: int) -> str | None:
        if len(window) < HEADER.size + PREFIX.size:
            return None
        if entry_head(window, offset) is None:
            return "the entry contradicts itself"
        record = window[HEADER.size :]
        size, magic = PREFIX.unpack_from(record)
        if magic not in (MAGIC_V1, MAGIC_V2):
            return None if bytes(record[: len(MEMBERS)]) in MEMBERS else "the entry holds no record"
        if size != self.size_of(bytes(window[: PREFIX.size])) - HEADER.size:
            return "the record does not fill its entry"
        return contradiction(record, offset + HEADER.size)

    def leads(self, lead: bytes, offset: int, record_bytes: int) -> bool:
        head = entry_head(lead, offset - HEADER.size)
        return head is not None and head.size == HEADER.size + record_bytes

    def may_follow(self, prefix: bytes) -> bool:
        return PREFIX.unpack(prefix)[0] in (MAGIC, BLANK_MAGIC, 0)

    def begins_frame(self, window: bytes, offset: int, left: int) -> bool:
        """Whether a blank or any entry is there. One that the end of the window cuts off counts too."""
        if len(window) < PREFIX.size or PREFIX.unpack_from(window) == (BLANK_MAGIC, left):
            return True
        return entry_head(window, offset) is not None

    def ends_file(self, prefix: bytes) -> bool:
        return bool(PREFIX.unpack(prefix)[0] == BLANK_MAGIC)

    def normalised(self, buffer: NDArray[np.uint8], offset: int) -> int:
        """Normalise the checks in headers, which differ by member."""
        view = buffer.data
        at = self.first_boundary(buffer, offset)
        while at + HEADER.size <= len(view):
            head = entry_head(bytes(view[at : at + HEADER.size]), offset + at)
            if head is None:
                return len(view)
            view[at + OWN_AT : at + OWN_END] = bytes(OWN_END - OWN_AT)
            if at + head.size > len(view):
                break
            at += head.size
        return at

    def first_boundary(self, window: NDArray[np.uint8], offset: int) -> int:
        """The position of the first entry, recognised by the physical offset in it. If there is none, the length of a header,
        because a header that begins before the window ends there at the latest."""
        if entry_head(window[: HEADER.size].tobytes(), offset) is not None:
            return 0
        place = entry_place(window.tobytes(), offset)
        return min(HEADER.size, len(window)) if place is None else place


LEDGER = LedgerFraming()


def gathered(data: NDArray[np.uint8], places: Places, size: int) -> NDArray[np.void]:
    """A copy of `size` bytes at each of `places`, which all lie inside `data`."""
    if not len(places):
        return np.empty(0, f"V{size}")
    everywhere = np.ndarray(len(data) - size + 1, f"V{size}", data, 0, (1,))
    return everywhere[places]
