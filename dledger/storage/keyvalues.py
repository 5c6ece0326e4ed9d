"""DLedger's small text files. Each line is one `key=value`; the order is free, and there are no comments.

Invariant: a file is read as a whole, or refused with its name, because a wrong term or commit index is worse than no value.
Pure."""

from __future__ import annotations


class BadKeyValues(ValueError):
    """A term or checkpoint file is malformed. Restore it from a copy or another disk; do not delete it."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(
            f"{name}: {why}; restore it: without it this member could vote twice or lose entries"
        )
        self.name = name
        self.why = why


def parse_key_values(name: str, data: bytes) -> dict[str, str]:
    """The pairs of file `name`. Raises BadKeyValues."""
    values: dict[str, str] = {}
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError:
        raise BadKeyValues(name, "it is not text") from None
    for number, line in enumerate(lines, 1):
        key, separator, value = line.partition("=")
        if not separator or key in values:
            raise BadKeyValues(name, f"line {number} is not a new key=value pair: {line[:60]!r}")
        values[key] = value
    return values


def whole_number(name: str, values: dict[str, str], key: str, *, least: int) -> int:
    """The decimal value of `key`. Raises BadKeyValues if the value is absent, no 64-bit number, or below `least`."""
    value = values.get(key, "")
    digits = value.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 19 or not least <= int(value) < 1 << 63:
        raise BadKeyValues(name, f"{key}={value[:30]!r} is not a whole number from {least}")
    return int(value)
