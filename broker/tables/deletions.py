"""The deletions of topics, of groups and of the offsets of groups. Each deletion is a row that slaves copy.

The deletion of a topic also has the log offset from which a new topic of this name may have messages (`log_end`). Messages
below it are not read, even if the topic's queues are built again by a rebuild, a slave or a start after a crash.

Invariant: a deletion is kept until there are DELETIONS_MAX newer deletions, or until it is old. The deletion of a topic is not
dropped because of its age, because the topic's messages in the log would bring the topic back. `forgotten` shows which
deletions a copy may be missing."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from mqruntime.clock import Clock
from remoting.bodies.tables import Deletion, DeletionTable

DELETIONS_FILE = "config/deletions.json"
TOPIC, GROUP, OFFSETS = "topic", "group", "offsets"
DELETIONS_MAX = 10_000
AGE_MS_MAX = 30 * 24 * 3600 * 1000


class Deletions:
    """The newest deletion of each name. `on_change` runs after each change made here (not for `adopt`)."""

    def __init__(self, clock: Clock, on_change: Callable[[], None]) -> None:
        self._clock = clock
        self._on_change = on_change
        self._table: dict[tuple[str, str], Deletion] = {}
        self.on_row: Callable[[str, str], None] = lambda kind, name: None
        """Called with each deletion that is added or changed here, before `on_change`."""
        self.on_topic: Callable[[str, int], None] = lambda name, log_end: None
        """Called with a topic and the log end of its deletion when that changes; with 0 when the deletion is dropped."""
        self._forgotten = (0, 0)
        self._newest = (0, 0)

    def note(self, kind: str, name: str, epoch: int, log_end: int = 0) -> None:
        """Add the deletion of `name` now, under masterEpoch `epoch`."""
        number = self._newest[1] + 1
        self._put(Deletion(kind, name, epoch, number, self._clock.now_ms(), log_end))
        self.on_row(kind, name)
        self._forget()
        self._on_change()

    def find(self, kind: str, name: str) -> Deletion | None:
        return self._table.get((kind, name))

    @property
    def forgotten(self) -> tuple[int, int]:
        """Deletions with an order up to this one may have been dropped."""
        return self._forgotten

    def of_topic(self, name: str) -> Deletion | None:
        """The last deletion of the topic, even if the topic was created again since; None if none is known."""
        return self._table.get((TOPIC, name))

    def topic_ends(self) -> dict[str, int]:
        """The log end of each topic's deletion, for slaves that poll like upstream's."""
        return {each.name: each.log_end for each in self._table.values() if each.kind == TOPIC}

    def adopt_topic_ends(self, topic_ends: Mapping[str, int]) -> bool:
        """Adopt the log ends of a master that is polled like upstream's. Returns False if nothing changed."""
        news = [
            (name, end)
            for name, end in topic_ends.items()
            if (known := self.of_topic(name)) is None or known.log_end != end
        ]
        for name, end in news:
            epoch, number = self._newest
            self._put(Deletion(TOPIC, name, epoch, number + 1, self._clock.now_ms(), end))
        self._forget()
        return bool(news)

    def log_ends_at(self, log_end: int, epochs: Sequence[tuple[int, int]] = ()) -> None:
        """Lower the log ends to fit a new master's log, which ends at `log_end` and has these `epochs`, each (epoch, start).
        Records of a former master beyond that end, or beyond the start of the epoch that follows the deletion's, are gone.
        Records there now belong to a new topic."""
        beyond = False
        for deletion in list(self._table.values()):
            following = bisect_right(epochs, deletion.epoch, key=lambda entry: entry[0])
            end = min(log_end, epochs[following][1]) if following < len(epochs) else log_end
            if deletion.log_end > end:
                self._put(replace(deletion, log_end=end))
                self.on_row(deletion.kind, deletion.name)
                beyond = True
        if beyond:
            self._on_change()

    def adopt(self, table: DeletionTable, *, whole: bool = False) -> tuple[list[Deletion], bool]:
        """Adopt the master's deletions. Returns those that are new here, and whether the master may have dropped some before
        they came here. If the table is `whole`, removes deletions that the master does not know: they were not acknowledged."""
        forgotten = (table.forgotten_epoch, table.forgotten_number)
        missed = forgotten > self._newest
        news = []
        for deletion in table.deletions:
            known = self._table.get((deletion.kind, deletion.name))
            if known is not None and known.order == deletion.order:
                self._put(deletion)  # the log end may have changed
            elif deletion.order > max(self._forgotten, known.order if known is not None else (0, 0)):
                self._put(deletion)
                news.append(deletion)
        if whole:
            named = {(deletion.kind, deletion.name): deletion for deletion in table.deletions}
            for key, own in list(self._table.items()):
                theirs = named.get(key)
                if theirs is not None and theirs.order < own.order:
                    self._put(theirs)
                elif theirs is None and own.order > forgotten:
                    self._drop(key)
        self._forgotten = max(self._forgotten, forgotten)
        self._newest = max(self._newest, forgotten)
        self._forget()
        return news, missed

    def wrapper(self) -> DeletionTable:
        """The table in the form that slaves get."""
        return DeletionTable(list(self._table.values()), *self._forgotten)

    def encode(self) -> bytes:
        """The content of deletions.json."""
        return self.wrapper().encode()

    def decode(self, data: bytes) -> None:
        """Read the content of deletions.json. Raises BodyError."""
        self.adopt(DeletionTable.decode(data))

    def _put(self, deletion: Deletion) -> None:
        known = self._table.get((deletion.kind, deletion.name))
        self._table[deletion.kind, deletion.name] = deletion
        self._newest = max(self._newest, deletion.order)
        if deletion.kind == TOPIC and (known is None or known.log_end != deletion.log_end):
            self.on_topic(deletion.name, deletion.log_end)

    def _drop(self, key: tuple[str, str]) -> Deletion:
        kind, name = key
        if kind == TOPIC:
            self.on_topic(name, 0)
        return self._table.pop(key)

    def _forget(self) -> None:
        oldest_ms = self._clock.now_ms() - AGE_MS_MAX
        old = [key for key, at in self._table.items() if at.kind != TOPIC and at.timestamp < oldest_ms]
        many = len(self._table) - len(old) - DELETIONS_MAX
        if many > 0:
            left = self._table.keys() - set(old)
            old += sorted(left, key=lambda key: self._table[key].order)[:many]
        for key in old:
            self._forgotten = max(self._forgotten, self._drop(key).order)
