"""The format of a snapshot's file, and counts of a member's snapshots since its start.

Invariant: the file also contains the beginning of the log on this disk, and whether files of the log that the snapshot replaced
may still exist. So a snapshot and the log's new beginning become durable together. A snapshot is counted once it is durable.
Pure."""

from __future__ import annotations

import struct
from collections import Counter
from enum import StrEnum
from zlib import crc32

from dledger.raft.entries import NO_INDEX
from dledger.raft.errors import SnapshotDamaged, SnapshotUnknown
from dledger.raft.membership import ConfigurationAt, decode_configurations, encode_configurations
from dledger.raft.snapshot import Begin, Snapshot
from mqruntime.histogram import Histogram
from mqruntime.slices import append_by_turns

HEADER = struct.Struct(
    ">"  # offset field
    "4s"  #  0 magic          "DLSN"
    "H"  #  4 version         1; 2: `configurations` follows the state; 3: the log's files are void
    "q"  #  6 last_index      the last entry in the state, ...
    "q"  # 14 last_term       ... and its term
    "q"  # 22 begin_index     the entry after which the log on this disk begins, ...
    "q"  # 30 begin_term      ... its term, ...
    "q"  # 38 begin_position  ... the position of the data after this entry, ...
    "I"  # 46 begin_check     ... and the check value that the next entry continues
    "q"  # 50 state_bytes     then the state, then `configurations` as text, then the CRC-32 of everything before it
)
MAGIC = b"DLSN"
VERSION, VERSION_WITH_MEMBERS, VERSION_VOID = 1, 2, 3
CHECK = struct.Struct(">I")


async def encode_snapshot(snapshot: Snapshot) -> bytearray:
    """The bytes of the snapshot's file; other tasks run meanwhile (`mqruntime.slices`)."""
    begin = snapshot.begin
    configurations = encode_configurations(snapshot.configurations).encode()
    header = HEADER.pack(
        MAGIC,
        VERSION_VOID if snapshot.replaces_files else VERSION_WITH_MEMBERS if configurations else VERSION,
        snapshot.last_index,
        snapshot.last_term,
        begin.index,
        begin.term,
        begin.position,
        begin.check,
        len(snapshot.state),
    )
    data = bytearray(header)
    check = crc32(configurations, await append_by_turns(data, snapshot.state, crc32(header)))
    data += configurations
    data += CHECK.pack(check)
    return data


async def decode_snapshot(name: str, data: bytes | bytearray) -> Snapshot:
    """The snapshot in the file `name`; other tasks run meanwhile.

    Raises: SnapshotDamaged, SnapshotUnknown, MembersUnknown."""
    if len(data) < HEADER.size + CHECK.size or data[:4] != MAGIC:
        raise SnapshotDamaged(name, f"{len(data)} bytes that are no snapshot")
    _, version, last_index, last_term, index, term, position, check, size = HEADER.unpack_from(data)
    view, state = memoryview(data), bytearray()
    content_end, state_end = len(data) - CHECK.size, HEADER.size + max(0, size)
    found = await append_by_turns(
        state, view[HEADER.size : min(state_end, content_end)], crc32(view[: HEADER.size])
    )
    configurations = bytes(view[state_end:content_end])
    if CHECK.unpack_from(data, content_end)[0] != crc32(configurations, found):
        raise SnapshotDamaged(name, "its checksum is not that of its bytes")
    if not VERSION <= version <= VERSION_VOID:
        raise SnapshotUnknown(f"{name} is of form {version}", f"forms {VERSION} to {VERSION_VOID}")
    whole = size >= 0 and state_end <= content_end
    void = version == VERSION_VOID
    fits = void or bool(configurations) == (version == VERSION_WITH_MEMBERS)
    if not whole or not fits or not NO_INDEX <= index <= last_index:
        raise SnapshotDamaged(name, "its header contradicts itself")
    begin = Begin(index, term, position, check)
    return Snapshot(
        last_index, last_term, state, begin, decode_configurations(name, configurations.decode()), void
    )


# With `same_positions` a snapshot has the position of the log's beginning, and the owner's note about the deleted entries

PLACE = struct.Struct(">4sq")
PLACE_MAGIC = b"DLAT"


def snapshot_at(begin: Begin, configurations: tuple[ConfigurationAt, ...], note: bytes = b"") -> Snapshot:
    """The snapshot of a log that begins at `begin`. `note` is the log owner's note about the deleted entries."""
    state = PLACE.pack(PLACE_MAGIC, begin.position) + note
    return Snapshot(begin.index, begin.term, state, begin, configurations)


def position_in(snapshot: Snapshot) -> int:
    """The position where the log begins. Raises SnapshotUnknown."""
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
    """The origin of a snapshot."""

    MADE = "made"
    INSTALLED = "installed"
    """Another member made the snapshot and sent it."""


class SnapshotCounts:
    """The counts of one member's snapshots."""

    def __init__(self) -> None:
        self.written: Counter[Origin] = Counter(dict.fromkeys(Origin, 0))
        self.latency_ms = Histogram(LATENCY_BOUNDS_MS)
        """The time from the order to write a snapshot until it is durable."""
        self.last_index = NO_INDEX
        """The last entry of the newest snapshot, which an earlier process may have written, ..."""
        self.last_bytes = 0
        """... and the size of the snapshot's file; 0 without a snapshot."""

    def has(self, index: int, size: int) -> None:
        """Records the newest snapshot."""
        self.last_index, self.last_bytes = index, size

    def wrote(self, origin: Origin, index: int, size: int, seconds: float) -> None:
        self.written[origin] += 1
        self.latency_ms.observe(seconds * 1000)
        self.has(index, size)
