"""The log of a Raft-mode broker: DLedger's data files, which follow the commit log that the broker had before, if any.

Invariant: the bound is the end of the last entry that is committed according to the ledger's checkpoint. The ledger's index and
its data must agree on that entry. Epochs are the Raft terms of committed entries. Entries above the bound may be truncated
later, or were truncated before, because Java leaves truncated bytes in the file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass

from sparkreplay.errors import OptionError, SegmentGone, StoreUnreadable
from sparkreplay.store.epochs import Epochs
from sparkreplay.store.files import Files
from sparkreplay.store.ledgerchecks import broken_checks
from sparkreplay.store.ledgerframing import HEADER, LEDGER, EntryHead, entry_head
from sparkreplay.store.ledgerindex import LedgerIndex
from sparkreplay.store.livebroker import BrokerView
from sparkreplay.store.segments import FOLDER, SEVERAL_FOLDERS, Segment, list_segments, open_segment

PREFIX = "dledger-"
NOTHING = -1
TERM_MAX = (1 << 31) - 1
TERMS_MAX = 100_000
LOOKS_MAX = 5
ANOTHER = "copy the ledger's checkpoint first and then its index and data, or read another replica"


@dataclass(frozen=True)
class StoredLedger:
    """`folder` is `dledger-` and the member's id."""

    folder: str

    @property
    def folders(self) -> tuple[str, ...]:
        return FOLDER, f"{self.folder}/data"

    @property
    def epochs_name(self) -> str:
        return f"{self.folder}/index"

    def segments(self, files: Files) -> tuple[Segment, ...]:
        old, entries = list_segments(files), self.ledger_segments(files)
        if old and entries and old[-1].end_offset != entries[0].start_offset:
            raise StoreUnreadable(
                entries[0].path,
                f"does not follow {old[-1].name}, the last file of the log before it, which ends at {old[-1].end_offset}; "
                "copy the store again, or read another replica",
            )
        return old + entries

    def ledger_segments(self, files: Files) -> tuple[Segment, ...]:
        return list_segments(files, f"{self.folder}/data", LEDGER)

    def committed(self, files: Files) -> int:
        """The end of the last committed entry; the ledger's beginning if there is none."""
        index = self.committed_index(files)
        segments = self.ledger_segments(files)
        if index == NOTHING:
            return segments[0].start_offset if segments else 0
        if not segments:
            raise StoreUnreadable(
                files.shown(f"{self.folder}/data"),
                f"has no files, but entry {index} is committed; put the files of storePathDLedgerCommitLog, or a link to "
                f"them, there ({SEVERAL_FOLDERS})",
            )
        with closing(LedgerIndex(files, self.folder)) as units:
            unit = units.unit(index)
        found = head_at(files, segments, unit.position)
        if found != EntryHead(unit.size, index, unit.term):
            raise StoreUnreadable(
                files.shown(f"{self.folder}/index"),
                f"says that entry {index}, which the checkpoint calls committed, is at physical offset {unit.position} "
                f"with {unit.size} bytes of term {unit.term}, but the data holds {found or 'no entry'} there; {ANOTHER}",
            )
        if unit.end > segments[-1].end_offset:
            raise StoreUnreadable(
                segments[-1].path,
                f"ends at {segments[-1].end_offset}, before the committed entry {index} does, at {unit.end}; {ANOTHER}",
            )
        return unit.end

    def epochs(self, files: Files) -> Epochs:
        """The terms of committed entries. The first term begins with the ledger, because the log before it may be deleted."""
        for _ in range(LOOKS_MAX - 1):
            with suppress(SegmentGone):  # retention may delete meanwhile
                return self.terms(files)
        return self.terms(files)

    def terms(self, files: Files) -> Epochs:
        last = self.committed_index(files)
        segments = self.ledger_segments(files)
        if not segments or last == NOTHING:
            return ((0, segments[0].start_offset if segments else 0),)
        first = head_at(files, segments, segments[0].start_offset)
        if first is None:
            raise StoreUnreadable(
                segments[0].path, f"does not begin with an entry at {segments[0].start_offset}; {ANOTHER}"
            )
        with closing(LedgerIndex(files, self.folder)) as units:
            units.unit(last)  # a too short index is reported for this entry, not for one below
            path = files.shown(f"{self.folder}/index")
            runs = list(
                runs_of(path, first.index, max(first.index, last), lambda index: units.unit(index).term)
            )
            later = tuple((term, units.unit(index).position) for index, term in runs[1:])
        return ((runs[0][1], segments[0].start_offset), *later)

    def committed_index(self, files: Files) -> int:
        """The index in the ledger's checkpoint. Java replaces the file in two steps, with a copy next to it."""
        name = f"{self.folder}/checkpoint"
        for copy in (name, f"{name}.bak"):
            try:
                data = files.read(copy)
            except FileNotFoundError:
                continue
            values = dict(line.partition("=")[::2] for line in data.decode("utf-8", "replace").splitlines())
            committed = number(files.shown(copy), values, "committedIndex")
            if "cutFrom" in values and number(files.shown(copy), values, "cutFrom") <= committed:
                raise StoreUnreadable(
                    files.shown(copy),
                    f"says that committed entries are cut, from {values['cutFrom']} on; read another replica",
                )
            return committed
        raise StoreUnreadable(
            files.shown(name),
            "is not there, so nothing says what is committed; a broker writes it within three seconds of its start",
        )

    def look_at(self, address: str, cluster_name: str, broker_name: str) -> BrokerView:
        raise OptionError(
            "address",
            f"{address} is not asked: the store is a Raft-mode broker's, which reports no epochs; leave address out, the "
            "ledger's checkpoint says what is committed and is at most three seconds old",
        )

    def index_disagrees(self, files: Files, segment: Segment, end: int) -> tuple[int, str] | None:
        if segment.framing != LEDGER:  # the log before the ledger has none
            return None
        with closing(LedgerIndex(files, self.folder)) as units:
            return units.disagreement(segment, end)

    def broken(self, files: Files, segment: Segment, end: int) -> Iterator[tuple[int, str]]:
        if segment.framing == LEDGER:
            with closing(open_segment(files, segment)) as file:
                yield from broken_checks(file, segment, end, self.check_before(files, segment))

    def check_before(self, files: Files, segment: Segment) -> int | None:
        """The check value of the last entry before a segment; None if that entry is unavailable."""
        with suppress(SegmentGone, StoreUnreadable), closing(LedgerIndex(files, self.folder)) as units:
            segments = self.ledger_segments(files)
            first = head_at(files, segments, segment.start_offset)
            if first is None or first.index == 0:
                return None if first is None else 0
            found = head_at(files, segments, units.unit(first.index - 1).position)
            return found.check if found is not None and found.index == first.index - 1 else None
        return None

    def latest(self, files: Files, bound: int, segments: tuple[Segment, ...], epochs: Epochs) -> int:
        raise OptionError(
            "endingOffsets",
            f"latest has no meaning for the store of a Raft-mode broker: above {bound}, where it is committed, nothing "
            "distinguishes entries of the log from those that a leader took back; leave it out",
        )


