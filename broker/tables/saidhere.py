"""The changes of consumer offsets that this master received directly since it leads.

Invariant: a commit that a former master passes on may be older than all these changes. So it counts only if it lowers no offset
and the offset was not moved, lowered or deleted here. Groups commit again, to this master, within seconds. Pure."""

from __future__ import annotations

from broker.tables.offsetlimits import Key

KEYS_MAX = 100_000
"""Limit of the recorded changes. Beyond it `covers` is always true."""


class SaidHere:
    """The changes since `begin`."""

    def __init__(self) -> None:
        self._keys: set[Key] = set()
        self._topics: set[str] = set()
        self._groups: set[str] = set()

    def begin(self) -> None:
        """Start as master after another role."""
        self._keys, self._topics, self._groups = set(), set(), set()

    def moved(self, key: Key) -> None:
        """Record a move of the group, or a commit of a lower offset."""
        if len(self._keys) < KEYS_MAX:
            self._keys.add(key)

    def topic_removed(self, topic: str) -> None:
        if len(self._topics) < KEYS_MAX:
            self._topics.add(topic)

    def group_removed(self, group: str) -> None:
        if len(self._groups) < KEYS_MAX:
            self._groups.add(group)

    def covers(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether an older commit may undo a recorded change."""
        return (
            (group, topic, queue_id) in self._keys
            or topic in self._topics
            or group in self._groups
            or max(len(self._keys), len(self._topics), len(self._groups)) >= KEYS_MAX
        )
