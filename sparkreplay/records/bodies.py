"""Decompresses bodies. A body that would grow beyond the size limit of a message or a batch is rejected."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from messagestore.record import COMPRESSED, COMPRESSION_TYPE_MASK
from sparkreplay.errors import LogCorrupted

LZ4, ZSTD = 0x100, 0x200
"""Type bits of sysFlag; 0 and 0x300 are ZLIB (upstream: MessageSysFlag)."""
BODY_SIZE_MAX = 64 << 20
BATCH_SIZE_MAX = 256 << 20
"""Limit of all opened bodies of a chunk. A chunk holds 4 MiB of log, and real messages do not shrink to a sixtieth."""


def decompressed(
    bodies: pa.Array, flags: NDArray[np.int32], where: Callable[[int], tuple[str, int]]
) -> pa.Array:
    """The bodies. Compressed bodies are opened according to their flags.

    `where(row)` gives the path and offset for the LogCorrupted that an unreadable body raises."""
    rows = np.flatnonzero(flags & COMPRESSED)
    if not len(rows):
        return bodies
    opened: list[bytes] = []
    room = BATCH_SIZE_MAX
    for row in rows.tolist():
        try:
            opened.append(
                open_body(
                    bodies[row].as_py(), int(flags[row]) & COMPRESSION_TYPE_MASK, min(BODY_SIZE_MAX, room)
                )
            )
        except (ValueError, RuntimeError, zlib.error) as error:
            path, offset = where(row)
            raise LogCorrupted(
                path,
                offset,
                f"the compressed body cannot be opened: {error}; decompress=false reads it as stored",
            ) from error
        room -= len(opened[-1])
    return pc.replace_with_mask(bodies, pa.array(flags & COMPRESSED != 0), pa.array(opened, pa.binary()))


def open_body(body: bytes, kind: int, size_max: int) -> bytes:
    """Open a compressed body. Raises ValueError, RuntimeError or zlib.error if the body is damaged, larger than `size_max`, or
    has more than one frame. An empty body stays empty whatever its flags are, as for Java's consumers."""
    if not body:
        return body
    if kind == LZ4:
        import lz4.frame

        stream = lz4.frame.LZ4FrameDecompressor()
        opened = stream.decompress(body, max_length=size_max)
        ended = stream.eof
        if stream.unused_data:
            raise ValueError(f"{len(stream.unused_data)} bytes follow its frame")
    elif kind == ZSTD:
        opened = open_zstd(body, size_max)
        ended = True
    else:
        inflate = zlib.decompressobj()
        opened = inflate.decompress(body, max(size_max, 1))  # 0 would mean any size
        ended = inflate.eof
    if not ended or len(opened) > size_max:
        raise ValueError(f"it is cut, or larger than {size_max} bytes when opened")
    return bytes(opened)


def open_zstd(body: bytes, size_max: int) -> bytes:
    """Open a ZSTD body. The library trusts the size in the frame, so the size is checked first."""
    import zstandard

    try:
        named = zstandard.get_frame_parameters(body).content_size
        if named != zstandard.CONTENTSIZE_UNKNOWN and named > size_max:
            raise ValueError(f"it names {named} bytes, more than {size_max}")
        window = zstandard.ZstdDecompressor(max_window_size=BODY_SIZE_MAX)
        return window.decompress(body, max_output_size=max(size_max, 1), allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from error
