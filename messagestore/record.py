"""One stored message as bytes: the record of the commit log.

Invariant: `FIXED_FIELDS` is the only place that knows the layout. A record consists of the fixed part (88 bytes, 12 more for
each IPv6 host), the body, the length of the topic (one byte in V1, two in V2), the topic, the length of the properties, and
the properties. Its total size is the sum of these. All numbers are big-endian. No record spans two segments: a BLANK record,
or fewer than eight bytes, ends a segment. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from struct import Struct
from typing import Any, NamedTuple, Protocol, TypeAlias
from zlib import crc32

from messagestore.properties import parse_properties
from messagestore.recordcrc import CRC_MASK, contradicts

Buffer: TypeAlias = bytes | bytearray | memoryview

MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB
MAGIC_BLANK = 0xCBD43194

COMPRESSED = 0x1
MULTI_TAGS = 0x2
TRANSACTION_MASK = 0xC
TRANSACTION_PREPARED = 0x4
TRANSACTION_COMMIT = 0x8
TRANSACTION_ROLLBACK = 0xC
BORN_HOST_IPV6 = 0x10
STORE_HOST_IPV6 = 0x20
COMPRESSION_TYPE_MASK = 0x700

TOPIC_BYTES_MAX_V1 = 127
TOPIC_BYTES_MAX = 255
PROPERTIES_BYTES_MAX = 32767
RECORD_SIZE_MIN = 91

FIXED_FIELDS = (
    ("total_size", "i"),  # the whole record
    ("magic", "I"),  # MAGIC_V1 or MAGIC_V2
    ("body_crc", "I"),  # CRC-32 of the body as stored, 31 bits; 0 for an empty body
    ("queue_id", "i"),
    ("flag", "i"),  # a number of the application's choice
    ("queue_offset", "q"),  # index in the consume queue; 0 for PREPARED and ROLLBACK
    ("physical_offset", "q"),  # the offset of this record itself
    ("sys_flag", "i"),
    ("born_timestamp", "q"),  # ms, clock of the client
    ("born_host", "host"),  # raw IP and i32 port
    ("store_timestamp", "q"),  # ms, clock of the master that stored it
    ("store_host", "host"),
    ("reconsume_times", "i"),
    ("prepared_transaction_offset", "q"),
    ("body_length", "i"),
)


def _fixed_part(born_ipv6: bool, store_ipv6: bool) -> Struct:
    host = {"born_host": "20s" if born_ipv6 else "8s", "store_host": "20s" if store_ipv6 else "8s"}
    return Struct(">" + "".join(host.get(name, kind) for name, kind in FIXED_FIELDS))


# by (sys_flag >> 4) & 3
FIXED_PARTS = tuple(_fixed_part(bool(bits & 1), bool(bits & 2)) for bits in range(4))
assert [part.size for part in FIXED_PARTS] == [88, 100, 100, 112]

PREFIX = Struct(">iI")  # total_size, magic: a BLANK record has nothing else
TOPIC_LENGTHS = {MAGIC_V1: Struct(">B"), MAGIC_V2: Struct(">H")}
PROPERTIES_LENGTH = Struct(">H")
PORT = Struct(">i")
MESSAGE_POSITION = Struct(">q")


def _at(name: str) -> tuple[Struct, int]:
    """A field before the hosts, for readers that need only this field."""
    names = [field for field, _ in FIXED_FIELDS]
    before = "".join(kind for _, kind in FIXED_FIELDS[: names.index(name)])
    assert "host" not in before
    return Struct(">" + dict(FIXED_FIELDS)[name]), Struct(">" + before).size


PHYSICAL_OFFSET, PHYSICAL_OFFSET_AT = _at("physical_offset")
SYS_FLAG, SYS_FLAG_AT = _at("sys_flag")


def _queue_head() -> Struct:
    """The fields of the fixed part that `queue_head` returns or checks, if both hosts are IPv4."""
    wanted = {
        "total_size", "magic", "queue_id", "queue_offset", "physical_offset", "sys_flag", "store_timestamp", "body_length"
    }  # fmt: skip
    sizes = {"i": "4x", "I": "4x", "q": "8x", "host": "8x"}
    return Struct(">" + "".join(kind if name in wanted else sizes[kind] for name, kind in FIXED_FIELDS))


QUEUE_HEAD = _queue_head()
assert QUEUE_HEAD.size == FIXED_PARTS[0].size

END_OF_SEGMENT = 0
INVALID = -1
INCOMPLETE = -2


class RecordError(ValueError):
    """The bytes are not a whole record. The message has the offset and the reason."""

    def __init__(self, physical_offset: int, why: str) -> None:
        super().__init__(f"record at {physical_offset}: {why}")
        self.physical_offset = physical_offset
        self.why = why


@dataclass(slots=True)
class Message:
    """One decoded record. A host is a raw IP (4 or 16 bytes) and an i32 port; `properties` are the stored bytes."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    total_size: int
    flag: int
    sys_flag: int
    body_crc: int
    born_timestamp: int
    born_host: bytes
    store_timestamp: int
    store_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes
    properties: bytes
    magic: int = MAGIC_V1

    @property
    def property_map(self) -> dict[str, str]:
        return parse_properties(self.properties)

    @property
    def message_id(self) -> str:
        """The offset message id, which names the broker and the position. It is not the id that the client assigned."""
        return offset_message_id(self.store_host, self.physical_offset)


