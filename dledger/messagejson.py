"""The JSON of what members of a group say to each other: DLedger 0.3.1's codes and base fields.

Invariant: what `decode_*` returns has been checked (types, ranges, entries that follow each other), so the
core may rely on it.

Names that DLedger 0.3.1 has not: `preVote`, `ballotTerm`, `readRound`, `xTerm`, `xIndex`; and of 0.4 `preLogIndex` and
`preLogTerm`. The entries of a PUSH are in `batchEntry`. Pure.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

import orjson

from dledger.entry import ENTRY_HEADER_BYTES, MAGIC, NO_INDEX, NO_TERM, Entry
from dledger.messages import (
    HeartBeatRequest,
    HeartBeatResponse,
    MessageCode,
    PushRequest,
    PushResponse,
    PushType,
    Request,
    Response,
    ResultCode,
    VoteRequest,
    VoteResponse,
    VoteResult,
)

E = TypeVar("E", bound=Enum)

TERM_MAX = (1 << 62) - 1
"""Larger terms and indexes are refused: no election gets there, and +1 must stay within 64 bits."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """Who speaks to whom: `localId`, `remoteId` and `group` of the base fields."""

    group: str
    sender: str
    receiver: str


class MessageError(ValueError):
    """A body that no member of ours writes; answered with 411."""

    def __init__(self, field: str, value: object, why: str) -> None:
        shown = repr(value)
        super().__init__(f"{field} = {shown[:80]}: {why}")
        self.field = field
        self.value = value
        self.why = why


def encode_request(envelope: Envelope, request: Request) -> bytes:
    """The JSON body; `leaderId` names the sender, be it leader or candidate, as upstream does."""
    fields: dict[str, Any] = {"code": 200, "leaderId": envelope.sender, "term": request.term}
    match request:
        case VoteRequest():
            fields |= {
                "ledgerEndIndex": request.ledger_end_index,
                "ledgerEndTerm": request.ledger_end_term,
                "preVote": request.pre_vote,
            }
        case HeartBeatRequest():
            fields |= {"readRound": request.read_round}
        case PushRequest():
            fields |= {
                "type": request.type.value,
                "preLogIndex": request.prev_index,
                "preLogTerm": request.prev_term,
                "commitIndex": request.commit_index,
                "batchEntry": [entry_to_json(entry) for entry in request.entries],
            }
    return dump(envelope, fields)


def encode_response(envelope: Envelope, response: Response) -> bytes:
    """The JSON body; `envelope` is the request's, echoed."""
    fields: dict[str, Any] = {"code": 200, "term": response.term}
    match response:
        case VoteResponse():
            fields |= {
                "voteResult": response.result.value,
                "ballotTerm": response.ballot_term,
                "preVote": response.pre_vote,
            }
        case HeartBeatResponse():
            fields |= {"code": response.code, "readRound": response.read_round}
        case PushResponse():
            fields |= {
                "code": response.code,
                "index": response.index,
                "count": response.count,
                "endIndex": response.end_index,
                "xTerm": response.x_term,
                "xIndex": response.x_index,
            }
    return dump(envelope, fields)


def encode_refusal(envelope: Envelope, code: ResultCode) -> bytes:
    """The answer to what never reached the core: strange group, receiver or body."""
    return dump(envelope, {"code": code, "term": NO_TERM})


def dump(envelope: Envelope, fields: dict[str, Any]) -> bytes:
    base = {"group": envelope.group, "localId": envelope.sender, "remoteId": envelope.receiver}
    return orjson.dumps(base | fields, option=orjson.OPT_SORT_KEYS)


