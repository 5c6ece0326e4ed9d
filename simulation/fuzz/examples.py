"""A valid example of each typed header and body, made from its declaration.

Invariant: all declared fields are set, so that mutations reach the reader of every field. Pure."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any, TypeVar, get_args, get_origin

import remoting.bodies
import remoting.headers
from remoting.bodies.body import Body
from remoting.header import Header
from remoting.wirefields import integer_range, wire_fields

DEPTH_MAX = 4
T = TypeVar("T")


def declared(base: type[T]) -> list[type[T]]:
    """The subclasses of `base` that have wire fields, by name."""
    for package in (remoting.bodies, remoting.headers):
        for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
            importlib.import_module(module.name)
    found: dict[str, type[T]] = {}
    left = [base]
    while left:
        for each in left.pop().__subclasses__():
            left.append(each)
            if hasattr(each, "__dataclass_fields__"):
                found[each.__name__] = each
    return [found[name] for name in sorted(found)]


def header_example(kind: type[Header], value: str = "1") -> dict[str, str]:
    return {row.wire_name: "true" if row.kind is bool else value for row in wire_fields(kind)}


def body_example(kind: Any, depth: int = 0) -> Any:
    """A JSON value that `kind` reads."""
    origin = get_origin(kind)
    if origin in (list, frozenset):
        return [body_example(get_args(kind)[0], depth + 1)] if depth < DEPTH_MAX else []
    if origin is dict:
        key, value = get_args(kind)
        name = (
            "1"
            if not (isinstance(key, type) and issubclass(key, Body))
            else '{"brokerName":"b","queueId":1,"topic":"t"}'
        )
        return {name: body_example(value, depth + 1)} if depth < DEPTH_MAX else {}
    if isinstance(kind, type) and issubclass(kind, Body):
        rows = wire_fields(kind)
        return {
            row.wire_name: row.names[0] if row.names else body_example(row.kind, depth + 1) for row in rows
        }
    if kind is bool:
        return True
    if kind is int or integer_range(kind) is not None:
        return 7
    return "1.5" if kind is float else "text"
