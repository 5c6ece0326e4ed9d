"""Messages of a client: properties, batch bodies, and records as a pull returns them.

Invariant: a decoded record is complete (its length, magic and inner lengths agree). If not, `RecordMalformed` says where.
Layouts are those of the stored commit-log record, versions 1 and 2, and of a producer's batch body."""

from __future__ import annotations

import ipaddress
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from struct import Struct
from struct import error as StructError

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
IPV4_HOST_BYTES, IPV6_HOST_BYTES = 4 + PORT.size, 16 + PORT.size
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


class StoredMessage:
    """One record of a commit log, as a pull or a query returns it. `body` is in stored form, perhaps compressed. Properties and
    hosts may be given as they are stored; then they are decoded when they are read."""

    __slots__ = (
        "_born_host", "_properties", "_store_host", "body", "born_timestamp_ms", "flag", "physical_offset",
        "prepared_transaction_offset", "queue_id", "queue_offset", "reconsume_times", "size_bytes", "store_timestamp_ms",
        "sys_flag", "topic",
    )  # fmt: skip

    def __init__(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        physical_offset: int,
        body: bytes,
        properties: dict[str, str] | bytes,
        flag: int,
        sys_flag: int,
        born_timestamp_ms: int,
        born_host: str | bytes,
        store_timestamp_ms: int,
        store_host: str | bytes,
        reconsume_times: int,
        prepared_transaction_offset: int,
        size_bytes: int,
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.queue_offset = queue_offset
        self.physical_offset = physical_offset
        self.body = body
        self._properties = properties
        self.flag = flag
        self.sys_flag = sys_flag
        self.born_timestamp_ms = born_timestamp_ms
        self._born_host = born_host
        self.store_timestamp_ms = store_timestamp_ms
        self._store_host = store_host
        self.reconsume_times = reconsume_times
        self.prepared_transaction_offset = prepared_transaction_offset
        self.size_bytes = size_bytes

    @property
    def properties(self) -> dict[str, str]:
        found = self._properties
        if isinstance(found, bytes):
            found = self._properties = decode_properties(found.decode(errors="replace"))
        return found

    @property
    def born_host(self) -> str:
        """ "host:port" of the client that sent it."""
        found = self._born_host
        if isinstance(found, bytes):
            found = self._born_host = _host_of(found)
        return found

    @property
    def store_host(self) -> str:
        """ "host:port" of the broker that stored it first."""
        found = self._store_host
        if isinstance(found, bytes):
            found = self._store_host = _host_of(found)
        return found

    def _values(self) -> tuple[object, ...]:
        return (
            self.topic, self.queue_id, self.queue_offset, self.physical_offset, self.body, self.properties, self.flag,
            self.sys_flag, self.born_timestamp_ms, self.born_host, self.store_timestamp_ms, self.store_host,
            self.reconsume_times, self.prepared_transaction_offset, self.size_bytes,
        )  # fmt: skip

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StoredMessage) and self._values() == other._values()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        place = f"{self.topic}/{self.queue_id} at {self.queue_offset}"
        return f"StoredMessage({place}, {len(self.body)} bytes, {self.properties})"

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
    at = start + RECORD_START.size
    try:
        born_end = at + (IPV6_HOST_BYTES if sys_flag & SYS_FLAG_BORN_HOST_V6 else IPV4_HOST_BYTES)
        store_at = born_end + TIMESTAMP.size
        store_end = store_at + (IPV6_HOST_BYTES if sys_flag & SYS_FLAG_STORE_HOST_V6 else IPV4_HOST_BYTES)
        (store_timestamp_ms,) = TIMESTAMP.unpack_from(body, born_end)
        reconsume_times, prepared_offset, body_length = RECORD_MIDDLE.unpack_from(body, store_end)
        content_at = store_end + RECORD_MIDDLE.size
        content_end = content_at + body_length
        topic_length_of = TOPIC_LENGTH_V1 if magic == MAGIC_V1 else TOPIC_LENGTH_V2
        topic_at = content_end + topic_length_of.size
        (topic_length,) = topic_length_of.unpack_from(body, content_end)
        properties_at = topic_at + topic_length + PROPERTIES_LENGTH.size
        (properties_length,) = PROPERTIES_LENGTH.unpack_from(body, topic_at + topic_length)
    except StructError:
        raise RecordMalformed(start, "a field does not fit the pulled body") from None
    if body_length < 0 or properties_at + properties_length > end:
        raise RecordMalformed(
            start, f"fields of {body_length} and {properties_length} bytes do not fit its length"
        )
    if properties_at + properties_length != end:
        left = end - properties_at - properties_length
        raise RecordMalformed(start, f"its fields end {left} bytes before its length says")
    content = body[content_at:content_end]
    if zlib.crc32(content) & 0x7FFFFFFF != crc and content:
        raise RecordMalformed(start, "body CRC does not match")
    return StoredMessage(
        _topic(body[topic_at : topic_at + topic_length], start),
        queue_id,
        queue_offset,
        physical_offset,
        content,
        body[properties_at:end],
        flag,
        sys_flag,
        born_timestamp_ms,
        body[at:born_end],
        store_timestamp_ms,
        body[store_at:store_end],
        reconsume_times,
        prepared_offset,
        size,
    )


def _topic(name: bytes, record_at: int) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise RecordMalformed(record_at, "its topic is no UTF-8") from None


def _host_of(stored: bytes) -> str:
    """ "host:port" of an address and a port as records have them."""
    address = ipaddress.ip_address(stored[: -PORT.size])
    (port,) = PORT.unpack(stored[-PORT.size :])
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"
