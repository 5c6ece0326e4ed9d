"""Compressed bodies, opened; what would grow beyond a message's limit is refused, not unpacked."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sparkreplay.errors import LogCorrupted

COMPRESSED = 0x1
TYPE_MASK, LZ4, ZSTD = 0x700, 0x100, 0x200
"""Type bits of sysFlag; 0 and 0x300 are ZLIB (upstream: MessageSysFlag)."""
BODY_SIZE_MAX = 64 << 20


def decompressed(
    bodies: pa.Array, flags: NDArray[np.int32], where: Callable[[int], tuple[str, int]]
) -> pa.Array:
    """The bodies with those opened whose flags say that they are compressed.

    `where(row)` gives the path and offset for the LogCorrupted that an unreadable body raises."""
    rows = np.flatnonzero(flags & COMPRESSED)
    if not len(rows):
        return bodies
    opened = []
    for row in rows.tolist():
        try:
            opened.append(open_body(bodies[row].as_py(), int(flags[row]) & TYPE_MASK))
        except (ValueError, RuntimeError, zlib.error) as error:
            path, offset = where(row)
            raise LogCorrupted(path, offset, f"the compressed body cannot be opened: {error}") from error
    return pc.replace_with_mask(bodies, pa.array(flags & COMPRESSED != 0), pa.array(opened, pa.binary()))


def open_body(body: bytes, kind: int) -> bytes:
    if kind == LZ4:
        import lz4.frame

        stream = lz4.frame.LZ4FrameDecompressor()
        opened = stream.decompress(body, max_length=BODY_SIZE_MAX)
        ended = stream.eof
    elif kind == ZSTD:
        import zstandard

        try:
            opened = zstandard.ZstdDecompressor(max_window_size=BODY_SIZE_MAX).decompress(
                body, max_output_size=BODY_SIZE_MAX
            )
        except zstandard.ZstdError as error:
            raise ValueError(str(error)) from error
        ended = True
    else:
        inflate = zlib.decompressobj()
        opened = inflate.decompress(body, BODY_SIZE_MAX)
        ended = inflate.eof
    if not ended:
        raise ValueError(f"it is cut, or larger than {BODY_SIZE_MAX} bytes when opened")
    return bytes(opened)
