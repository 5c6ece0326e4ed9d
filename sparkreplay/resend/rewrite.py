"""Makes the message with which a stored record is sent again.

Invariant: body, flag, compression, time of birth, keys, tags, id and every other property are unchanged. The exceptions are
properties for which a broker would treat the message specially, such as a delay that has passed or a transaction that has
ended. Properties that are not UTF-8 cannot be sent unchanged, because a client's header is text. A time of birth that a
timestamp cannot hold becomes the time of the resend. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from messagestore.record import COMPRESSED, COMPRESSION_TYPE_MASK, MULTI_TAGS

ROW_COLUMNS = (
    "queue_id", "queue_offset", "body", "properties", "properties_raw", "born_timestamp", "flag", "sys_flag", "physical_offset",
    "store_size", "epoch",
)  # fmt: skip
SENT_FLAGS = COMPRESSED | MULTI_TAGS | COMPRESSION_TYPE_MASK
"""Bits of sysFlag that describe the body and the tags. The new broker sets the bits for transactions and hosts."""
SPECIAL = frozenset(
    {
        "DELAY", "REAL_TOPIC", "REAL_QID", "TRAN_MSG", "PGROUP", "TRAN_PREPARED_QUEUE_OFFSET", "CHECK_IMMUNITY_TIME_IN_SECONDS",
        "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TIMER_IN_MS", "TIMER_OUT_MS", "TIMER_ENQUEUE_MS",
        "TIMER_DEQUEUE_MS", "TIMER_ROLL_TIMES", "TIMER_DEL_UNIQKEY", "INNER_NUM", "INNER_BASE", "INNER_MULTI_DISPATCH",
        "INNER_MULTI_QUEUE_OFFSET", "__CRC32#", "WAIT",
    }
)  # fmt: skip
"""Properties that ask a broker for more than storing the message (upstream: MessageConst). WAIT is always sent as true,
because a message that does not wait for replicas could be lost although it was acknowledged."""
ORIGIN, ORIGIN_QUEUE, ORIGIN_EPOCH = "REPLAY_SRC", "REPLAY_QUEUE", "REPLAY_EPOCH"


class QueueMessage(NamedTuple):
    """One message of one queue; `end` is the end of its record, or of its part of a batch's record.

    `born_ms` is the time of birth in ms, or None if a timestamp cannot hold it. `properties` are exactly the stored properties
    only if `text` is true."""

    queue_id: int
    queue_offset: int
    physical_offset: int
    end: int
    born_ms: int | None
    flag: int
    sys_flag: int
    epoch: int
    body: bytes
    properties: dict[str, str]
    text: bool


def rows_of(batch: pa.RecordBatch) -> Iterator[QueueMessage]:
    """The rows of a batch of ROW_COLUMNS."""
    born = batch.column("born_timestamp").cast(pa.int64()).to_pylist()
    columns = [batch.column(name).to_pylist() for name in ROW_COLUMNS if name != "born_timestamp"]
    before = end = -1
    for born_us, (queue_id, queue_offset, body, properties, raw, flag, sys_flag, at, size, epoch) in zip(
        born, zip(*columns, strict=True), strict=True
    ):
        end = (end if at == before else at) + size  # each message of a batch has a part of its record
        before = at
        yield QueueMessage(
            queue_id,
            queue_offset,
            at,
            end,
            None if born_us is None else born_us // 1000,
            flag,
            sys_flag,
            epoch,
            body,
            dict(properties),
            is_text(raw),
        )


def is_text(stored: bytes) -> bool:
    """Whether the bytes are UTF-8."""
    try:
        stored.decode()
    except UnicodeDecodeError:
        return False
    return True


def sent_properties(row: QueueMessage, broker_name: str, topic: str) -> dict[str, str]:
    """The properties to send. The message's former place is added; it replaces the place of an earlier resend."""
    kept = {name: value for name, value in row.properties.items() if name not in SPECIAL}
    kept[ORIGIN] = f"{broker_name}@{row.physical_offset}"
    kept[ORIGIN_QUEUE] = f"{topic}/{row.queue_id}@{row.queue_offset}"
    kept[ORIGIN_EPOCH] = str(row.epoch)
    return kept
