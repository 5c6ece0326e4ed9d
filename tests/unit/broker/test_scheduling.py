"""The form of delayed messages in the log, and the table of delivered offsets."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.sends.retries import retries_max, retry_level
from broker.sends.scheduling import delivered, scheduled
from broker.tables.delayoffsets import DelayOffsets
from messagestore.messages import MessageToStore
from messagestore.record import Message, pack_host
from remoting.bodies.groups import SubscriptionGroupConfig
from remoting.bodies.offsets import DelayOffsetWrapper

BORN = pack_host("10.0.0.9", 5000)
MESSAGE = MessageToStore("orders", 3, b"body", b"KEYS\x01k\x02", 7, 1, 99, BORN, 2)


def as_record(message: MessageToStore) -> Message:
    return Message(
        topic=message.topic, queue_id=message.queue_id, queue_offset=0, physical_offset=0, total_size=0,
        flag=message.flag, sys_flag=message.sys_flag, body_crc=0, born_timestamp=message.born_timestamp,
        born_host=message.born_host, store_timestamp=0, store_host=pack_host("10.0.0.1", 10911),
        reconsume_times=message.reconsume_times, prepared_transaction_offset=0, body=bytes(message.body),
        properties=message.properties,
    )  # fmt: skip


def test_a_delivered_message_equals_the_scheduled_one() -> None:
    waiting = scheduled(MESSAGE, 5, 18)
    assert (waiting.topic, waiting.queue_id) == ("SCHEDULE_TOPIC_XXXX", 4)
    assert waiting.properties == b"KEYS\x01k\x02DELAY\x015\x02REAL_TOPIC\x01orders\x02REAL_QID\x013\x02"
    assert delivered(as_record(waiting)) == replace(
        MESSAGE, properties=waiting.properties, stored_before=True
    )


def test_a_message_delayed_again_is_delivered_to_its_new_topic() -> None:
    first = delivered(as_record(scheduled(MESSAGE, 5, 18)))
    assert first is not None
    again = scheduled(replace(first, topic="%RETRY%CG", queue_id=0), 6, 18)
    second = delivered(as_record(again))
    assert second is not None
    assert (second.topic, second.queue_id, again.queue_id) == ("%RETRY%CG", 0, 5)


@pytest.mark.parametrize(
    "change",
    [
        {"topic": "orders"},
        {"properties": b"REAL_TOPIC\x01orders\x02"},
        {"properties": b"REAL_QID\x011\x02"},
        {"properties": b"REAL_TOPIC\x01orders\x02REAL_QID\x01-1\x02"},
        {"properties": b"REAL_TOPIC\x01orders\x02REAL_QID\x012147483648\x02"},
        {"properties": b"REAL_TOPIC\x01orders\x02REAL_QID\x01one\x02"},
    ],
)
def test_a_record_without_a_valid_real_topic_and_queue_is_not_delivered(change: dict[str, object]) -> None:
    record = replace(as_record(scheduled(MESSAGE, 5, 18)), **change)  # type: ignore[arg-type]
    assert delivered(record) is None


def test_delay_offsets_are_read_as_upstream_writes_them() -> None:
    offsets = DelayOffsets()
    offsets.decode(
        b'{\n\t"dataVersion":{"counter":2,"stateVersion":0,"timestamp":1},\n\t"offsetTable":{1:12,2:0}\n}'
    )
    assert [offsets.next_offset(level) for level in (1, 2, 3)] == [12, 0, 0]
    offsets.advance(3, 7)
    copy = DelayOffsets()
    copy.decode(offsets.encode())
    assert copy.next_offset(3) == 7
    assert not copy.adopt(DelayOffsetWrapper({1: 12, 2: 0, 3: 7}))
    assert copy.adopt(DelayOffsetWrapper({1: 11}))
    assert copy.next_offset(1) == 11


def test_retries_are_bounded_by_the_group_or_by_a_newer_client() -> None:
    group = SubscriptionGroupConfig("CG", retry_max_times=16)
    assert [retries_max(group, *asked) for asked in ((None, 479), (3, 479), (3, 121), (3, 119))] == [
        16,
        3,
        3,
        16,
    ]
    assert [retry_level(*asked) for asked in ((0, 0), (0, 15), (5, 2), (0, -9))] == [3, 18, 5, 3]
