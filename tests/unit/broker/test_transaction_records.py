"""Transaction records compared with those of a RocketMQ 5.3.3 broker (tests/vectors/broker/README.md)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from broker.transactions.records import (
    HalfFacts,
    asked_for,
    committed,
    done_offsets,
    done_records,
    facts_of,
    given_up,
    half_of,
    in_java_order,
    put_back,
)
from messagestore.log.commits import commits_in
from messagestore.messages import MessageToStore
from messagestore.record import PROPERTIES_BYTES_MAX, Message, decode, encode
from mqclient.message import decode_messages

VECTOR = Path(__file__).parents[2] / "vectors/broker/transactions-5.3.3.log"
LOG = VECTOR.read_bytes()
HOST = decode(LOG).store_host

FIRST, ROLLED_BACK, COMMIT, IMMUNE, CHECKED, NEVER = 0, 425, 842, 1249, 1691, 2102
DONE, IMMUNE_AGAIN, CHECKED_AGAIN, NEVER_AGAIN = 2509, 2648, 3146, 3583
LATE_COMMIT, DONE_LATE, IMMUNE_GIVEN_UP, NEVER_GIVEN_UP = 4016, 4435, 5503, 6003


def at(place: int) -> Message:
    return decode(LOG, place)


def stored(message: MessageToStore, like: Message) -> bytes:
    """The record of `message` at the position and store time of `like`."""
    return encode(
        replace(
            like, topic=message.topic, queue_id=message.queue_id, body=bytes(message.body), flag=message.flag,
            properties=message.properties, sys_flag=message.sys_flag, born_timestamp=message.born_timestamp,
            born_host=message.born_host, reconsume_times=message.reconsume_times,
            prepared_transaction_offset=message.prepared_transaction_offset,
        )
    )  # fmt: skip


def bytes_at(place: int) -> bytes:
    return LOG[place : place + at(place).total_size]


@pytest.mark.parametrize(("place", "queue_id"), [(FIRST, 0), (ROLLED_BACK, 1), (IMMUNE, 0)])
def test_a_half_message_equals_upstreams_byte_for_byte(place: int, queue_id: int) -> None:
    half = at(place)
    own = {"REAL_TOPIC", "REAL_QID", "__transactionId__"}
    sent = "".join(
        f"{name}\x01{value}\x02" for name, value in half.property_map.items() if name not in own
    ).encode()
    message = MessageToStore(
        "Orders", queue_id, half.body, sent, 0, 4, half.born_timestamp, half.born_host, 0, 0
    )
    assert stored(half_of(message), half) == bytes_at(place)


@pytest.mark.parametrize(("half", "commit"), [(FIRST, COMMIT), (CHECKED_AGAIN, LATE_COMMIT)])
def test_a_commit_equals_upstreams_byte_for_byte(half: int, commit: int) -> None:
    message = committed(at(half))
    assert message is not None
    assert stored(message, at(commit)) == bytes_at(commit)


@pytest.mark.parametrize(("place", "halves"), [(DONE, [0, 1]), (DONE_LATE, [6])])
def test_an_op_record_equals_upstreams_byte_for_byte(place: int, halves: list[int]) -> None:
    (message,) = done_records(halves, HOST, at(place).born_timestamp)
    assert stored(message, at(place)) == bytes_at(place)
    assert done_offsets(at(place).body) == halves


def test_a_half_message_is_put_back_with_the_offset_of_its_first_copy() -> None:
    again = put_back(at(CHECKED), root=3, asks=True)
    expected = at(CHECKED_AGAIN)
    assert decode(stored(again, expected)).property_map == expected.property_map | {
        "TRAN_PREPARED_QUEUE_OFFSET": "3"
    }
    assert stored(replace(again, properties=expected.properties), expected) == bytes_at(CHECKED_AGAIN)
    # within the immunity time upstream writes the same bytes except for the value of WAIT
    immune, expected = put_back(at(IMMUNE), root=2, asks=True), at(IMMUNE_AGAIN)
    assert immune.properties.replace(b"WAIT\x01true", b"WAIT\x01false") == expected.properties
    third = put_back(decode(stored(again, at(CHECKED_AGAIN))), root=3, asks=True)
    assert b"TRANSACTION_CHECK_TIMES\x012\x02" in third.properties
    uncounted = put_back(at(NEVER), root=4, asks=False)
    assert b"TRANSACTION_CHECK_TIMES" not in uncounted.properties


def test_an_abandoned_half_message_equals_upstreams_byte_for_byte() -> None:
    assert stored(given_up(at(5070)), at(NEVER_GIVEN_UP)) == bytes_at(NEVER_GIVEN_UP)


def test_facts_are_read_from_the_properties_of_half_messages() -> None:
    key = "FD000000000000000000000000000002409D4E0E2F2A78FF3D0A0002"
    assert facts_of(at(IMMUNE).properties) == HalfFacts("PG", key, None, 0, 8_000)
    assert facts_of(at(IMMUNE_AGAIN).properties) == HalfFacts("PG", key, 2, 1, 8_000)
    bad = b"CHECK_IMMUNITY_TIME_IN_SECONDS\x01-1\x02TRANSACTION_CHECK_TIMES\x01x\x02"
    assert facts_of(bad) == HalfFacts("", "", None, 0, None)


def test_a_check_shows_a_producer_the_message_that_it_sent() -> None:
    (shown,) = decode_messages(asked_for(at(CHECKED_AGAIN)))
    assert (shown.topic, shown.queue_id, shown.body) == ("Orders", 1, b"checked")
    assert (shown.queue_offset, shown.physical_offset) == (6, CHECKED_AGAIN)


def test_commits_are_found_in_the_log() -> None:
    size = 1 << 20
    assert commits_in(LOG, 0, size, len(LOG)) == (len(LOG), [FIRST, CHECKED_AGAIN])
    assert commits_in(LOG[LATE_COMMIT:], LATE_COMMIT, size, len(LOG)) == (len(LOG), [CHECKED_AGAIN])
    assert commits_in(LOG[COMMIT : COMMIT + 60], COMMIT, size, len(LOG)) == (COMMIT, [])
    assert commits_in(b"\0" * 100, 0, size, 100) == (None, [])
    assert commits_in(b"\0" * 100, size - 4, size, size) == (size, [])


def test_a_copy_for_a_retry_commits_nothing() -> None:
    copy = encode(replace(at(COMMIT), reconsume_times=1, physical_offset=0))
    assert commits_in(copy, 0, 1 << 20, len(copy)) == (len(copy), [])


def test_many_ended_half_messages_share_op_records() -> None:
    messages = done_records(range(2_000), HOST, 1)
    assert [len(message.body) for message in messages] == [4_100, 4_100, 690]
    assert [offset for each in messages for offset in done_offsets(bytes(each.body))] == list(range(2_000))
    assert done_offsets(b"1,x,,-5,99999999999999999999,7") == [1, 7]


def test_the_last_op_record_is_never_a_full_one() -> None:
    """Behind a full record another one may be missing (upstream: TransactionalMessageServiceImpl)."""
    filled = range(1_000_000, 1_000_000 + 4_096 // len("1000000,"))
    messages = done_records(filled, HOST, 1)
    assert [len(message.body) for message in messages] == [4_088, 8]
    assert [offset for each in messages for offset in done_offsets(bytes(each.body))] == list(filled)
    (less,) = done_records(filled[1:], HOST, 1)
    assert len(less.body) == 4_088


def test_a_map_with_more_pairs_than_buckets_is_written_in_java_order() -> None:
    assert list(in_java_order({"TAGS": "d", "WAIT": "true"}, 16)) == ["WAIT", "TAGS"]
    # the order in which JDK 17 prints a HashMap of these with the default 16 buckets
    names = [f"k{number}" for number in range(20)]
    assert (
        "".join(in_java_order(dict.fromkeys(names, "v"), 16))
        == "k0k1k2k3k4k5k11k6k10k7k13k8k12k9k15k14k17k16k19k18"
    )


@pytest.mark.parametrize(("room", "fits"), [(0, False), (54, False), (55, True)])
def test_a_full_half_message_of_java_cannot_be_put_back_but_can_be_ended(room: int, fits: bool) -> None:
    """Java checks the size of a half message only when it is sent: it accepts 32,767 bytes of properties."""
    half = at(NEVER)
    long = b"own\x01" + b"x" * (PROPERTIES_BYTES_MAX - room - len(half.properties) - 5) + b"\x02"
    half = replace(half, properties=half.properties + long)
    assert len(half.properties) == 32_767 - room
    again = put_back(half, root=7, asks=True)
    grown = b"TRANSACTION_CHECK_TIMES\x011\x02" + b"TRAN_PREPARED_QUEUE_OFFSET\x017\x02"
    assert len(again.properties) == len(half.properties) + len(grown)
    assert (len(again.properties) <= 32_767) is fits
    commit = committed(half)
    assert commit is not None
    assert len(commit.properties) <= len(half.properties) >= len(given_up(half).properties)
