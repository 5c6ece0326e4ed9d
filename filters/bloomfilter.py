"""Bit positions of a group's filter in upstream's bloom filters. Upstream's brokers reject a filter record without bit
positions.

Invariant: the positions equal those of upstream with its default settings, an error rate of 20 in 100 and 32 consumers.
Pure."""

from __future__ import annotations

from struct import Struct

BITS = 112
HASHES = 3
SEED = 0
C1, C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F
M64, M32 = (1 << 64) - 1, (1 << 32) - 1
BLOCK = Struct("<QQ")


def bit_positions(group: str, topic: str) -> list[int]:
    """The bit positions of one group's filter for one topic."""
    hashed = murmur3(f"{group}#{topic}".encode())
    first, second = _signed(hashed), _signed(hashed >> 32)
    combined = (_signed(first + number * second) for number in range(1, HASHES + 1))
    return [(~each if each < 0 else each) % BITS for each in combined]


def murmur3(data: bytes) -> int:
    """The first 64 of the 128 bits of MurmurHash3 x64."""
    h1 = h2 = SEED
    whole = len(data) - len(data) % BLOCK.size
    for k1, k2 in BLOCK.iter_unpack(data[:whole]):
        h1 = (_rotated(h1 ^ _mixed(k1, C1, 31, C2), 27) + h2) * 5 + 0x52DCE729 & M64
        h2 = (_rotated(h2 ^ _mixed(k2, C2, 33, C1), 31) + h1) * 5 + 0x38495AB5 & M64
    k1, k2 = BLOCK.unpack(data[whole:].ljust(BLOCK.size, b"\0"))
    h1 ^= _mixed(k1, C1, 31, C2) ^ len(data)
    h2 ^= _mixed(k2, C2, 33, C1) ^ len(data)
    h1 = h1 + h2 & M64
    h2 = h2 + h1 & M64
    return _finished(h1) + _finished(h2) & M64


def _mixed(k: int, first: int, by: int, second: int) -> int:
    return _rotated(k * first & M64, by) * second & M64


def _rotated(value: int, by: int) -> int:
    value &= M64
    return (value << by | value >> (64 - by)) & M64


def _finished(k: int) -> int:
    k = (k ^ k >> 33) * 0xFF51AFD7ED558CCD & M64
    k = (k ^ k >> 33) * 0xC4CEB9FE1A85EC53 & M64
    return k ^ k >> 33


def _signed(value: int) -> int:
    """The low 32 bits of `value` as a signed Java int."""
    value &= M32
    return value - (1 << 32) if value >> 31 else value
