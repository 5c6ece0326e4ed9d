"""The members' JSON: fixed texts both ways, and malformed messages."""

from __future__ import annotations

import json
import struct
from zlib import crc32

import pytest

from dledger.node import messageframe, messagejson
from dledger.node.messageframe import framed
from dledger.node.messagejson import (
    Envelope,
    MessageError,
    decode_envelope,
    decode_request,
    decode_response,
    encode_refusal,
    encode_request,
    encode_response,
    framed_request,
)
from dledger.raft.entries import Entry
from dledger.raft.messages import (
    CODE_OF,
    LATER_FIELDS,
    HeartBeatRequest,
    HeartBeatResponse,
    InstallRequest,
    PushRequest,
    PushResponse,
    PushType,
    RecoveryRequest,
    RecoveryResponse,
    Request,
    Response,
    ResultCode,
    TransferRequest,
    TransferResponse,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from remoting.wirefields import wire_fields

ENVELOPE = Envelope("g", "n0", "n1")
PUSH = PushRequest(4, PushType.APPEND, 10, 3, 9, (Entry(11, 3, b"hi?"), Entry(12, 4, b"")), 5)
COMMIT = PushRequest(4, PushType.COMMIT, 10, 3, 9)
INSTALL = InstallRequest(4, 10, 3, 9, 77, 2, b"{\x00\xff", 5)
REQUESTS: list[tuple[Request, str]] = [
    (
        VoteRequest(4, 10, 3),
        '{"code":200,"group":"g","leaderId":"n0","leadershipTransfer":false,"ledgerEndIndex":10,"ledgerEndTerm":3,'
        '"localId":"n0","preVote":false,"remoteId":"n1","term":4}',
    ),
    (
        TransferRequest(4, "n0", "n1", 12),
        '{"code":200,"group":"g","leaderId":"n0","localId":"n0","remoteId":"n1","takeLeadershipLedgerIndex":12,"term":4,'
        '"transferId":"n0","transfereeId":"n1"}',
    ),
    (
        HeartBeatRequest(4, 7),
        '{"code":200,"group":"g","leaderId":"n0","localId":"n0","readRound":7,"remoteId":"n1","term":4}',
    ),
    (
        RecoveryRequest(4, 5),
        '{"code":200,"group":"g","leaderId":"n0","localId":"n0","remoteId":"n1","session":5,"term":4}',
    ),
    (
        PUSH,
        '{"batchEntry":[{"body":"aGk/","index":11,"magic":1,"size":51,"term":3},{"body":"","index":12,"magic":1,'
        '"size":48,"term":4}],"code":200,"commitIndex":9,"group":"g","leaderId":"n0","localId":"n0","preLogIndex":10,'
        '"preLogTerm":3,"remoteId":"n1","session":5,"term":4,"type":"APPEND"}',
    ),
]
RESPONSES: list[tuple[type[Request], Response]] = [
    (VoteRequest, VoteResponse(4, 5, VoteResult.REJECT_ALREADY_VOTED, True)),
    (HeartBeatRequest, HeartBeatResponse(4, ResultCode.EXPIRED_TERM, 7, True)),
    (TransferRequest, TransferResponse(4, ResultCode.INCONSISTENT_TERM)),
    (PushRequest, PushResponse(4, ResultCode.INCONSISTENT_STATE, 11, 2, 30, 3, 8, 5, True)),
    (RecoveryRequest, RecoveryResponse(4, 5, True, 30)),
]


@pytest.mark.parametrize(("request_", "text"), REQUESTS)
def test_a_request_has_these_bytes_and_reads_back(request_: Request, text: str) -> None:
    body = encode_request(ENVELOPE, request_)
    assert body.decode() == text
    envelope, fields = decode_envelope(body)
    assert (envelope, decode_request(CODE_OF[type(request_)], envelope, fields)) == (ENVELOPE, request_)


@pytest.mark.parametrize("request_", [PUSH, COMMIT, INSTALL])
def test_a_frame_reads_back_and_has_no_base64(request_: Request) -> None:
    body = b"".join(framed_request(ENVELOPE, request_))
    envelope, fields = decode_envelope(bytearray(body))
    assert (envelope, decode_request(CODE_OF[type(request_)], envelope, fields)) == (ENVELOPE, request_)
    assert b"batchEntry" not in body and b'"data"' not in body


def test_a_frame_has_these_bytes() -> None:
    text = (
        b'{"code":200,"commitIndex":9,"group":"g","leaderId":"n0","localId":"n0","preLogIndex":10,"preLogTerm":3,'
        b'"remoteId":"n1","session":5,"term":4,"type":"APPEND"}'
    )
    data = bytes.fromhex("0000000000000003 00000003 6869 3f 0000000000000004 00000000")
    head = struct.pack(">IIII", 0xD1ED6E01, len(text), len(data), crc32(data))
    assert b"".join(framed_request(ENVELOPE, PUSH)) == head + text + data


def test_a_truncated_or_corrupted_frame_is_rejected() -> None:
    body = b"".join(framed_request(ENVELOPE, PUSH))
    entries_at = len(body) - 27
    for end in range(len(body)):
        with pytest.raises(MessageError):
            decode_envelope(body[:end])
    for at in (*range(16), *range(entries_at, len(body))):
        with pytest.raises(MessageError):
            decode_envelope(body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :])
    with pytest.raises(MessageError):
        decode_envelope(body + b"x")


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("APPEND", ""),
        ("COMMIT", "0000000000000003 00000000"),
        ("APPEND", "00000000000003"),
        ("APPEND", "0000000000000003 00000002 68"),
        ("APPEND", "0000000000000005 00000000"),
        ("APPEND", "0000000000000004 00000000 0000000000000003 00000000"),
    ],
    ids=["no entry", "of a commit", "half a head", "half a body", "a later term", "an earlier term"],
)
def test_malformed_entries_in_a_frame_are_rejected(kind: str, data: str) -> None:
    fields = json.loads(encode_request(ENVELOPE, PUSH)) | {"type": kind}
    del fields["batchEntry"]
    body = b"".join(framed(json.dumps(fields).encode(), [bytes.fromhex(data)]))
    envelope, fields = decode_envelope(body)
    with pytest.raises(MessageError, match="batchEntry"):
        decode_request(51004, envelope, fields)


