"""The hash of a text as Java computes it. Tags and keys are compared by it. Pure."""

from __future__ import annotations


def java_string_hash(text: str) -> int:
    """`String.hashCode`: 31*h + c over UTF-16 code units, wrapped to a signed 32-bit number."""
    value = 0
    if text.isascii():
        for unit in text.encode("ascii"):
            value = (31 * value + unit) & 0xFFFFFFFF
    else:
        units = text.encode("utf-16-be", "surrogatepass")
        for at in range(0, len(units), 2):
            value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value
