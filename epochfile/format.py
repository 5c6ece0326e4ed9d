"""The text of an epoch file, as RocketMQ writes it.

    number of entries
    CRC-32 of all following bytes, line ends included, and 0x7FFFFFFF
    epoch-startOffset          one line an entry, oldest first

Invariant: `decode(encode(history)) == history` for every non-empty history, and `decode` raises EpochFileDamaged for any other
bytes instead of returning a shorter history. Pure."""

from __future__ import annotations

import re
import zlib

from epochfile.history import EpochHistory, EpochOutOfOrder

ENTRIES_MAX = 100_000
_CRC_MASK = 0x7FFFFFFF
_CRC_NOT_CHECKED = 0  # a CRC of 0 is not compared, because other writers may put 0 there
_NUMBER = re.compile(rb"\d{1,19}")
_ENTRY = re.compile(rb"(\d{1,10})-(\d{1,19})")


class EpochFileDamaged(ValueError):
    """Bytes that are not a whole epoch file."""


def encode(history: EpochHistory) -> bytes:
    """The file's bytes. An empty history has no file, see epochfile/file.py."""
    assert len(history) > 0, "an empty epoch history is stored by removing the file"
    lines = "".join(f"{epoch}-{start_offset}\n" for epoch, start_offset in history).encode()
    return b"%d\n%d\n%b" % (len(history), zlib.crc32(lines) & _CRC_MASK, lines)


def decode(data: bytes) -> EpochHistory:
    """Decode the bytes of an epoch file. Raises EpochFileDamaged with the reason."""
    parts = data.split(b"\n", 2)
    if len(parts) != 3 or not (_NUMBER.fullmatch(parts[0]) and _NUMBER.fullmatch(parts[1])):
        raise EpochFileDamaged(f"{len(data)} bytes without the lines for count and CRC")
    count, crc, lines = int(parts[0]), int(parts[1]), parts[2]
    if not 0 < count <= ENTRIES_MAX:
        raise EpochFileDamaged(f"{count} entries promised, 1 to {ENTRIES_MAX} possible")
    if crc != _CRC_NOT_CHECKED and crc != zlib.crc32(lines) & _CRC_MASK:
        raise EpochFileDamaged(f"CRC {crc} is written, the entries have {zlib.crc32(lines) & _CRC_MASK}")
    rows = lines.split(b"\n")
    if rows.pop() != b"" or len(rows) != count:
        raise EpochFileDamaged(f"{count} entries promised, {len(rows)} whole lines follow")
    try:
        return EpochHistory(_entry(row) for row in rows)
    except EpochOutOfOrder as error:
        raise EpochFileDamaged(str(error)) from error


def _entry(row: bytes) -> tuple[int, int]:
    match = _ENTRY.fullmatch(row)
    if match is None:
        raise EpochFileDamaged(f"{row[:40]!r} is not epoch-startOffset")
    return int(match[1]), int(match[2])
