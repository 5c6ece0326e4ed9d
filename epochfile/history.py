"""The epochs of one log, oldest first.

Invariant: epoch and start_offset both strictly increase and are not negative, so an offset lies in at most one epoch. A history
is immutable: a change returns a new history, which can be stored before it is used. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from epochfile.entry import EpochEntry

EPOCH_MAX = 2**31 - 1
OFFSET_MAX = 2**63 - 1
NO_EPOCH = -1
NO_CONSISTENT_POINT = -1
EPOCH_BELIEVED_MAX = 2**30
"""No cluster reaches this epoch: it takes one election a second for 34 years. Half of all epoch numbers are above this limit,
so no single message can use up the numbers."""
EPOCH_JUMP_MAX = 2**20
"""The greatest credible jump above the newest known epoch: one election a second for twelve days, none of them reported to this
broker. Java controllers use up to three epochs for a failed election, so epochs may jump, but never this far."""


class EpochOutOfOrder(ValueError):
    """An entry that cannot follow the one before it."""

    def __init__(self, last: EpochEntry | None, new: EpochEntry) -> None:
        before = "first entry" if last is None else f"epoch {last.epoch} at {last.start_offset}"
        super().__init__(f"epoch {new.epoch} at {new.start_offset} cannot follow {before}")
        self.last = last
        self.new = new


def why_too_far(epoch: int, known: int) -> str | None:
    """The reason why `epoch`, received from a master or with a SyncStateSet, is not credible; None if it is credible. `known`
    is the newest known epoch, 0 or less if none is known."""
    if epoch > EPOCH_BELIEVED_MAX:
        return f"epoch {epoch} is above {EPOCH_BELIEVED_MAX}, where no cluster gets"
    if known > 0 and epoch - known > EPOCH_JUMP_MAX:
        return f"epoch {epoch} is more than {EPOCH_JUMP_MAX} above {known}, the newest known here"
    return None


class EpochHistory:
    """The epoch of each range of a log. Offsets are byte positions in the log, ends are exclusive."""

    __slots__ = ("_entries",)

    def __init__(self, entries: Iterable[EpochEntry | tuple[int, int]] = ()) -> None:
        """Raises EpochOutOfOrder unless both columns strictly increase within i32 and i64."""
        self._entries = tuple(EpochEntry(*entry) for entry in entries)
        if self._entries:
            _check_range(None, self._entries[0])
        for last, new in pairwise(self._entries):
            _check_range(last, new)
            if new.epoch <= last.epoch or new.start_offset <= last.start_offset:
                raise EpochOutOfOrder(last, new)

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        return self._entries

    def __iter__(self) -> Iterator[EpochEntry]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EpochHistory) and self._entries == other._entries

    def __hash__(self) -> int:
        return hash(self._entries)

    def __repr__(self) -> str:
        return f"EpochHistory({', '.join(f'{epoch}@{start}' for epoch, start in self._entries)})"

    def last(self) -> EpochEntry | None:
        return self._entries[-1] if self._entries else None

    def last_epoch(self) -> int:
        """-1 when empty."""
        return self._entries[-1].epoch if self._entries else NO_EPOCH

    def append(self, new: EpochEntry | tuple[int, int]) -> EpochHistory:
        """The history with `new` appended. Entries that start at or after the start of `new` have no bytes left and are
        dropped. Appending the last entry again changes nothing. Raises EpochOutOfOrder if the epoch of `new` is not above the
        last epoch."""
        entry = EpochEntry(*new)
        last = self.last()
        if entry == last:
            return self
        if last is not None and entry.epoch <= last.epoch:
            raise EpochOutOfOrder(last, entry)
        return EpochHistory((*self.truncate_suffix(entry.start_offset), entry))

    def entry_at(self, offset: int) -> EpochEntry | None:
        """The entry that covers `offset`; None before the first entry. The last entry has no end."""
        return next((entry for entry in reversed(self._entries) if entry.start_offset <= offset), None)

    def entry_of(self, epoch: int) -> EpochEntry | None:
        return next((entry for entry in self._entries if entry.epoch == epoch), None)

    def epoch_end(self, epoch: int, log_end: int) -> int:
        """The end of `epoch` in a log that ends at `log_end`. Raises KeyError when the epoch is unknown."""
        for entry, following in pairwise(self._entries):
            if entry.epoch == epoch:
                return min(following.start_offset, log_end)
        if self._entries and self._entries[-1].epoch == epoch:
            return log_end
        raise KeyError(epoch)

    def find_consistent_point(self, other: EpochHistory, own_end: int, other_end: int) -> int:
        """The offset up to which this log and the other log hold the same bytes; -1 if no epoch started at the same offset in
        both. The logs end at `own_end` and `other_end`; entries that start beyond the end of their log do not count."""
        theirs = {entry for entry in other if entry.start_offset <= other_end}
        for entry in reversed(self._entries):
            if entry.start_offset <= own_end and entry in theirs:
                return min(self.epoch_end(entry.epoch, own_end), other.epoch_end(entry.epoch, other_end))
        return NO_CONSISTENT_POINT

    def truncate_suffix(self, offset: int) -> EpochHistory:
        """The history without the entries that start at or after `offset`."""
        return EpochHistory(entry for entry in self._entries if entry.start_offset < offset)

    def truncate_prefix(self, offset: int) -> EpochHistory:
        """The history without the entries that end at or before `offset`. The last entry always stays, because its epoch is
        still being written."""
        kept = [entry for entry, after in pairwise(self._entries) if after.start_offset > offset]
        return EpochHistory((*kept, *self._entries[-1:]))


def _check_range(last: EpochEntry | None, entry: EpochEntry) -> None:
    if not (0 <= entry.epoch <= EPOCH_MAX and 0 <= entry.start_offset <= OFFSET_MAX):
        raise EpochOutOfOrder(last, entry)
