"""Find single messages by id, by key or by place, and show them as upstream does.

Invariant: a message's id contains a broker's address. The address is used only if the name server knows a broker there, because
anybody can make up an id."""

from __future__ import annotations

import base64
import ipaddress
import struct
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import tzinfo
from typing import Any

from mqadmin.admin import AdminClient
from mqadmin.errors import AdminError, ReplyMalformed, RequestRefused
from mqadmin.report import Report, java_map
from mqadmin.times import format_time
from mqclient.compression import CompressionUnsupported
from mqclient.consumer import PullConsumer
from mqclient.errors import ClientError
from mqclient.message import RecordMalformed, StoredMessage, decode_messages
from mqclient.routetable import TopicRoutes
from remoting.codes import RequestCode, ResponseCode
from remoting.headers.messages import QueryMessageHeader, ViewMessageHeader

TOOLS_GROUP = "TOOLS_CONSUMER"
TIMESTAMP_MAX = 2**63 - 1
NOT_FOUND = "can not find message, maybe time range not correct"
"""The whole remark of upstream's brokers. The remark of this implementation may be longer."""
OFFSET_ID_BYTES = (16, 28)
"""Sizes of ids of an IPv4 broker and of an IPv6 broker."""
PORT_AND_OFFSET = struct.Struct(
    ">"  # offset field            (after the address)
    "i"  #  0 port
    "q"  #  4 physical_offset
)


def offset_id(message: StoredMessage) -> str:
    """The id that the broker gave a message: the address of the broker where the message was first stored, and the message's
    offset in the log."""
    host, _, port = message.store_host.rpartition(":")
    address = ipaddress.ip_address(host.strip("[]"))
    return (address.packed + PORT_AND_OFFSET.pack(int(port), message.physical_offset)).hex().upper()


def offset_in(text: str) -> int | None:
    """The physical offset in an offset id; None for other text."""
    try:
        data = bytes.fromhex(text)
    except ValueError:
        return None
    if len(data) not in OFFSET_ID_BYTES:
        return None
    _, offset = PORT_AND_OFFSET.unpack(data[-PORT_AND_OFFSET.size :])
    return int(offset) if offset >= 0 else None


async def at_offset(client: AdminClient, broker: str, offset: int, topic: str = "") -> StoredMessage | None:
    """The message that begins at a byte of a broker's log: VIEW_MESSAGE_BY_ID (33). None if no message begins there."""
    header = ViewMessageHeader(offset, topic or None)
    absent = ResponseCode.SYSTEM_ERROR
    reply = await client.ask_for(broker, RequestCode.VIEW_MESSAGE_BY_ID, header, absent=absent)
    found = _decoded(broker, reply.body) if reply is not None else []
    return found[0] if found else None


async def by_key(
    client: AdminClient,
    broker: str,
    topic: str,
    key: str,
    *,
    count_max: int,
    begin_ms: int = 0,
    end_ms: int = TIMESTAMP_MAX,
    unique: bool = False,
    by_tag: bool = False,
    last_key: str | None = None,
    note: Callable[[str], None] | None = None,
) -> list[StoredMessage]:
    """Messages that one broker's index has for a key, a producer's id or a tag, oldest first: QUERY_MESSAGE (12). `last_key`
    is where a broker with its index in RocksDB continues. `note` gets the broker's remark on messages that it may have
    missed."""
    header = QueryMessageHeader(
        topic, key, count_max, begin_ms, end_ms, unique, "T" if by_tag else None, last_key
    )
    body: bytes | bytearray | memoryview | None = b""
    try:
        reply = await client.ask(broker, RequestCode.QUERY_MESSAGE, header)
        missed, body = reply.remark or "", reply.body
    except RequestRefused as error:
        if error.code != ResponseCode.QUERY_NOT_FOUND:
            raise
        missed = error.remark.removeprefix(NOT_FOUND).removeprefix("; ")
    if missed and note is not None:
        note(f"{broker}: {missed}")
    found = [message for message in _decoded(broker, body) if _matches(message, topic, key, unique, by_tag)]
    return sorted(found, key=lambda message: (message.store_timestamp_ms, message.physical_offset))


def _matches(message: StoredMessage, topic: str, key: str, unique: bool, by_tag: bool) -> bool:
    """Whether the message has the key. An index holds only hashes, so messages whose keys merely have an equal hash are left
    out."""
    if message.topic != topic:
        return False
    if by_tag:
        return message.properties.get("TAGS") == key
    if unique:
        return message.message_id == key
    return key in message.properties.get("KEYS", "").split(" ")