def pack_host(ip: str, port: int) -> bytes:
    """The raw address and port as a record holds them: 8 bytes, or 20 for IPv6. Raises ValueError for a bad address."""
    return ip_address(ip).packed + PORT.pack(port)


def offset_message_id(store_host: bytes, physical_offset: int) -> str:
    """Upper-case hex of the store host and the physical offset: 32 characters, 56 with IPv6."""
    return (store_host + MESSAGE_POSITION.pack(physical_offset)).hex().upper()


def parse_message_id(message_id: str) -> tuple[bytes, int]:
    """(store host, physical offset) of an offset message id. Raises ValueError for anything else."""
    raw = bytes.fromhex(message_id)
    if len(raw) not in (16, 28):
        raise ValueError(f"{message_id!r} is not an offset message id: 32 or 56 hexadecimal digits")
    return raw[:-8], MESSAGE_POSITION.unpack(raw[-8:])[0]


def record_size(sys_flag: int, body_bytes: int, topic_bytes: int, properties_bytes: int) -> int:
    """The total size of a record that is to be written."""
    topic_length_bytes = 1 if topic_bytes <= TOPIC_BYTES_MAX_V1 else 2
    fixed = FIXED_PARTS[(sys_flag >> 4) & 3].size
    return fixed + body_bytes + topic_length_bytes + topic_bytes + PROPERTIES_LENGTH.size + properties_bytes


class Sent(Protocol):
    """The fields that all records of one send share."""

    queue_id: int
    born_timestamp: int
    born_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int


def pack_record(
    buffer: bytearray | memoryview, at: int, size: int, topic: bytes, body: Buffer, properties: bytes, sent: Sent,
    flag: int, queue_offset: int, physical_offset: int, sys_flag: int, store_timestamp: int, store_host: bytes,
) -> None:  # fmt: skip
    """Write a record of `size` bytes (see record_size) at `buffer[at]`. Raises struct.error, with nothing written, if a field
    cannot hold its number."""
    fixed = FIXED_PARTS[(sys_flag >> 4) & 3]
    # V2 only if V1 cannot hold the topic's length, because old clients read only V1
    magic = MAGIC_V1 if len(topic) <= TOPIC_BYTES_MAX_V1 else MAGIC_V2
    head = fixed.pack(
        size, magic, crc32(body) & CRC_MASK, sent.queue_id, flag, queue_offset, physical_offset, sys_flag, sent.born_timestamp,
        sent.born_host, store_timestamp, store_host, sent.reconsume_times, sent.prepared_transaction_offset, len(body),
    )  # fmt: skip
    topic_length, properties_length = (
        TOPIC_LENGTHS[magic].pack(len(topic)),
        PROPERTIES_LENGTH.pack(len(properties)),
    )
    buffer[at : at + size] = b"".join((head, body, topic_length, topic, properties_length, properties))


def encode(message: Message) -> bytes:
    """The record of `message`. Total size, magic and body checksum are computed, not taken from `message`."""
    topic = message.topic.encode()
    out = bytearray(record_size(message.sys_flag, len(message.body), len(topic), len(message.properties)))
    pack_record(
        out, 0, len(out), topic, message.body, message.properties, message, message.flag, message.queue_offset,
        message.physical_offset, message.sys_flag, message.store_timestamp, message.store_host,
    )  # fmt: skip
    return bytes(out)


