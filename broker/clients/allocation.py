"""Allocation of a topic's queues to a group's consumers by the broker: upstream's two strategies.

Invariant: with the same queues and consumers every broker allocates alike, and each queue goes to one consumer. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from remoting.bodies.queues import MessageQueue

Allocate = Callable[[int, int, Sequence[MessageQueue]], list[MessageQueue]]
"""The queues of the consumer with this index among so many, from all queues in order."""


def averagely(index: int, count: int, queues: Sequence[MessageQueue]) -> list[MessageQueue]:
    """Adjacent queues to each, one more to the first ones where they do not divide evenly."""
    share, rest = divmod(len(queues), count)
    first = index * share + min(index, rest)
    return list(queues[first : first + share + (index < rest)])


def by_circle(index: int, count: int, queues: Sequence[MessageQueue]) -> list[MessageQueue]:
    """Queues to the consumers in turn."""
    return list(queues[index::count])


STRATEGIES: dict[str, Allocate] = {"AVG": averagely, "AVG_BY_CIRCLE": by_circle}
"""Strategies by the names that clients send."""


def allocated(
    allocate: Allocate, client_id: str, consumers: Sequence[str], queues: Sequence[MessageQueue]
) -> list[MessageQueue]:
    """The queues of `client_id`; none if it is not in `consumers`."""
    if client_id not in consumers:
        return []
    ids = sorted(consumers)
    ordered = sorted(queues, key=lambda queue: (queue.topic, queue.broker_name, queue.queue_id))
    return allocate(ids.index(client_id), len(ids), ordered)
