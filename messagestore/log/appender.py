"""The master's side of appending: messages become records at the end of the mapped log.

Invariant: a queue's offsets are assigned in log order without a gap. Store timestamps never go back, even if the clock does. A
rejected message leaves log and queue offsets unchanged."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import count
from struct import error as StructError
from typing import NamedTuple

from messagestore.batch import SENT_MEMBERS_MAX, BatchError, BatchMember, parse_batch
from messagestore.errors import LogTakesNothing
from messagestore.log.files import LogFiles
from messagestore.messages import (
    LaterCopy,
    MessageToStore,
    PlainAppended,
    PlainSends,
    PutResult,
    PutStatus,
    ReplyForm,
)
from messagestore.properties import PROPERTY_SEPARATOR, join_properties
from messagestore.record import (
    BORN_HOST_IPV6,
    PREFIX,
    PROPERTIES_BYTES_MAX,
    STORE_HOST_IPV6,
    TOPIC_BYTES_MAX,
    QueueFacts,
    counts_in_queue,
    pack_record,
    record_size,
)
from messagestore.recordcrc import seal, with_no_crc, with_room
from mqruntime.diskfull import DISK_FULL

RECORD_OVERHEAD_BYTES_MAX = 64 << 10
IPV4_HOST_BYTES = 8


class NotStored(NamedTuple):
    """A rejected message. If the message is at fault, `why` says what is wrong, for example the size and the limit."""

    error: PutStatus
    why: str = ""


class Appender:
    """`next_offsets` maps (topic, queue id) to the queue offset of the queue's next message. `store_timestamp` is that of the
    last record in the log, ms. `known` gets the facts of each record, for Dispatcher. With `record_crcs`, each record ends
    with a CRC of its own."""

    def __init__(
        self,
        log: LogFiles,
        message_size_max: int,
        next_offsets: dict[tuple[bytes, int], int],
        store_timestamp: int,
        known: deque[tuple[int, QueueFacts]],
        *,
        record_crcs: bool,
    ) -> None:
        self._next_offsets = next_offsets
        self._store_timestamp = store_timestamp
        self._known = known
        self._log = log
        self._record_crcs = record_crcs
        self._message_size_max = message_size_max
        self._record_size_max = min(message_size_max + RECORD_OVERHEAD_BYTES_MAX, log.record_bytes_max)

    def append(self, messages: Sequence[MessageToStore], store_host: bytes, now_ms: int) -> list[PutResult]:
        """Store the messages in order. Each message gets its own outcome."""
        self._store_timestamp = timestamp = max(now_ms, self._store_timestamp)
        appended: list[PutResult] = []
        for message in messages:
            outcome: PutResult | NotStored
            try:
                outcome = (
                    self._append_batch(message, store_host)
                    if message.batch
                    else self._append_one(message, store_host)
                )
            except OSError as error:
                full = error.errno in DISK_FULL
                failed = PutStatus.SERVICE_NOT_AVAILABLE if full else PutStatus.CREATE_MAPPED_FILE_FAILED
                outcome = NotStored(failed)
            except LogTakesNothing:
                outcome = NotStored(PutStatus.SERVICE_NOT_AVAILABLE)
            except StructError as error:
                outcome = NotStored(
                    PutStatus.MESSAGE_ILLEGAL, f"a number that its field cannot hold: {error}"
                )
            if isinstance(outcome, NotStored):
                outcome = PutResult(-1, -1, -1, 0, timestamp, outcome.error, why=outcome.why)
            appended.append(outcome)
        return appended

    def append_plain(
        self,
        sends: PlainSends,
        born_host: bytes,
        store_host: bytes,
        added_properties: bytes,
        reply: ReplyForm,
        now_ms: int,
    ) -> PlainAppended | None:
        """Store all of `sends` at once. The log gets the same bytes as from `append` of single messages with
        `added_properties`. If a send would be rejected, the segment or the disk is full, the log takes no append, or a record
        is of another kind, nothing is done and the result is None. The caller then uses `append`."""
        if self._record_crcs or len(born_host) != IPV4_HOST_BYTES or len(store_host) != IPV4_HOST_BYTES:
            return None
        sizes = sends.measured(added_properties, self._message_size_max, self._record_size_max)
        if sizes is None:
            return None
        try:
            room = self._log.room(sizes)
        except (OSError, LogTakesNothing):
            return None
        if room is None:
            return None
        self._store_timestamp = max(now_ms, self._store_timestamp)
        end, ends, frames, frame_ends, amounts = sends.stored(
            *room, self._next_offsets, self._store_timestamp, born_host, store_host, added_properties, reply
        )
        self._log.grow(end)
        return PlainAppended(room.offset, end, ends, frames, frame_ends, amounts)

    def next_queue_offset(self, topic: str, queue_id: int) -> int:
        return self._next_offsets.get((topic.encode(), queue_id), 0)

    def _append_one(self, message: MessageToStore, store_host: bytes) -> PutResult | NotStored:
        topic = message.topic.encode()
        body = message.body
        properties, has_crc = self._stored(message.properties, message.stored_before)
        sys_flag = with_host_flags(message.sys_flag, message.born_host, store_host)
        size = record_size(sys_flag, len(body), len(topic), len(properties))
        refused = self._refusal(topic, len(body), properties, size, message.stored_before)
        if refused is None and message.copied_later is not None:
            refused = self._copy_refusal(message, message.copied_later, topic, sys_flag)
        if refused is not None:
            return refused
        ((view, at, start),) = self._log.places([size])
        counts = counts_in_queue(sys_flag)
        queue = topic, message.queue_id
        queue_offset = self._next_offsets.get(queue, 0) if counts else 0
        pack_record(
            view, at, size, topic, body, properties, message, message.flag, queue_offset, start, sys_flag,
            self._store_timestamp, store_host,
        )  # fmt: skip
        if has_crc:
            seal(view, at, size)
        self._log.grow(start + size)
        timestamp = self._store_timestamp
        facts = QueueFacts(size, topic, message.queue_id, queue_offset, sys_flag, timestamp, properties)
        self._known.append((start, facts))
        if counts:
            self._next_offsets[queue] = queue_offset + 1
        return PutResult(start, start + size, queue_offset, 1, self._store_timestamp)

    def _append_batch(self, message: MessageToStore, store_host: bytes) -> PutResult | NotStored:
        """Store all members consecutively in one segment, or store none."""
        topic = message.topic.encode()
        sys_flag = with_host_flags(message.sys_flag, message.born_host, store_host)
        if not counts_in_queue(sys_flag):
            return NotStored(PutStatus.MESSAGE_ILLEGAL, "a batch can begin or end no transaction")
        if len(message.body) > self._message_size_max:
            return _too_big("a batch", len(message.body), self._message_size_max)
        try:
            members = parse_batch(message.body, SENT_MEMBERS_MAX)
        except BatchError as error:
            return NotStored(PutStatus.MESSAGE_ILLEGAL, str(error))
        records: list[tuple[int, BatchMember, bytes]] = []
        for member in members:
            properties, _ = self._stored(join_properties(member.properties, message.properties))
            size = record_size(sys_flag, len(member.body), len(topic), len(properties))
            if refused := self._refusal(topic, len(member.body), properties, size):
                return refused
            records.append((size, member, properties))
        total = sum(size for size, _, _ in records)
        if total + PREFIX.size > self._log.segment_size_bytes:
            return _too_big("the records of a batch", total, self._log.segment_size_bytes - PREFIX.size)
        places = self._log.places([size for size, _, _ in records])
        queue = topic, message.queue_id
        first_queue_offset = self._next_offsets.get(queue, 0)
        offsets: list[int] = []
        timestamp, queue_id = self._store_timestamp, message.queue_id
        known: list[tuple[int, QueueFacts]] = []
        for queue_offset, (size, member, properties), (view, at, offset) in zip(
            count(first_queue_offset), records, places, strict=False
        ):  # only the first record can fail
            pack_record(
                view, at, size, topic, member.body, properties, message, member.flag, queue_offset, offset, sys_flag,
                timestamp, store_host,
            )  # fmt: skip
            if self._record_crcs:
                seal(view, at, size)
            facts = QueueFacts(size, topic, queue_id, queue_offset, sys_flag, timestamp, properties)
            known.append((offset, facts))
            offsets.append(offset)
            end = offset + size
        self._log.grow(end)
        self._known.extend(known)
        self._next_offsets[queue] = first_queue_offset + len(members)
        between = end - offsets[0] - total
        return PutResult(
            offsets[0], end, first_queue_offset, len(members), timestamp, None, tuple(offsets), between
        )

    def _stored(self, properties: bytes, stored_before: bool = False) -> tuple[bytes, bool]:
        """Return (stored properties, whether they end with a CRC). If the CRC does not fit into a copy of a stored message,
        such as a delayed message that Java stored, the copy is stored without CRC. Otherwise the message would be lost."""
        if not self._record_crcs:
            return with_no_crc(properties), False
        stored = with_room(properties)
        if stored_before and len(stored) > PROPERTIES_BYTES_MAX:
            return with_no_crc(properties), False
        return stored, True

    def _copy_refusal(
        self, message: MessageToStore, later: LaterCopy, topic: bytes, sys_flag: int
    ) -> NotStored | None:
        """Why the later copy would be rejected; None if it would not. Another replica may store it, so its store host may be an
        IPv6 address."""
        copy_topic = later.topic.encode()
        properties_bytes = len(message.properties) + later.added_bytes
        size = record_size(
            sys_flag | STORE_HOST_IPV6, len(message.body), max(len(copy_topic), len(topic)), properties_bytes
        )
        if properties_bytes > PROPERTIES_BYTES_MAX:
            return _too_long_properties(properties_bytes, " once it is stored again")
        if size > self._log.record_bytes_max:
            return _too_big("its record, once it is stored again,", size, self._log.record_bytes_max)
        if PROPERTY_SEPARATOR in copy_topic:  # the name could not be read back from the properties
            return NotStored(
                PutStatus.MESSAGE_ILLEGAL, "the topic's name has a separator of properties in it"
            )
        return _topic_refusal(copy_topic)

    def _refusal(
        self, topic: bytes, body_bytes: int, properties: bytes, size: int, stored_before: bool = False
    ) -> NotStored | None:
        body_bytes_max, size_max = self._message_size_max, self._record_size_max
        if stored_before:
            body_bytes_max = size_max = self._log.record_bytes_max
        if len(properties) > PROPERTIES_BYTES_MAX:
            return _too_long_properties(len(properties))
        if body_bytes > body_bytes_max:
            return _too_big("a body", body_bytes, body_bytes_max)
        if size > size_max:
            return _too_big("a record", size, size_max)
        if 0 in properties:  # recovery takes zeros in a record's text for a torn end
            return NotStored(PutStatus.MESSAGE_ILLEGAL, "the properties have a zero byte in them")
        return _topic_refusal(topic)


def _topic_refusal(topic: bytes) -> NotStored | None:
    if not 0 < len(topic) <= TOPIC_BYTES_MAX:
        why = f"the topic's name has {len(topic)} bytes; 1 to {TOPIC_BYTES_MAX} are allowed"
        return NotStored(PutStatus.MESSAGE_ILLEGAL, why)
    return (
        NotStored(PutStatus.MESSAGE_ILLEGAL, "the topic's name has a zero byte in it") if 0 in topic else None
    )


def _too_big(what: str, size: int, most: int) -> NotStored:
    return NotStored(
        PutStatus.MESSAGE_ILLEGAL, f"{what} of {size} bytes; {most} are allowed (maxMessageSize)"
    )


def _too_long_properties(size: int, when: str = "") -> NotStored:
    why = f"properties of {size} bytes{when}, with what the broker adds; {PROPERTIES_BYTES_MAX} are allowed"
    return NotStored(PutStatus.PROPERTIES_SIZE_EXCEEDED, why)


def with_host_flags(sys_flag: int, born_host: bytes, store_host: bytes) -> int:
    """`sys_flag` with the IPv6 bits of the two hosts."""
    sys_flag &= ~(BORN_HOST_IPV6 | STORE_HOST_IPV6)
    if len(born_host) != IPV4_HOST_BYTES:
        sys_flag |= BORN_HOST_IPV6
    if len(store_host) != IPV4_HOST_BYTES:
        sys_flag |= STORE_HOST_IPV6
    return sys_flag
