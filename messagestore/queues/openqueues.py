"""The consume queues that have files open: a store with ten thousand topics has more queues than a process may map files
(vm.max_map_count, 65,530 by default) or hold descriptors, of which a mapped file takes two.

Invariant: after each call at most `most` queues have files open, and the one that opened one last is among them."""

from __future__ import annotations

from typing import Protocol


class Shuttable(Protocol):
    """A queue, as this sees it."""

    def was_used(self) -> bool:
        """Since the last call."""
        ...

    def shut(self) -> None:
        """Close its files until it is used again."""
        ...


class OpenQueues:
    """Closes the files of those that are not used, second chance: who was used since it was last looked at stays."""

    def __init__(self, most: int) -> None:
        self._most = max(1, most)
        self._queues: dict[Shuttable, None] = {}
        """In the order in which they are looked at."""

    def opened(self, queue: Shuttable) -> None:
        """It has one more file open."""
        queues = self._queues
        queues.pop(queue, None)
        queues[queue] = None
        while len(queues) > self._most:
            first = next(iter(queues))
            del queues[first]
            if first is queue or first.was_used():
                queues[first] = None
            else:
                first.shut()

    def gone(self, queue: Shuttable) -> None:
        """It is of no use any more."""
        self._queues.pop(queue, None)
