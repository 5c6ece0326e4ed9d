"""What was said of consumer groups' offsets to this master itself, under this and earlier epochs of its mastership.

Invariant: a commit that a former master passes on may be older than all of it, so it counts only where it lowers no offset and
nothing here covers it: no move, no lower commit and no deletion. Groups commit again, to their master, within seconds. Pure."""

from __future__ import annotations

from broker.tables.offsetlimits import Key

KEYS_MAX = 100_000
"""Beyond it everything is covered."""


class SaidHere:
    """Since `begin`."""

    def __init__(self) -> None:
        self._keys: set[Key] = set()
        self._topics: set[str] = set()
        self._groups: set[str] = set()

    def begin(self) -> None:
        """This broker was no master until now."""
        self._keys, self._topics, self._groups = set(), set(), set()

    def moved(self, key: Key) -> None:
        """The group goes on at an offset that is not beyond where it was."""
        if len(self._keys) < KEYS_MAX:
            self._keys.add(key)

    def topic_removed(self, topic: str) -> None:
        if len(self._topics) < KEYS_MAX:
            self._topics.add(topic)

    def group_removed(self, group: str) -> None:
        if len(self._groups) < KEYS_MAX:
            self._groups.add(group)

    def covers(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether an older commit may undo something of it."""
        return (
            (group, topic, queue_id) in self._keys
            or topic in self._topics
            or group in self._groups
            or max(len(self._keys), len(self._topics), len(self._groups)) >= KEYS_MAX
        )
