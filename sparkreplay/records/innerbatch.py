"""Records of upstream's batch consume queues. Such a record holds many messages, and its body is that of a batch send.

Invariant: each message becomes a plain record with the topic, queue, times, hosts and physical offset of the batch and queue
offset base + i, as Java's consumers see it (upstream: PullAPIWrapper, MessageDecoder.decodeMessage). Its sysFlag has neither
the batch nor the compression bits. The sizes of the plain records add up to the size of the stored record. If a body cannot be
read as a batch, its record stays one record, as in Java."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from messagestore.batch import MEMBER_SIZE_MIN, BatchError, BatchMember, parse_batch
from messagestore.record import COMPRESSED, COMPRESSION_TYPE_MASK
from messagestore.recordcrc import CRC_MASK
from sparkreplay.records.bodies import BODY_SIZE_MAX, open_body

BATCH_FLAGS = 0xC0
"""INNER_BATCH_FLAG and NEED_UNWRAP_FLAG. A body is opened only if both are set."""
FLAG_BYTE_AT = 39
"""The lowest byte of a record's sysFlag."""
SIZE, CRC, FLAG, QUEUE_OFFSET, SYS_FLAG = 0, 8, 16, 20, 36
"""Positions of these fields in a record."""
INT, UNSIGNED, LONG, SHORT = (struct.Struct(kind) for kind in (">i", ">I", ">q", ">H"))


@dataclass(frozen=True)
class Unwrapped:
    """Concatenated plain records. Each has the physical offset of its stored record, and its index in the batch, or -1 if it
    is of no batch."""

    data: NDArray[np.uint8]
    positions: NDArray[np.int64]
    offsets: NDArray[np.int64]
    batch_places: NDArray[np.int64]


@dataclass(frozen=True)
class StoredRecord:
    """One record: its bytes, and the positions of body, topic and properties."""

    data: memoryview
    body_at: int
    body_end: int
    properties_at: int
    sys_flag: int


def has_batches(data: NDArray[np.uint8], positions: NDArray[np.int64]) -> bool:
    if not len(positions):
        return False
    flags = data[np.minimum(positions + FLAG_BYTE_AT, len(data) - 1)]
    return bool((flags & BATCH_FLAGS == BATCH_FLAGS).any())


def members_of(record: StoredRecord) -> list[BatchMember]:
    """The messages of a batch; empty for any other record."""
    if record.sys_flag & BATCH_FLAGS != BATCH_FLAGS:
        return []
    body = bytes(record.data[record.body_at : record.body_end])
    try:
        if record.sys_flag & COMPRESSED:
            body = open_body(body, record.sys_flag & COMPRESSION_TYPE_MASK, BODY_SIZE_MAX)
        members = parse_batch(body)
    except (BatchError, ValueError, RuntimeError, zlib.error):
        return []
    return members if len(members) <= len(record.data) else []


def plain_records(record: StoredRecord, members: list[BatchMember]) -> list[bytes]:
    """Each message as a plain record. Its size field holds the message's share of the stored record's size (see `parts`)."""
    head = bytearray(record.data[: record.body_at])
    topic = record.data[record.body_end : record.properties_at - SHORT.size]
    base = LONG.unpack_from(head, QUEUE_OFFSET)[0]
    INT.pack_into(head, SYS_FLAG, record.sys_flag & ~(BATCH_FLAGS | COMPRESSED | COMPRESSION_TYPE_MASK))
    made = []
    for number, (member, size) in enumerate(zip(members, parts(record, members), strict=True)):
        INT.pack_into(head, SIZE, size)
        UNSIGNED.pack_into(head, CRC, crc32(member.body) & CRC_MASK)
        INT.pack_into(head, FLAG, member.flag)
        LONG.pack_into(head, QUEUE_OFFSET, base + number)
        INT.pack_into(head, record.body_at - INT.size, len(member.body))
        tail = SHORT.pack(len(member.properties)) + member.properties
        made.append(b"".join((head, member.body, topic, tail)))
    return made


def parts(record: StoredRecord, members: list[BatchMember]) -> list[int]:
    """Each message's share of the record's size. It is the message's size in the batch or, if the batch was compressed, an
    equal share. The last message gets the rest."""
    size, count = len(record.data), len(members)
    own = [len(member.body) + len(member.properties) + MEMBER_SIZE_MIN for member in members]
    if sum(own) > size:  # the batch was compressed
        own = [size // count] * count
    return [*own[:-1], size - sum(own[:-1])]


def unwrapped(records: list[StoredRecord], offsets: list[int]) -> Unwrapped:
    """The messages of stored records, in order."""
    pieces: list[bytes | memoryview] = []
    places: list[int] = []
    numbers: list[int] = []
    for record, offset in zip(records, offsets, strict=True):
        members = members_of(record)
        made = plain_records(record, members) if members else [record.data]
        pieces += made
        places += [offset] * len(made)
        numbers += range(len(made)) if members else [-1]
    sizes = np.array([len(piece) for piece in pieces], np.int64)
    return Unwrapped(
        np.frombuffer(b"".join(pieces), np.uint8),
        np.cumsum(sizes) - sizes,
        np.array(places, np.int64),
        np.array(numbers, np.int64),
    )
