"""The record format against worked examples, random messages and damaged bytes."""

from __future__ import annotations

from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from messagestore import record
from messagestore.record import Message, check, decode, encode, pack_host
from messagestore.recordcrc import CRC_MASK
from tests.unit.messagestore.storehelp import format_host, record_crc, record_crc_property, worked

WORKED = bytes.fromhex(
    "0000007adaa320a73610a686000000010000000000000000000000030000000000001000000000000000018bcfe56800"
    "0a000009000013880000018bcfe568010a00000100002a9f0000000000000000000000000000000568656c6c6f"
    "09546f706963546573740011544147530154616741024b455953016b31"
)


def test_the_worked_record_is_encoded_byte_for_byte_and_read_back() -> None:
    assert encode(worked()) == WORKED
    assert decode(WORKED) == worked()
    assert decode(b"xx" + WORKED, 2) == worked()
    assert worked().property_map == {"TAGS": "TagA", "KEYS": "k1"}


def test_the_worked_record_with_a_record_crc_has_the_published_digits() -> None:
    with_crc = worked()
    with_crc.properties += b"\x02" + record_crc_property(0)
    unsigned = encode(with_crc)
    assert len(unsigned) == 143
    assert record_crc(unsigned) == 1484117969
    assert record_crc_property(1484117969) == b"__CRC32#\x019697114841\x02"


def test_message_ids_name_the_broker_and_the_position() -> None:
    assert worked().message_id == "0A00000100002A9F0000000000001000"
    assert record.parse_message_id("0A00000100002A9F0000000000001000") == (pack_host("10.0.0.1", 10911), 4096)
    six = record.offset_message_id(pack_host("::1", 10911), 7)
    assert len(six) == 56 and record.parse_message_id(six)[1] == 7
    assert format_host(pack_host("::1", 10911)) == "[::1]:10911"
    for bad in ("", "0A", "not hexadecimal" * 4):
        with pytest.raises(ValueError):
            record.parse_message_id(bad)


def test_a_blank_record_has_the_bytes_of_upstream() -> None:
    assert record.encode_blank(12081) == bytes.fromhex("00002f31cbd43194")
    assert check(record.encode_blank(12081), 0, 12081, 0) == record.END_OF_SEGMENT
    assert check(record.encode_blank(12081), 0, 12082, 0) == record.INVALID


hosts = st.one_of(st.binary(min_size=8, max_size=8), st.binary(min_size=20, max_size=20))
i32 = st.integers(-(1 << 31), (1 << 31) - 1)
i64 = st.integers(-(1 << 63), (1 << 63) - 1)


@st.composite
def messages(draw: st.DrawFn) -> Message:
    topic = draw(st.text("abcXYZ_%-", min_size=1, max_size=255))
    born, stored = draw(hosts), draw(hosts)
    sys_flag = (
        draw(st.integers(0, 0x7FF)) & ~0x30
        | (0x10 if len(born) == 20 else 0)
        | (0x20 if len(stored) == 20 else 0)
    )
    body, properties = draw(st.binary(max_size=200)), draw(st.binary(max_size=100))
    return Message(
        topic=topic, queue_id=draw(i32), queue_offset=draw(i64), physical_offset=draw(i64),
        total_size=record.record_size(sys_flag, len(body), len(topic), len(properties)), flag=draw(i32),
        sys_flag=sys_flag, body_crc=crc32(body) & CRC_MASK, born_timestamp=draw(i64), born_host=born,
        store_timestamp=draw(i64), store_host=stored, reconsume_times=draw(i32),
        prepared_transaction_offset=draw(i64), body=body, properties=properties,
        magic=record.MAGIC_V1 if len(topic) <= 127 else record.MAGIC_V2,
    )  # fmt: skip


@given(messages())
def test_any_message_is_read_back_as_it_was_written(message: Message) -> None:
    stored = encode(message)
    assert decode(stored) == message
    facts = record.queue_facts(stored, 0, len(stored), message.physical_offset)
    assert facts == record.QueueFacts(
        len(stored), message.topic.encode(), message.queue_id, message.queue_offset, message.sys_flag,
        message.store_timestamp, message.properties,
    )  # fmt: skip
    assert record.store_timestamp(stored, 0) == message.store_timestamp


@given(messages(), st.integers(0, 400))
def test_a_record_cut_short_is_incomplete_and_never_valid(message: Message, length: int) -> None:
    stored = encode(message)
    part = stored[: min(length, len(stored) - 1)]
    assert check(part, 0, 1000, message.physical_offset) == record.INCOMPLETE
    with pytest.raises(record.RecordError):
        decode(part)


@given(messages(), st.data())
def test_a_check_of_any_damaged_record_returns_a_result(message: Message, data: st.DataObject) -> None:
    stored = bytearray(encode(message))
    for _ in range(data.draw(st.integers(1, 4))):
        stored[data.draw(st.integers(0, len(stored) - 1))] = data.draw(st.integers(0, 255))
    size = check(stored, 0, len(stored), message.physical_offset)
    assert size in (len(stored), record.INVALID, record.END_OF_SEGMENT)


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (0, 0), (0, -1), (0, 1 << 20), (0, 90),  # total size
        (4, 0), (4, -626843480),  # magic
        (8, 0),  # checksum of the body
        (28, 4097), (32, 0),  # physical offset
        (84, -1), (84, 1 << 30), (84, 4),  # body length
    ],
)  # fmt: skip
def test_one_wrong_field_makes_a_record_invalid(at: int, value: int) -> None:
    stored = bytearray(WORKED)
    stored[at : at + 4] = value.to_bytes(4, "big", signed=True)
    assert check(stored, 0, len(stored), 4096) == record.INVALID


@pytest.mark.parametrize(("at", "value"), [(93, 255), (93, 8), (103, 255), (104, 0x10), (104, 0x12)])
def test_inconsistent_lengths_make_a_record_invalid(at: int, value: int) -> None:
    stored = bytearray(WORKED)
    stored[at] = value
    assert check(stored, 0, len(stored), 4096, verify_body=False) == record.INVALID


def test_a_body_without_bytes_needs_no_checksum() -> None:
    message = worked()
    message.body, message.body_crc, message.total_size = b"", 0, 117
    stored = bytearray(encode(message))
    stored[8:12] = b"\1\2\3\4"
    assert check(stored, 0, len(stored), 4096) == 117
