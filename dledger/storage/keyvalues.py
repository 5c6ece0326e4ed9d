"""DLedger's small text files: one `key=value` a line, in any order, without comments.

Invariant: a file is read whole or refused with its name; a wrong term or commit index would be worse than none. Pure."""

from __future__ import annotations


class BadKeyValues(ValueError):
    """A term or checkpoint file that is not whole; restore it from a copy or another disk, do not delete it."""

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
    """The decimal value of `key`. Raises BadKeyValues: absent, not a 64-bit number, or below `least`."""
    value = values.get(key, "")
    digits = value.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 19 or not least <= int(value) < 1 << 63:
        raise BadKeyValues(name, f"{key}={value[:30]!r} is not a whole number from {least}")
    return int(value)
