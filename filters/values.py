"""Property values parsed as numbers for comparisons, as by Java's `Integer.valueOf`, `Long.valueOf` and
`Double.valueOf`.

Invariant: a string that the Java method rejects raises NotComparable; nothing else is raised. Pure."""

from __future__ import annotations

import re
from functools import lru_cache
from math import copysign

from filters.errors import NotComparable

SURE_DIGITS = 9  # any number with so many digits is an Integer
DIGITS_MAX = 4_000  # more digits cannot be a number of 64 bits, unless most are zeros of another script
LONG = 64
"""The numbers of the last longer texts are kept, because each condition of an expression parses them again."""
DOUBLE = re.compile(
    r"[+-]?(?:NaN|Infinity"
    r"|(?P<decimal>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?"
    r"|0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+[fFdD]?)"
)
TRIMMED = "".join(map(chr, range(0x21)))
PLAIN = re.compile(r"[0-9]+(?:\.[0-9]+)?")


def int_of(text: str) -> int:
    if len(text) <= SURE_DIGITS and text.isascii() and text.isdigit():
        return int(text)
    return _whole(text, 31) if len(text) <= LONG else _long_whole(text, 31)


def long_of(text: str) -> int:
    if len(text) <= SURE_DIGITS and text.isascii() and text.isdigit():
        return int(text)
    return _whole(text, 63) if len(text) <= LONG else _long_whole(text, 63)


def _whole(text: str, bits: int) -> int:
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits.isdecimal() or not (digits.isascii() or max(digits) <= "\uffff"):
        raise NotComparable(text)
    digits = digits.lstrip("0") or "0"
    if len(digits) > DIGITS_MAX:
        raise NotComparable(text)
    value = -int(digits) if text[0] == "-" else int(digits)
    if not -(1 << bits) <= value < 1 << bits:
        raise NotComparable(text)
    return value


_long_whole = lru_cache(maxsize=8)(_whole)


def double_of(text: str) -> float:
    return _double_of(text) if len(text) <= LONG else _long_double(text)


def _double_of(text: str) -> float:
    if PLAIN.fullmatch(text):
        return float(text)
    text = text.strip(TRIMMED)
    found = DOUBLE.fullmatch(text)
    if found is None:
        raise NotComparable(text)
    if "x" not in text and "X" not in text:
        return float(text if found["decimal"] is None else text.rstrip("fFdD"))
    try:
        return float.fromhex(text.rstrip("fFdD") if text[-1] in "fFdD" else text)
    except OverflowError:
        return copysign(float("inf"), -1 if text[0] == "-" else 1)


_long_double = lru_cache(maxsize=8)(_double_of)


def order(left: float, right: float) -> int:
    """Compare as Java does. For doubles as in `Double.compareTo`: NaN is above all other numbers, and -0.0 is below 0.0."""
    if left < right:
        return -1
    if left > right:
        return 1
    if left != right:
        return (left != left) - (right != right)
    return 0 if left else int(copysign(1, left) - copysign(1, right)) // 2
