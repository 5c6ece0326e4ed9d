"""The checkpoint file: what a restart may rely on. Upstream: StoreCheckpoint.

Invariant: no value in the file is ahead of the disk, and no value of a damaged file is used. The log and the queue entries up
to `confirm_phy_offset` were synced before the file was written. So a power cut cannot be the reason if a record below this
offset is corrupt, and recovery need not rebuild the queue entries below it. Pure."""

from __future__ import annotations

from dataclasses import astuple, dataclass, field
from struct import Struct
from zlib import crc32

from messagestore.errors import StoreError

FILE = "checkpoint"
FILE_BYTES = 4096

CHECKPOINT = Struct(
    ">"  # offset field
    "q"  #  0 physic_msg_timestamp    storeTimestamp of the last flushed record, ms
    "q"  #  8 logics_msg_timestamp    storeTimestamp of the last record whose consume queue entry is flushed
    "q"  # 16 index_msg_timestamp     the same for index files
    "q"  # 24 master_flushed_offset   acting-master mode only
    "q"  # 32 confirm_phy_offset      every SyncStateSet member holds the log up to here
    "q"  # 40 logics_physical_offset  where the last record starts whose consume queue entry is flushed; 0: unknown
)
"""The last field came with upstream 5.5.0. A 0 in it makes 5.5 recover by time, as 5.3 does."""
CHECK = Struct(">Q")
CHECK_AT = 4080
"""The check of this implementation: 2^32 + CRC-32 of the values. It is at the end of the page, where upstream writes nothing.
Upstream maps the page and writes only the values, so the check is stale after a Java broker has run."""
TABLES_AT = 4072
TABLES = b"mqtables"
"""A mark in front of the check, set once tables (topics, groups, offsets) were on this log's disk. Upstream does not overwrite
it."""
FORMER_CHECK_AT = 40
"""Older versions of this implementation kept the check here. It covers the values before it."""
TAGS_SINCE = Struct(">qq")
TAGS_SINCE_AT = 4048
"""Where index entries of tags begin: (position, time in ms), then a check of both. Records from the position on have tag
entries. No earlier record was stored after the time. Older versions of this implementation write zeros. A Java broker leaves
stale values."""
TIMESTAMP_MARGIN_MS = 3000
TIMESTAMP_END = 1 << 56
OFFSET_END = 1 << 62
VALUES = 6
OFFSETS = "master's flushed offset", "confirm offset", "offset of the newest queue entry"
INDEX_PARTIAL = -1
"""Value of index_msg_timestamp while index files miss records below the confirm offset. Upstream deletes index files that are
younger than index_msg_timestamp."""


class CheckpointDamaged(StoreError):
    """Neither this implementation nor upstream has written these values."""

    def __init__(self, why: str) -> None:
        super().__init__(f"{FILE}: {why}; nothing in it is relied on")


@dataclass(slots=True)
class Checkpoint:
    """Files of older versions hold only the first three values. Missing values are 0."""

    physic_msg_timestamp: int = 0
    logics_msg_timestamp: int = 0
    index_msg_timestamp: int = 0
    master_flushed_offset: int = 0
    confirm_phy_offset: int = 0
    logics_physical_offset: int = 0
    ours: bool = field(
        default=False, compare=False
    )  # written by this implementation: queues and index on disk list everything below confirm_phy_offset
    java_wrote: bool = field(default=False, compare=False)
    """Whether a Java broker has written the values since this implementation did."""
    tables: bool = field(default=False, compare=False)
    """Whether tables were on this log's disk. The check does not cover this mark, so it can be read in a damaged file too."""
    tags_since: tuple[int, int] | None = field(default=None, compare=False)
    """See TAGS_SINCE_AT; None if the file does not say."""

    @property
    def min_timestamp(self) -> int:
        """Records stored up to here, and their queue entries, are on disk."""
        oldest = min(self.physic_msg_timestamp, self.logics_msg_timestamp)
        return max(0, oldest - TIMESTAMP_MARGIN_MS)

    def encode(self, *, checked: bool = True) -> bytes:
        """The page. `checked` is False for values of upstream, which guarantee less."""
        values = CHECKPOINT.pack(*astuple(self)[:VALUES])
        tables = TABLES if self.tables else bytes(len(TABLES))
        check = CHECK.pack(_check(values) if checked else 0)
        tags = b""
        if self.tags_since is not None:
            tags = TAGS_SINCE.pack(*self.tags_since)
            tags += CHECK.pack(_check(tags))
        page = values.ljust(TAGS_SINCE_AT, b"\0") + tags
        return (page.ljust(TABLES_AT, b"\0") + tables + check).ljust(FILE_BYTES, b"\0")


