"""The records of a transaction, with the same bytes as upstream's: the half (the message that consumers do not see yet), the
committed message, the half that is put back before its producer is checked, the op record that names halves that are done, and
the copy of an abandoned half.

Invariant: a half that was put back names the first half of the transaction (`TRAN_PREPARED_QUEUE_OFFSET`). So all halves of a
transaction have the same `root`, the queue offset of the first half. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from messagestore.messages import LaterCopy, MessageToStore
from messagestore.properties import (
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TAGS,
    UNIQ_KEY,
    WAIT,
    format_properties,
    parse_properties,
)
from messagestore.record import (
    BORN_HOST_IPV6,
    STORE_HOST_IPV6,
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
    Message,
    encode,
)
from messagestore.systemtopics import CHECKED_TOO_OFTEN_TOPIC, HALF_TOPIC, OP_HALF_TOPIC
from mqruntime.javahash import java_string_hash

QUEUE_ID = 0
TRANSACTION_ID = "__transactionId__"
PRODUCER_GROUP = "PGROUP"
CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
IMMUNITY_S = "CHECK_IMMUNITY_TIME_IN_SECONDS"
ROOT = "TRAN_PREPARED_QUEUE_OFFSET"
DONE_TAG = "d"
DONE_BYTES_MAX = 4_096  # transactionOpMsgMaxSize
ADDED_BYTES_MAX = 128
"""The bytes by which properties grow when a half is put back, including the record's CRC."""
IMMUNE_S_MAX = 3 * 24 * 3_600
"""Limit of the immunity from checks, because a half that is not checked holds back retention."""
DECODED_MAP, NEW_MAP = 128, 16
DIGITS_MAX = 18


class HalfFacts(NamedTuple):
    """The properties of a half. `root` is None for a first half, and `immune_ms` is None if the property is missing."""

    group: str
    key: str
    root: int | None
    check_times: int
    immune_ms: int | None


def facts_of(properties: bytes) -> HalfFacts:
    """Parse the properties. Malformed numbers count as missing, as in upstream."""
    pairs = parse_properties(properties)
    immune_s = _number(pairs.get(IMMUNITY_S))
    return HalfFacts(
        pairs.get(PRODUCER_GROUP, ""),
        pairs.get(UNIQ_KEY, ""),
        _number(pairs.get(ROOT)),
        _number(pairs.get(CHECK_TIMES)) or 0,
        None if immune_s is None else 1000 * min(immune_s, IMMUNE_S_MAX),
    )


def half_of(message: MessageToStore) -> MessageToStore:
    """The half of `message`. Drops properties of another transaction, which come with a forwarded message."""
    pairs = parse_properties(message.properties)
    for name in (ROOT, CHECK_TIMES):
        pairs.pop(name, None)
    if key := pairs.get(UNIQ_KEY):
        pairs[TRANSACTION_ID] = key
    pairs |= {REAL_TOPIC: message.topic, REAL_QUEUE_ID: str(message.queue_id)}
    return replace(
        message,
        topic=HALF_TOPIC,
        queue_id=QUEUE_ID,
        sys_flag=message.sys_flag & ~TRANSACTION_MASK,
        properties=format_properties(in_java_order(pairs, DECODED_MAP)),
        copied_later=LaterCopy(message.topic, ADDED_BYTES_MAX),
    )


def committed(half: Message) -> MessageToStore | None:
    """The message that consumers get; None if the half does not name a real topic and queue."""
    pairs = half.property_map
    topic, queue_id = pairs.get(REAL_TOPIC, ""), _number(pairs.get(REAL_QUEUE_ID))
    if half.topic != HALF_TOPIC or not topic or queue_id is None or queue_id >= 1 << 31:
        return None
    return replace(
        _copied(half),
        topic=topic,
        queue_id=queue_id,
        sys_flag=_own_flags(half) | TRANSACTION_COMMIT,
        prepared_transaction_offset=half.physical_offset,
    )


def put_back(half: Message, *, root: int, asks: bool) -> MessageToStore:
    """The half that replaces `half`. `asks`: the producer will be checked."""
    pairs = half.property_map
    if asks:
        pairs[CHECK_TIMES] = str((_number(pairs.get(CHECK_TIMES)) or 0) + 1)
    pairs[ROOT] = str(root)
    return replace(_copied(half), properties=format_properties(in_java_order(pairs, DECODED_MAP)))


def given_up(half: Message) -> MessageToStore:
    """The copy of an abandoned half, which no producer ended."""
    return replace(_copied(half), topic=CHECKED_TOO_OFTEN_TOPIC, queue_id=0)


def done_records(queue_offsets: Iterable[int], host: bytes, now_ms: int) -> list[MessageToStore]:
    """Op records for these halves, in order and as few as possible. The last record is shorter than DONE_BYTES_MAX, which shows
    that the list is complete."""
    bodies = [""]
    for queue_offset in queue_offsets:
        if len(bodies[-1]) >= DONE_BYTES_MAX:
            bodies.append("")
        bodies[-1] += f"{queue_offset},"
    if len(bodies[-1]) >= DONE_BYTES_MAX:
        *_, last, _ = bodies[-1].split(",")
        bodies[-1:] = [bodies[-1].removesuffix(f"{last},"), f"{last},"]
    properties = format_properties(in_java_order({TAGS: DONE_TAG, WAIT: "true"}, NEW_MAP))
    return [
        MessageToStore(
            OP_HALF_TOPIC,
            QUEUE_ID,
            body.encode(),
            properties,
            born_timestamp=now_ms,
            born_host=host,
        )
        for body in bodies
        if body
    ]


def done_offsets(body: bytes) -> list[int]:
    """The halves that an op record names. Parts that are no numbers are skipped."""
    return [int(part) for part in body.split(b",") if part.isdigit() and len(part) <= DIGITS_MAX]


def real_topic(half: Message) -> str:
    """The topic to which the half is delivered if it is committed."""
    return half.property_map.get(REAL_TOPIC, "")


def asked_for(half: Message) -> bytes:
    """The message that the producer gets with a check: the half with its real topic and queue."""
    pairs = half.property_map
    shown = replace(half, topic=real_topic(half), queue_id=_number(pairs.get(REAL_QUEUE_ID)) or 0)
    return encode(shown)


def _copied(half: Message) -> MessageToStore:
    return MessageToStore(
        half.topic,
        half.queue_id,
        half.body,
        half.properties,
        half.flag,
        _own_flags(half),
        half.born_timestamp,
        half.born_host,
        half.reconsume_times,
        stored_before=True,
    )


def _own_flags(half: Message) -> int:
    return half.sys_flag & ~(BORN_HOST_IPV6 | STORE_HOST_IPV6 | TRANSACTION_MASK)


def _number(text: str | None) -> int | None:
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > DIGITS_MAX:
        return None
    return int(text)


def in_java_order(pairs: Mapping[str, str], buckets: int) -> dict[str, str]:
    """`pairs` in the order of a Java HashMap with this number of buckets. Upstream stores changed properties in this order."""
    while 4 * len(pairs) > 3 * buckets:
        buckets *= 2
    return dict(sorted(pairs.items(), key=lambda pair: _bucket(pair[0], buckets)))


def _bucket(key: str, buckets: int) -> int:
    hashed = java_string_hash(key) & 0xFFFFFFFF
    return (hashed ^ hashed >> 16) & buckets - 1
