"""The two frames of the classic link, big-endian, declared once.

Invariant: every size and field position of the classic wire format is in this file and nowhere else. Pure."""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from ha.frames import HAFrameError, Readable

REPORT = Struct(
    ">"  # offset field
    "q"  #  0 max_offset  end of the slave's log; the first report requests the start offset, 0 for an empty log
)
TRANSFER = Struct(
    ">"  # offset field
    "q"  #  0 offset     offset of the first byte that follows
    "i"  #  8 body_size  bytes of log that follow; 0 in a heartbeat
)
assert (REPORT.size, TRANSFER.size) == (8, 12)

BODY_SIZE_MAX = 4 * 1024 * 1024 - TRANSFER.size
"""A Java slave has a buffer of 4 MiB for one frame."""


class PairTransferHeader(NamedTuple):
    """Master to slave, followed by `body_size` bytes of log."""

    offset: int
    body_size: int

    def encode(self) -> bytes:
        return TRANSFER.pack(*self)

    @staticmethod
    def decode(data: Readable) -> PairTransferHeader:
        """Decode a header. Raises HAFrameError for an offset or a body size that no frame can have."""
        header = PairTransferHeader(*TRANSFER.unpack(data))
        if header.offset < 0 or not 0 <= header.body_size <= BODY_SIZE_MAX:
            raise HAFrameError(f"a transfer frame of {header.body_size} bytes at {header.offset}")
        return header


def encode_report(max_offset: int) -> bytes:
    return REPORT.pack(max_offset)


def decode_report(data: Readable) -> int:
    """The slave's log end. Raises HAFrameError for an offset that no log can have."""
    (max_offset,) = REPORT.unpack(data)
    if max_offset < 0:
        raise HAFrameError(f"a report of {max_offset}")
    return int(max_offset)
