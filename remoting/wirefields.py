"""The wire fields of headers and bodies, declared as dataclass fields.

A field's wire name is its Python name in lowerCamelCase, unless `wire("name")` gives another. Integers are annotated with
their Java width, I32 or I64. Invariant: a table is computed once per class, from the declaration alone. Pure.
"""

from __future__ import annotations

import dataclasses
from dataclasses import MISSING, Field, dataclass, field
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints


@dataclass(frozen=True, slots=True)
class IntegerRange:
    """The values of a Java integer type."""

    low: int
    high: int


I32_RANGE = IntegerRange(-(2**31), 2**31 - 1)
I64_RANGE = IntegerRange(-(2**63), 2**63 - 1)
I32 = Annotated[int, I32_RANGE]
I64 = Annotated[int, I64_RANGE]


def wire(
    name: str | None = None,
    *,
    short: str | None = None,
    names: tuple[str, ...] | None = None,
    default: Any = MISSING,
    default_factory: Any = MISSING,
) -> Any:
    """A dataclass field whose wire name is `name`, or `short` in the short form of a send header.

    `names` are an enum's constants in Java's order, because some senders write the ordinal.
    """
    metadata = {"wire": name, "short": short, "names": names}
    if default_factory is not MISSING:
        return field(default_factory=default_factory, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True)
class WireField:
    """One field of a header or body, as a row of its class's table. `kind` is the annotation without `| None`."""

    attribute: str
    wire_name: str
    short_name: str | None
    kind: Any
    optional: bool
    names: tuple[str, ...] | None
    declared: Field[Any]

    @property
    def required(self) -> bool:
        """Whether the sender must send the field, because it has no default."""
        return self.declared.default is MISSING and self.declared.default_factory is MISSING

    def default(self) -> Any:
        """The value of an absent field that is not required."""
        if self.declared.default_factory is not MISSING:
            return self.declared.default_factory()
        return self.declared.default


_TABLES: dict[type, tuple[WireField, ...]] = {}


def wire_fields(cls: type) -> tuple[WireField, ...]:
    """The table of `cls`, in the order of declaration."""
    table = _TABLES.get(cls)
    if table is None:
        hints = get_type_hints(cls, include_extras=True)
        table = tuple(_row(declared, hints[declared.name]) for declared in dataclasses.fields(cls))
        _TABLES[cls] = table
    return table


def _row(declared: Field[Any], hint: Any) -> WireField:
    kind, optional = hint, False
    if get_origin(hint) in (Union, UnionType):
        kinds = [arg for arg in get_args(hint) if arg is not NoneType]
        assert len(kinds) == 1, f"{declared.name}: a wire field has one type"
        kind, optional = kinds[0], True
    wire_name = declared.metadata.get("wire") or camel(declared.name)
    short_name, names = declared.metadata.get("short"), declared.metadata.get("names")
    return WireField(declared.name, wire_name, short_name, kind, optional, names, declared)


def camel(name: str) -> str:
    """consumer_group -> consumerGroup"""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def integer_range(kind: Any) -> IntegerRange | None:
    """The range that I32 or I64 carries; None for any other annotation."""
    if get_origin(kind) is Annotated:
        for extra in get_args(kind)[1:]:
            if isinstance(extra, IntegerRange):
                return extra
    return None


def parse_integer(text: str, allowed: IntegerRange) -> int | None:
    """A decimal as Java's parseInt and parseLong read it: ASCII digits after an optional sign. None if `text` is no such
    decimal.
    """
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not digits.isdigit() or not digits.isascii() or len(digits) > 400:
        return None
    value = int(text)
    return value if allowed.low <= value <= allowed.high else None
