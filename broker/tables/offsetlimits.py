"""Limits of consumer groups in a log that lost its end: how much of their offsets it holds.

A group that reads beyond its limit has the offset of a lost log: it would skip messages that were sent since.

Invariant: until a group pulls at or below its limit no commit beyond it counts, and a pull beyond it is answered with the
limit, `ANSWERS_MAX` times at most. That this ended is not copied to slaves, which see it by later commits. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from remoting.bodies.offsets import OffsetReset, OffsetResetTable

ANSWERS_MAX = 3
LIMITS_MAX = 20_000

Key = tuple[str, str, int]
"""Group, topic and queue id."""


class OffsetLimits:
    """Limits by group, topic and queue."""

    def __init__(self) -> None:
        self._limits: dict[Key, int] = {}
        self._answers: dict[Key, int] = {}
        self.on_row: Callable[[Key], None] = lambda key: None
        """Runs with each changed limit."""

    def put(self, limits: Mapping[Key, int]) -> None:
        """Set limits. Raises ValueError for too many."""
        wanted = {**self._limits, **limits}
        if len(wanted) > LIMITS_MAX:
            raise ValueError(f"{len(wanted)} limits of offsets, {LIMITS_MAX} are kept at most")
        self._limits, self._answers = wanted, {}
        for key in limits:
            self.on_row(key)

    @property
    def all(self) -> Mapping[Key, int]:
        return self._limits

    def forbids(self, key: Key, offset: int) -> bool:
        """Whether the group cannot have reached `offset` in this log."""
        limit = self._limits.get(key) if self._limits else None
        return limit is not None and offset > limit

    def pulled(self, key: Key, offset: int) -> int | None:
        """The offset at which the group has to continue instead; None where it may pull at `offset`."""
        limit = self._limits.get(key) if self._limits else None
        if limit is None:
            return None
        answers = self._answers.get(key, 0)
        if offset <= limit or answers >= ANSWERS_MAX:
            self.lift(key)
            return None
        self._answers[key] = answers + 1
        return limit

    def instead(self, key: Key, offset: int) -> int | None:
        """As `pulled`, for a pull whose answer may get lost."""
        return self._limits[key] if self.forbids(key, offset) else None

    def lift(self, key: Key) -> None:
        """Remove the limit: the group continued below it."""
        if self._limits.pop(key, None) is not None:
            self.on_row(key)
        self._answers.pop(key, None)

    def keep(self, stays: Callable[[Key], bool]) -> None:
        for key in [key for key in self._limits if not stays(key)]:
            self.lift(key)

    def apply(self, changed: Mapping[Key, int], gone: Iterable[Key]) -> dict[Key, int]:
        """Take over the master's changes; returns the new ones."""
        news = {key: limit for key, limit in changed.items() if self._limits.get(key) != limit}
        self._limits |= news
        for key in (*news, *gone):
            self._answers.pop(key, None)
        for key in gone:
            self._limits.pop(key, None)
        return news

    def rows(self) -> list[OffsetReset] | None:
        """The limits for slaves and the file of offsets; None without any."""
        return [OffsetReset(*key, limit) for key, limit in self._limits.items()] or None

    def adopt(self, table: OffsetResetTable | None) -> dict[Key, int]:
        """Replace the limits by the master's or the file's; returns the new ones."""
        rows = (table.limits if table is not None else None) or []
        limits = {(row.group, row.topic, row.queue_id): row.offset for row in rows}
        news = {key: limit for key, limit in limits.items() if self._limits.get(key) != limit}
        self._limits = limits
        self._answers = {key: n for key, n in self._answers.items() if key in limits and key not in news}
        return news
