"""A snapshot's file.

Invariant: where the log on this disk begins is in the same file, so that a snapshot that replaced the log, or let its beginning
go, is there together with that or not at all; and whether files of the log that it replaced may still be there.

What became of a member's snapshots since it started, and which it has.

Invariant: a snapshot is counted once it is durable; one that could not be written is not. Pure."""

from __future__ import annotations

import struct
from collections import Counter
from enum import StrEnum
from zlib import crc32

from dledger.raft.entries import NO_INDEX
from dledger.raft.errors import SnapshotDamaged, SnapshotUnknown
from dledger.raft.membership import Stated, decode_stated, encode_stated
from dledger.raft.snapshot import Begin, Snapshot
from mqruntime.histogram import Histogram
from mqruntime.slices import append_by_turns

HEADER = struct.Struct(
    ">"  # offset field
    "4s"  #  0 magic          "DLSN"
    "H"  #  4 version         1; 2 where `stated` stands behind the state; 3: the files beside it are void
    "q"  #  6 last_index      the last entry that the state has in it, ...
    "q"  # 14 last_term       ... and its term
    "q"  # 22 begin_index     the entry that the log on this disk begins after, ...
    "q"  # 30 begin_term      ... its term, ...
    "q"  # 38 begin_position  ... where the data of what follows it begins, ...
    "I"  # 46 begin_check     ... and the check value from which that of the next entry starts
    "q"  # 50 state_bytes     then the state, then `stated` as text, then the CRC-32 of everything before it
)
MAGIC = b"DLSN"
VERSION, VERSION_STATED, VERSION_VOID = 1, 2, 3
CHECK = struct.Struct(">I")


async def encode_snapshot(snapshot: Snapshot) -> bytearray:
    """Its file; others have their turns meanwhile (`mqruntime.slices`)."""
    begin = snapshot.begin
    stated = encode_stated(snapshot.stated).encode()
    header = HEADER.pack(
        MAGIC,
        VERSION_VOID if snapshot.replaces_files else VERSION_STATED if stated else VERSION,
        snapshot.last_index,
        snapshot.last_term,
        begin.index,
        begin.term,
        begin.position,
        begin.check,
        len(snapshot.state),
    )
    data = bytearray(header)
    check = crc32(stated, await append_by_turns(data, snapshot.state, crc32(header)))
    data += stated
    data += CHECK.pack(check)
    return data


async def decode_snapshot(name: str, data: bytes | bytearray) -> Snapshot:
    """What stands in the file `name`; others have their turns meanwhile. Raises SnapshotDamaged, SnapshotUnknown,
    MembersUnknown."""
    if len(data) < HEADER.size + CHECK.size or data[:4] != MAGIC:
        raise SnapshotDamaged(name, f"{len(data)} bytes that are no snapshot")
    _, version, last_index, last_term, index, term, position, check, size = HEADER.unpack_from(data)
    view, state = memoryview(data), bytearray()
    content_end, state_end = len(data) - CHECK.size, HEADER.size + max(0, size)
    found = await append_by_turns(
        state, view[HEADER.size : min(state_end, content_end)], crc32(view[: HEADER.size])
    )
    stated = bytes(view[state_end:content_end])
    if CHECK.unpack_from(data, content_end)[0] != crc32(stated, found):
        raise SnapshotDamaged(name, "its checksum is not that of its bytes")
    if not VERSION <= version <= VERSION_VOID:
        raise SnapshotUnknown(f"{name} is of form {version}", f"forms {VERSION} to {VERSION_VOID}")
    whole = size >= 0 and state_end <= content_end
    void = version == VERSION_VOID
    fits = void or bool(stated) == (version == VERSION_STATED)
    if not whole or not fits or not NO_INDEX <= index <= last_index:
        raise SnapshotDamaged(name, "its header contradicts itself")
    begin = Begin(index, term, position, check)
    return Snapshot(last_index, last_term, state, begin, decode_stated(name, stated.decode()), void)


# Of a log that has each entry at the same position everywhere a snapshot says where it begins, and what its owner notes of what
# is gone

PLACE = struct.Struct(">4sq")
PLACE_MAGIC = b"DLAT"


def snapshot_at(begin: Begin, stated: tuple[Stated, ...], note: bytes = b"") -> Snapshot:
    """`note` is what its owner must know of what is gone."""
    state = PLACE.pack(PLACE_MAGIC, begin.position) + note
    return Snapshot(begin.index, begin.term, state, begin, stated)


def position_in(snapshot: Snapshot) -> int:
    """Raises SnapshotUnknown."""
    if len(snapshot.state) < PLACE.size or not snapshot.state.startswith(PLACE_MAGIC):
        raise SnapshotUnknown(
            f"the snapshot that ends with entry {snapshot.last_index} has a state of {len(snapshot.state)} bytes",
            "those that say where the log begins; give all members the same kind of log",
        )
    position: int = PLACE.unpack_from(snapshot.state)[1]
    return position


def note_in(snapshot: Snapshot) -> bytes:
    return bytes(snapshot.state[PLACE.size :])


LATENCY_BOUNDS_MS = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1e3, 3e3, 1e4)


class Origin(StrEnum):
    """Where a snapshot comes from."""

    MADE = "made"
    INSTALLED = "installed"
    """Another member made it, and sent it."""


class SnapshotCounts:
    """Of one member."""

    def __init__(self) -> None:
        self.written: Counter[Origin] = Counter(dict.fromkeys(Origin, 0))
        self.latency_ms = Histogram(LATENCY_BOUNDS_MS)
        """Until one was durable, from when it was to be written."""
        self.last_index = NO_INDEX
        """Of the newest one, which may be of an earlier process, the last entry, ..."""
        self.last_bytes = 0
        """... and its size in the file; 0 without any."""

    def has(self, index: int, size: int) -> None:
        """This one is the newest."""
        self.last_index, self.last_bytes = index, size

    def wrote(self, origin: Origin, index: int, size: int, seconds: float) -> None:
        self.written[origin] += 1
        self.latency_ms.observe(seconds * 1000)
        self.has(index, size)
