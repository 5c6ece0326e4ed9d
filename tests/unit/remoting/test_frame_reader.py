"""The frame reader with valid frames of all sizes and with hostile bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting.command import JSON, ROCKETMQ, RemotingCommand
from remoting.frame import BUFFER_BYTES_KEPT, FRAME_BYTES_MAX, HEADER_BYTES_MAX, START, FrameReader, encode
from remoting.headercodec import DIALECT_BYTES_MAX, ENTRIES_MAX
from remoting.peer import BYTES_AT_ONCE, FRAMES_AT_ONCE

JSON_HEADER = b'{"code":105,"opaque":7}'


def frame(header: bytes, body: bytes = b"", serialize_type: int = JSON) -> bytes:
    length = 4 + len(header) + len(body)
    word = serialize_type << 24 | len(header)
    return length.to_bytes(4, "big") + word.to_bytes(4, "big") + header + body


def rocketmq_header(remark: bytes = b"", ext: bytes = b"", remark_size: int | None = None) -> bytes:
    size = len(remark) if remark_size is None else remark_size
    return (
        bytes.fromhex("0069 00 01df 00000007 00000000")
        + size.to_bytes(4, "big", signed=True)
        + remark
        + len(ext).to_bytes(4, "big")
        + ext
    )


def entry(key: bytes, value: bytes) -> bytes:
    return len(key).to_bytes(2, "big") + key + len(value).to_bytes(4, "big") + value


@pytest.mark.parametrize("serialize_type", [JSON, ROCKETMQ])
@given(
    opaque=st.integers(-(2**31), 2**31 - 1),
    remark=st.none() | st.text(min_size=1, max_size=50),
    ext=st.dictionaries(st.text(max_size=20), st.text(max_size=50), max_size=5),
    body=st.none() | st.binary(min_size=1, max_size=300),
    step=st.integers(1, 400),
)
def test_an_encoded_frame_is_decoded_to_the_same_command(
    serialize_type: int,
    opaque: int,
    remark: str | None,
    ext: dict[str, str],
    body: bytes | None,
    step: int,
) -> None:
    command = RemotingCommand(310, opaque, 0, remark, ext, body, "JAVA", 479, serialize_type)
    data = b"".join(encode(command)) * 2
    reader = FrameReader()
    got = [c for at in range(0, len(data), step) for c in reader.receive(data[at : at + step])]
    assert got == [command, command]


def test_a_body_of_four_mebibytes_is_read_and_its_buffer_released() -> None:
    body = bytes(range(256)) * (4 << 12)
    data = frame(JSON_HEADER, body) + frame(JSON_HEADER)
    reader = FrameReader()
    got = [c for at in range(0, len(data), 65536) for c in reader.receive(data[at : at + 65536])]
    assert [command.body for command in got] == [body, None]
    assert len(reader.buffer()) <= BUFFER_BYTES_KEPT


def test_the_largest_frame_is_read_and_one_byte_more_is_refused() -> None:
    body = bytes(FRAME_BYTES_MAX - 8 - len(JSON_HEADER))
    reader = FrameReader()
    (command,) = reader.receive(frame(JSON_HEADER, body))
    assert len(command.body or b"") == len(body)
    assert reader.receive(frame(JSON_HEADER, body + b"x")[:64]) == []
    assert reader.failure is not None


def test_a_reader_with_a_small_limit_reads_any_number_of_frames() -> None:
    reader = FrameReader(frame_bytes_max=1000)
    assert len(reader.receive(frame(JSON_HEADER, bytes(900)) * 500)) == 500
    assert reader.receive(frame(JSON_HEADER, bytes(1000))) == []
    assert reader.failure is not None


def test_memory_follows_the_bytes_received_not_the_bytes_announced() -> None:
    reader = FrameReader()
    reader.receive((FRAME_BYTES_MAX - 4).to_bytes(4, "big") + (20).to_bytes(4, "big"))
    assert reader.failure is None
    assert len(reader.buffer()) <= 8192


def test_the_buffer_stays_small_for_small_frames() -> None:
    reader = FrameReader()
    for _ in range(1000):
        assert len(reader.receive(frame(JSON_HEADER, bytes(300)))) == 1
    assert len(reader.buffer()) <= 512


def test_the_buffer_grows_for_a_sender_that_keeps_it_full() -> None:
    reader = FrameReader()
    stream = frame(JSON_HEADER, bytes(1000)) * 1000
    sizes, at, count = [], 0, 0
    while at < len(stream):
        room = reader.buffer()
        taken = min(len(room), len(stream) - at)
        room[:taken] = stream[at : at + taken]
        at += taken
        count += len(reader.filled(taken))
        sizes.append(len(room))
    assert count == 1000
    assert BUFFER_BYTES_KEPT - 4096 <= max(sizes) <= BUFFER_BYTES_KEPT
    assert len(sizes) < 20


def test_frames_before_a_bad_one_are_delivered_and_nothing_after_it() -> None:
    reader = FrameReader()
    got = reader.receive(frame(JSON_HEADER) + frame(b"no json") + frame(JSON_HEADER))
    assert len(got) == 1
    assert reader.failure is not None
    assert reader.receive(frame(JSON_HEADER)) == []


def test_a_frame_without_header_is_dropped_silently() -> None:
    reader = FrameReader()
    got = reader.receive(frame(b"") + frame(b"", b"body") + frame(JSON_HEADER))
    assert [command.opaque for command in got] == [7]
    assert reader.failure is None


EDGE_BYTES = 32 << 10
HOSTILE = {
    "length 0": bytes(8),
    "length 1": (1).to_bytes(4, "big") + bytes(8),
    "length 3": (3).to_bytes(4, "big") + bytes(8),
    "length negative": b"\xff\xff\xff\xff" + bytes(8),
    "length over the limit": (FRAME_BYTES_MAX - 3).to_bytes(4, "big") + bytes(8),
    "length 2^31-1": (2**31 - 1).to_bytes(4, "big"),
    "header beyond the frame": frame(JSON_HEADER)[:4] + (100).to_bytes(4, "big") + JSON_HEADER,
    "header that is not read, without an opaque": frame(
        b'{"code":1,"remark":"' + b"x" * HEADER_BYTES_MAX + b'"}'
    ),
    "header that is not read, cut": frame(bytes(2 + HEADER_BYTES_MAX)),
    "serialize type 2": frame(JSON_HEADER, serialize_type=2),
    "serialize type 255": frame(JSON_HEADER, serialize_type=255),
    "TLS hello": bytes.fromhex("16030100c8010000c40303") + bytes(50),
    "HTTP": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "gRPC preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "depth": frame(b'{"code":' + b"[" * 30_000 + b"]" * 30_000 + b"}"),
    "depth in ext": frame(b'{"extFields":{"a":' + b'{"a":' * 10_000),
    "10^4 digits": frame(b'{"code":' + b"9" * 10_000 + b"}"),
    "code 2^40": frame(b'{"code":1099511627776}'),
    "code as float": frame(b'{"code":1.5}'),
    "code as word": frame(b'{"code":"ten"}'),
    "code in Arabic digits": frame('{"code":"١"}'.encode()),
    "code with underscore": frame(b'{"code":"1_0"}'),
    "code true": frame(b'{"code":true}'),
    "NaN": frame(b'{"code":NaN}'),
    "array": frame(b"[1,2]"),
    "ext is an array": frame(b'{"code":1,"extFields":["a"]}'),
    "cut": frame(b'{"code":1'),
    "remark negative": frame(rocketmq_header(remark_size=-1), serialize_type=ROCKETMQ),
    "remark too long": frame(rocketmq_header(remark_size=2**31 - 1), serialize_type=ROCKETMQ),
    "key negative": frame(rocketmq_header(ext=b"\xff\xff" + bytes(20)), serialize_type=ROCKETMQ),
    "key too long": frame(rocketmq_header(ext=b"\x7f\xffabc"), serialize_type=ROCKETMQ),
    "value negative": frame(rocketmq_header(ext=b"\x00\x01a\xff\xff\xff\xff"), serialize_type=ROCKETMQ),
    "value too long": frame(rocketmq_header(ext=b"\x00\x01a\x7f\xff\xff\xff"), serialize_type=ROCKETMQ),
    "odd trailing byte in ext": frame(rocketmq_header(ext=entry(b"a", b"b") + b"x"), serialize_type=ROCKETMQ),
    "bytes after ext": frame(rocketmq_header(ext=entry(b"a", b"b")) + b"x", serialize_type=ROCKETMQ),
    "ROCKETMQ header cut": frame(rocketmq_header()[:-1], serialize_type=ROCKETMQ),
}


def pieces(data: bytes, step: int) -> Iterator[bytes]:
    """`data` in steps; of a long one only the edges, with what lies between in one piece."""
    ends = (
        (0, len(data)) if len(data) <= 3 * EDGE_BYTES else (0, EDGE_BYTES, len(data) - EDGE_BYTES, len(data))
    )
    for part, (begin, end) in enumerate(pairwise(ends)):
        width = end - begin if part == 1 else step
        yield from (data[at : min(at + width, end)] for at in range(begin, end, width))


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("step", [1, 7, 1 << 20])
def test_malformed_bytes_are_a_typed_failure_and_yield_no_command(name: str, step: int) -> None:
    reader = FrameReader()
    for piece in pieces(HOSTILE[name], step):
        assert reader.receive(piece) == []
    assert reader.failure is not None


JAVA_READS = {
    "a lone surrogate": (frame(b'{"code":1,"remark":"a\\ud800b"}'), "a?b"),
    "two lone surrogates": (frame(b'{"code":1,"remark":"\\ude00\\ud83d\\ude00\\ud83d"}'), "?\U0001f600?"),
    "JSON that is not UTF-8": (frame(b'{"code":1,"remark":"a\xffb"}'), "a\ufffdb"),
    "a dialect that is not UTF-8": (frame(b"{code:1,remark:'a\xffb'}"), "a\ufffdb"),
    "a remark that is not UTF-8": (frame(rocketmq_header(b"a\xffb"), serialize_type=ROCKETMQ), "a\ufffdb"),
}


@pytest.mark.parametrize("name", JAVA_READS)
def test_malformed_utf_8_is_read_as_java_reads_it(name: str) -> None:
    data, remark = JAVA_READS[name]
    reader = FrameReader()
    assert [command.remark for command in reader.receive(data)] == [remark]
    assert reader.failure is None


MUCH = HEADER_BYTES_MAX + 1
UNREAD = {
    "its size, as Java writes it": (
        b'{"code":310,"extFields":{"i":"' + rb",\"opaque\":9,\"code\":8," + b"x" * MUCH + b'"},"flag":2,"opaque":7}', 2
    ),
    "its size, all in front": (b'{"flag": 2, "opaque" :7,"code":310,"extFields":{"i":"' + b"x" * MUCH + b'"}}', 2),
    "its size, without a flag": (b'{"code":310,"opaque":"7","extFields":{"i":"' + b"x" * MUCH + b'"}}', 0),
    "its lists": (b'{"code":310,"opaque":7,"x":[' + b"[]," * 40_000 + b"1]}", 0),
    "its members": (b'{"code":310,"opaque":7,' + b'"a":1,' * 40_001 + b'"b":1}', 0),
}  # fmt: skip


@pytest.mark.parametrize("name", UNREAD)
def test_a_header_that_takes_long_to_parse_is_skipped_and_the_connection_stays(name: str) -> None:
    header, flag = UNREAD[name]
    reader = FrameReader()
    big, next_one = reader.receive(frame(header, b"body") + frame(JSON_HEADER))
    assert (big.code, big.opaque, big.flag, big.ext, big.body) == (310, 7, flag, {}, b"body")
    assert big.unread.startswith(f"a header of {len(header)} bytes")
    assert (next_one.opaque, next_one.unread, reader.failure) == (7, "", None)


def test_a_binary_header_that_takes_long_to_parse_is_skipped() -> None:
    many = b"".join(entry(b"%d" % number, b"") for number in range(10_001))
    for ext in (many, entry(b"i", b"") * 10_001, entry(b"i", bytes(MUCH))):
        reader = FrameReader()
        (command,) = reader.receive(frame(rocketmq_header(ext=ext), serialize_type=ROCKETMQ))
        assert (command.code, command.opaque, command.ext) == (105, 7, {})
        assert command.unread


def test_a_client_reads_replies_with_large_headers() -> None:
    named = b'{"code":0,"flag":1,"opaque":7,"extFields":{"msgId":"' + b"0" * MUCH + b"," * 50_000 + b'"}}'
    (reply,) = FrameReader(header_bytes_max=FRAME_BYTES_MAX - 8).receive(frame(named))
    assert len(reply.ext["msgId"]) == MUCH + 50_000
    assert not reply.unread


@given(st.binary(max_size=400))
def test_arbitrary_bytes_never_break_the_reader(data: bytes) -> None:
    reader = FrameReader()
    reader.receive(data)
    for serialize_type in (JSON, ROCKETMQ):
        FrameReader().receive(frame(data, serialize_type=serialize_type))


MEMBERS = ["code", "opaque", "flag", "version", "language", "remark", "extFields", "serializeTypeCurrentRPC"]
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
    lambda children: (
        st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=3), children, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(MEMBERS), ANY_JSON))
def test_a_json_header_of_any_shape_gives_a_valid_command_or_a_failure(header: dict[str, object]) -> None:
    reader = FrameReader()
    commands = reader.receive(frame(json.dumps(header).encode()))
    assert len(commands) == (reader.failure is None)
    for command in commands:
        assert all(type(text) is str for item in command.ext.items() for text in item)
        assert command.remark is None or type(command.remark) is str
        encode(command)


def test_unusual_but_valid_headers_are_read() -> None:
    headers = {
        b'{"opaque":"5","flag":null}\n': (0, 5, {}),
        b'{"code":105,"extFields":{"topic":"T","n":3,"yes":true,"none":null,"f":1.5}}': (
            105,
            0,
            {"topic": "T", "n": "3", "yes": "true", "f": "1.5"},
        ),
        b'{code:105,"extFields":{1:"a",},}': (105, 0, {"1": "a"}),
        b'{"code":1,"code":2,"@type":"java.lang.Object"}': (2, 0, {}),
    }
    for header, (code, opaque, ext) in headers.items():
        (command,) = FrameReader().receive(frame(header))
        assert (command.code, command.opaque, command.ext) == (code, opaque, ext)


def test_a_language_may_be_a_name_an_ordinal_or_unknown() -> None:
    for written, read in {"GO": "GO", 3: "PYTHON", "KLINGON": "OTHER", 99: "OTHER"}.items():
        (command,) = FrameReader().receive(frame(json.dumps({"code": 1, "language": written}).encode()))
        assert command.language == read


def test_a_code_beyond_16_bits_arrives_truncated_in_the_binary_encoding() -> None:
    (command,) = FrameReader().receive(b"".join(encode(RemotingCommand(51001, serialize_type=ROCKETMQ))))
    assert command.code == -14535


def test_an_empty_key_and_an_empty_value_are_legal_in_the_binary_encoding() -> None:
    data = frame(rocketmq_header(ext=entry(b"", b"") + entry(b"k", b"")), serialize_type=ROCKETMQ)
    (command,) = FrameReader().receive(data)
    assert command.ext == {"": "", "k": ""}


def dialect_frame(header_bytes: int) -> bytes:
    """A frame whose header is no strict JSON: its keys have no quotes."""
    begin, end = b"{code:105,opaque:1,extFields:{", b"}}"
    header = begin + b"a:1," * ((header_bytes - len(begin) - len(end)) // 4) + end
    return START.pack(4 + len(header), len(header)) + header


def entries_frame(entries: int) -> bytes:
    return frame(rocketmq_header(ext=entry(b"", b"") * entries), serialize_type=ROCKETMQ)


@pytest.mark.parametrize(
    ("data", "most"),
    [
        (dialect_frame(DIALECT_BYTES_MAX), 1), (dialect_frame(1_000), 9), (dialect_frame(100), 64),
        (entries_frame(ENTRIES_MAX), 1), (entries_frame(ENTRIES_MAX + 1), 1), (entries_frame(101), 13),
        (entries_frame(100), 64),
    ],
)  # fmt: skip
def test_few_headers_that_are_slow_to_read_are_read_at_once(data: bytes, most: int) -> None:
    reader, data, read = FrameReader(), data * 100, 0
    while data:
        buffer = reader.buffer()
        count = min(len(buffer), len(data))
        buffer[:count], data = data[:count], data[count:]
        reader.taken(count)
        while reader.has_more:
            commands = reader.read(FRAMES_AT_ONCE, BYTES_AT_ONCE)
            assert len(commands) <= most and reader.failure is None
            read += len(commands)
    assert read == 100


def test_a_long_header_that_is_no_strict_json_ends_the_connection() -> None:
    reader = FrameReader()
    assert reader.receive(dialect_frame(DIALECT_BYTES_MAX + 8)) == []
    assert reader.failure is not None and "not strict JSON" in str(reader.failure)
