"""The file that remembers the begin and the end of each consume queue, so that a start need not trust the queue's own files.

Invariant: when the file was written, every record that ends at or below `position` of the log and has an offset in a queue had
its entry durably on disk. The file belongs to the log whose bytes before `position` have the CRC `mark`. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from struct import Struct
from typing import NamedTuple
from zlib import crc32

FILE = "consumeQueueEnds"
MARK_BYTES = 64
"""The mark covers this many bytes before the position, or fewer if the segment begins later."""

HEADER = Struct(
    ">"  # offset field
    "8s"  # 0 magic
    "q"  #  8 position   of the log
    "I"  # 16 mark       CRC-32 of the bytes in front of it
    "I"  # 20 count      of queues
)
QUEUE = Struct(
    ">"  # offset field
    "H"  #  0 topic_size  its bytes follow these fields
    "i"  #  2 queue_id
    "q"  #  6 begin       queue offset of the first message that the queue had
    "q"  # 14 end         and the one that it gives out next
)
CHECK = Struct(">I")
"""CRC-32 of all bytes before it."""
MAGIC = b"mqqends1"

Key = tuple[bytes, int]


class OffsetSpan(NamedTuple):
    """Queue offsets [begin, end)."""

    begin: int
    end: int


@dataclass(frozen=True)
class QueueEnds:
    position: int
    mark: int
    spans: dict[Key, OffsetSpan] = field(default_factory=dict)


def encode_span(key: Key, span: OffsetSpan) -> bytes:
    topic, queue_id = key
    return QUEUE.pack(len(topic), queue_id, *span) + topic


def encode_queue_ends(position: int, mark: int, count: int, spans: Iterable[bytes]) -> bytearray:
    """The file's content. `spans` has `count` results of `encode_span`."""
    content = bytearray(HEADER.pack(MAGIC, position, mark, count))
    for span in spans:
        content += span
    content += CHECK.pack(crc32(content))
    return content


def decode_queue_ends(data: bytes | None) -> QueueEnds | None:
    """Decode the file. None if there is no file, or it is not whole."""
    if data is None or len(data) < HEADER.size + CHECK.size:
        return None
    content = memoryview(data)[: -CHECK.size]
    if crc32(content) != CHECK.unpack_from(data, len(content))[0]:
        return None
    magic, position, mark, count = HEADER.unpack_from(content)
    spans = dict(_spans(data, len(content)))
    if magic != MAGIC or position <= 0 or len(spans) != count:
        return None
    return QueueEnds(position, mark, spans)


def _spans(data: bytes, end: int) -> Iterator[tuple[Key, OffsetSpan]]:
    at = HEADER.size
    while at + QUEUE.size <= end:
        size, queue_id, begin, queue_end = QUEUE.unpack_from(data, at)
        at += QUEUE.size + size
        yield (data[at - size : at], queue_id), OffsetSpan(begin, queue_end)
