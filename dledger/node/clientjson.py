"""The JSON between a group and its clients: DLedger 0.3.1's METADATA, APPEND and GET.

Invariant: an answer always has a body, and the result is the `code` in the body; the `code` in the header is 200. Upstream's
clients ignore the names that upstream does not have: `batchMsgs` in answers, `refusals`, and the member's own data in METADATA.
Pure."""

from __future__ import annotations

from binascii import a2b_base64, b2a_base64
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import orjson

from dledger.node.messagejson import Fields, MessageError, number, text
from dledger.raft.entries import NO_INDEX, NO_TERM, Entry
from dledger.raft.messages import ResultCode
from dledger.storage.entry import ENTRY_HEADER_BYTES, MAGIC


class ClientCode(IntEnum):
    METADATA = 50000
    APPEND = 50001
    GET = 50002


@dataclass(frozen=True, slots=True)
class ClientEnvelope:
    """The receiver and the receiver's group. Upstream's clients name no sender."""

    group: str
    receiver: str


def encode(envelope: ClientEnvelope, fields: Fields) -> bytes:
    """The body of a request with `fields` and the base fields."""
    base = {
        "code": ResultCode.SUCCESS,
        "group": envelope.group,
        "remoteId": envelope.receiver,
        "term": NO_TERM,
    }
    return dumped(base | fields)


def encode_answer(
    envelope: ClientEnvelope, code: ResultCode, leader_id: str | None, fields: Fields | None = None
) -> bytes:
    """The body of the answer to a request with `envelope`. `leaderId` is left out if the leader is not known."""
    base = {"code": code, "group": envelope.group, "remoteId": envelope.receiver, "term": NO_TERM}
    return dumped(base | ({"leaderId": leader_id} if leader_id else {}) | (fields or {}))


def dumped(fields: Fields) -> bytes:
    return orjson.dumps(fields, option=orjson.OPT_SORT_KEYS)


def envelope_of(fields: Fields) -> ClientEnvelope:
    """The envelope in `fields`. Raises MessageError."""
    return ClientEnvelope(text(fields, "group"), text(fields, "remoteId"))


def bodies_of(fields: Fields) -> list[bytes]:
    """The bodies of an APPEND: one body, or several in `batchMsgs`. Raises MessageError."""
    rows = fields.get("batchMsgs") or [fields.get("body")]
    if not isinstance(rows, list):
        raise MessageError("batchMsgs", rows, "a list is wanted")
    return [_bytes("body", row) for row in rows]


def append_fields(bodies: Sequence[bytes]) -> Fields:
    rows = [base64(body) for body in bodies]
    return {"body": rows[0]} if len(rows) == 1 else {"batchMsgs": rows}


def index_of(fields: Fields) -> int:
    """The index of the entry that a GET asks for. Raises MessageError."""
    return number(0, fields, "beginIndex")


def entry_fields(entry: Entry) -> Fields:
    """An entry as JSON. `pos`, which upstream's clients do not use, is not set."""
    return {
        "body": base64(entry.body),
        "bodyCrc": 0,
        "chainCrc": 0,
        "channel": 0,
        "index": entry.index,
        "magic": MAGIC,
        "pos": NO_INDEX,
        "size": ENTRY_HEADER_BYTES + len(entry.body),
        "term": entry.term,
    }


def entry_of(fields: Fields) -> Entry:
    """The entry in the answer to a GET. Raises MessageError."""
    rows = fields.get("entries")
    if not isinstance(rows, list) or len(rows) != 1 or not isinstance(rows[0], dict):
        raise MessageError("entries", rows, "one entry is wanted")
    row: Fields = rows[0]
    return Entry(number(0, row, "index"), number(0, row, "term"), _bytes("body", row.get("body")))


def base64(data: bytes) -> str:
    return b2a_base64(data, newline=False).decode()


def _bytes(name: str, row: object) -> bytes:
    if not isinstance(row, str):
        raise MessageError(name, row, "Base64 text is wanted")
    try:
        return a2b_base64(row, strict_mode=True)
    except ValueError as error:
        raise MessageError(name, row, f"not Base64: {error}") from None