def number(path: str, values: dict[str, str], key: str) -> int:
    text = values.get(key, "").strip()
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal() and len(digits) < 20 and NOTHING <= int(text) < 1 << 58):
        raise StoreUnreadable(path, f"{key}={text[:40]!r} is no index of an entry; read another replica")
    return int(text)


def head_at(files: Files, segments: tuple[Segment, ...], offset: int) -> EntryHead | None:
    """The header of the entry at physical offset `offset`; None if there is none. Raises SegmentGone."""
    for segment in segments:
        if segment.start_offset <= offset < segment.end_offset:
            head = bytearray(HEADER.size)
            with closing(open_segment(files, segment)) as file:
                held = file.read_into(memoryview(head), offset - segment.start_offset)
            return entry_head(memoryview(head)[:held], offset)
    return None


def runs_of(path: str, first: int, last: int, term_of: Callable[[int], int]) -> Iterator[tuple[int, int]]:
    """The (first entry, term) of each run of entries of one term, found by reading only few entries."""
    start, count = first, 0
    while start <= last:
        term, step, low = term_of(start), 1, start
        count += 1
        if count > TERMS_MAX or not 0 <= term <= TERM_MAX:
            raise StoreUnreadable(
                path, f"has entry {start} of term {term}, the {count}th: no group elects so often"
            )
        yield start, term
        while low + step <= last and term_of(low + step) == term:
            low, step = low + step, 2 * step
        high = min(low + step, last + 1)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if term_of(middle) == term else (low, middle)
        if high <= last and term_of(high) < term:
            raise StoreUnreadable(
                path, f"has entry {high} of a term below {term}, that of one before it; {ANOTHER}"
            )
        start = high
