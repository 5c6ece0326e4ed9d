"""The checks' own copy of a Raft-mode set's committed log. An entry is copied when some member first shows it, that is, lets
readers see it.

Invariant: the copy only grows. Its entries were on a majority of disks when they were copied. Formats are read here without
the product's code."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import NamedTuple

from simulation.kernel.violation import Violation

HEADER = struct.Struct(
    ">iiqqqiIIi"
)  # magic, size, index, term, position, channel, 2 checks of one disk, body size
BLANK = struct.Struct(">ii")
MAGIC, BLANK_MAGIC = 1, -1
RECORD_MAGICS = (0xDAA320A7, 0xDAA320AB)
RECORD_HEAD = struct.Struct(
    ">iIiiiqqiq"
)  # size, magic, body CRC, queue id, flag, queue offset, place, sys_flag, born
STORED_AT = struct.Struct(">q")  # after the producer's host, which has 8 bytes
TAIL = struct.Struct(">iqi")  # reconsumed, prepared, body size; after the broker's host, which has 8


class CommittedEntry(NamedTuple):
    """One entry of the DLedger log, and its position. Bytes that differ from disk to disk are left out."""

    position: int
    number: int
    """The entry's index."""
    term: int
    body: bytes

    @property
    def end(self) -> int:
        return self.position + HEADER.size + len(self.body)


class Record(NamedTuple):
    """A message as it is read, not yet verified."""

    topic: str
    queue_id: int
    queue_offset: int
    place: int
    stored_ms: int


def entry_in(data: bytes | bytearray | memoryview, position: int, file_bytes: int) -> CommittedEntry | None:
    """The entry at `position`, whose file is `data`. None if the file holds no further entry. Raises Violation G3."""
    at = position % file_bytes
    if file_bytes - at < BLANK.size or BLANK.unpack_from(data, at)[0] == BLANK_MAGIC:
        return None
    if file_bytes - at < HEADER.size:
        return None
    magic, size, index, term, said, _, _, _, body_bytes = HEADER.unpack_from(data, at)
    if magic != MAGIC or said != position or size != HEADER.size + body_bytes or at + size > file_bytes:
        raise Violation("G3", f"no entry begins at {position}, though it is shown")
    return CommittedEntry(position, index, term, bytes(data[at + HEADER.size : at + size]))


def record_in(entry: CommittedEntry) -> Record | None:
    """The message of an entry; None for an entry that opens a term or lists members. Raises Violation G3."""
    body = entry.body
    if len(body) < RECORD_HEAD.size:
        return None
    size, magic, _, queue_id, _, queue_offset, place, _, _ = RECORD_HEAD.unpack_from(body)
    if magic not in RECORD_MAGICS:
        return None
    at = RECORD_HEAD.size + 8
    (stored_ms,) = STORED_AT.unpack_from(body, at)
    at += STORED_AT.size + 8
    body_bytes = TAIL.unpack_from(body, at)[2]
    at += TAIL.size + body_bytes
    width = 1 if magic == RECORD_MAGICS[0] else 2
    topic_bytes = int.from_bytes(body[at : at + width], "big")
    topic = body[at + width : at + width + topic_bytes].decode()
    if size != len(body) or place != entry.position + HEADER.size:
        raise Violation("G3", f"the message in the entry at {entry.position} names position {place}")
    return Record(topic, queue_id, queue_offset, place, stored_ms)


@dataclass
class CommittedLog:
    """The committed entries and messages of one set."""

    file_bytes: int
    entries: list[CommittedEntry] = field(default_factory=list)
    at: dict[int, CommittedEntry] = field(default_factory=dict)
    begin: int = 0
    """The position of the first entry, which is after a plain log, if there was one."""
    end: int = 0
    queues: dict[tuple[str, int], list[tuple[int, int]]] = field(default_factory=dict)
    """(topic, queue id) -> (position, size) of each message, in the order of their queue offsets."""
    records: dict[int, tuple[Record, bytes]] = field(default_factory=dict)
    """The records by position, with their bytes."""
    newest_ms: int = 0

    def follows(self, position: int) -> bool:
        """Whether the next entry may be at `position`."""
        return position == self.end or (
            position > self.end and position == self.next_file(self.end) and self.end % self.file_bytes > 0
        )

    def next_file(self, position: int) -> int:
        return position - position % self.file_bytes + self.file_bytes

    def take(self, entry: CommittedEntry) -> None:
        """Add the next entry. Raises Violation G3, G6."""
        before = self.entries[-1] if self.entries else None
        first = entry.number == 0 and entry.position == self.begin
        if not (first if before is None else entry.number == before.number + 1 and entry.term >= before.term):
            raise Violation(
                "G3", f"entry {entry.number} of term {entry.term} follows {before and before[:3]}"
            )
        if not self.follows(entry.position):
            raise Violation("G3", f"entry {entry.number} is at {entry.position}, the log ends at {self.end}")
        record = record_in(entry)
        if record is not None:
            self.count(record, entry.body)
        self.entries.append(entry)
        self.at[entry.position] = entry
        self.end = entry.end

    def count(self, record: Record, content: bytes) -> None:
        """Add the next message, which may be of the plain log. Raises Violation G3, G6."""
        queue = self.queues.setdefault((record.topic, record.queue_id), [])
        if record.queue_offset != len(queue):
            where = f"{record.topic} {record.queue_id} at {record.place}"
            raise Violation("G3", f"{where} has queue offset {record.queue_offset}, expected {len(queue)}")
        if record.stored_ms < self.newest_ms:
            raise Violation(
                "G6",
                f"the message at {record.place} was stored at {record.stored_ms}, the one before it later",
            )
        queue.append((record.place, len(content)))
        self.newest_ms = record.stored_ms
        self.records[record.place] = record, content
