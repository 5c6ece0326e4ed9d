"""The CRC-32 of the compiled module equals zlib's, for any length and alignment."""

from __future__ import annotations

import random
from zlib import crc32

import pytest

native = pytest.importorskip("nativepath.native")


def test_the_crc_32_of_the_standard_check_input() -> None:
    assert native.checksum(b"123456789") == 0xCBF43926
    assert native.checksum(b"") == 0


@pytest.mark.parametrize("fill", [b"\0", b"\xff", b"\x80", None])
def test_the_crc_32_of_any_length_at_any_alignment(fill: bytes | None) -> None:
    content = random.Random(1).randbytes(1_200) if fill is None else fill * 1_200
    for begin in range(17):
        for size in (*range(290), 1_023, 1_024, 1_025):
            part = memoryview(content)[begin : begin + size]
            assert native.checksum(part) == crc32(part), (begin, size)


def test_the_crc_32_of_megabytes() -> None:
    content = random.Random(2).randbytes((4 << 20) + 7)
    assert native.checksum(content) == crc32(content)
