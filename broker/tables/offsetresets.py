"""Moves of consumer groups to other offsets by administrators (INVOKE_BROKER_TO_RESET_OFFSET, 222).

Invariant: a move is open until a pull was answered with the new offset and a consumer then pulls at this offset, or until
`ANSWERS_MAX` such answers. Meanwhile commits of other offsets do not count, because clients still commit old offsets for some
seconds. Slaves copy the open moves but not the number of answers, so a new master counts from 0. Upstream:
ConsumerOffsetManager.resetOffsetTable, which only one process has. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from broker.tables.offsetlimits import ANSWERS_MAX, Key, OffsetLimits
from remoting.bodies.offsets import OffsetReset, OffsetResetTable

RESETS_MAX = 20_000


@dataclass(slots=True)
class Reset:
    offset: int
    answers: int = 0


class OffsetResets:
    """The open moves by group, topic and queue, and the limits of a lost log end. Runs `on_change` after changes made here."""

    def __init__(self, on_change: Callable[[], None] = lambda: None) -> None:
        self._on_change = on_change
        self._resets: dict[Key, Reset] = {}
        self.on_row: Callable[[Key], None] = lambda key: None
        """Called with each move that is added or ends, before `on_change`."""
        self.limits = OffsetLimits()

    def takes(self, count: int) -> bool:
        """Whether `count` more moves fit."""
        return len(self._resets) + count <= RESETS_MAX

    def put(self, moves: Mapping[Key, int]) -> None:
        """Add moves of groups to these offsets."""
        self._resets |= {key: Reset(offset) for key, offset in moves.items()}
        for key in moves:
            self.on_row(key)
            self.limits.lift(key)
        self._on_change()

    def limit(self, limits: Mapping[Key, int]) -> None:
        """Set limits of groups after the log lost its end. Open moves beyond a limit are lowered to it. Raises ValueError."""
        for key, reset in self._resets.items():
            if key in limits:
                reset.offset = min(reset.offset, limits[key])
                self.on_row(key)
        try:
            self.limits.put({key: limit for key, limit in limits.items() if key not in self._resets})
        finally:
            self._on_change()

    def find(self, group: str, topic: str, queue_id: int) -> int | None:
        """The offset to which the group was moved; None if it has no open move."""
        reset = self._resets.get((group, topic, queue_id)) if self._resets else None
        return None if reset is None else reset.offset

    def refuses(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """Whether a commit of `offset` may be older than the group's move, or is beyond the limit of a lost log end."""
        return self.find(group, topic, queue_id) not in (None, offset) or self.limits.forbids(
            (group, topic, queue_id), offset
        )

    def pulled(self, group: str, topic: str, queue_id: int, offset: int) -> int | None:
        """The offset to return to a pull at `offset` instead of messages; None if it gets messages."""
        reset = self._resets.get((group, topic, queue_id)) if self._resets else None
        if reset is None:
            return self.limits.pulled((group, topic, queue_id), offset)
        if reset.answers and (offset == reset.offset or reset.answers >= ANSWERS_MAX):
            del self._resets[group, topic, queue_id]
            self.on_row((group, topic, queue_id))
            self._on_change()
            return None
        reset.answers += 1
        return reset.offset

    def instead(self, group: str, topic: str, queue_id: int, offset: int) -> int | None:
        """Like `pulled`, for a pull whose answer may get lost and so does not count."""
        moved_to = self.find(group, topic, queue_id)
        if moved_to is None:
            return self.limits.instead((group, topic, queue_id), offset)
        return None if moved_to == offset else moved_to

    def went_on(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """End the moves of the group in queues where the master's `offsets` differ from the move."""
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
        """The table for slaves and for the file of offsets; None if it is empty."""
        limits = self.limits.rows()
        if not self._resets and limits is None:
            return None
        return OffsetResetTable(
            [OffsetReset(*key, reset.offset) for key, reset in self._resets.items()], limits
        )

    def adopt(self, table: OffsetResetTable | None) -> dict[Key, int] | None:
        """Replace the moves by the master's. Returns the open moves; None if nothing changed."""
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
        """Adopt the master's changes. Returns the new moves."""
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
