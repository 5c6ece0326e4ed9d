"""Inspection of a member's files without changing them. The files may be of this project or of a Java controller (DLedger 0.3).

Invariant: every entry is read, from the log's beginning to its end. Damage because of which the log cannot be opened is in
`damage`, with the entry's index, file and position. A tail that a crash may leave is no damage, and is in `tail`. Pure."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from zlib import crc32

from dledger.raft.entries import NO_INDEX, Entry
from dledger.raft.errors import LogDamaged
from dledger.raft.snapshot import WHOLE
from dledger.storage.entry import (
    BLANK,
    BLANK_MAGIC,
    INDEX_UNIT,
    MAGIC,
    IndexUnit,
    StoredEntry,
    decode_entry,
    index_unit_of,
    read_index_unit,
    stored_check,
)
from dledger.storage.keyvalues import parse_key_values, whole_number
from dledger.storage.snapshot import decode_snapshot
from mqruntime.slices import Steps, run_without_loop

ENTRIES_A_SLICE = 1024
REACH_BYTES = 8 << 20
"""The entry after an unreadable entry is searched within this distance; an entry of a Java member has at most 4 MiB."""
NO_TERM_FILE = "is missing although there is a log; without it this member could vote twice"

NamedFile = tuple[str, memoryview]


@dataclass(frozen=True, slots=True)
class MemberFiles:
    """The files in the member's folder, whose `name` is `dledger-` and the member's id. A missing small file is None; data and
    index files are listed with their names."""

    name: str
    currterm: bytes | None
    checkpoint: bytes | None
    snapshot: bytes | None
    data: Sequence[NamedFile]
    index: Sequence[NamedFile]


@dataclass(slots=True)
class Inspection:
    """The result of an inspection."""

    name: str
    term: int = 0
    voted_for: str = ""
    committed_index: int = NO_INDEX
    synced_index: int = NO_INDEX
    cut_from: int | None = None
    first_index: int = 0
    last_index: int = NO_INDEX
    terms: list[tuple[int, int]] = field(default_factory=list)
    """(first index, term) of each run of entries with one term."""
    of_java: int = 0
    """The number of entries without a check value, as Java writes them."""
    bodies: array[int] = field(default_factory=lambda: array("I"))
    """The CRC-32 of each body, from `first_index` on."""
    units: int = 0
    """The number of entries with a right index unit. A start rebuilds wrong units from the data."""
    end: int = 0
    """The end of the last entry in the data files, or of a blank after this entry."""
    tail: str = ""
    """A description of bytes after the last entry that are no part of the log."""
    damage: str = ""
    place: str = ""
    """The damaged file, named from the member's folder on."""

    @property
    def last_term(self) -> int:
        return self.terms[-1][1] if self.terms else -1

    def refuse(self) -> None:
        """Raises LogDamaged if there is damage."""
        if self.damage:
            raise LogDamaged(f"{self.name}/{self.place}", self.damage)

    def damaged(self, place: str, why: str) -> None:
        """Records the first damage."""
        if not self.damage:
            self.place, self.damage = place, why


class Stream:
    """A byte stream in files of one size."""

    def __init__(self, folder: str, files: Sequence[NamedFile], begin: int) -> None:
        self.folder = folder
        self.file_bytes = len(files[0][1]) if files else 0
        self.files = [file for file in files if int(file[0]) + self.file_bytes > begin]
        self.first = int(self.files[0][0]) if self.files else begin

    def rest(self, position: int) -> memoryview:
        """The bytes from `position` to the end of the file there; empty if there is no such file."""
        if not self.files or position < self.first:
            return memoryview(b"")
        number, offset = divmod(position - self.first, self.file_bytes)
        return self.files[number][1][offset:] if number < len(self.files) else memoryview(b"")

    def place(self, position: int) -> str:
        """The name of the file that contains `position`."""
        number = (position - self.first) // self.file_bytes if self.files else 0
        return f"{self.folder}/{self.files[number][0] if number < len(self.files) else f'{position:020d}'}"

    def after(self, position: int) -> int:
        """The position where the next file begins."""
        return position + len(self.rest(position))


