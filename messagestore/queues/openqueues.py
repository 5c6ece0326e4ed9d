"""The consume queues that have files open. A store with ten thousand topics has more queues than a process may have mapped
files (vm.max_map_count, 65,530 by default) or descriptors; a mapped file takes two.

Invariant: after each call at most `most` queues have files open. The queue that opened a file last is one of them."""

from __future__ import annotations

from typing import Protocol


class Shuttable(Protocol):
    """The part of a queue that this module uses."""

    def was_used(self) -> bool:
        """Whether the queue was used since the last call."""
        ...

    def shut(self) -> None:
        """Close the queue's files until the next use."""
        ...


class OpenQueues:
    """Closes the files of unused queues by the second chance algorithm: a queue that was used since the last check stays
    open."""

    def __init__(self, most: int) -> None:
        self._most = max(1, most)
        self._queues: dict[Shuttable, None] = {}
        """In the order in which they are checked."""

    def opened(self, queue: Shuttable) -> None:
        """Note that `queue` has opened one more file."""
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
        """Note that `queue` is unusable from now on."""
        self._queues.pop(queue, None)
