"""The journal of the tables: it has changes on disk before the tables' own files are written again.

A file is a sequence of records. Each record has a magic, the size and the CRC-32 of its content, and the content (JSON). A
record is synced before the next one is written, so only the last record of a file may be torn, and it was not acknowledged.

Invariant: record numbers increase by one, across files and restarts. Only one process writes to a file, and it stops after a
write to the file has failed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from struct import Struct
from zlib import crc32

from mqruntime.runtime import StartRefused
from mqruntime.smallfiles import SmallFiles
from remoting.bodies.body import Body
from remoting.bodies.tables import TableChanges
from remoting.errors import BodyError
from remoting.wirefields import I64

FOLDER = "config"
FILE = "config/tables.journal."
RECORD = Struct(
    ">"  # offset field
    "4s"  #  0 magic
    "I"  #  4 size           of the content
    "I"  #  8 crc            of size and content
)
MAGIC = b"TBLJ"
SIZE_MAX = 64 << 20


class JournalDamaged(StartRefused):
    """A record is corrupt and other records follow it."""

    def __init__(self, name: str, position: int, why: str) -> None:
        super().__init__(
            f"{name}: {why} at byte {position}; restore the folder {FOLDER} from another replica of this broker, or remove "
            f"the files {FILE}* to continue with the content of the tables' own files"
        )
        self.name = name
        self.position = position


@dataclass(slots=True)
class TookAway(Body):
    """A deletion removed all offsets of a topic ("topic") or a group ("offsets")."""

    kind: str
    name: str


@dataclass(slots=True)
class JournalRecord(Body):
    """One record: the change, the removals of offsets that the change caused, and in Raft mode the version of the tables."""

    number: I64
    changes: TableChanges
    took_away: list[TookAway] = field(default_factory=list)
    tables_version: str | None = None


def framed(record: JournalRecord) -> bytes:
    content = record.encode()
    size = len(content).to_bytes(4, "big")
    return RECORD.pack(MAGIC, len(content), crc32(content, crc32(size))) + content


def records_of(name: str, data: bytes) -> Iterator[JournalRecord]:
    """The records of one file, up to a torn record at its end. Raises JournalDamaged."""
    at = 0
    while at < len(data):
        content = _content(data, at)
        if content is None:
            later = data.find(MAGIC, at + 1)
            while later >= 0:
                if _content(data, later) is not None:
                    raise JournalDamaged(name, at, "a damaged record")
                later = data.find(MAGIC, later + 1)
            return
        try:
            yield JournalRecord.decode(content)
        except BodyError as error:
            raise JournalDamaged(name, at, str(error)) from error
        at += RECORD.size + len(content)


def _in_order(held: list[tuple[str, list[JournalRecord]]]) -> list[tuple[str, list[JournalRecord]]]:
    """Files with their records, as they were written. Names do not show the order: a power cut may undo the removal of a file
    after a start that found no file and gave its first file the number 1."""
    return sorted(held, key=lambda each: each[1][0].number)


def _content(data: bytes, at: int) -> bytes | None:
    """The content of the record at `at`; None if there is no complete record."""
    if len(data) - at < RECORD.size:
        return None
    magic, size, crc = RECORD.unpack_from(data, at)
    begin = at + RECORD.size
    if magic != MAGIC or not 0 < size <= min(SIZE_MAX, len(data) - begin):
        return None
    content = data[begin : begin + size]
    return content if crc32(content, crc32(size.to_bytes(4, "big"))) == crc else None


class Journal:
    """The journal below `files`. The caller holds the tables' lock, so appends do not overlap."""

    def __init__(self, files: SmallFiles) -> None:
        self._files = files
        self._names: list[str] = []
        self._file = 0  # the number of the last file
        self._begun = False  # whether this process may append to the last file
        self.last = 0
        """The number of the last record that is on disk."""

    async def load(self, known: int) -> list[JournalRecord]:
        """Read all records. `known` is the highest record number in the tables' own files. Raises JournalDamaged, OSError."""
        found = await self._files.names(FOLDER)
        self._names = [name for name in found if name.startswith(FILE) and name.removeprefix(FILE).isdigit()]
        self._names.sort(key=lambda name: int(name.removeprefix(FILE)))
        self._file = int(self._names[-1].removeprefix(FILE)) if self._names else 0
        held = [(name, [*records_of(name, await self._files.read(name) or b"")]) for name in self._names]
        records: list[JournalRecord] = []
        for name, its_records in _in_order([each for each in held if each[1]]):
            for place, record in enumerate(its_records):
                again = (
                    not place and records and record.number == records[-1].number
                )  # the first write of the record failed
                if records and record.number != records[-1].number + 1 and not again:
                    why = f"record {record.number} after {records[-1].number}"
                    raise JournalDamaged(name, 0, why)
                if not records and known and record.number > known + 1:
                    raise JournalDamaged(name, 0, f"record {record.number} where {known + 1} is due")
                records.append(record)
        self.last = max(known, records[-1].number if records else 0)
        return records

    async def append(self, record: JournalRecord) -> None:
        """Write a record, durable on return; its number follows `last`. After an OSError the record may be on disk or not, and
        has to be written again."""
        assert record.number == self.last + 1, f"record {record.number} after {self.last}"
        if not self._begun:
            self._file += 1
            self._names.append(f"{FILE}{self._file:08d}")
            self._begun = True
        try:
            await self._files.append(self._names[-1], framed(record))
        except BaseException:
            self._begun = False  # the file may have a torn end
            raise
        self.last = record.number

    def end_file(self) -> list[str]:
        """Let the next record begin a new file. Returns the former files, to `drop` once the tables' own files have them."""
        self._begun = False
        return [*self._names]

    async def drop(self, names: list[str]) -> None:
        """Remove these files. Raises OSError."""
        for name in names:
            await self._files.remove(name)
            self._names.remove(name)