def inspect(files: MemberFiles, readable: Callable[[bytes], bool] = lambda body: True) -> Steps[Inspection]:
    """Inspects a member's files in steps, between which other tasks may run; the last value is the result. `readable(body)`
    must be true for an entry without a check value whose body is not empty. Raises BadKeyValues, SnapshotDamaged,
    SnapshotUnknown."""
    found = begun(files)
    snapshot = (
        None
        if files.snapshot is None
        else run_without_loop(decode_snapshot(f"{files.name}/snapshot", files.snapshot))
    )
    begin = WHOLE if snapshot is None else snapshot.begin
    if snapshot is not None and snapshot.replaces_files:  # a start deletes these files
        files = replace(files, data=(), index=())
    found.first_index, found.last_index = begin.index + 1, begin.index
    data, index = Stream("data", files.data, begin.position), Stream("index", files.index, 0)
    check_files(found, data, begin.position)
    for _, entry in entries_in(found, data, index, readable, begin.position, begin.check):
        if not entry.index % ENTRIES_A_SLICE:
            yield
    check_held(found, data, snapshot.last_index if snapshot else NO_INDEX, files.currterm is not None)
    return found


def begun(files: MemberFiles) -> Inspection:
    """Begins an inspection with the content of the small files. Raises BadKeyValues."""
    found = Inspection(files.name)
    if files.currterm is not None:
        values = parse_key_values(f"{files.name}/currterm", files.currterm)
        found.term = whole_number(f"{files.name}/currterm", values, "currTerm", least=0)
        found.voted_for = values.get("voteLeader", "")
    if files.checkpoint is not None:
        name, values = (
            f"{files.name}/checkpoint",
            parse_key_values(f"{files.name}/checkpoint", files.checkpoint),
        )
        found.committed_index = whole_number(name, values, "committedIndex", least=NO_INDEX)
        found.synced_index = whole_number(
            name, {"syncedIndex": "-1", **values}, "syncedIndex", least=NO_INDEX
        )
        found.cut_from = whole_number(name, values, "cutFrom", least=0) if "cutFrom" in values else None
    return found


def check_held(found: Inspection, data: Stream, snapshot_index: int, has_term: bool) -> None:
    """Checks that the log has all entries that the small files refer to."""
    held = (found.committed_index, "committed"), (found.synced_index, "durable")
    for last, why in (*held, (snapshot_index, "in the snapshot")):
        if last > found.last_index:
            where = f"entry {found.last_index + 1} at byte {found.end % (data.file_bytes or 1)}"
            found.damaged(data.place(found.end), f"ends before {where}, but entries up to {last} are {why}")
    if not has_term and found.last_index != NO_INDEX:
        found.damaged("currterm", NO_TERM_FILE)


def check_files(found: Inspection, data: Stream, begin: int) -> None:
    wanted = data.first
    if data.files and not data.first <= begin < data.first + data.file_bytes:
        found.damaged(
            f"data/{data.files[0][0]}", f"the log begins at {begin}, and the file of that is missing"
        )
    for name, view in data.files:
        if int(name) != wanted or len(view) != data.file_bytes:
            why = f"{wanted:020d} with {data.file_bytes} bytes should be here, this file has {len(view)}"
            found.damaged(f"data/{name}", why)
        wanted += data.file_bytes


def entries_in(
    found: Inspection,
    data: Stream,
    index: Stream,
    readable: Callable[[bytes], bool],
    position: int,
    check: int,
) -> Iterator[tuple[int, Entry]]:
    """Each readable entry and its position, from the entry at `position` on; `check` is the check value of the entry before.
    `found` counts an entry before it is yielded. Ends at the log's end or at damage; the caller may also record damage in
    `found`."""
    found.end = position
    while not found.damage:
        if found.last_index + 1 == found.cut_from:
            found.tail = f"the bytes from entry {found.cut_from} on: a cut of it was under way"
            break
        found.end = position = behind_blank(data, position)
        stored = decode_entry(data.rest(position), position, check)
        if stored is None or not follows(found, stored):
            look_behind(found, data, index, position, stored)
            break
        body = stored.entry.body
        if not stored.check and body and not readable(body):
            why = (
                f"entry {stored.entry.index} at byte {position % data.file_bytes} is of no kind that is known"
            )
            found.damaged(data.place(position), why)
            break
        take(found, stored)
        unit = unit_of(index, stored.entry.index)
        found.units += unit is not None and unit == index_unit_of(data.rest(position))
        found.end = position + stored.size
        yield position, stored.entry
        position, check = found.end, stored.check


