"""Base of every JSON body. A body is written in a form that Java peers read, and read in the forms that they write.

A body is written with its keys in alphabetical order, without nulls and spaces. Map keys are written as strings. The exception
is a map whose keys are objects: its keys are written as JSON objects, not as strings, because fastjson2 (RocketMQ 5.4.0 and
later) reads only this form. When a body is read, members may have any order, and unknown members are ignored. A number may be
written as a string, an enum as its ordinal, and an object that is a map key as an object or as a string. An absent or null
member gets its default. Invariant: a decoded body has the declared types. Otherwise BodyError is raised and names the
member."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Self, get_args, get_origin

import orjson

from remoting import fastjson
from remoting.errors import BodyError
from remoting.wirefields import I64_RANGE, WireField, integer_range, parse_integer, wire_fields

Json = Any
REQUEST_BYTES_MAX = 1 << 20
"""Limit of most requests: it is enough for thousands of groups, topics and queues."""
LIST_BYTES_MAX = 4 << 20
"""Limit of requests that list topics or groups."""
LIST_ROWS_MAX = 10_000
"""Limit of a list in a request."""
FREELY_READ_BYTES = 64 << 10
"""Bodies up to this size are read whatever they contain."""
PIECES_MAX = 40_000
"""Limit of members and elements in a larger body of a request, at all depths together. Each takes up to 1.2 us. A body that may
have more than REQUEST_BYTES_MAX may have proportionally more of them."""


class Body:
    """Base of the bodies; a subclass is a slotted dataclass whose fields are its JSON members."""

    __slots__ = ()

    def to_json(self) -> dict[str, Json]:
        """The body as a value for any JSON writer; objects that are map keys become strings."""
        return _members(self, _quoted_keys)

    def encode(self) -> bytes:
        """The body's encoding: strict JSON, except that map keys may be objects."""
        return orjson.dumps(_members(self, _bare_keys))

    @classmethod
    def from_json(cls, value: Json, where: str = "") -> Self:
        """The body in a value that a JSON reader returned. Raises BodyError, which names the member below `where`."""
        if not isinstance(value, dict):
            raise BodyError(f"{where or cls.__name__} is not a JSON object")
        found: dict[str, Any] = {}
        for row, plain in _plan(cls):
            member = value.get(row.wire_name)
            if plain.holds(member):
                found[row.attribute] = member
            elif member is not None:
                found[row.attribute] = _from_json(
                    row.kind, member, f"{where}.{row.wire_name}" if where else row.wire_name, row
                )
            elif row.required:
                raise BodyError(f"{where or cls.__name__} is missing {row.wire_name}")
        return cls(**found)

    @classmethod
    def decode(cls, data: bytes | bytearray | memoryview | None) -> Self:
        """The body that `data` encodes. Raises BodyError, also if `data` is None."""
        return cls.from_json(cls._loaded(data, None))

    @classmethod
    def from_request(
        cls,
        data: bytes | bytearray | memoryview | None,
        *,
        bytes_max: int = REQUEST_BYTES_MAX,
        dialect_max: int = fastjson.REQUEST_DIALECT_MAX,
        pieces_max: int = PIECES_MAX,
    ) -> Self:
        """Decode the body of a client's request. Decoding blocks all other clients, so a body that is too large or has too many
        pieces is rejected without decoding, and a list that is too long without reading its rows. Raises BodyError."""
        if data is not None and len(data) > bytes_max:
            raise BodyError(f"{cls.__name__}: a body of {len(data)} bytes; {bytes_max} are read")
        if data is not None and len(data) > FREELY_READ_BYTES:
            pieces, most = (
                fastjson.pieces_in(data),
                pieces_max * max(bytes_max, REQUEST_BYTES_MAX) // REQUEST_BYTES_MAX,
            )
            if pieces > most:
                raise BodyError(f"{cls.__name__}: a body of {pieces} pieces; {most} are read")
        value = cls._loaded(data, dialect_max)
        if isinstance(value, dict):
            for name, member in value.items():
                if isinstance(member, list) and len(member) > LIST_ROWS_MAX:
                    raise BodyError(
                        f"{cls.__name__}: {name} has {len(member)} rows; {LIST_ROWS_MAX} are read"
                    )
        return cls.from_json(value)

    @classmethod
    def _loaded(cls, data: bytes | bytearray | memoryview | None, dialect_max: int | None) -> Json:
        if not data:
            raise BodyError(f"{cls.__name__} expected, but there is no body")
        try:
            return fastjson.loads(data, dialect_max=dialect_max)
        except fastjson.FastJsonError as error:
            raise BodyError(f"{cls.__name__} expected, but the body is not JSON: {error}") from None


class WrittenOnce(Body):
    """Base of rows of large tables. A row is encoded at the first call, and every table with the row reuses the bytes. A
    subclass is a frozen dataclass, so a changed row is another object."""

    __slots__ = ("_written",)
    _written: bytes

    def to_json(self) -> Any:
        """The encoded row, which a JSON writer copies."""
        return orjson.Fragment(self.encode())

    def members(self) -> dict[str, Json]:
        """The body as a value for a JSON writer, as `to_json` of other bodies returns it."""
        return Body.to_json(self)

    def encode(self) -> bytes:
        try:
            return self._written
        except AttributeError:
            written = bytes(memoryview(orjson.dumps(self.members())))  # orjson's own keep spare room
            object.__setattr__(self, "_written", written)
            return written


_SORTED: dict[type, tuple[WireField, ...]] = {}


