"""The bodies of the messages between members: JSON with DLedger 0.3.1's codes and base fields. If the receiver reads frames,
the entries of a PUSH, or the part of a snapshot, follow the JSON as bytes (dledger.node.messageframe).

Invariant: the results of `decode_*` are checked (types, ranges, entries that follow each other), so the core may rely on them.

DLedger 0.3.1 does not have the names `preVote`, `leadershipTransfer`, `ballotTerm`, `readRound`, `xTerm` and `xIndex`.
`preLogIndex` and `preLogTerm` are from DLedger 0.4. In JSON the entries of a PUSH are in `batchEntry`, with bodies in Base64.
Pure."""

from __future__ import annotations

from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from itertools import chain
from typing import Annotated, Any, TypeVar

import orjson

from dledger.node.messageframe import (
    MessageFrameDamaged,
    entries_in,
    entry_parts,
    framed,
    is_framed,
    unframed,
)
from dledger.raft.entries import NO_INDEX, NO_TERM, Entries, Entry
from dledger.raft.messages import (
    KINDS,
    LATER_FIELDS,
    TERM_MAX,
    InstallRequest,
    Known,
    Message,
    MessageCode,
    PushRequest,
    PushType,
    Request,
    Response,
    ResultCode,
    VoteRequest,
)
from dledger.raft.settings import PUSH_ENTRIES_LIMIT
from dledger.storage.entry import ENTRY_HEADER_BYTES, MAGIC
from remoting.wirefields import IntegerRange, WireField, integer_range, wire, wire_fields

E = TypeVar("E", bound=Enum)
T = TypeVar("T")
Fields = dict[str, Any]
"""The members of a JSON object."""
Read = Callable[[Fields, str], Any]
DATA = "behind the JSON"
"""The key under which a frame's data is kept among the fields. No JSON has this name."""


UNKNOWN = -1
"""The lowest code of upstream."""
NOT_SENT = -2


@dataclass(frozen=True, slots=True)
class Envelope:
    """The base fields of a message: sender, receiver and more."""

    group: str
    sender: str = wire("localId")
    receiver: str = wire("remoteId")
    peers: str = field(default="", compare=False)
    """The sender's list of members; members of old versions send none."""
    frames: Known = field(default=0, compare=False)
    """The version of frames that the sender reads; members of old versions read none."""
    members_index: Annotated[int, IntegerRange(NOT_SENT, TERM_MAX)] = field(default=NOT_SENT, compare=False)
    """The index of the entry with the list of members. NO_INDEX: the list is from a setting. NOT_SENT: the sender's version has
    no such entries."""
    origin: str = field(default="", compare=False)
    """The description of the log that the sender's log continues; empty if there is none."""
    start_numbers: str = field(default="", compare=False)
    """The start numbers that the sender knows of all members (dledger.raft.startnumbers); members of old versions send none."""


class MessageError(ValueError):
    """The body cannot be from a member; it is answered with UNEXPECTED_ARGUMENT (411)."""

    def __init__(self, field: str, value: object, why: str) -> None:
        shown = repr(value)
        super().__init__(f"{field} = {shown[:80]}: {why}")
        self.field = field
        self.value = value
        self.why = why


def framed_request(envelope: Envelope, request: Request) -> list[bytes | memoryview]:
    """The framed body in pieces: entries, or a part of a snapshot, follow the JSON and are not copied."""
    if not isinstance(request, PushRequest | InstallRequest):
        return [encode_request(envelope, request)]
    installs = isinstance(request, InstallRequest)
    data = [request.data] if isinstance(request, InstallRequest) else entry_parts(request.entries)
    fields: Fields = {"leaderId": envelope.sender} | members(request)
    del fields["data" if installs else "batchEntry"]
    return framed(dump(envelope, fields), data)


def encode_request(envelope: Envelope, request: Request) -> bytes:
    """The JSON body. As in upstream, `leaderId` is the sender, whether it is a leader or a candidate."""
    fields: Fields = {"leaderId": envelope.sender} | members(request)
    if isinstance(request, PushRequest):
        fields["batchEntry"] = [entry_to_json(entry) for entry in request.entries]
    elif isinstance(request, InstallRequest):
        fields["data"] = b2a_base64(request.data, newline=False).decode()
    return dump(envelope, fields)


