"""A stream's position. For each broker set it has a physical offset at a record boundary, the epoch of the byte below the
offset, and marks of the log.

Invariant: a position names broker sets and never folders, so a stream that read one replica of a set can continue with another.
It also contains where the stream began in each set, so a batch that is planned again after a crash, even the first batch, has
the same rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from sparkreplay.errors import ForeignLog, LogTruncated, OffsetUnreadable
from sparkreplay.store.classic import NO_EPOCHS
from sparkreplay.store.snapshot import StoreSnapshot, check_epochs
from sparkreplay.stream.marks import LogMarks, first_apart, marks_at

VERSION = 2
UNMARKED = 1
"""The version without marks. Marks are optional: a set gets them with its next batch."""
Epochs = tuple[tuple[int, int], ...]
"""(epoch, start offset), oldest first."""


@dataclass(frozen=True)
class SetOffset:
    """Of one broker set, everything in [began, offset) was read."""

    began: int
    offset: int
    epoch: int | None = None
    """The epoch that wrote the byte below `offset`; None if unknown."""
    epoch_start: int = 0
    log: LogMarks | None = None
    """The marks; None in offsets of the version without marks."""

    def to_json(self) -> dict[str, Any]:
        fields: dict[str, Any] = {"began": self.began, "offset": self.offset}
        if self.epoch is not None:
            fields |= {"epoch": self.epoch, "epoch_start": self.epoch_start}
        if self.log is not None:
            fields["log"] = self.log.to_json()
        return fields

    def moved_to(self, offset: int, store: StoreSnapshot) -> SetOffset:
        """The end of a batch that read [self.offset, offset) of the store."""
        return replace(
            set_offset_at(self.began, offset, store.epochs),
            log=marks_at(store, self.offset, offset, self.log or LogMarks()),
        )


@dataclass(frozen=True)
class StreamOffset:
    """The offset that Spark keeps in a query's checkpoint. `initial` means that no batch has ended at this offset yet."""

    sets: Mapping[str, SetOffset]
    initial: bool = False

    def to_json(self) -> dict[str, Any]:
        """The offset as JSON. Equal offsets give equal JSON, because Spark compares the text to detect new data."""
        fields: dict[str, Any] = {"version": VERSION}
        if self.initial:
            fields["initial"] = True
        return fields | {"sets": {name: self.sets[name].to_json() for name in sorted(self.sets)}}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> StreamOffset:
        """Raises OffsetUnreadable for a value that this source has not written."""
        version = value.get("version") if isinstance(value, Mapping) else None
        if type(version) is not int or version not in (UNMARKED, VERSION):
            raise OffsetUnreadable(value, f"it is not of version {VERSION}")
        sets, initial = value.get("sets"), value.get("initial", False)
        if not isinstance(sets, Mapping) or type(initial) is not bool or not (sets or initial):
            raise OffsetUnreadable(value, "it names no broker sets")
        found = cls({name: set_offset(value, sets[name]) for name in sets}, initial)
        if initial and any(one.began != one.offset for one in found.sets.values()):
            raise OffsetUnreadable(value, "it is initial, but says that something was read")
        return found

    def begin_of(self, name: str, end: SetOffset) -> int:
        """The beginning, in this set, of the batch from this offset to `end`.

        Spark does not keep the initial offset, unless the first batch was empty. After a restart within the first batch it asks
        for the initial offset again, and by then the log may begin elsewhere. So the batch's end offset stores where the stream
        began in each set."""
        return end.began if self.initial or name not in self.sets else self.sets[name].offset


def set_offset(whole: object, value: object) -> SetOffset:
    if not isinstance(value, Mapping) or not {"began", "offset"} <= value.keys() <= {
        "began", "offset", "epoch", "epoch_start", "log",
    }:  # fmt: skip
        raise OffsetUnreadable(whole, "an entry does not say from where to where it was read")
    numbers = {name: number for name, number in value.items() if name != "log"}
    if not all(type(number) is int and 0 <= number < 1 << 63 for number in numbers.values()):
        raise OffsetUnreadable(whole, "an entry holds what is no offset and no epoch")
    try:
        found = SetOffset(**numbers, log=LogMarks.from_json(value["log"]) if "log" in value else None)
    except ValueError as error:
        raise OffsetUnreadable(whole, str(error)) from None
    if ("epoch" in value) != ("epoch_start" in value) or found.began > found.offset:
        raise OffsetUnreadable(whole, "an entry contradicts itself")
    if found.epoch is not None and found.epoch_start >= found.offset:
        raise OffsetUnreadable(whole, "an entry's epoch begins above its offset")
    return found


def set_offset_at(began: int, offset: int, epochs: Epochs) -> SetOffset:
    """The offset, with the epoch of the byte below it according to the store's current epochs."""
    below = [entry for entry in epochs if entry[1] < offset and entry not in NO_EPOCHS]
    return SetOffset(began, offset, *below[-1]) if below else SetOffset(began, offset)


def first_offset(began: int, store: StoreSnapshot) -> SetOffset:
    """The position at the beginning of a set. Nothing was read yet, but the bytes below the position identify the log."""
    log = marks_at(store, min(store.min_offset, began - 1), began, LogMarks())
    return replace(set_offset_at(began, began, store.epochs), log=log)


def require_same_log(name: str, at: SetOffset, store: StoreSnapshot) -> None:
    """Raise LogTruncated if the store's log is the log of `at` but was cut below it, and ForeignLog if it is another log."""
    truncated = truncation(name, at, store)
    apart = first_apart(store, at.offset, at.log or LogMarks())
    if apart is None:
        if truncated is not None:
            raise truncated
        return
    if truncated is not None and apart.end > lowest_cut(store, truncated):
        raise truncated
    check_epochs(store)  # a log that was cut since the store was opened is the same log
    raise ForeignLog(name, store.root, at.offset, apart.why)


def lowest_cut(store: StoreSnapshot, truncated: LogTruncated) -> int:
    """The lowest offset that the truncation can have changed. Committed records are never taken back, so the first records of
    a segment stay for ever, and epochs before the truncated one keep their bytes."""
    takes_back = store.committed is not None or bool(store.contract)
    return truncated.intact if takes_back else truncated.offset - 1


def truncation(name: str, at: SetOffset, store: StoreSnapshot) -> LogTruncated | None:
    """The error to raise if, according to its epochs, the log no longer holds the bytes that the stream has read below `at`;
    None if it does.

    An epoch's bytes at one offset are the same on every replica, so it is enough to compare the epoch below the offset. A
    missing epoch is no contradiction in two cases: a replica that lags does not know the epoch yet, and retention removes
    epochs that end at or below the log's beginning."""
    below = [entry for entry in store.epochs if entry[1] < at.offset and entry not in NO_EPOCHS]
    if at.epoch is None or not below or below[-1] == (at.epoch, at.epoch_start):
        return None
    epoch, begins = below[-1]
    if epoch == at.epoch and at.epoch_start < begins == store.min_offset:
        return None  # a ledger's first term, whose beginning retention deleted
    if epoch < at.epoch and store.bound <= at.epoch_start:
        return None
    changed = [start for number, start in below if number >= at.epoch]
    if (at.epoch, at.epoch_start) in below:
        changed.remove(at.epoch_start)
    else:
        changed.append(at.epoch_start)
    return LogTruncated(name, store.root, at.offset, (at.epoch, at.epoch_start), below[-1], min(changed))