def _sorted_fields(cls: type) -> tuple[WireField, ...]:
    table = _SORTED.get(cls)
    if table is None:
        table = _SORTED[cls] = tuple(sorted(wire_fields(cls), key=lambda row: row.wire_name))
    return table


KeyedByObjects = Callable[[dict[Any, Any]], Json]
"""Turns a map whose keys are bodies into a value that a JSON writer accepts."""


def _members(body: Body, keyed_by_objects: KeyedByObjects) -> dict[str, Json]:
    return {
        row.wire_name: _to_json(value, keyed_by_objects)
        for row in _sorted_fields(type(body))
        if (value := getattr(body, row.attribute)) is not None
    }


def _to_json(value: Any, keyed_by_objects: KeyedByObjects) -> Json:
    if isinstance(value, Body):
        if type(value).to_json is not Body.to_json:
            return value.to_json()
        return _members(value, keyed_by_objects)
    if isinstance(value, dict):
        if value and isinstance(next(iter(value)), Body):
            return keyed_by_objects(value)
        if value and isinstance(
            next(iter(value.values())), WrittenOnce
        ):  # a table's values are all of one type
            return {str(key): orjson.Fragment(member.encode()) for key, member in value.items()}
        return {str(key): _to_json(member, keyed_by_objects) for key, member in value.items()}
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, list | tuple):
        return [_to_json(member, keyed_by_objects) for member in value]
    return value


def _quoted_keys(table: dict[Any, Any]) -> Json:
    return {fastjson.key_of(key.to_json()): _to_json(member, _quoted_keys) for key, member in table.items()}


def _bare_keys(table: dict[Any, Any]) -> Json:
    rows = (
        b"%b:%b" % (orjson.dumps(key.to_json()), orjson.dumps(_to_json(member, _bare_keys)))
        for key, member in table.items()
    )
    return orjson.Fragment(b"{%b}" % b",".join(rows))


class Plain(NamedTuple):
    """Which values of a field need no conversion: those of exactly this type and, if set, between `low` and `high`. If the type
    is None, every value is converted."""

    kind: type[Any] | None = None
    low: int | None = None
    high: int = 0

    def holds(self, value: Any) -> bool:
        return type(value) is self.kind and (self.low is None or self.low <= value <= self.high)


_PLANS: dict[type, tuple[tuple[WireField, Plain], ...]] = {}


def _plan(cls: type) -> tuple[tuple[WireField, Plain], ...]:
    """The fields of a body with their conversions, computed once for each class. It saves time that most members need no
    conversion (`Plain`), because a table of topics may have a hundred thousand members."""
    plan = _PLANS.get(cls)
    if plan is None:
        plan = _PLANS[cls] = tuple((row, _plain(row.kind)) for row in wire_fields(cls))
    return plan


def _plain(kind: Any) -> Plain:
    allowed = integer_range(kind) or (I64_RANGE if kind is int else None)
    if allowed is not None:
        return Plain(int, allowed.low, allowed.high)
    return Plain(kind) if kind in (str, bool, float) else Plain()


def _from_json(kind: Any, value: Json, where: str, row: WireField | None = None) -> Any:
    origin = get_origin(kind)
    if origin is list or origin is frozenset:
        if not isinstance(value, list):
            raise BodyError(f"{where} is not a JSON array")
        (member_kind,) = get_args(kind)
        holds = _plain(member_kind).holds
        return origin(
            member if holds(member) else _from_json(member_kind, member, f"{where}[{index}]")
            for index, member in enumerate(value)
        )
    if origin is dict:
        if not isinstance(value, dict):
            raise BodyError(f"{where} is not a JSON object")
        key_kind, member_kind = get_args(kind)
        return {
            _key_from_json(key_kind, key, where): _from_json(member_kind, member, f"{where}.{key}")
            for key, member in value.items()
            if member is not None
        }
    if isinstance(kind, type) and issubclass(kind, Body):
        return kind.from_json(value, where)
    return _scalar(kind, value, where, row)


def _key_from_json(kind: Any, key: str, where: str) -> Any:
    if isinstance(kind, type) and issubclass(kind, Body):
        try:
            return kind.from_json(fastjson.object_key(key), where)
        except fastjson.FastJsonError as error:
            raise BodyError(f"{where} has a key that is not an object: {error}") from None
    return key if kind is str else _scalar(kind, key, where, None)


def _scalar(kind: Any, value: Json, where: str, row: WireField | None) -> Any:
    allowed = integer_range(kind)
    if allowed is not None or kind is int:
        allowed = allowed or I64_RANGE
        number = parse_integer(value, allowed) if isinstance(value, str) else value
        if type(number) is not int or not allowed.low <= number <= allowed.high:
            raise BodyError(f"{where} is not an integer of its width")
        return number
    if kind is bool:
        if value in (True, "true", "1"):
            return True
        if value in (False, "false", "0"):
            return False
        raise BodyError(f"{where} is not true or false")
    if kind is float:
        return _float(value, where)
    if kind is str:
        if row is not None and row.names is not None and type(value) is int:
            if not 0 <= value < len(row.names):
                raise BodyError(f"{where} has no constant {value}")
            return row.names[value]
        if isinstance(value, str):
            return value
        if type(value) is int or type(value) is float:
            return str(value)
        raise BodyError(f"{where} is not a string")
    assert kind is Any, f"{where}: no reader for {kind}"
    return value


def _float(value: Json, where: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise BodyError(f"{where} is not a number") from None