def behind_blank(data: Stream, position: int) -> int:
    rest = data.rest(position)
    closed = len(rest) < BLANK.size or BLANK.unpack_from(rest) == (BLANK_MAGIC, len(rest))
    return position + len(rest) if closed else position


def follows(found: Inspection, stored: StoredEntry) -> bool:
    return stored.entry.index == found.last_index + 1 and stored.entry.term >= found.last_term


def take(found: Inspection, stored: StoredEntry) -> None:
    entry = stored.entry
    if entry.term != found.last_term:
        found.terms.append((entry.index, entry.term))
    found.last_index = entry.index
    found.of_java += not stored.check
    found.bodies.append(crc32(entry.body))


def look_behind(
    found: Inspection, data: Stream, index: Stream, position: int, stored: StoredEntry | None
) -> None:
    """Examines the log's end at `position`. There may be nothing, a torn entry, an entry that a leader cut, or a damaged
    entry."""
    missing, offset = found.last_index + 1, position % data.file_bytes if data.file_bytes else 0
    later = intact_behind(found, data, index, position)
    if later is not None:
        why = f"entry {missing} at byte {offset} is unreadable, but entry {later}, written later, is intact"
        found.damaged(data.place(position), why)
    elif stored is not None:
        entry = stored.entry
        found.tail = f"entry {entry.index} of term {entry.term} at byte {offset} of {data.place(position)}, cut by a leader"
    elif bytes(data.rest(position)[:REACH_BYTES]).strip(b"\0"):
        found.tail = f"a torn entry {missing} at byte {offset} of {data.place(position)}"
    elif unit_of(index, missing) is not None:
        found.tail = f"entry {missing} in the index alone: this machine went down before its data was written"


def intact_behind(found: Inspection, data: Stream, index: Stream, position: int) -> int | None:
    """The index of an entry after `position` that can only have been written after the missing entry; None if there is none.
    Terms never fall in a log, so an entry with an older term than the log's last term was cut by a leader: Java does not erase
    such entries."""
    missing = found.last_index + 1

    def proves(stored: StoredEntry | None) -> bool:
        return (
            stored is not None
            and stored.entry.index - stored.batch_position > missing
            and stored.entry.term >= found.last_term
        )

    before = unit_of(index, missing)
    for number in count(missing + 1):
        unit = unit_of(index, number)
        if before is None or unit is None:
            break
        stored = decode_entry(
            data.rest(unit.position), unit.position, stored_check(data.rest(before.position))
        )
        if stored is not None and stored.entry.index == number and proves(stored):
            return number
        before = unit
    near = data.rest(position)[:REACH_BYTES]
    text, mark, at = bytes(near), MAGIC.to_bytes(4, "big"), 0
    while (at := text.find(mark, at + 1)) >= 0:
        stored = decode_entry(near[at:], position + at, 0)
        if stored is not None and not stored.check and proves(stored):
            return stored.entry.index
    start = data.after(position)
    unit = index_unit_of(data.rest(start))
    ours = (
        unit is not None and unit.position == start and unit.index > missing and unit.term >= found.last_term
    )
    return unit.index if ours and unit is not None else None


def unit_of(index: Stream, number: int) -> IndexUnit | None:
    return read_index_unit(index.rest(number * INDEX_UNIT.size), number)


def differences(one: Inspection, other: Inspection) -> list[str]:
    """Contradictions between two members of one group. Entries with the same index and term must be equal. After the first
    different term no entry can be committed on both members, so the comparison ends there."""
    found: list[str] = []
    first = max(one.first_index, other.first_index)
    for index in range(first, min(one.last_index, other.last_index) + 1):
        terms = term_at(one, index), term_at(other, index)
        if terms[0] != terms[1]:
            if index <= max(one.committed_index, other.committed_index):
                found.append(f"entry {index} is committed, and of terms {terms[0]} and {terms[1]}")
            break
        if one.bodies[index - one.first_index] != other.bodies[index - other.first_index]:
            found.append(f"entry {index} of term {terms[0]} differs: the disk of one of them damaged it")
    return found


def term_at(found: Inspection, index: int) -> int:
    return next(term for first, term in reversed(found.terms) if first <= index)
