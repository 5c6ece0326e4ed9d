"""The body of REGISTER_BROKER (103), in its plain and its compressed form.

Bodies are written in the plain form, because 5.3.3 brokers and name servers do not agree on the other: such a broker compresses
its body without setting the header's flag, and such a name server then rejects the body. Both forms are read, whatever the
header's flag says. Invariant: a compressed body is inflated to at most INFLATED_BYTES_MAX, and a body has at most TOPICS_MAX
topics, because decoding a body blocks the name server."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field

from remoting import fastjson
from remoting.bodies.body import Body
from remoting.bodies.dataversion import DataVersion
from remoting.bodies.topics import TopicConfig, TopicConfigWrapper
from remoting.errors import BodyError

INFLATED_BYTES_MAX = 32 << 20
TOPICS_MAX = 100_000
FILTER_SERVERS_MAX = 1_000
CRC_MASK = 0x7FFFFFFF


@dataclass(slots=True)
class RegisterBrokerBody(Body):
    """All topics of a broker and its filter servers."""

    topic_config_serialize_wrapper: TopicConfigWrapper = field(default_factory=TopicConfigWrapper)
    filter_server_list: list[str] = field(default_factory=list)


def body_crc32(body: bytes) -> int:
    """The header's `bodyCrc32` for a body as it is sent."""
    return zlib.crc32(body) & CRC_MASK


def read_register_body(body: bytes | None, *, compressed: bool) -> RegisterBrokerBody:
    """The registration that `body` encodes. If there is no body, a registration without topics. Raises BodyError."""
    if not body:
        return RegisterBrokerBody()
    if compressed:
        return _read_compressed(body)
    try:
        return _read_plain(body)
    except BodyError as plain_error:
        try:
            return _read_compressed(body)
        except BodyError:
            raise plain_error from None


def _read_plain(body: bytes) -> RegisterBrokerBody:
    try:
        value = fastjson.loads(body, dialect_max=fastjson.REQUEST_DIALECT_MAX)
    except fastjson.FastJsonError as error:
        raise BodyError(f"registration is not JSON: {error}") from None
    wrapper = value.get("topicConfigSerializeWrapper") if isinstance(value, dict) else None
    topics = wrapper.get("topicConfigTable") if isinstance(wrapper, dict) else None
    _check_count(len(topics) if isinstance(topics, dict) else 0)
    _check_servers(value.get("filterServerList") if isinstance(value, dict) else None)
    return RegisterBrokerBody.from_json(value)


def _check_count(topics: int) -> None:
    if topics > TOPICS_MAX:
        raise BodyError(f"registration of {topics} topics; {TOPICS_MAX} are taken")


def _check_servers(servers: object) -> None:
    if isinstance(servers, list) and len(servers) > FILTER_SERVERS_MAX:
        raise BodyError(f"registration of {len(servers)} filter servers; {FILTER_SERVERS_MAX} are taken")


def _read_compressed(body: bytes) -> RegisterBrokerBody:
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(body, INFLATED_BYTES_MAX)
    except zlib.error as error:
        raise BodyError(f"registration is not a zlib stream: {error}") from None
    if not inflater.eof:
        raise BodyError(f"registration inflates to more than {INFLATED_BYTES_MAX} bytes or is cut off")
    parts = _Parts(data)
    wrapper = TopicConfigWrapper(data_version=DataVersion.from_request(parts.block()))
    count = parts.count()
    _check_count(count)
    for _ in range(count):
        topic = _topic(parts)
        wrapper.topic_config_table[topic.topic_name] = topic
    servers = parts.json(parts.block())
    if not isinstance(servers, list):
        raise BodyError("registration: the filter servers are not a JSON array")
    _check_servers(servers)
    return RegisterBrokerBody(wrapper, [str(server) for server in servers])


class _Parts:
    """The inflated stream: big-endian counts, and blocks preceded by their sizes. Java writes strict JSON in it, so JSON
    that is not strict is read only within its first REQUEST_DIALECT_MAX bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._dialect_left = fastjson.REQUEST_DIALECT_MAX

    def count(self) -> int:
        value = int.from_bytes(self._take(4), "big", signed=True)
        if value < 0:
            raise BodyError(f"registration: negative size {value}")
        return value

    def block(self) -> bytes:
        return self._take(self.count())

    def _take(self, size: int) -> bytes:
        start, self._at = self._at, self._at + size
        if self._at > len(self._data):
            raise BodyError("registration is cut off")
        return self._data[start : self._at]

    def text(self) -> str:
        try:
            return self.block().decode()
        except UnicodeDecodeError:
            raise BodyError("registration: a topic is not UTF-8") from None

    def json(self, data: bytes) -> object:
        dialect_max, self._dialect_left = self._dialect_left, max(0, self._dialect_left - len(data))
        try:
            return fastjson.loads(data, dialect_max=dialect_max) if data else []
        except fastjson.FastJsonError as error:
            raise BodyError(f"registration: {error}") from None


def _topic(parts: _Parts) -> TopicConfig:
    """`name readQueueNums writeQueueNums perm filterType attributesJson`; the form has no order and no topicSysFlag."""
    line = parts.text()
    words = line.split(" ", 5)
    if len(words) < 5:
        raise BodyError(f"registration: topic line {line[:100]!r} has too few words")
    attributes = parts.json(words[5].encode()) if len(words) > 5 and words[5] else {}
    members = {
        "topicName": words[0],
        "readQueueNums": words[1],
        "writeQueueNums": words[2],
        "perm": words[3],
        "topicFilterType": words[4],
        "attributes": attributes,
    }
    return TopicConfig.from_json(members, "topic")