def encode_response(envelope: Envelope, response: Response) -> bytes:
    """The JSON body of an answer, with the `envelope` of the request."""
    return dump(envelope, members(response))


def encode_refusal(envelope: Envelope, code: ResultCode) -> bytes:
    """The answer to a request that never reaches the core, because its group or receiver is another one or its body is bad."""
    return dump(envelope, {"code": code, "term": NO_TERM})


def members(value: Envelope | Message) -> Fields:
    return {row.wire_name: getattr(value, row.attribute) for row in wire_fields(type(value))}


def base_fields(envelope: Envelope) -> Fields:
    """The base fields. If the envelope has no list of peers, neither the list nor its index is sent."""
    sent = envelope if envelope.peers else replace(envelope, members_index=0)
    return {name: value for name, value in members(sent).items() if value or name not in LATER_FIELDS}


def dump(envelope: Envelope, fields: Fields) -> bytes:
    return orjson.dumps(
        {"code": ResultCode.SUCCESS} | base_fields(envelope) | fields, option=orjson.OPT_SORT_KEYS
    )


def decode_fields(body: bytes | bytearray | memoryview | None) -> Fields:
    """The fields of a request or an answer. The data of a frame is under the key DATA. Raises MessageError."""
    if body is None:
        raise MessageError("body", None, "a JSON object is wanted")
    data = None
    try:
        text = memoryview(body)
        if is_framed(text):
            text, data = unframed(text)
        fields = orjson.loads(text)
    except (MessageFrameDamaged, orjson.JSONDecodeError) as error:
        raise MessageError("body", bytes(body[:40]), f"not JSON, nor a whole frame: {error}") from None
    if not isinstance(fields, dict):
        raise MessageError("body", fields, "a JSON object is wanted")
    fields.pop(DATA, None)
    return fields if data is None else fields | {DATA: data}


def decode_envelope(body: bytes | bytearray | memoryview | None) -> tuple[Envelope, Fields]:
    """Reads the base fields. `decode_request` or `decode_response` reads the other fields, once group and receiver are checked.
    Upstream's client names no sender."""
    fields = decode_fields(body)
    fields.setdefault("localId", "")
    return read(Envelope, fields), fields


def decode_request(code: int, envelope: Envelope, fields: Fields) -> Request:
    by_operator = code == MessageCode.LEADERSHIP_TRANSFER and not envelope.sender
    if not by_operator and text(fields, "leaderId") != envelope.sender:
        raise MessageError(
            "leaderId", fields["leaderId"], f"the sender is {envelope.sender}; members speak for themselves"
        )
    if code not in KINDS:
        raise MessageError("code", code, "not a message between members")
    request = read(KINDS[code][0], fields)
    if isinstance(request, VoteRequest) and request.ledger_end_term >= request.term:
        why = f"not older than the term voted on, {request.term}"
        raise MessageError("ledgerEndTerm", request.ledger_end_term, why)
    if isinstance(request, PushRequest):
        check_push(request)
    if isinstance(request, InstallRequest):
        check_install(request)
    return request


def check_install(install: InstallRequest) -> None:
    """Raises MessageError unless the part lies in the whole snapshot, and the snapshot's term is not above the request's."""
    if install.offset + len(install.data) > install.size:
        raise MessageError(
            "offset", install.offset, f"{len(install.data)} bytes from there are more than {install.size}"
        )
    if install.index_term > install.term:
        raise MessageError(
            "snapshotTerm", install.index_term, f"cannot be that of an entry in term {install.term}"
        )


def check_push(push: PushRequest) -> None:
    """Raises MessageError unless the entries follow each other and the previous entry, with terms that neither fall nor exceed
    the push's term."""
    index, term = push.prev_index, push.prev_term
    if (index == NO_INDEX) != (term == NO_TERM) or term > push.term:
        raise MessageError("preLogTerm", term, f"cannot be the term of entry {index} in term {push.term}")
    for first, block in Entries.of(push.entries).numbered():
        if first != index + 1 or not term <= block.term <= push.term:
            why = f"cannot follow entry {(index, term)} in term {push.term}"
            raise MessageError("batchEntry", (first, block.term), why)
        index, term = first + len(block) - 1, block.term