def encode_blank(bytes_left: int) -> bytes:
    """The BLANK that ends a segment with `bytes_left` bytes left."""
    return PREFIX.pack(bytes_left, MAGIC_BLANK)


def _parts(
    buffer: Buffer, at: int, left: int, physical_offset: int
) -> int | tuple[tuple[Any, ...], int, int, int, int]:
    """The fixed fields, and the places of body, topic length, topic and properties. If the sizes do not add up, the reason."""
    if left < PREFIX.size:
        return END_OF_SEGMENT
    have = len(buffer) - at
    if have < PREFIX.size:
        return INCOMPLETE
    size, magic = PREFIX.unpack_from(buffer, at)
    if magic == MAGIC_BLANK:
        return END_OF_SEGMENT if size == left else INVALID
    topic_length_struct = TOPIC_LENGTHS.get(magic)
    if topic_length_struct is None or size < RECORD_SIZE_MIN or size > left:
        return INVALID
    if have < size:
        return INCOMPLETE
    fixed = FIXED_PARTS[(SYS_FLAG.unpack_from(buffer, at + SYS_FLAG_AT)[0] >> 4) & 3]
    body_at = at + fixed.size
    end = at + size
    if end - body_at < topic_length_struct.size + PROPERTIES_LENGTH.size:
        return INVALID
    fields = fixed.unpack_from(buffer, at)
    topic_length_at = body_at + fields[-1]
    topic_at = topic_length_at + topic_length_struct.size
    if fields[6] != physical_offset or topic_length_at < body_at or topic_at > end:
        return INVALID
    topic_end = topic_at + topic_length_struct.unpack_from(buffer, topic_length_at)[0]
    properties_at = topic_end + PROPERTIES_LENGTH.size
    if properties_at > end or properties_at + PROPERTIES_LENGTH.unpack_from(buffer, topic_end)[0] != end:
        return INVALID
    return fields, body_at, topic_length_at, topic_at, properties_at


def check(
    buffer: Buffer, at: int, left: int, physical_offset: int, *, verify_body: bool = True, verify_record: bool = False
) -> int:  # fmt: skip
    """Check for a record at `buffer[at]`, which is `left` bytes before the end of its segment. Returns the size (> 0) of a
    whole valid record, END_OF_SEGMENT, INVALID, or INCOMPLETE if the buffer ends before the record does. With `verify_record`,
    a record CRC is compared too."""
    parts = _parts(buffer, at, left, physical_offset)
    if isinstance(parts, int):
        return parts
    fields, body_at, topic_length_at, _, properties_at = parts
    if verify_record and contradicts(buffer, at, fields[0], at + fields[0] - properties_at):
        return INVALID
    verified = not verify_body or topic_length_at == body_at
    if not verified and crc32(buffer[body_at:topic_length_at]) & CRC_MASK != fields[2]:
        return INVALID
    return int(fields[0])


class QueueFacts(NamedTuple):
    """The fields from which consume queues and index are built."""

    size: int
    topic: bytes
    queue_id: int
    queue_offset: int
    sys_flag: int
    store_timestamp: int
    properties: bytes


def queue_facts(buffer: Buffer, at: int, left: int, physical_offset: int) -> QueueFacts | int:
    """The facts of the record at `buffer[at]`, without reading its body, or the code of `check` if no record is there."""
    if plain := _plain(buffer, at, left, physical_offset):
        end = at + plain[0]
        return QueueFacts(*plain[:6], bytes(buffer[plain[6] : end]))
    parts = _parts(buffer, at, left, physical_offset)
    if isinstance(parts, int):
        return parts
    fields, _, _, topic_at, properties_at = parts
    return QueueFacts(
        fields[0], bytes(buffer[topic_at : properties_at - PROPERTIES_LENGTH.size]), fields[3], fields[5], fields[7],
        fields[10], bytes(buffer[properties_at : at + fields[0]]),
    )  # fmt: skip


def stored_properties(record: Buffer, physical_offset: int) -> bytes | None:
    """The properties of `record` if it is exactly one whole record, else None. Its body is not read."""
    if plain := _plain(record, 0, len(record), physical_offset):
        return bytes(record[plain[6] :]) if plain[0] == len(record) else None
    facts = queue_facts(record, 0, len(record), physical_offset)
    return None if isinstance(facts, int) or facts.size != len(record) else facts.properties


