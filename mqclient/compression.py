"""Decompresses bodies: ZLIB with Python's own library, LZ4 and ZSTD if libraries for them are installed.

Invariant: a body that would grow beyond `OPENED_BYTES_MAX` is rejected before it is decompressed that far. Each library is
imported only when a body needs it. Pure."""

from __future__ import annotations

import zlib

OPENED_BYTES_MAX = 64 << 20
LZ4, ZSTD = 0x100, 0x200
PACKAGES = {LZ4: "lz4", ZSTD: "zstandard"}
"""Compression type in a message's sysFlag -> the package for it. All other types are ZLIB, because older clients wrote no
type."""


class CompressionUnsupported(ValueError):
    """The library for the body's compression is not installed. `cure` is one line that says what to install."""

    def __init__(self, message_id: str, compression_type: int) -> None:
        name, package = ("LZ4" if compression_type == LZ4 else "ZSTD"), PACKAGES[compression_type]
        self.cure = (
            f"a body is compressed with {name} and shown as it is stored; pip install {package} opens it"
        )
        super().__init__(
            f"message {message_id}: its body is compressed with {name} (0x{compression_type:x}); "
            f"pip install {package} opens it, and `body` is as it is stored"
        )


def opened(body: bytes, compression_type: int, message_id: str) -> bytes:
    """Return the original body. Raises `CompressionUnsupported`, and ValueError for a damaged body."""
    try:
        if compression_type == LZ4:
            return _open_lz4(body)
        if compression_type == ZSTD:
            return _open_zstd(body)
    except ImportError:
        raise CompressionUnsupported(message_id, compression_type) from None
    inflate = zlib.decompressobj()
    try:
        return _whole(inflate.decompress(body, OPENED_BYTES_MAX), ended=inflate.eof)
    except zlib.error as error:
        raise ValueError(f"its body cannot be opened: {error}") from error


def _open_lz4(body: bytes) -> bytes:
    import lz4.frame

    stream = lz4.frame.LZ4FrameDecompressor()
    try:
        return _whole(stream.decompress(body, max_length=OPENED_BYTES_MAX), ended=stream.eof)
    except RuntimeError as error:
        raise ValueError(f"its body cannot be opened: {error}") from error


def _open_zstd(body: bytes) -> bytes:
    """Open a ZSTD body in one call. The library's streams have no limit, and 32 KB may unpack to a gigabyte."""
    import zstandard

    library = zstandard.ZstdDecompressor(max_window_size=OPENED_BYTES_MAX)
    try:
        named = zstandard.get_frame_parameters(body).content_size
        if named != zstandard.CONTENTSIZE_UNKNOWN and named > OPENED_BYTES_MAX:
            raise ValueError(f"its body names {named} bytes, more than {OPENED_BYTES_MAX}")
        return library.decompress(body, max_output_size=OPENED_BYTES_MAX, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise ValueError(f"its body cannot be opened: {error}") from error


def _whole(body: bytes, *, ended: bool) -> bytes:
    if not ended:
        raise ValueError(f"its compressed body is cut, or larger than {OPENED_BYTES_MAX} bytes when opened")
    return body