def decode_response(code: int, fields: Fields) -> Response | None:
    """The answer to a request of `code`; None if the peer refused the request before reading it (the caller logs the answer's
    `code`). Raises MessageError."""
    if number(NO_TERM, fields, "term") == NO_TERM:
        number(UNKNOWN, fields, "code")
        return None
    return read(KINDS[code][1], fields)


def reader(annotation: Any) -> Read:
    """Returns a function that reads the field of a given name, which has this annotation. The function raises MessageError."""
    if allowed := integer_range(annotation):
        return partial(number, allowed.low)
    if annotation == Sequence[Entry]:
        return entries
    if issubclass(annotation, Enum):
        return partial(choice, annotation)
    return {str: text, bool: flag, bytes: binary}[annotation]


def number(least: int, fields: Fields, name: str) -> int:
    value = fields.get(name)
    if type(value) is not int or not least <= value <= TERM_MAX:
        raise MessageError(name, value, f"a whole number from {least} to {TERM_MAX} is wanted")
    return value


def text(fields: Fields, name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise MessageError(name, value, "a string is wanted")
    return value


def binary(fields: Fields, name: str) -> bytes:
    data = fields.get(DATA)
    if isinstance(data, memoryview):
        return bytes(data)
    try:
        return a2b_base64(text(fields, name), strict_mode=True)
    except ValueError as error:
        raise MessageError(name, fields.get(name), f"not Base64: {error}") from None


def flag(fields: Fields, name: str) -> bool:
    value = fields.get(name)
    if not isinstance(value, bool):
        raise MessageError(name, value, "true or false is wanted")
    return value


def choice(kind: Callable[[Any], E], fields: Fields, name: str) -> E:
    try:
        return kind(fields.get(name))
    except ValueError:
        raise MessageError(name, fields.get(name), "not a value of this field") from None


def entries(fields: Fields, name: str) -> Entries:
    """The entries of a PUSH. Its type and previous index are among `fields`."""
    rows, kind, data = fields.get(name), fields["type"], fields.get(DATA)
    first = fields["preLogIndex"] + 1
    if isinstance(data, memoryview):
        try:
            rows = entries_in(data, first)
        except MessageFrameDamaged as error:
            raise MessageError(name, len(data), str(error)) from None
    elif isinstance(rows, list):
        rows = entries_from_json(rows, first)
    appends = kind == PushType.APPEND.value
    if not isinstance(rows, Entries) or bool(rows) != appends:
        raise MessageError(name, rows, f"{kind} carries {'some' if appends else 'no'} entries")
    return rows


def entries_from_json(rows: list[object], first: int) -> Entries:
    if len(rows) > PUSH_ENTRIES_LIMIT:
        raise MessageError("batchEntry", len(rows), f"a PUSH has {PUSH_ENTRIES_LIMIT} entries at most")
    found = list(map(entry_from_json, rows))
    for index, entry in enumerate(found, first):
        if entry.index != index:
            raise MessageError("batchEntry", (entry.index, entry.term), f"cannot follow entry {index - 1}")
    return Entries.of(found)


def entry_to_json(entry: Entry) -> Fields:
    return {
        "body": b2a_base64(entry.body, newline=False).decode(),
        "index": entry.index,
        "magic": MAGIC,
        "size": ENTRY_HEADER_BYTES + len(entry.body),
        "term": entry.term,
    }


def entry_from_json(row: object) -> Entry:
    if not isinstance(row, dict):
        raise MessageError("batchEntry", row, "an entry is a JSON object")
    body = binary(row, "body")
    if number(0, row, "size") != ENTRY_HEADER_BYTES + len(body):
        raise MessageError("size", row["size"], f"the body has {len(body)} bytes")
    return Entry(number(0, row, "index"), number(0, row, "term"), body)


READERS: dict[type, list[tuple[WireField, Read]]] = {
    kind: [(row, reader(row.kind)) for row in wire_fields(kind)]
    for kind in (Envelope, *chain.from_iterable(KINDS.values()))
}


def read(kind: type[T], fields: Fields) -> T:
    """The message, or envelope, whose wire fields are among `fields`. Raises MessageError."""
    return kind(*[read_row(fields, row, read_value) for row, read_value in READERS[kind]])


def read_row(fields: Fields, row: WireField, read_value: Read) -> Any:
    if row.wire_name in LATER_FIELDS and not row.required and row.wire_name not in fields:
        return row.default()
    return read_value(fields, row.wire_name)
