"""Messages of a client: properties, batch bodies, and records as a pull returns them.

Invariant: a decoded record is complete (its length, magic and inner lengths agree). If not, `RecordMalformed` says where.
Layouts are those of the stored commit-log record, versions 1 and 2, and of a producer's batch body."""

from __future__ import annotations

import ipaddress
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from struct import Struct

from mqclient.compression import opened

NAME_VALUE_SEPARATOR = "\x01"
PROPERTY_SEPARATOR = "\x02"
PROPERTIES_BYTES_MAX = 32_767
"""Limit of one message's encoded properties, given by their place in a stored record."""

MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB

SYS_FLAG_COMPRESSED = 0x1
SYS_FLAG_BORN_HOST_V6 = 0x10
SYS_FLAG_STORE_HOST_V6 = 0x20
SYS_FLAG_COMPRESSION_TYPE = 0x700

RECORD_START = Struct(
    ">"  # offset field
    "i"  #  0 total_size
    "I"  #  4 magic
    "I"  #  8 body_crc             CRC-32(body) & 0x7FFFFFFF
    "i"  # 12 queue_id
    "i"  # 16 flag                 the application's
    "q"  # 20 queue_offset
    "q"  # 28 physical_offset
    "i"  # 36 sys_flag
    "q"  # 40 born_timestamp_ms
)
RECORD_MIDDLE = Struct(
    ">"  # offset field             (after the store host)
    "i"  #  0 reconsume_times
    "q"  #  4 prepared_transaction_offset
    "i"  # 12 body_length
)
TIMESTAMP = Struct(">q")
PORT = Struct(">i")
TOPIC_LENGTH_V1 = Struct(">B")
TOPIC_LENGTH_V2 = Struct(">H")
PROPERTIES_LENGTH = Struct(">H")

BATCH_ENTRY_START = Struct(
    ">"  # offset field
    "i"  #  0 total_size
    "i"  #  4 magic                0: the broker fills it in
    "i"  #  8 body_crc             0: the broker computes it
    "i"  # 12 flag
    "i"  # 16 body_length
)


class PropertiesTooLong(ValueError):
    """The properties are longer than PROPERTIES_BYTES_MAX, so brokers would reject them."""

    def __init__(self, bytes_encoded: int) -> None:
        super().__init__(f"properties of {bytes_encoded} bytes; {PROPERTIES_BYTES_MAX} are allowed")


class RecordMalformed(ValueError):
    """The bytes at `position` of a pulled body are no stored record. The broker or the network is at fault."""

    def __init__(self, position: int, why: str) -> None:
        super().__init__(f"no message record at byte {position} of the pulled body: {why}")
        self.position = position
        self.why = why


def check_body(body: object) -> None:
    """Raise TypeError for anything but bytes, which would break the connection in the middle of a frame."""
    if not isinstance(body, bytes | bytearray):
        raise TypeError(f"a body is bytes, not {type(body).__name__}")


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """One message to send. `properties` are sent as given; keys and tags are properties KEYS and TAGS.

    A message that was stored before keeps its `born_timestamp_ms`, and the `sys_flag` with its compression. In a batch,
    neither is sent for each message."""

    body: bytes
    properties: Mapping[str, str] = field(default_factory=dict)
    flag: int = 0
    born_timestamp_ms: int | None = None  # now
    sys_flag: int = 0

    def __post_init__(self) -> None:
        check_body(self.body)


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """One record of a commit log, as a pull or a query returns it. `body` is in stored form, perhaps compressed."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    body: bytes
    properties: dict[str, str]
    flag: int
    sys_flag: int
    born_timestamp_ms: int
    born_host: str
    store_timestamp_ms: int
    store_host: str
    reconsume_times: int
    prepared_transaction_offset: int
    size_bytes: int

    @property
    def message_id(self) -> str:
        """The client's id (UNIQ_KEY), or "" if the producer set none."""
        return self.properties.get("UNIQ_KEY", "")

    def plain_body(self) -> bytes:
        """The original body. Raises `CompressionUnsupported` if the library is not installed, and ValueError for a
        damaged body."""
        if not self.sys_flag & SYS_FLAG_COMPRESSED:
            return self.body
        return opened(self.body, self.sys_flag & SYS_FLAG_COMPRESSION_TYPE, self.message_id)


def encode_properties(properties: Mapping[str, str]) -> str:
    """`key 0x01 value 0x02` for each pair, in the given order.

    Raises ValueError for pairs that a reader would drop or misread, because a key or value is empty or contains a separator
    that ends it. A value may contain 0x01, as some stored values do, because readers end the key at the first 0x01.
    `PropertiesTooLong` is a ValueError. Raises TypeError for anything but text."""
    text = "".join(
        [key + NAME_VALUE_SEPARATOR + value + PROPERTY_SEPARATOR for key, value in properties.items()]
    )
    # the text is checked once as a whole: checking each pair costs more than the rest of a send
    whole = text.count(NAME_VALUE_SEPARATOR) == text.count(PROPERTY_SEPARATOR) == len(properties)
    if not (whole and "" not in properties and "\x01\x02" not in text):
        _find_misread(properties)
    if len(text) > PROPERTIES_BYTES_MAX // 4 and (size := len(text.encode())) > PROPERTIES_BYTES_MAX:
        raise PropertiesTooLong(size)
    return text


