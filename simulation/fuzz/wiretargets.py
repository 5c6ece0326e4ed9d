"""Fuzzing targets: decoders of bytes from peers and clients. Each has a valid example, and the errors that bad input may raise.

Invariant: each target checks what it decoded: encoding and decoding it again must give the same, and a stream must give the
same result into whatever pieces it is cut."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from random import Random
from typing import Any, cast

import orjson

from accesscontrol.audit import AuditLog
from accesscontrol.directory import Administrators
from accesscontrol.guard import AccessGuard
from accesscontrol.policies import (
    AccessRefused,
    Action,
    Kind,
    Need,
    Rights,
    added_to,
    entries_of,
    resource_of,
    without,
)
from broker.access.needs import broker_table
from broker.clients.refusals import ClientRefused
from broker.clients.subscription import tag_filter
from broker.sends.request import asked_retries_max, read_send_request
from broker.tables.holders import TablesVersion
from broker.tables.rowchanges import Named
from dledger.node import authenticator, clientjson, messagejson
from dledger.node.messageframe import MessageFrameDamaged, entries_in, entry_parts
from dledger.node.messagejson import Envelope
from dledger.raft import messages
from dledger.raft.entries import Entry
from dledger.raft.membership import parsed_peers
from dledger.raft.messages import (
    KINDS,
    HeartBeatRequest,
    HeartBeatResponse,
    InstallRequest,
    InstallResponse,
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
from filters.errors import FilterError
from filters.kept import KeptFilters
from ha import frames
from ha.classic import frames as classic
from messagestore.batch import MEMBER_HEADER, PROPERTIES_LENGTH, BatchError, parse_batch
from messagestore.properties import format_properties, parse_properties
from messagestore.record import parse_message_id
from mqclient.message import RecordMalformed, decode_messages, decode_properties
from mqclient.route import TopicRoute
from mqruntime.clock import SystemClock
from mqruntime.peercertificate import NOT_ASKED
from mqruntime.proxyheader import (
    PROXY_BYTES_MAX,
    SIGNATURE,
    ProxyHeader,
    ProxyHeaderError,
    read_proxy_header,
)
from nativepath import presence
from remoting import fastjson
from remoting.bodies.access import AclInfo, UserInfo, acls_in, encode_list, users_in
from remoting.bodies.body import Body
from remoting.bodies.groups import DeleteGroupsBody, SubscriptionGroupConfig, SubscriptionGroupList
from remoting.bodies.heartbeats import CheckClientConfigBody, HeartbeatData
from remoting.bodies.queues import LockQueuesBody, QueryAssignmentBody
from remoting.bodies.registration import read_register_body
from remoting.bodies.routes import TopicList, TopicRouteData
from remoting.bodies.topics import TopicConfigList
from remoting.codes import RequestCode
from remoting.command import JSON, ROCKETMQ, RemotingCommand
from remoting.errors import BodyError, HeaderError
from remoting.frame import FRAME_BYTES_MAX, HEADER_BYTES_MAX, FrameReader, commands_in, encode
from remoting.header import Header
from remoting.peer import Peer
from remoting.signing import Credentials, Signer
from remoting.wirefields import wire_fields
from simulation.fuzz.campaign import Target
from simulation.fuzz.choices import HISTORY, JSON_TOKENS, choose, chosen, records
from simulation.fuzz.examples import body_example, declared, header_example

HEADERS, BODIES = declared(Header), declared(Body)


BETWEEN_MEMBERS = tuple(KINDS)


EXPRESSIONS = [
    b"a > 5 AND (b = 'x' OR NOT c IN ('1', '2')) AND d IS NOT NULL",
    b"a NOT BETWEEN -1.5 AND 3e2 OR e STARTSWITH 'y' -- behind\n OR /* */ TRUE <> f",
]
EXPRESSION_TOKENS = [
    b" AND ", b" OR ", b"NOT ", b" IN (", b"'", b"''", b" BETWEEN ", b" IS ", b"NULL", b"TRUE", b"CONTAINS", b"ENDSWITH",
    b"<>", b">=", b"(", b")", b",", b"--", b"/*", b"*/", b"\x01", b"\x02", b"1l", b"0x1p3",
]  # fmt: skip


def frame_stream(data: bytes) -> None:
    """One reader gets all bytes at once, and another gets pieces. The compiled reader reads first, if there is one."""
    whole, cut, random = FrameReader(), FrameReader(), Random(len(data))
    found = whole.receive(data)
    pieces, at = [], 0
    size = random.choice((1, 7, 64, 4_096))
    while at < len(data) and cut.failure is None:
        pieces += cut.receive(data[at : at + size])
        at += size
    assert [plain(each) for each in pieces] == [plain(each) for each in found]
    assert (whole.failure is None) == (cut.failure is None)
    if presence.native is not None:
        sends = presence.native.read_sends(memoryview(data), 0, len(data), FRAME_BYTES_MAX, HEADER_BYTES_MAX)
        if sends is not None:
            alike = [plain(each) for each in commands_in(memoryview(data)[: sends.end])]
            assert alike == [plain(each) for each in found][: len(alike)]
            assert all(each.code == sends.code for each in found[: len(alike)])
    for each in found:
        if each.code in (
            RequestCode.SEND_MESSAGE,
            RequestCode.SEND_MESSAGE_V2,
            RequestCode.SEND_BATCH_MESSAGE,
        ):
            with contextlib.suppress(HeaderError, ClientRefused):
                read_send_request(each.code, dict(each.ext)).delay_level  # noqa: B018  a property that parses
                asked_retries_max(each.code, dict(each.ext))


def plain(command: RemotingCommand) -> tuple[Any, ...]:
    body = None if command.body is None else bytes(command.body)
    return command.code, command.opaque, command.flag, command.remark, dict(command.ext), body


def header(data: bytes) -> None:
    kind, text = chosen(data, HEADERS)
    ext = orjson.loads(text)
    if isinstance(ext, dict):
        found = kind.from_ext({str(name): str(value) for name, value in ext.items()})
        assert kind.from_ext(found.to_ext()) == found


def body(data: bytes) -> None:
    kind, text = chosen(data, BODIES)
    found = kind.decode(text)
    assert kind.decode(found.encode()) == found


def access_lists(data: bytes) -> None:
    read, text = chosen(data, (users_in, acls_in))
    found = read(text)
    assert read(encode_list(found)) == found


def policies(data: bytes) -> None:
    """Policies as a request adds them: their stored form is stable, and can be decided on and deleted from."""
    given = AclInfo.from_request(data)
    stored = added_to(None, given)
    assert AclInfo.decode(stored.encode()) == added_to(None, stored) == added_to(stored, stored) == stored
    rights = Rights(stored)
    assert rights.verdict(NEED, "10.1.2.3") is Rights(given).verdict(NEED, "10.1.2.3")
    for entries in entries_of(stored).values():
        for entry in entries:
            assert resource_of(str(entry.resource)) == entry.resource
            left = without(stored, entry.resource, None)
            assert left is None or len(left.encode()) < len(stored.encode())


def access_needs(data: bytes) -> None:
    """A request whose needs are read before its handler: ext fields, a line break, and the body. The guard itself raises
    nothing."""
    code, text = chosen(data, ACCESS_CODES)
    fields, _, content = text.partition(b"\n")
    ext = orjson.loads(fields)
    if isinstance(ext, dict):
        request = RemotingCommand(
            code, ext={str(name): str(value) for name, value in ext.items()}, body=content
        )
        for user in (KNOWN_USER, STRANGER):
            user.sign(request)
            refused = GUARD.refusal(ASKING, request)
            assert refused is None or user is STRANGER
        for need in ACCESS_ROWS[code].needs(request):
            ACCESS_RIGHTS.verdict(need, "::1")


def registration(data: bytes) -> None:
    read_register_body(data[1:], compressed=data[:1] == b"\1")


def ha_to_master(data: bytes) -> None:
    size = frames.Handshake.size_of(data)
    if size is not None and len(data) >= size:
        found = frames.Handshake.decode(data[:size])
        again = found.encode()
        assert frames.Handshake.size_of(again) == len(again)
        assert frames.Handshake.decode(again) == found
        data = data[size:]
    while len(data) >= frames.ACK.size:
        frames.decode_ack(data[: frames.ACK.size])
        data = data[frames.ACK.size :]


def ha_to_slave(data: bytes) -> None:
    head = data[: frames.HANDSHAKE_REPLY.size]
    if len(head) < frames.HANDSHAKE_REPLY.size:
        return
    end = len(head) + frames.HandshakeReply.body_size(head)
    if len(data) < end:
        return
    found = frames.HandshakeReply.decode(head, data[len(head) : end])
    assert [*found.epochs] == [*frames.HandshakeReply.decode(head, data[len(head) : end]).epochs]
    while len(data) >= end + frames.TRANSFER.size:
        transfer = frames.TransferHeader.decode(data[end : end + frames.TRANSFER.size])
        assert frames.TransferHeader.decode(transfer.encode()) == transfer
        end += frames.TRANSFER.size + transfer.body_size


def ha_pair(data: bytes) -> None:
    if len(data) >= classic.REPORT.size:
        classic.decode_report(data[: classic.REPORT.size])
    if len(data) >= classic.TRANSFER.size:
        classic.PairTransferHeader.decode(data[: classic.TRANSFER.size])


def batch(data: bytes) -> None:
    assert sum(len(each.body) for each in parse_batch(data)) < len(data)


def properties(data: bytes) -> None:
    found = parse_properties(data)
    kept = {name: value for name, value in found.items() if "\x01" not in value}
    assert parse_properties(format_properties(kept)) == kept


def route(data: bytes) -> None:
    TopicRoute.of("t", TopicRouteData.from_request(data))


def message_id(data: bytes) -> None:
    parse_message_id(data.decode("utf-8", "replace"))


def subscription(data: bytes) -> None:
    tag_filter(data.decode("utf-8", "replace"), None)


def expression(data: bytes) -> None:
    """An expression, parsed without a cache, and evaluated on bytes that are no properties."""
    judged = KeptFilters().compiled(data.decode("utf-8", "replace"))
    assert judged(data) in (True, False)


def raft_message(data: bytes) -> None:
    """A Raft message, read as by a listening member (code, envelope, request, entries) and as by the member that asked."""
    code, text = chosen(data, BETWEEN_MEMBERS)
    envelope, fields = messagejson.decode_envelope(text)
    with contextlib.suppress(messagejson.MessageError):
        answer = messagejson.decode_response(code, fields)
        assert answer is not None or isinstance(fields["code"], int), "a refusal says why"
    messagejson.decode_request(code, envelope, fields)


def raft_client(data: bytes) -> None:
    fields = messagejson.decode_fields(data)
    clientjson.envelope_of(fields)
    for read in (clientjson.bodies_of, clientjson.index_of, clientjson.entry_of):
        with contextlib.suppress(messagejson.MessageError):
            read(fields)


def raft_entries(data: bytes) -> None:
    found = entries_in(memoryview(data), 5)
    assert b"".join(entry_parts(found)) == data


def peer_list(data: bytes) -> None:
    parsed_peers(data.decode("utf-8", "replace"), "peers")


def tables_version(data: bytes) -> None:
    found = TablesVersion.parse(data.decode("utf-8", "replace"))
    assert found is None or TablesVersion.parse(str(found)) == found
    named = Named.parse(data.decode("utf-8", "replace"))
    assert named is None or Named.parse(str(named)) == named


def host(data: bytes) -> None:
    authenticator.parsed.__wrapped__(data.decode("utf-8", "replace"))  # bypasses the cache


def proxy_header(data: bytes) -> None:
    """The bytes come in pieces. Those of an incomplete header all belong to it, and those after it have no influence."""
    whole, random, begun = header_or_refusal(data), Random(len(data)), 0
    while (found := header_or_refusal(data[:begun])) is None and begun < len(data):
        assert begun < PROXY_BYTES_MAX
        begun += random.choice((1, 7, 64))
    assert found == whole
    if isinstance(found, str):
        raise ProxyHeaderError(found)
    if found is not None:
        assert header_or_refusal(data[: found.size - 1]) is None
    if found is not None and found.source is not None:
        host, port = found.source
        line = f"PROXY TCP{6 if ':' in host else 4} {host} {host} {port} {port}\r\n".encode()
        assert read_proxy_header(line) == (len(line), found.source)


def header_or_refusal(data: bytes) -> ProxyHeader | str | None:
    try:
        return read_proxy_header(data)
    except ProxyHeaderError as error:
        return str(error)


def pulled(data: bytes) -> None:
    decode_messages(data)
    decode_properties(data.decode("utf-8", "replace"))


def fast_json(data: bytes) -> None:
    fastjson.loads(data)


def command_seeds() -> Iterator[bytes]:
    ext = {
        "a": "PG", "b": "orders", "c": "TBW102", "d": "4", "e": "1", "f": "0", "g": "1795256518702", "h": "0",
        "i": "KEYS\x01k\x02UNIQ_KEY\x010A0102030A5C18B4\x02WAIT\x01true\x02DELAY\x013\x02", "j": "0", "k": "false",
        "m": "false", "n": "broker-a",
    }  # fmt: skip
    for kind in (JSON, ROCKETMQ):
        for code in (RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE, RequestCode.HEART_BEAT):
            command = RemotingCommand.request(code, body=b"some bytes")
            command.ext, command.serialize_type = ext, kind
            yield b"".join(bytes(piece) for piece in encode(command)) * 2


def raft_seeds() -> Iterator[bytes]:
    """Messages between members, in JSON and in frames, requests and answers."""
    envelope = Envelope("g", "n0", "n1", "n0-127.0.0.1:1;n1-127.0.0.1:2", 1, 4)
    said: list[tuple[Request, Response]] = [
        (VoteRequest(4, 10, 3), VoteResponse(4, 4, VoteResult.ACCEPT)),
        (HeartBeatRequest(4, 7), HeartBeatResponse(4, ResultCode.SUCCESS, 7)),
        (
            PushRequest(4, PushType.APPEND, 10, 3, 9, (Entry(11, 3, b"hi?"), Entry(12, 4, b"")), 5),
            PushResponse(4, ResultCode.SUCCESS, 11, 2, 12),
        ),
        (TransferRequest(4, "n0", "n1", 12), TransferResponse(4, ResultCode.SUCCESS)),
        (RecoveryRequest(4, 5), RecoveryResponse(4, 5, True, 9)),
        (InstallRequest(4, 10, 3, 9, 77, 2, b"{\x00\xff", 5), InstallResponse(4, ResultCode.SUCCESS, 10, 5)),
    ]
    for request, response in said:
        number = BETWEEN_MEMBERS.index(messages.CODE_OF[type(request)])
        yield choose(number, messagejson.encode_request(envelope, request))
        yield choose(number, b"".join(map(bytes, messagejson.framed_request(envelope, request))))
        yield choose(number, messagejson.encode_response(envelope, response))


def client_seeds() -> Iterator[bytes]:
    base = {
        "group": "g",
        "remoteId": "n1",
        "code": 200,
        "beginIndex": 4,
        "body": "YQ==",
        "batchMsgs": ["YQ==", ""],
    }
    yield orjson.dumps(base | {"entries": [{"index": 5, "term": 3, "body": "YQ=="}]})


def tokens_of(*kinds: type) -> list[bytes]:
    names = {row.wire_name.encode() for kind in kinds for row in wire_fields(kind)}
    return sorted(names)


NEED = Need(Kind.TOPIC, "orders", (Action.PUB, Action.SUB))
ACL = (
    b'{"policies":[{"entries":[{"actions":["Pub","Sub"],"decision":"Allow","resource":"Topic:or*","sourceIps":["10.0.0.0/8","::1"]},'
    b'{"actions":["All"],"decision":"Deny","resource":"*"}],"policyType":"Custom"},{"entries":[{"actions":["Get"],'
    b'"decision":"Allow","resource":"Cluster:*"}],"policyType":"Default"}],"subject":"User:u"}'
)
ACL_TOKENS = (
    b"Topic:", b"Group:", b"Namespace:", b"*", b":", b"Allow", b"Deny", b"Any", b"All", b"Default", b"/0", b"/33",
    b"::ffff:10.1.2.3", b"fe80::1%eth0", b"255.0.0.0",
)  # fmt: skip
ACCESS_ROWS = broker_table("C")
ACCESS_CODES = sorted(ACCESS_ROWS)
ACCESS_RIGHTS = Rights(AclInfo.decode(ACL))
ACCESS_BODIES: dict[int, type[Body]] = {
    RequestCode.HEART_BEAT: HeartbeatData,
    RequestCode.LOCK_BATCH_MQ: LockQueuesBody,
    RequestCode.CHECK_CLIENT_CONFIG: CheckClientConfigBody,
    RequestCode.QUERY_ASSIGNMENT: QueryAssignmentBody,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: TopicConfigList,
    RequestCode.DELETE_TOPIC_IN_BROKER_LIST: TopicList,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: SubscriptionGroupConfig,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: SubscriptionGroupList,
    RequestCode.DELETE_SUBSCRIPTION_GROUP_LIST: DeleteGroupsBody,
}
ACCESS_EXT = (
    b'{"topic":"orders","b":"%RETRY%g","consumerGroup":"g","group":"g","groupName":"g","srcGroup":"g","destGroup":"h",'
    b'"topicList":"orders;clicks","_UNIQUE_KEY_QUERY":"true"}\n'
)
KNOWN_USER, STRANGER = Signer(Credentials("u", "secret")), Signer(Credentials("u", "wrong"))


class AskingPeer:
    remote_address = "10.1.2.3:50000"
    certificate = NOT_ASKED


class SilentAudit(AuditLog):
    def refused(self, peer: Peer, request: RemotingCommand, user: str, kind: str, why: str) -> None:
        self._about(peer, request, user)


ASKING = cast(Peer, AskingPeer())
GUARD = AccessGuard(
    ACCESS_ROWS, Administrators({"u": "secret"}), SilentAudit("fuzz", SystemClock()), cluster="C"
)


def access_seeds() -> Iterator[bytes]:
    for number, code in enumerate(ACCESS_CODES):
        kind = ACCESS_BODIES.get(code)
        yield choose(number, ACCESS_EXT + (b"" if kind is None else orjson.dumps(body_example(kind))))


ROUTE = (
    b'{"brokerDatas":[{"brokerAddrs":{0:"127.0.0.1:1","1":"127.0.0.1:2"},"brokerName":"b","cluster":"C"}],'
    b'"queueDatas":[{"brokerName":"b","perm":6,"readQueueNums":4,"writeQueueNums":4}]}'
)

WIRE = [
    Target(
        "frames",
        frame_stream,
        [*command_seeds()],
        (),
        (b'"extFields":{', b'"code":', b'"flag":2', b"\x02\x01"),
    ),
    Target(
        "json",
        fast_json,
        [b'{"a":[1,-2.5e3,"\\u00e9",null,true],{"k":1}:2,"b":{}}'],
        (fastjson.FastJsonError,),
        JSON_TOKENS,
    ),
    Target(
        "headers",
        header,
        [choose(number, orjson.dumps(header_example(kind))) for number, kind in enumerate(HEADERS)],
        (HeaderError, orjson.JSONDecodeError),
        JSON_TOKENS,
    ),
    Target(
        "bodies",
        body,
        [choose(number, orjson.dumps(body_example(kind))) for number, kind in enumerate(BODIES)],
        (BodyError,),
        JSON_TOKENS,
    ),
    Target(
        "lists of users",
        access_lists,
        [
            choose(0, b"[" + UserInfo("u", "p", "Super", "enable").encode() + b"]"),
            choose(1, b"[" + ACL + b"]"),
        ],
        (BodyError,),
        JSON_TOKENS,
    ),
    Target("policies", policies, [ACL], (BodyError, AccessRefused), (*JSON_TOKENS, *ACL_TOKENS)),
    Target(
        "needs of requests",
        access_needs,
        [*access_seeds()],
        (HeaderError, BodyError, orjson.JSONDecodeError),
        (*JSON_TOKENS, b"%RETRY%", b"\n"),
    ),
    Target(
        "registration",
        registration,
        [b"\1" + b"\0" * 40, b"\0" + orjson.dumps(body_example(BODIES[0]))],
        (BodyError,),
    ),
    Target(
        "ha-master",
        ha_to_master,
        [
            frames.Handshake(2).encode() + frames.encode_ack(640) * 3,
            frames.Handshake(0, True, False, True, "127.0.0.1:10912").encode() + frames.encode_ack(0),
        ],
        (frames.HAFrameError,),
    ),
    Target(
        "ha-slave",
        ha_to_slave,
        [
            frames.HandshakeReply(8_192, HISTORY).encode()
            + frames.TransferHeader(3, 4_096, 3, 4_096, 4_096).encode()
            + b"abc"
            + frames.TransferHeader(0, 4_099, 3, 4_096, 4_099).encode()
        ],
        (frames.HAFrameError,),
    ),
    Target(
        "ha-pair",
        ha_pair,
        [classic.PairTransferHeader(0, 64).encode(), classic.encode_report(640)],
        (frames.HAFrameError,),
    ),
    Target(
        "batches",
        batch,
        [(MEMBER_HEADER.pack(26, 0, 0, 0, 3) + b"abc" + PROPERTIES_LENGTH.pack(1) + b"p") * 2],
        (BatchError,),
    ),
    Target("properties", properties, [b"KEYS\x01k1 k2\x02TAGS\x01TagA\x02UNIQ_KEY\x010A01\x02"]),
    Target("message ids", message_id, [b"7F0000012A9F0000000000000280"], (ValueError,)),
    Target("subscriptions", subscription, [b"A || B||C", b"*"], (HeaderError,), (b"||", b"*")),
    Target("expressions", expression, EXPRESSIONS, (FilterError,), EXPRESSION_TOKENS),
    Target(
        "raft messages",
        raft_message,
        [*raft_seeds()],
        (messagejson.MessageError,),
        (*JSON_TOKENS, *tokens_of(*(kind for pair in KINDS.values() for kind in pair))),
    ),
    Target(
        "raft clients",
        raft_client,
        [*client_seeds()],
        (messagejson.MessageError,),
        JSON_TOKENS,
    ),
    Target(
        "raft entries of a push",
        raft_entries,
        [((3).to_bytes(8, "big") + (1).to_bytes(4, "big") + b"x") * 3],
        (MessageFrameDamaged,),
    ),
    Target("raft peers", peer_list, [b"n0-127.0.0.1:1;n1-[::1]:2"], (ValueError,)),
    Target("version of tables", tables_version, [b"3.17", b"3.17@1700000000000"]),
    Target("hosts", host, [b"[::ffff:127.0.0.1]", b"fe80::1%eth0"]),
    Target(
        "proxy header",
        proxy_header,
        [
            b"PROXY TCP4 10.9.1.2 10.0.0.1 40001 10911\r\n",
            b"PROXY TCP6 ::ffff:10.9.1.2 2001:db8::1 40001 10911\r\n",
            b"PROXY UNKNOWN\r\n",
            SIGNATURE + b"\x21\x11\x00\x11" + bytes(range(12)) + b"\x04\x00\x02ab",
            SIGNATURE + b"\x21\x21\x00\x24" + bytes(range(36)),
            SIGNATURE + b"\x20\x00\x00\x00",
        ],
        (ProxyHeaderError,),
        (b"PROXY ", SIGNATURE, b"TCP4 ", b"\r\n", b"::ffff:", b"127.0.0.1"),
    ),
    Target("routes", route, [ROUTE], (BodyError,), JSON_TOKENS),
    Target("pulled messages", pulled, [b"".join(records())], (RecordMalformed,)),
]
