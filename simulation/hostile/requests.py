"""Requests of every request code, for all servers of the protocol, with headers and bodies on which no server should act.

Invariant: no request names a peer of the cluster, except in the tables that are made for that. No peer depends on the state
that a request would change. Pure."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from inspect import getmembers, isclass

import remoting.headers.admin
import remoting.headers.controller
import remoting.headers.group
import remoting.headers.messages
import remoting.headers.nameserver
import remoting.headers.offsets
import remoting.headers.pull
import remoting.headers.send
import remoting.headers.transactions
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.header import Header
from remoting.wirefields import integer_range, wire_fields
from simulation.hostile.frames import I64_MAX

HEADER_MODULES = (
    remoting.headers.admin, remoting.headers.controller, remoting.headers.group, remoting.headers.messages,
    remoting.headers.nameserver, remoting.headers.offsets, remoting.headers.pull, remoting.headers.send,
    remoting.headers.transactions,
)  # fmt: skip
NUMBERS = (
    "",
    " 1",
    "1_0",
    "+1",
    "\u0661",
    "1e9",
    "0x1",
    "-1",
    "0",
    str(2**31),
    str(I64_MAX),
    str(-I64_MAX - 1),
    str(2**63),
    "9" * 5_000,
)
"""Values for numeric fields. Some are no numbers, and some do not fit."""
TEXTS = (
    "",
    " ",
    "../../x",
    "a/b",
    "a\0b",
    "\x01\x02",
    "%RETRY%%RETRY%x",
    "%DLQ%",
    "x@y",
    "\u2028\U0001f600",
    "n" * 3_000,
)
BODIES = {
    "none": None,
    "empty": b"",
    "zeros": bytes(100),
    "brace": b"{",
    "object": b"{}",
    "list": b"[]",
    "nulls": b"[null,null]",
    "null": b"null",
    "number": b"1e999",
    "nest": b'{"a":' * 20_000,
    "digits": b'{"a":' + b"9" * 20_000 + b"}",
    "surrogate": b'{"a":"\\ud800"}',
    "no UTF-8": b"\xff\xfe\xfd",
    "settings": b"rocketmqHome=/x\nconfigStorePath=/x\nconfigBlackList=\nstorePathRootDir=/x\nbrokerIP1=6.6.6.6\n",
    "traversal": b"../../etc/passwd\0",
    "zlib": zlib.compress(bytes(1 << 20)),
}
CHANGE_MUCH = frozenset({RequestCode.RESYNC_BROKER, RequestCode.HAND_OVER})
"""Requests of operators, which take effect at once. They are tried only with names of strangers."""


def _is_header(value: object) -> bool:
    return isclass(value) and issubclass(value, Header) and value is not Header


def fields_of_headers() -> dict[str, bool]:
    """Every wire name of every header's fields -> whether it is a number in some header."""
    found: dict[str, bool] = {}
    for module in HEADER_MODULES:
        for _, each in getmembers(module, _is_header):
            for row in wire_fields(each):
                for name in filter(None, (row.wire_name, row.short_name)):
                    found[name] = found.get(name, False) or integer_range(row.kind) is not None
    return found


def headers(real: dict[str, str]) -> list[dict[str, str]]:
    """Headers with all fields, so that each is useful for every code. `real` has existing values, such as a topic."""
    fields = fields_of_headers()
    numbers = {name for name, is_number in fields.items() if is_number}
    found: list[dict[str, str]] = [{}]
    for number in NUMBERS:
        found.append({name: number if name in numbers else real.get(name, "x") for name in fields})
    for text in TEXTS:
        size = 20_000 // len(fields)
        found.append({name: "1" if name in numbers else text[:size] for name in fields})
    found.append(dict.fromkeys(fields, "true"))
    return [fitting(each) for each in found]


def fitting(header: dict[str, str]) -> dict[str, str]:
    """Whether a header is short enough for the parser. Longer headers are tried elsewhere."""
    share = 20_000 // max(1, len(header))
    return {name: value[:share] for name, value in header.items()}


def requests(codes: Sequence[int], real: dict[str, str]) -> Iterator[RemotingCommand]:
    """Requests of each code, with each header without a body, and with the first valid header and each body."""
    tried = headers(real)
    valid = {
        name: "1" if is_number else real.get(name, "x") for name, is_number in fields_of_headers().items()
    }
    for code in codes:
        for header in tried:
            yield RemotingCommand.request(code, header, b"{}" if header is tried[0] else None)
        for body in BODIES.values():
            yield RemotingCommand.request(code, valid, body)