def test_a_push_with_too_many_entries_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Millions of empty entries fit into a frame, and each costs time and memory."""
    for module in (messageframe, messagejson):
        monkeypatch.setattr(module, "PUSH_ENTRIES_LIMIT", 2)
    in_json = json.loads(encode_request(ENVELOPE, PUSH))
    in_frame = {name: value for name, value in in_json.items() if name != "batchEntry"}
    rows = [{"body": "", "index": index, "magic": 1, "size": 48, "term": 4} for index in range(11, 14)]
    for count in (2, 3):
        data = bytes.fromhex("0000000000000004 00000000") * count
        bodies = [
            json.dumps(in_json | {"batchEntry": rows[:count]}).encode(),
            b"".join(framed(json.dumps(in_frame).encode(), [data])),
        ]
        for body in bodies:
            envelope, fields = decode_envelope(body)
            if count == 2:
                push = decode_request(51004, envelope, fields)
                assert isinstance(push, PushRequest) and len(push.entries) == 2
            else:
                with pytest.raises(MessageError, match="2 entries at most"):
                    decode_request(51004, envelope, fields)


def test_a_json_body_cannot_name_frame_data() -> None:
    fields = json.loads(encode_request(ENVELOPE, PUSH)) | {"behind the JSON": "AAAA"}
    envelope, fields = decode_envelope(json.dumps(fields).encode())
    assert decode_request(51004, envelope, fields) == PUSH


def test_each_body_announces_frame_support_and_older_bodies_do_not() -> None:
    own = Envelope("g", "n0", "n1", "", 1)
    envelope, fields = decode_envelope(encode_request(own, VoteRequest(4, 10, 3)))
    assert envelope.frames == 1 and envelope == ENVELOPE
    del fields["frames"]
    assert decode_envelope(json.dumps(fields).encode())[0].frames == 0


@pytest.mark.parametrize(("kind", "response"), RESPONSES)
def test_a_response_reads_back(kind: type[Request], response: Response) -> None:
    envelope, fields = decode_envelope(encode_response(ENVELOPE, response))
    assert (envelope, decode_response(CODE_OF[kind], fields)) == (ENVELOPE, response)


@pytest.mark.parametrize("request_", [request_ for request_, _ in REQUESTS])
def test_a_request_without_a_declared_field_is_rejected(request_: Request) -> None:
    for row in wire_fields(type(request_)):
        fields = json.loads(encode_request(ENVELOPE, request_))
        del fields[row.wire_name]
        if row.wire_name in LATER_FIELDS and not isinstance(request_, RecoveryRequest):
            read = decode_request(CODE_OF[type(request_)], ENVELOPE, fields)
            assert getattr(read, row.attribute) == row.default(), "an old member does not send it"
            continue
        with pytest.raises(MessageError, match=row.wire_name):
            decode_request(CODE_OF[type(request_)], ENVELOPE, fields)


def test_a_vote_request_of_an_earlier_release_has_no_transfer_flag() -> None:
    fields = json.loads(encode_request(ENVELOPE, VoteRequest(4, 10, 3)))
    del fields["leadershipTransfer"]
    assert decode_request(51001, ENVELOPE, fields) == VoteRequest(4, 10, 3)
    with pytest.raises(MessageError, match="leadershipTransfer"):
        decode_request(51001, ENVELOPE, fields | {"leadershipTransfer": 1})


def test_each_body_carries_the_member_list_and_older_bodies_have_none() -> None:
    own = Envelope("g", "n0", "n1", "n0-h0:1;n1-h1:2")
    envelope, fields = decode_envelope(encode_request(own, VoteRequest(4, 10, 3)))
    assert envelope.peers == own.peers and envelope == ENVELOPE
    del fields["peers"]
    assert decode_envelope(json.dumps(fields).encode())[0].peers == ""


def test_a_refusal_is_no_response() -> None:
    _, fields = decode_envelope(encode_refusal(ENVELOPE, ResultCode.UNKNOWN_GROUP))
    assert fields["code"] == 400 and decode_response(51001, fields) is None


@pytest.mark.parametrize(
    "body", [None, b"", b"[]", b"{", b"\xff", b'{"group":"g"}', b"[" * 100_000, b'"x"', b"NaN"]
)
def test_a_body_that_is_no_json_object_with_a_sender_is_rejected(body: bytes | None) -> None:
    with pytest.raises(MessageError):
        decode_envelope(body)


@pytest.mark.parametrize(
    "changes",
    [
        {"term": (1 << 63) - 1},
        {"term": 1 << 62},
        {"term": -1},
        {"term": True},
        {"term": "4"},
        {"term": 4.0},
        {"term": None},
        {"leaderId": "n2"},
        {"preLogIndex": (1 << 63) - 1},
        {"preLogIndex": -2},
        {"preLogIndex": -1},
        {"preLogTerm": 5},
        {"preLogTerm": -1},
        {"commitIndex": "x"},
        {"type": "TRUNCATE"},
        {"type": "COMMIT"},
        {"type": None},
        {"batchEntry": []},
        {"batchEntry": None},
        {"batchEntry": ["x"]},
        {"batchEntry": [{"body": "", "index": 12, "magic": 1, "size": 48, "term": 4}]},
        {"batchEntry": [{"body": "", "index": 11, "magic": 1, "size": 48, "term": 5}]},
        {"batchEntry": [{"body": "", "index": 11, "magic": 1, "size": 48, "term": 2}]},
        {"batchEntry": [{"body": "!", "index": 11, "magic": 1, "size": 48, "term": 4}]},
        {"batchEntry": [{"body": "aGk/", "index": 11, "magic": 1, "size": 48, "term": 4}]},
    ],
)
def test_an_invalid_push_is_rejected(changes: dict[str, object]) -> None:
    fields = json.loads(encode_request(ENVELOPE, PUSH)) | changes
    with pytest.raises(MessageError):
        decode_request(51004, ENVELOPE, fields)


@pytest.mark.parametrize(
    "changes", [{"term": (1 << 63) - 1}, {"ledgerEndTerm": 4}, {"ledgerEndIndex": -2}, {"preVote": 1}]
)
def test_an_invalid_vote_request_is_rejected(changes: dict[str, object]) -> None:
    fields = json.loads(encode_request(ENVELOPE, VoteRequest(4, 10, 3))) | changes
    with pytest.raises(MessageError):
        decode_request(51001, ENVELOPE, fields)