def queue_head(
    buffer: Buffer, at: int, left: int, physical_offset: int
) -> int | tuple[int, bytes, int, int, int, int]:
    """The (size, topic, queue id, queue offset, sys_flag, store timestamp) of the record at `buffer[at]`, or the code of
    `check` if no record is there. This is `queue_facts` without the properties, for long walks."""
    if plain := _plain(buffer, at, left, physical_offset):
        return plain[:6]
    facts = queue_facts(buffer, at, left, physical_offset)
    return facts if isinstance(facts, int) else facts[:6]


def _plain(
    buffer: Buffer, at: int, left: int, physical_offset: int
) -> tuple[int, bytes, int, int, int, int, int] | None:
    """The result of `queue_head` and the place of the properties, for the most frequent form of a whole record: V1 with IPv4
    hosts. None for any other form."""
    if len(buffer) - at >= RECORD_SIZE_MIN and left >= RECORD_SIZE_MIN:
        size, magic, queue_id, queue_offset, physical, sys_flag, timestamp, body_bytes = (
            QUEUE_HEAD.unpack_from(buffer, at)
        )
        if magic == MAGIC_V1 and not sys_flag & (BORN_HOST_IPV6 | STORE_HOST_IPV6):
            topic_at = at + QUEUE_HEAD.size + 1 + body_bytes
            end = at + size
            if (
                size <= left
                and physical == physical_offset
                and body_bytes >= 0
                and topic_at < end <= len(buffer)
            ):
                topic_end = topic_at + buffer[topic_at - 1]
                if (
                    topic_end + 2 <= end
                    and end - topic_end - 2 == buffer[topic_end] << 8 | buffer[topic_end + 1]
                ):
                    return (
                        size,
                        bytes(buffer[topic_at:topic_end]),
                        queue_id,
                        queue_offset,
                        sys_flag,
                        timestamp,
                        topic_end + 2,
                    )
    return None


def decode(buffer: Buffer, at: int = 0, *, verify_body: bool = True) -> Message:
    """A copy of the record at `buffer[at]`. Raises RecordError if it is not whole and valid."""
    view = memoryview(buffer)
    left = len(view) - at
    physical_offset = (
        PHYSICAL_OFFSET.unpack_from(view, at + PHYSICAL_OFFSET_AT)[0] if left >= RECORD_SIZE_MIN else -1
    )
    parts = _parts(view, at, left, physical_offset)
    if isinstance(parts, int) or (verify_body and check(view, at, left, physical_offset) <= 0):
        raise RecordError(physical_offset, f"{left} bytes that are not a whole valid record")
    fields, body_at, topic_length_at, topic_at, properties_at = parts
    return Message(
        topic=bytes(view[topic_at : properties_at - PROPERTIES_LENGTH.size]).decode("utf-8", "replace"),
        queue_id=fields[3], queue_offset=fields[5], physical_offset=physical_offset, total_size=fields[0],
        flag=fields[4], sys_flag=fields[7], body_crc=fields[2], born_timestamp=fields[8], born_host=fields[9],
        store_timestamp=fields[10], store_host=fields[11], reconsume_times=fields[12],
        prepared_transaction_offset=fields[13], body=bytes(view[body_at:topic_length_at]),
        properties=bytes(view[properties_at : at + fields[0]]), magic=fields[1],
    )  # fmt: skip


def declared_end(buffer: Buffer, at: int, physical_offset: int) -> int:
    """The record's end according to the prefix at `buffer[at]`; `physical_offset` if no prefix is there."""
    size, magic = PREFIX.unpack_from(buffer, at)
    return physical_offset + (max(int(size), 0) if magic in TOPIC_LENGTHS else 0)


def store_timestamp(buffer: Buffer, at: int) -> int:
    """When the record at `buffer[at]` was stored, ms."""
    (sys_flag,) = SYS_FLAG.unpack_from(buffer, at + SYS_FLAG_AT)
    return int(FIXED_PARTS[(sys_flag >> 4) & 3].unpack_from(buffer, at)[10])


def counts_in_queue(sys_flag: int) -> bool:
    """Whether a record has an entry, and so an offset, in its consume queue."""
    return sys_flag & TRANSACTION_MASK in (0, TRANSACTION_COMMIT)
