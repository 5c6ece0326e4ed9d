"""Base of every typed header, which is written to ext strings and read from them.

Invariant: `from_ext` returns a header whose fields have their declared types and ranges, or raises HeaderError naming the wire
field; undeclared fields are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, Self

from remoting.errors import HeaderError
from remoting.wirefields import I32_RANGE, I64_RANGE, WireField, integer_range, parse_integer, wire_fields

_TRUE, _FALSE = ("true", "TRUE", "True", "1"), ("false", "FALSE", "False", "0")
_REQUIRED = object()


class Header:
    """Base of the typed headers; a subclass is a slotted dataclass whose fields are its wire fields."""

    __slots__ = ()

    def to_ext(self) -> dict[str, str]:
        """The header as ext strings; fields that are None are left out."""
        return write_ext(self)

    @classmethod
    def from_ext(cls, ext: Mapping[str, str]) -> Self:
        """The header that `ext` holds. Raises HeaderError."""
        return cls(*read_ext(cls, ext))


def write_ext(header: Header, *, short: bool = False) -> dict[str, str]:
    """The header's fields that are not None, under their wire names or their short names."""
    names, values = _writer(type(header), short)
    return {
        name: value if type(value) is str else _text(value)
        for name, value in zip(names, values(header), strict=True)
        if value is not None
    }


def read_ext(cls: type[Header], ext: Mapping[str, str], *, short: bool = False) -> list[Any]:
    """The arguments for the constructor of `cls`, read from `ext` under the wire names or the short names."""
    values: list[Any] = []
    for name, read, default, what in _readers(cls, short):
        text = ext.get(name)
        if text is None:
            if default is _REQUIRED:
                raise HeaderError(name, None, f"{what} is required")
            values.append(default)
            continue
        value = text if read is None else read(text)
        if value is None:
            raise HeaderError(name, text, f"not {what}")
        values.append(value)
    return values


Read = Callable[[str], int | bool | None]  # None: the text is not such a value
Reader = tuple[str, Read | None, Any, str]
"""Wire name, parser (None: take the text unchanged), default, description of the expected value."""
_READERS: dict[tuple[type, bool], tuple[Reader, ...]] = {}


Writer = tuple[tuple[str, ...], Callable[[Header], tuple[Any, ...]]]
"""Wire names, and a getter of all their values."""
_WRITERS: dict[tuple[type, bool], Writer] = {}


def _writer(cls: type, short: bool) -> Writer:
    writer = _WRITERS.get((cls, short))
    if writer is None:
        rows = wire_fields(cls)
        names = tuple(_name(row, short) for row in rows)
        writer = _WRITERS[cls, short] = names, _all_of([row.attribute for row in rows])
    return writer


def _all_of(attributes: list[str]) -> Callable[[Header], tuple[Any, ...]]:
    if len(attributes) > 1:
        return attrgetter(*attributes)
    return lambda header: tuple(getattr(header, name) for name in attributes)


def _name(row: WireField, short: bool) -> str:
    return row.short_name if short and row.short_name is not None else row.wire_name


def _readers(cls: type, short: bool) -> tuple[Reader, ...]:
    readers = _READERS.get((cls, short))
    if readers is None:
        rows: list[Reader] = []
        for row in wire_fields(cls):
            read, what = _reader(row.kind)
            rows.append((_name(row, short), read, _REQUIRED if row.required else row.default(), what))
        readers = _READERS[cls, short] = tuple(rows)
    return readers


def _reader(kind: Any) -> tuple[Read | None, str]:
    allowed = integer_range(kind)
    if allowed is I32_RANGE:
        return _read_i32, "a 32-bit integer"
    if allowed is I64_RANGE:
        return _read_i64, "a 64-bit integer"
    if kind is bool:
        return read_bool, "true or false"
    assert kind is str, f"a header field is a str, bool, I32 or I64, not {kind}"
    return None, "text"


def _read_i32(text: str) -> int | None:
    if len(text) < 10 and text.isdigit() and text.isascii():
        return int(text)
    return parse_integer(text, I32_RANGE)


def _read_i64(text: str) -> int | None:
    if len(text) < 19 and text.isdigit() and text.isascii():
        return int(text)
    return parse_integer(text, I64_RANGE)


def read_bool(text: str) -> bool | None:
    """As Java's Boolean.parseBoolean reads it, if it is one of the words; None otherwise."""
    if text in _TRUE:
        return True
    return False if text in _FALSE else None


def _text(value: str | int | bool) -> str:
    if value is True:
        return "true"
    if value is False:
        return "false"
    return value if isinstance(value, str) else str(value)
