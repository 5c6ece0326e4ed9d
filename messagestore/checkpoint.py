"""The checkpoint file: what a restart may rely on.

Invariant: no value in the file is ahead of the disk, and none of a damaged file is relied on. Log and queue entries up to
`confirm_phy_offset` are synced, so a power cut cannot make a confirmed record look damaged when it was only never
written, and what recovery builds anew is what follows the confirm offset and the rest of its segment. Pure."""

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
)
CHECK = Struct(">Q")
"""Follows the values, where upstream has zeros: 2^32 + their CRC-32; 0 in a file of upstream, which cannot be checked."""
TIMESTAMP_MARGIN_MS = 3000
INDEX_PARTIAL = -1
"""As index_msg_timestamp: index files lack records below the confirm offset. Upstream deletes files that are younger."""


class CheckpointDamaged(StoreError):
    """The values are not those that were written, or another program has written them since."""

    def __init__(self) -> None:
        super().__init__(f"{FILE}: checksum and values do not agree; nothing in it is relied on")


@dataclass(slots=True)
class Checkpoint:
    """Files of older versions hold only the first three values; missing ones are 0."""

    physic_msg_timestamp: int = 0
    logics_msg_timestamp: int = 0
    index_msg_timestamp: int = 0
    master_flushed_offset: int = 0
    confirm_phy_offset: int = 0
    ours: bool = field(
        default=False, compare=False
    )  # so queues and index list all below confirm_phy_offset, on disk

    @property
    def min_timestamp(self) -> int:
        """Records stored up to here, and their queue entries, are on disk."""
        oldest = min(self.physic_msg_timestamp, self.logics_msg_timestamp)
        return max(0, oldest - TIMESTAMP_MARGIN_MS)

    def encode(self) -> bytes:
        values = CHECKPOINT.pack(*astuple(self)[:-1])
        return (values + CHECK.pack(_check(values))).ljust(FILE_BYTES, b"\0")


NOTHING_VOUCHED = Checkpoint(physic_msg_timestamp=1)
"""Instead of a damaged one: the log was saved before, and all of it is to be read and confirmed again."""


def decode_checkpoint(data: bytes | None) -> Checkpoint:
    """An absent or short file counts as zeros, a negative confirm offset (upstream's "never set") as 0. Raises
    CheckpointDamaged."""
    page = (data or b"").ljust(CHECKPOINT.size + CHECK.size, b"\0")
    values = page[: CHECKPOINT.size]
    (check,) = CHECK.unpack_from(page, CHECKPOINT.size)
    if check not in (0, _check(values)):
        raise CheckpointDamaged
    checkpoint = Checkpoint(*CHECKPOINT.unpack(values))
    checkpoint.ours = check != 0
    checkpoint.confirm_phy_offset = max(0, checkpoint.confirm_phy_offset)
    return checkpoint


def _check(values: bytes) -> int:
    return 1 << 32 | crc32(values)
