"""Which queues of a topic each consumer of a group reads, where the broker says it: upstream's two strategies.

Invariant: whoever knows the same queues and consumers allocates alike, and each queue goes to one consumer. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from remoting.bodies.queues import MessageQueue

Allocate = Callable[[int, int, Sequence[MessageQueue]], list[MessageQueue]]
"""Of a consumer's index among so many, and all queues in order: its own."""


def averagely(index: int, count: int, queues: Sequence[MessageQueue]) -> list[MessageQueue]:
    """Neighbours to each, one more to the first where they are not even."""
    share, rest = divmod(len(queues), count)
    first = index * share + min(index, rest)
    return list(queues[first : first + share + (index < rest)])


def by_circle(index: int, count: int, queues: Sequence[MessageQueue]) -> list[MessageQueue]:
    """One after the other to each in turn."""
    return list(queues[index::count])


STRATEGIES: dict[str, Allocate] = {"AVG": averagely, "AVG_BY_CIRCLE": by_circle}
"""By the names that clients send."""


def allocated(
    allocate: Allocate, client_id: str, consumers: Sequence[str], queues: Sequence[MessageQueue]
) -> list[MessageQueue]:
    """What `client_id` reads; nothing where it is none of `consumers`."""
    if client_id not in consumers:
        return []
    ids = sorted(consumers)
    ordered = sorted(queues, key=lambda queue: (queue.topic, queue.broker_name, queue.queue_id))
    return allocate(ids.index(client_id), len(ids), ordered)
