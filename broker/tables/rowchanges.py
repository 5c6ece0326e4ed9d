"""The order of changes of table rows, with their versions. A slave with an earlier version gets the rows that changed since.

A row is a topic, a group, a deletion, a lock, a moved group or the end of an emptied queue. A version names the epoch and the
process of the broker that led when it was made, because a broker that leads again after a restart counts from 0.

Invariant: if `place_of` knows a version, then its tables together with the present rows after its place are the present tables.
Rows are in the order of their last change. So slices may be read while rows change: a row that changes meanwhile is in a later
slice, too. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from itertools import islice
from typing import NamedTuple, Self

from broker.tables.holders import TablesVersion

Row = tuple[str, str, str, int]
"""The kind of the row, two names and a number; unused fields are empty."""
GONE_MAX = 10_000
"""Limit of the deleted rows that are kept for slaves with an earlier version."""
EPOCHS_MAX = 16
REVISIONS_MAX = 64
"""Limit of an epoch's versions whose place is known; most of them are newer ones. Other versions use the place before."""


class Named(NamedTuple):
    """A version, and the process (`life`) of the broker that led."""

    version: TablesVersion
    life: int

    def __str__(self) -> str:
        return f"{self.version}@{self.life}"

    @classmethod
    def parse(cls, text: str | None) -> Self | None:
        """Parse a version; None for text that no master writes."""
        version, _, life = (text or "").partition("@")
        found = TablesVersion.parse(version)
        if found is None or not (life.isascii() and life.isdigit() and len(life) < 20):
            return None
        return cls(found, int(life))


class RowChanges:
    """The changes of one broker's tables. `exists(row)`: whether the tables have the row now."""

    def __init__(self, exists: Callable[[Row], bool]) -> None:
        self._exists = exists
        self._places: dict[Row, int] = {}  # ordered by place
        self._last = 0
        self._ends: dict[tuple[int, int], list[tuple[int, int]]] = {}
        """By epoch and life: (revision, place of the revision's last row), both increasing."""
        self._unnamed: dict[Row, None] = {}
        self._beside: dict[Row, None] = {}
        self._gone: dict[Row, None] = {}
        self._complete_from = 0  # deleted rows after this place are all known
        self.now: Named | None = None
        """The version of the tables, without the rows that have no version yet."""

    def touch(self, row: Row) -> None:
        """Record a change of `row`, which belongs to the next version."""
        self._unnamed[row] = None

    @property
    def exact(self) -> Named | None:
        """The version of the tables; None if the tables differ from every version that a master has named."""
        return None if self._unnamed else self.now

    def keep_beside(self, rows: Iterable[Row]) -> None:
        """Keep rows that are not in the adopted version. They get a version once this broker leads."""
        self._beside |= dict.fromkeys(rows)

    def name(self, now: Named) -> None:
        """Give the present tables this version; this broker leads."""
        self._unnamed |= self._beside
        self._beside.clear()
        self._name(now)

    def _name(self, now: Named) -> None:
        for row in self._unnamed:
            self._places.pop(row, None)
            self._last += 1
            self._places[row] = self._last
            if self._exists(row):
                self._gone.pop(row, None)
            else:
                self._gone[row] = None
        self._unnamed.clear()
        self.now = now
        ends = self._ends.setdefault((now.version.epoch, now.life), [])
        ends.append((now.version.revision, self._last))
        if len(ends) > REVISIONS_MAX:
            del ends[1:-1:2]
        if len(self._ends) > EPOCHS_MAX:
            del self._ends[next(iter(self._ends))]
        if len(self._gone) > GONE_MAX:
            self._forget_gone()

    def replace(self, rows: Iterable[Row], now: Named) -> None:
        """Start again with the tables of this version, which have these `rows`."""
        self._places = {row: place for place, row in enumerate(rows, self._last + 1)}
        self._complete_from = self._last
        self._last += len(self._places)
        self._ends.clear()
        self._unnamed.clear()
        self._gone.clear()
        self._name(now)

    def apply(self, rows: Iterable[Row], now: Named) -> None:
        """Record the master's changes of these rows, which lead to the master's version `now`."""
        former = self._unnamed
        self._unnamed = dict.fromkeys(rows)
        kept = [row for row in former if row not in self._unnamed]
        self._name(now)
        self._unnamed = dict.fromkeys(kept)

    def place_of(self, held: Named | None) -> int | None:
        """The place after which the rows differ from version `held`; None if the place is not known."""
        ends = [] if held is None else self._ends.get((held.version.epoch, held.life), [])
        if held is None or not ends or held.version.revision > ends[-1][0]:
            return None  # the leader of that version made changes that this broker never got
        at = bisect_right(ends, (held.version.revision, self._last))
        return ends[at - 1][1] if at else None

    def goes_on_at(self, place: int | None) -> bool:
        """Whether an earlier slice can be continued with the rows after `place`."""
        return place is not None and self._complete_from <= place <= self._last

    @property
    def first(self) -> int:
        """The place before all rows."""
        return self._complete_from

    def after(self, place: int, count_max: int) -> tuple[list[Row], int | None]:
        """The first rows after `place`, and the place of the last of them if more rows follow."""
        if place >= self._last:
            return [], None
        behind: list[Row] = []
        for row in reversed(self._places):
            if self._places[row] <= place:
                break
            behind.append(row)
        behind.reverse()
        rows = [*islice(behind, count_max)]
        return rows, self._places[rows[-1]] if len(rows) < len(behind) else None

    def _forget_gone(self) -> None:
        """Drop old deleted rows, so that slaves with an earlier version get all rows."""
        kept = [row for row in self._places if row not in self._gone]
        self._gone.clear()
        self._complete_from = self._last
        self._places = {row: place for place, row in enumerate(kept, self._last + 1)}
        self._last += len(kept)
        assert self.now is not None
        self._ends = {(self.now.version.epoch, self.now.life): [(self.now.version.revision, self._last)]}
