"""Mutates bytes, as a hostile or broken peer would.

Invariant: the result follows from the random source. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random

SIZE_MAX = 1 << 14
NUMBER = re.compile(rb"-?\d+")
EDGES = (
    0,
    1,
    2,
    3,
    4,
    7,
    255,
    256,
    32_767,
    32_768,
    65_535,
    65_536,
    2**24,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**53,
    2**63 - 1,
    2**63,
)
"""The limits of lengths, offsets, terms and their widths."""
WRITTEN = (
    b"0",
    b"-1",
    b"00",
    b"1e9",
    b"1_0",
    b"+1",
    b" 1",
    b"0x1",
    b"NaN",
    b"1.5",
    b"9" * 5_000,
    "\u0661".encode(),
)
"""Spellings of numbers that only some parsers accept."""
NESTS = (b"[", b"{", b'{"a":', b"(", b'"', b"\\", b"\x00", b"\xff", b"-1-")

Mutation = Callable[[bytes, Random], bytes]


def mutated(data: bytes, random: Random, others: Sequence[bytes], tokens: Sequence[bytes]) -> bytes:
    """Apply one to four mutations one after the other. The result has at most SIZE_MAX bytes. `others` are inputs that ran new
    lines; `tokens` are words of the format."""
    for _ in range(random.choice((1, 1, 1, 2, 3, 4))):
        kind = random.randrange(len(MUTATIONS) + 2)
        if kind < len(MUTATIONS):
            data = MUTATIONS[kind](data, random)
        elif kind == len(MUTATIONS):
            data = _spliced(data, random.choice(others), random)
        elif tokens:
            data = _inserted(data, random.choice(tokens), random)
        data = data[:SIZE_MAX]
    return data


def _place(data: bytes, random: Random) -> int:
    return random.randint(0, len(data))


def _bit(data: bytes, random: Random) -> bytes:
    if not data:
        return b"\x01"
    at = random.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1 :]


def _byte(data: bytes, random: Random) -> bytes:
    at = _place(data, random)
    return data[:at] + bytes([random.randrange(256)]) + data[at + 1 :]


def _gone(data: bytes, random: Random) -> bytes:
    begin = _place(data, random)
    return data[:begin] + data[begin + random.choice((1, 1, 2, 4, 8, 64, SIZE_MAX)) :]


def _twice(data: bytes, random: Random) -> bytes:
    begin = _place(data, random)
    end = begin + random.choice((1, 2, 4, 8, 20, 64, 256))
    return data[:end] + data[begin:end] * random.choice((1, 1, 2, 20)) + data[end:]


def _edge(data: bytes, random: Random) -> bytes:
    """Set a field of one, two, four or eight bytes to a limit of its type."""
    width, at = random.choice((1, 2, 4, 4, 8)), _place(data, random)
    value = random.choice(EDGES) * random.choice((1, 1, -1)) + random.choice((0, 0, -1, 1))
    return data[:at] + (value % (1 << 8 * width)).to_bytes(width, "big") + data[at + width :]


def _number(data: bytes, random: Random) -> bytes:
    """Replace a decimal number by another."""
    found = [*NUMBER.finditer(data)]
    if not found:
        return _edge(data, random)
    match = random.choice(found)
    written = random.choice((*WRITTEN, *(str(random.choice((1, -1)) * edge).encode() for edge in EDGES)))
    return data[: match.start()] + written + data[match.end() :]


def _nested(data: bytes, random: Random) -> bytes:
    return _inserted(data, random.choice(NESTS) * random.choice((1, 2, 100, 5_000)), random)


def _noise(data: bytes, random: Random) -> bytes:
    return _inserted(data, random.randbytes(random.choice((1, 2, 3, 8, 40))), random)


def _inserted(data: bytes, piece: bytes, random: Random) -> bytes:
    at = _place(data, random)
    return data[:at] + piece + data[at:]


def _spliced(data: bytes, other: bytes, random: Random) -> bytes:
    return data[: _place(data, random)] + other[_place(other, random) :]


MUTATIONS: tuple[Mutation, ...] = (_bit, _byte, _gone, _twice, _edge, _edge, _number, _nested, _noise)