def _find_misread(properties: Mapping[str, str]) -> None:
    for key, value in properties.items():
        if not key or not value:
            raise ValueError(f"property {key!r}={value!r}: neither name nor value may be empty")
        if NAME_VALUE_SEPARATOR in key or PROPERTY_SEPARATOR in key + value:
            raise ValueError(f"property {key!r}={value!r}: byte 0x01 ends a name, 0x02 a value")


def decode_properties(text: str) -> dict[str, str]:
    """The pairs of an encoded text. If a name repeats, the last pair counts. Malformed pairs are dropped, as in upstream."""
    properties: dict[str, str] = {}
    for pair in text.split(PROPERTY_SEPARATOR):
        key, separator, value = pair.partition(NAME_VALUE_SEPARATOR)
        if separator and key and value:
            properties[key] = value
    return properties


def encode_batch(messages: Sequence[OutgoingMessage]) -> bytes:
    """The body of a batch send: the messages one after the other, each with its own flag and properties."""
    parts: list[bytes] = []
    for message in messages:
        properties = encode_properties(message.properties).encode()
        size = BATCH_ENTRY_START.size + len(message.body) + PROPERTIES_LENGTH.size + len(properties)
        parts.append(BATCH_ENTRY_START.pack(size, 0, 0, message.flag, len(message.body)))
        parts.append(message.body)
        parts.append(PROPERTIES_LENGTH.pack(len(properties)))
        parts.append(properties)
    return b"".join(parts)


def decode_messages(body: bytes | bytearray | memoryview) -> list[StoredMessage]:
    """All records of a pulled body, in order. An empty body has none. Raises `RecordMalformed`."""
    return list(_records(bytes(body)))


def _records(body: bytes) -> Iterator[StoredMessage]:
    position = 0
    while position < len(body):
        message = _record_at(body, position)
        yield message
        position += message.size_bytes


def _record_at(body: bytes, start: int) -> StoredMessage:
    if start + RECORD_START.size > len(body):
        raise RecordMalformed(start, f"only {len(body) - start} bytes are left")
    (size, magic, crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born_timestamp_ms) = (
        RECORD_START.unpack_from(body, start)
    )
    if magic not in (MAGIC_V1, MAGIC_V2):
        raise RecordMalformed(start, f"magic 0x{magic:08x}")
    end = start + size
    if size < RECORD_START.size or end > len(body):
        raise RecordMalformed(start, f"length {size} with {len(body) - start} bytes left")
    reader = _FieldReader(body, start, start + RECORD_START.size, end)
    born_host = reader.host(v6=bool(sys_flag & SYS_FLAG_BORN_HOST_V6))
    (store_timestamp_ms,) = reader.fields(TIMESTAMP)
    store_host = reader.host(v6=bool(sys_flag & SYS_FLAG_STORE_HOST_V6))
    reconsume_times, prepared_offset, body_length = reader.fields(RECORD_MIDDLE)
    content = reader.take(body_length)
    (topic_length,) = reader.fields(TOPIC_LENGTH_V1 if magic == MAGIC_V1 else TOPIC_LENGTH_V2)
    topic = reader.topic(topic_length)
    (properties_length,) = reader.fields(PROPERTIES_LENGTH)
    properties = reader.take(properties_length)
    if reader.position != end:
        raise RecordMalformed(start, f"its fields end {end - reader.position} bytes before its length says")
    if zlib.crc32(content) & 0x7FFFFFFF != crc and content:
        raise RecordMalformed(start, "body CRC does not match")
    return StoredMessage(
        topic=topic,
        queue_id=queue_id,
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        body=content,
        properties=decode_properties(properties.decode(errors="replace")),
        flag=flag,
        sys_flag=sys_flag,
        born_timestamp_ms=born_timestamp_ms,
        born_host=born_host,
        store_timestamp_ms=store_timestamp_ms,
        store_host=store_host,
        reconsume_times=reconsume_times,
        prepared_transaction_offset=prepared_offset,
        size_bytes=size,
    )


class _FieldReader:
    """Reads the fields of a record, never beyond the record's `end`."""

    def __init__(self, body: bytes, record_start: int, position: int, end: int) -> None:
        self.body = body
        self.record_start = record_start
        self.position = position
        self.end = end

    def take(self, size: int) -> bytes:
        if size < 0 or self.position + size > self.end:
            raise RecordMalformed(self.record_start, f"a field of {size} bytes does not fit its length")
        self.position += size
        return self.body[self.position - size : self.position]

    def fields(self, layout: Struct) -> tuple[int, ...]:
        return layout.unpack(self.take(layout.size))

    def topic(self, size: int) -> str:
        try:
            return self.take(size).decode()
        except UnicodeDecodeError:
            raise RecordMalformed(self.record_start, "its topic is no UTF-8") from None

    def host(self, *, v6: bool) -> str:
        address = ipaddress.ip_address(self.take(16 if v6 else 4))
        (port,) = self.fields(PORT)
        return f"[{address}]:{port}" if v6 else f"{address}:{port}"
