"""Limits of consumer groups' offsets in a log that lost its end: the offsets up to which the log holds messages.

A group whose offset is beyond its limit has read messages that were lost. It would skip messages that were sent since.

Invariant: while a limit exists, commits beyond the limit do not count, and pulls beyond it are answered with the limit. The
limit ends when the group pulls at or below it, or after `ANSWERS_MAX` such answers. Slaves do not copy the end of a limit; they
find it from later commits. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from remoting.bodies.offsets import OffsetReset, OffsetResetTable

ANSWERS_MAX = 3
LIMITS_MAX = 20_000

Key = tuple[str, str, int]
"""Group, topic and queue id."""


class OffsetLimits:
    """The limits by group, topic and queue."""

    def __init__(self) -> None:
        self._limits: dict[Key, int] = {}
        self._answers: dict[Key, int] = {}
        self.on_row: Callable[[Key], None] = lambda key: None
        """Called with each limit that changes."""

    def put(self, limits: Mapping[Key, int]) -> None:
        """Set limits. Raises ValueError if there are too many."""
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
        """The offset at which the group has to continue; None if it may pull at `offset`."""
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
        """Like `pulled`, for a pull whose answer may get lost and so does not count."""
        return self._limits[key] if self.forbids(key, offset) else None

    def lift(self, key: Key) -> None:
        """Remove the limit, because the group has continued."""
        if self._limits.pop(key, None) is not None:
            self.on_row(key)
        self._answers.pop(key, None)

    def keep(self, stays: Callable[[Key], bool]) -> None:
        for key in [key for key in self._limits if not stays(key)]:
            self.lift(key)

    def apply(self, changed: Mapping[Key, int], gone: Iterable[Key]) -> dict[Key, int]:
        """Adopt the master's changes. Returns the new limits."""
        news = {key: limit for key, limit in changed.items() if self._limits.get(key) != limit}
        self._limits |= news
        for key in (*news, *gone):
            self._answers.pop(key, None)
        for key in gone:
            self._limits.pop(key, None)
        return news

    def rows(self) -> list[OffsetReset] | None:
        """The limits for slaves and for the file of offsets; None if there are none."""
        return [OffsetReset(*key, limit) for key, limit in self._limits.items()] or None

    def adopt(self, table: OffsetResetTable | None) -> dict[Key, int]:
        """Replace the limits by the limits of the master or the file. Returns the new limits."""
        rows = (table.limits if table is not None else None) or []
        limits = {(row.group, row.topic, row.queue_id): row.offset for row in rows}
        news = {key: limit for key, limit in limits.items() if self._limits.get(key) != limit}
        self._limits = limits
        self._answers = {key: n for key, n in self._answers.items() if key in limits and key not in news}
        return news
