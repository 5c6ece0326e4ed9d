"""Message encodings of the client, against bytes of upstream's broker and producer."""

from __future__ import annotations

import sys
import zlib
from pathlib import Path

import pytest

from mqclient import compression
from mqclient.compression import CompressionUnsupported
from mqclient.message import (
    OutgoingMessage,
    RecordMalformed,
    decode_messages,
    decode_properties,
    encode_batch,
    encode_properties,
)
from tests.unit.mqclient.records import WORKED_RECORD

VECTORS = Path(__file__).parents[2] / "vectors" / "mqclient"
PULLED = (VECTORS / "pull-body.bin").read_bytes()
BATCH = (VECTORS / "batch-body.bin").read_bytes()


def test_a_stored_record_is_read_field_by_field() -> None:
    [message] = decode_messages(WORKED_RECORD)
    assert message.topic == "TopicTest"
    assert (message.queue_id, message.queue_offset, message.physical_offset) == (1, 3, 4096)
    assert (message.born_host, message.store_host) == ("10.0.0.9:5000", "10.0.0.1:10911")
    assert (message.born_timestamp_ms, message.store_timestamp_ms) == (1700000000000, 1700000000001)
    assert message.body == message.plain_body() == b"hello"
    assert message.properties == {"TAGS": "TagA", "KEYS": "k1"}
    assert message.size_bytes == len(WORKED_RECORD) == 122


def test_all_records_of_a_java_brokers_pull_are_read() -> None:
    messages = decode_messages(PULLED)
    assert sum(message.size_bytes for message in messages) == len(PULLED)
    assert [message.queue_offset for message in messages] == [0, 6, 7, 8, 9, 10]  # a tag filter left the rest


def test_an_empty_body_has_no_messages() -> None:
    assert decode_messages(b"") == []


@pytest.mark.parametrize("cut", [1, 47, 60, 100, 121])
def test_a_cut_record_is_refused_with_its_position(cut: int) -> None:
    with pytest.raises(RecordMalformed) as caught:
        decode_messages(WORKED_RECORD + WORKED_RECORD[:cut])
    assert caught.value.position == len(WORKED_RECORD)


@pytest.mark.parametrize("position", range(0, len(WORKED_RECORD)))
def test_a_changed_byte_never_crashes_the_decoder(position: int) -> None:
    changed = bytearray(WORKED_RECORD)
    changed[position] ^= 0xFF
    try:
        decode_messages(bytes(changed))
    except RecordMalformed as refused:
        assert refused.position == 0


def test_a_batch_is_encoded_as_the_java_producer_does() -> None:
    entries = []
    position = 0
    while position < len(BATCH):
        size = int.from_bytes(BATCH[position : position + 4])
        entry = BATCH[position : position + size]
        body_size = int.from_bytes(entry[16:20])
        body, properties = entry[20 : 20 + body_size], entry[22 + body_size :].decode()
        entries.append(OutgoingMessage(body, decode_properties(properties)))
        position += size
    assert len(entries) == 5
    assert encode_batch(entries) == BATCH


def test_properties_survive_the_wire_and_the_last_of_equal_names_counts() -> None:
    properties = {"KEYS": "k1 k2", "TAGS": "é", "own": "a\x01b"}
    assert decode_properties(encode_properties(properties)) == properties
    assert decode_properties("A\x01first\x02A\x01second") == {"A": "second"}
    assert decode_properties("novalue\x02\x01\x02K\x01") == {}


@pytest.mark.parametrize("properties", [{"": "v"}, {"k": ""}, {"k": "a\x02b"}, {"k\x01": "v"}])
def test_an_empty_property_or_one_with_a_separator_is_refused(properties: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="property"):
        encode_properties(properties)


def record(body: bytes, sys_flag: int) -> bytes:
    crc = (zlib.crc32(body) & 0x7FFFFFFF).to_bytes(4)
    changed = WORKED_RECORD[:84] + len(body).to_bytes(4) + body + WORKED_RECORD[93:]
    size = (len(WORKED_RECORD) - 5 + len(body)).to_bytes(4)
    return size + changed[4:8] + crc + changed[12:36] + sys_flag.to_bytes(4) + changed[40:]


@pytest.mark.parametrize("sys_flag", [0x1, 0x301])
def test_a_zlib_body_is_inflated_with_or_without_its_type(sys_flag: int) -> None:
    [message] = decode_messages(record(zlib.compress(b"long" * 100), sys_flag))
    assert message.plain_body() == b"long" * 100


@pytest.mark.parametrize(("sys_flag", "package"), [(0x101, "lz4"), (0x201, "zstandard")])
def test_a_missing_compression_library_is_named_with_its_package(
    sys_flag: int, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setitem(sys.modules, f"{package}.frame", None)
    [message] = decode_messages(record(b"whatever", sys_flag))
    with pytest.raises(CompressionUnsupported, match=f"pip install {package} opens it"):
        message.plain_body()


def test_lz4_and_zstd_bodies_are_opened_if_their_libraries_are_installed() -> None:
    body = b"long" * 100
    lz4_frame = pytest.importorskip("lz4.frame")
    zstandard = pytest.importorskip("zstandard")
    for sys_flag, packed in (
        (0x101, lz4_frame.compress(body)),
        (0x201, zstandard.ZstdCompressor().compress(body)),
    ):
        [message] = decode_messages(record(packed, sys_flag))
        assert message.plain_body() == body
        [damaged] = decode_messages(record(packed[:-6], sys_flag))
        with pytest.raises(ValueError, match="its (compressed )?body"):
            damaged.plain_body()


def test_a_zstd_body_without_a_size_is_opened_only_up_to_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("zstandard")
    monkeypatch.setattr(compression, "OPENED_BYTES_MAX", 1 << 20)
    head, block = bytes.fromhex("28b52ffd0038"), 128 * 1024 << 3 | 1 << 1  # a byte, 131,072 times
    for count in (4, 5_000):
        blocks = (block.to_bytes(3, "little") + b"x") * (count - 1) + (block | 1).to_bytes(3, "little") + b"x"
        [message] = decode_messages(record(head + blocks, 0x201))
        if count == 4:
            assert message.plain_body() == b"x" * 4 * 128 * 1024
            continue
        with pytest.raises(ValueError, match="cannot be opened"):
            message.plain_body()