def _decoded(broker: str, body: bytes | bytearray | memoryview | None) -> list[StoredMessage]:
    try:
        return decode_messages(body or b"")
    except RecordMalformed as error:
        raise ReplyMalformed(f"{broker}: {error}") from error


@asynccontextmanager
async def puller(client: AdminClient, namesrv: str, group: str = TOOLS_GROUP) -> AsyncIterator[PullConsumer]:
    """A consumer on the connections of `client`. Its errors become `AdminError`."""
    routes = TopicRoutes(namesrv, client.remoting, client.clock)
    try:
        yield PullConsumer(group, routes=routes, client=client.remoting, clock=client.clock)
    except ClientError as error:
        raise AdminError(str(error)) from error
    finally:
        await routes.close()


def plain_body(message: StoredMessage) -> bytes:
    """The original body, or the stored body if its compression is not supported."""
    try:
        return message.plain_body()
    except ValueError:
        return message.body


def shown_body(report: Report, message: StoredMessage) -> bytes:
    """As `plain_body`, with a note about a body that cannot be decompressed."""
    try:
        return message.plain_body()
    except CompressionUnsupported as error:
        report.note(error.cure)
    except ValueError as error:
        report.note(f"message {offset_id(message)}: {error}; its body is shown as it is stored")
    return message.body


def format_message(message: StoredMessage, zone: tzinfo | None = None) -> str:
    """The block of lines that the query commands print."""
    rows = {
        "OffsetID": offset_id(message),
        "Topic": message.topic,
        "Tags": f"[{message.properties.get('TAGS', 'null')}]",
        "Keys": f"[{message.properties.get('KEYS', 'null')}]",
        "Queue ID": message.queue_id,
        "Queue Offset": message.queue_offset,
        "CommitLog Offset": message.physical_offset,
        "Reconsume Times": message.reconsume_times,
        "Born Timestamp": format_time(message.born_timestamp_ms, zone),
        "Store Timestamp": format_time(message.store_timestamp_ms, zone),
        "Born Host": message.born_host,
        "Store Host": message.store_host,
        "System Flag": message.sys_flag,
        "Properties": java_map(message.properties),
    }
    return "".join(f"{name + ':':<20} {value}\n" for name, value in rows.items())


def format_line(queue_broker: str, message: StoredMessage, body: str) -> str:
    """The line that consumeMessage prints, in the format of upstream's MessageExt.toString."""
    plain = plain_body(message)
    signed = ", ".join(str(byte - 256 if byte > 127 else byte) for byte in plain)
    return (
        f"MSGID: {message.message_id or offset_id(message)} MessageExt [brokerName={queue_broker}, "
        f"queueId={message.queue_id}, storeSize={message.size_bytes}, queueOffset={message.queue_offset}, "
        f"sysFlag={message.sys_flag}, bornTimestamp={message.born_timestamp_ms}, bornHost=/{message.born_host}, "
        f"storeTimestamp={message.store_timestamp_ms}, storeHost=/{message.store_host}, "
        f"msgId={offset_id(message)}, commitLogOffset={message.physical_offset}, "
        f"bodyCRC={zlib.crc32(message.body) & 0x7FFFFFFF}, reconsumeTimes={message.reconsume_times}, "
        f"preparedTransactionOffset={message.prepared_transaction_offset}, toString()=Message{{"
        f"topic='{message.topic}', flag={message.flag}, properties={java_map(message.properties)}, "
        f"body=[{signed}], transactionId='null'}}] BODY: {body}\n"
    )


def as_json(message: StoredMessage) -> dict[str, Any]:
    """One message for scripts: `body` is text if it is UTF-8, else `bodyBase64` holds the bytes."""
    plain = plain_body(message)
    try:
        body = {"body": plain.decode()}
    except UnicodeDecodeError:
        body = {"bodyBase64": base64.b64encode(plain).decode()}
    return {
        "msgId": message.message_id,
        "offsetMsgId": offset_id(message),
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "commitLogOffset": message.physical_offset,
        "storeSize": message.size_bytes,
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "bornTimestamp": message.born_timestamp_ms,
        "bornHost": message.born_host,
        "storeTimestamp": message.store_timestamp_ms,
        "storeHost": message.store_host,
        "reconsumeTimes": message.reconsume_times,
        "properties": message.properties,
        **body,
    }


def no_message(what: str) -> AdminError:
    return AdminError(f"no message {what} was found; a removed or never stored one has no trace")
