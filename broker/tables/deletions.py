"""What was deleted: topics, groups and the offsets of groups, each as a fact that slaves copy.

The fact of a topic's deletion is also the mark of where its new life begins in the log (`log_end`): whatever is built of its
queues, by a rebuild, a slave or a start after a crash, nobody reads what stands below.

Invariant: a deletion is remembered until as many newer ones are there, or until it is old: a topic's only for their
number, because its messages stand in the log and would bring it back. What a copy may lack is told by how far
deletions are forgotten."""

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
        """Runs with each deletion that is noted or changed here, before `on_change`."""
        self.on_topic: Callable[[str, int], None] = lambda name, log_end: None
        """Runs with a topic and where the log ended when it was deleted, whenever that changes; with 0 once it is forgotten."""
        self._forgotten = (0, 0)
        self._newest = (0, 0)

    def note(self, kind: str, name: str, epoch: int, log_end: int = 0) -> None:
        """`name` is deleted now, under masterEpoch `epoch`."""
        number = self._newest[1] + 1
        self._put(Deletion(kind, name, epoch, number, self._clock.now_ms(), log_end))
        self.on_row(kind, name)
        self._forget()
        self._on_change()

    def find(self, kind: str, name: str) -> Deletion | None:
        return self._table.get((kind, name))

    @property
    def forgotten(self) -> tuple[int, int]:
        """Up to this order deletions may be missing."""
        return self._forgotten

    def of_topic(self, name: str) -> Deletion | None:
        """The last one, also if the topic was made anew since."""
        return self._table.get((TOPIC, name))

    def topic_ends(self) -> dict[str, int]:
        """Where the log ended when each topic was deleted, for slaves that poll as upstream's do."""
        return {each.name: each.log_end for each in self._table.values() if each.kind == TOPIC}

    def heard(self, topic_ends: Mapping[str, int]) -> bool:
        """A master that is polled so says them; False when nothing is new."""
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
        """The log of a new master, with its (epoch, start): what a former one had behind its end, or behind the start of the
        epoch after that of the deletion, is gone for good, and what stands there now is of a topic's new life."""
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
        """Take over what the master remembers: the deletions that are news here, and whether others may have been
        forgotten there before they came here. With its `whole` table what it never heard of goes: a former master answered
        nobody of it."""
        forgotten = (table.forgotten_epoch, table.forgotten_number)
        missed = forgotten > self._newest
        news = []
        for deletion in table.deletions:
            known = self._table.get((deletion.kind, deletion.name))
            if known is not None and known.order == deletion.order:
                self._put(deletion)  # where the log ended may be known better
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
        """The table as it is handed to slaves."""
        return DeletionTable(list(self._table.values()), *self._forgotten)

    def encode(self) -> bytes:
        """The content of deletions.json."""
        return self.wrapper().encode()

    def decode(self, data: bytes) -> None:
        """Take in deletions.json. Raises BodyError."""
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
