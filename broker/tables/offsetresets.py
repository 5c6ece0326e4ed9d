"""Where administrators moved consumer groups (222), until these go on there.

Invariant: a move is over once a consumer of the group, having been told of it by a pull, pulls at the offset that it was told,
or has been told `TELLINGS_MAX` times; until then no commit of another offset counts. Clients commit what they had for some
seconds after they were told. Which moves stand is a fact that slaves copy, how often one was told is not: under a new master
it is told again. Upstream: ConsumerOffsetManager.resetOffsetTable, of one process. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from broker.tables.offsetlimits import TELLINGS_MAX, Key, OffsetLimits
from remoting.bodies.offsets import OffsetReset, OffsetResetTable

RESETS_MAX = 20_000


@dataclass(slots=True)
class Reset:
    offset: int
    told: int = 0


class OffsetResets:
    """By group, topic and queue, with the limits that a loss set to groups; `on_change` runs after each change of what stands,
    made here."""

    def __init__(self, on_change: Callable[[], None] = lambda: None) -> None:
        self._on_change = on_change
        self._resets: dict[Key, Reset] = {}
        self.on_row: Callable[[Key], None] = lambda key: None
        """Runs with each move that begins to stand, or no longer stands, before `on_change`."""
        self.limits = OffsetLimits()

    def takes(self, count: int) -> bool:
        """Whether so many more may stand."""
        return len(self._resets) + count <= RESETS_MAX

    def put(self, moves: Mapping[Key, int]) -> None:
        """An administrator moves groups to these offsets."""
        self._resets |= {key: Reset(offset) for key, offset in moves.items()}
        for key in moves:
            self.on_row(key)
            self.limits.lift(key)
        self._on_change()

    def limit(self, limits: Mapping[Key, int]) -> None:
        """The log lost its end: these groups cannot be beyond this in it, nor be moved there. Raises ValueError."""
        for key, reset in self._resets.items():
            if key in limits:
                reset.offset = min(reset.offset, limits[key])
                self.on_row(key)
        try:
            self.limits.put({key: limit for key, limit in limits.items() if key not in self._resets})
        finally:
            self._on_change()

    def find(self, group: str, topic: str, queue_id: int) -> int | None:
        """Where the group is to go on; None where it was not moved."""
        reset = self._resets.get((group, topic, queue_id)) if self._resets else None
        return None if reset is None else reset.offset

    def refuses(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """Whether a commit of `offset` is of before the group was moved, or of a log that is gone."""
        return self.find(group, topic, queue_id) not in (None, offset) or self.limits.forbids(
            (group, topic, queue_id), offset
        )

    def pulled(self, group: str, topic: str, queue_id: int, offset: int) -> int | None:
        """The group pulls at `offset`: what it is to be told instead of messages, if anything."""
        reset = self._resets.get((group, topic, queue_id)) if self._resets else None
        if reset is None:
            return self.limits.pulled((group, topic, queue_id), offset)
        if reset.told and (offset == reset.offset or reset.told >= TELLINGS_MAX):
            del self._resets[group, topic, queue_id]
            self.on_row((group, topic, queue_id))
            self._on_change()
            return None
        reset.told += 1
        return reset.offset

    def instead(self, group: str, topic: str, queue_id: int, offset: int) -> int | None:
        """As `pulled`, of a pull whose answer may come to nobody: it does not count as heard."""
        moved_to = self.find(group, topic, queue_id)
        if moved_to is None:
            return self.limits.instead((group, topic, queue_id), offset)
        return None if moved_to == offset else moved_to

    def went_on(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Under the master the group is at `offsets`, by queue."""
        for queue_id, offset in offsets.items():
            if self.find(group, topic, queue_id) not in (None, offset):
                del self._resets[group, topic, queue_id]
                self.on_row((group, topic, queue_id))
            if self.limits.forbids((group, topic, queue_id), offset):
                self.limits.lift((group, topic, queue_id))

    def remove_group(self, group: str) -> None:
        self._keep(lambda key: key[0] != group)

    def remove_topic(self, topic: str) -> None:
        self._keep(lambda key: key[1] != topic)

    def wrapper(self) -> OffsetResetTable | None:
        """The table as slaves get it and as it lies in the file of offsets; None where nothing stands."""
        limits = self.limits.rows()
        if not self._resets and limits is None:
            return None
        return OffsetResetTable(
            [OffsetReset(*key, reset.offset) for key, reset in self._resets.items()], limits
        )

    def adopt(self, table: OffsetResetTable | None) -> dict[Key, int] | None:
        """Take over the master's table: what stands now; None where nothing differs."""
        moves = (
            {(each.group, each.topic, each.queue_id): each.offset for each in table.resets} if table else {}
        )
        if moves == {key: reset.offset for key, reset in self._resets.items()}:
            return None
        self._resets = {key: Reset(offset) for key, offset in moves.items()}
        return moves

    @property
    def standing(self) -> dict[Key, int]:
        return {key: reset.offset for key, reset in self._resets.items()}

    def apply(self, changed: Mapping[Key, int], gone: Iterable[Key]) -> dict[Key, int]:
        """Take over the master's changes: the moves that are news."""
        news = {key: at for key, at in changed.items() if self.find(*key) != at}
        self._resets |= {key: Reset(offset) for key, offset in news.items()}
        for key in gone:
            self._resets.pop(key, None)
        return news

    def _keep(self, stays: Callable[[Key], bool]) -> None:
        self.limits.keep(stays)
        gone = [key for key in self._resets if not stays(key)]
        for key in gone:
            del self._resets[key]
            self.on_row(key)
        if gone:
            self._on_change()