def decode_envelope(body: bytes | bytearray | memoryview | None) -> tuple[Envelope, dict[str, Any]]:
    """Reads the base fields; the rest is for `decode_request` or `decode_response`, once group and receiver
    are known to be right."""
    if body is None:
        raise MessageError("body", None, "a JSON object is wanted")
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise MessageError("body", bytes(body[:40]), f"not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise MessageError("body", fields, "a JSON object is wanted")
    envelope = Envelope(text(fields, "group"), text(fields, "localId"), text(fields, "remoteId"))
    return envelope, fields


def decode_request(code: int, envelope: Envelope, fields: dict[str, Any]) -> Request:
    if text(fields, "leaderId") != envelope.sender:
        raise MessageError(
            "leaderId", fields["leaderId"], f"the sender is {envelope.sender}; members speak for themselves"
        )
    term = number(fields, "term", least=0)
    match code:
        case MessageCode.VOTE:
            end_index = number(fields, "ledgerEndIndex", least=NO_INDEX)
            end_term = number(fields, "ledgerEndTerm", least=NO_TERM)
            if end_term >= term:
                raise MessageError("ledgerEndTerm", end_term, f"not older than the term voted on, {term}")
            return VoteRequest(term, end_index, end_term, flag(fields, "preVote"))
        case MessageCode.HEART_BEAT:
            return HeartBeatRequest(term, number(fields, "readRound", least=0))
        case MessageCode.PUSH:
            return decode_push(term, fields)
    raise MessageError("code", code, "not a message between members")


def decode_push(term: int, fields: dict[str, Any]) -> PushRequest:
    kind = choice(PushType, fields, "type")
    prev_index = number(fields, "preLogIndex", least=NO_INDEX)
    prev_term = number(fields, "preLogTerm", least=NO_TERM)
    if (prev_index == NO_INDEX) != (prev_term == NO_TERM) or prev_term > term:
        raise MessageError(
            "preLogTerm", prev_term, f"cannot be the term of entry {prev_index} in term {term}"
        )
    rows = fields.get("batchEntry")
    if not isinstance(rows, list) or (bool(rows) != (kind is PushType.APPEND)):
        raise MessageError(
            "batchEntry", rows, f"{kind.value} carries {'some' if kind is PushType.APPEND else 'no'} entries"
        )
    entries: list[Entry] = []
    last_index, last_term = prev_index, prev_term
    for row in rows:
        entry = entry_from_json(row)
        if entry.index != last_index + 1 or not last_term <= entry.term <= term:
            raise MessageError(
                "batchEntry",
                (entry.index, entry.term),
                f"cannot follow entry {(last_index, last_term)} in term {term}",
            )
        entries.append(entry)
        last_index, last_term = entry.index, entry.term
    return PushRequest(
        term, kind, prev_index, prev_term, number(fields, "commitIndex", least=NO_INDEX), tuple(entries)
    )


def decode_response(code: int, fields: dict[str, Any]) -> Response | None:
    """The answer to a request of `code`; None when the peer refused to look at the request (the caller
    reports its `code`)."""
    if number(fields, "term", least=NO_TERM) == NO_TERM:
        return None
    term = number(fields, "term", least=0)
    match code:
        case MessageCode.VOTE:
            return VoteResponse(
                term,
                number(fields, "ballotTerm", least=0),
                choice(VoteResult, fields, "voteResult"),
                flag(fields, "preVote"),
            )
        case MessageCode.HEART_BEAT:
            return HeartBeatResponse(
                term, choice(ResultCode, fields, "code"), number(fields, "readRound", least=0)
            )
        case MessageCode.PUSH:
            return PushResponse(
                term,
                choice(ResultCode, fields, "code"),
                number(fields, "index", least=0),
                number(fields, "count", least=0),
                number(fields, "endIndex", least=NO_INDEX),
                number(fields, "xTerm", least=NO_TERM),
                number(fields, "xIndex", least=NO_INDEX),
            )
    raise MessageError("code", code, "not a message between members")


def entry_to_json(entry: Entry) -> dict[str, Any]:
    return {
        "body": b64encode(entry.body).decode(),
        "index": entry.index,
        "magic": MAGIC,
        "size": ENTRY_HEADER_BYTES + len(entry.body),
        "term": entry.term,
    }


def entry_from_json(row: object) -> Entry:
    if not isinstance(row, dict):
        raise MessageError("batchEntry", row, "an entry is a JSON object")
    try:
        body = b64decode(text(row, "body"), validate=True)
    except (Base64Error, ValueError) as error:
        raise MessageError("body", row.get("body"), f"not Base64: {error}") from None
    if number(row, "size", least=0) != ENTRY_HEADER_BYTES + len(body):
        raise MessageError("size", row["size"], f"the body has {len(body)} bytes")
    return Entry(number(row, "index", least=0), number(row, "term", least=0), body)


def number(fields: dict[str, Any], name: str, *, least: int) -> int:
    value = fields.get(name)
    if type(value) is not int or not least <= value <= TERM_MAX:
        raise MessageError(name, value, f"a whole number from {least} to {TERM_MAX} is wanted")
    return value


def text(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise MessageError(name, value, "a string is wanted")
    return value


def flag(fields: dict[str, Any], name: str) -> bool:
    value = fields.get(name)
    if not isinstance(value, bool):
        raise MessageError(name, value, "true or false is wanted")
    return value


def choice(kind: Callable[[Any], E], fields: dict[str, Any], name: str) -> E:
    try:
        return kind(fields.get(name))
    except ValueError:
        raise MessageError(name, fields.get(name), "not a value of this field") from None