NOTHING_VOUCHED = Checkpoint(physic_msg_timestamp=1)
"""Used instead of a damaged checkpoint: a checkpoint was saved before, and all of the log is read and confirmed again."""


def decode_checkpoint(data: bytes | None) -> Checkpoint:
    """Decode the file. An absent or short file counts as zeros, and a negative confirm offset (upstream's "never set") as 0.

    Values that agree with the check at 4080, or with the older check at 40, are of this implementation. All other values are
    upstream's, whatever bytes 40 to 47 hold: a Java broker leaves the check unchanged, so it is stale. Raises
    CheckpointDamaged for values that differ from checked values by one bit, and for impossible values."""
    checkpoint = _decoded((data or b"").ljust(FILE_BYTES, b"\0"))
    checkpoint.tables = says_tables(data)
    return checkpoint


def says_tables(data: bytes | None) -> bool:
    """Whether this page, damaged or not, says that tables were on the disk of its log."""
    return data is not None and data[TABLES_AT:CHECK_AT] == TABLES


def _decoded(page: bytes) -> Checkpoint:
    values = page[: CHECKPOINT.size]
    (check,) = CHECK.unpack_from(page, CHECK_AT)
    (former,) = CHECK.unpack_from(page, FORMER_CHECK_AT)
    if check:
        return _checked(values, check, _tags_since(page))
    if former >> 32 == 1:  # an older version's check, or an offset between 4 and 8 GiB
        return _checked(values[:FORMER_CHECK_AT], former, former=True)
    return _upstream(values)


def _tags_since(page: bytes) -> tuple[int, int] | None:
    said = page[TAGS_SINCE_AT : TAGS_SINCE_AT + TAGS_SINCE.size]
    if CHECK.unpack_from(page, TAGS_SINCE_AT + TAGS_SINCE.size)[0] != _check(said):
        return None
    phy, store_ms = TAGS_SINCE.unpack(said)
    return phy, store_ms


def _checked(
    values: bytes, check: int, tags_since: tuple[int, int] | None = None, *, former: bool = False
) -> Checkpoint:
    if check == _check(values):
        checkpoint = _values(values)
        checkpoint.ours = True
        checkpoint.tags_since = tags_since
        return checkpoint
    if check >> 32 != 1 or _is_one_bit_off(values, check):
        raise CheckpointDamaged("checksum and values do not agree")
    if not any(values):
        raise CheckpointDamaged("the values are erased")
    checkpoint = _upstream(values + CHECK.pack(check) if former else values)
    checkpoint.java_wrote = True
    return checkpoint


def _upstream(values: bytes) -> Checkpoint:
    physic, logics, index, *offsets = CHECKPOINT.unpack(values)
    if min(physic, logics, index - INDEX_PARTIAL) < 0 or max(physic, logics, index) >= TIMESTAMP_END:
        raise CheckpointDamaged(f"the times {physic}, {logics} and {index} cannot be")
    for name, offset in zip(OFFSETS, offsets, strict=True):
        if not -1 <= offset < OFFSET_END:
            raise CheckpointDamaged(f"the {name} {offset} cannot be")
    return _values(values)


def _values(values: bytes) -> Checkpoint:
    checkpoint = Checkpoint(*CHECKPOINT.unpack(values.ljust(CHECKPOINT.size, b"\0")))
    checkpoint.confirm_phy_offset = max(0, checkpoint.confirm_phy_offset)
    return checkpoint


def _is_one_bit_off(values: bytes, check: int) -> bool:
    """Whether a single flipped bit in the values or the check explains the difference; a Java broker changes more bits. If a
    Java broker's change looks like one bit, the log is read again, which only costs time."""
    difference = check ^ _check(values)
    if difference.bit_count() == 1:
        return True
    # CRC-32 is linear: flipping a given bit changes the CRC in the same way, whatever the other bits are
    nothing = crc32(bytes(len(values)))
    return any(
        crc32((1 << bit).to_bytes(len(values), "big")) ^ nothing == difference
        for bit in range(8 * len(values))
    )


def _check(values: bytes) -> int:
    return 1 << 32 | crc32(values)
