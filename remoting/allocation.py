"""Allocation of a topic's queues to a group's consumers by the broker: upstream's two strategies.

Invariant: with the same queues and consumers every broker makes the same allocation. Each queue goes to one consumer. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from remoting.bodies.queues import MessageQueue

Allocate = Callable[[int, int, Sequence[MessageQueue]], list[MessageQueue]]
"""Called with the index of a consumer, the number of consumers, and all queues in order. Returns the consumer's queues."""


def averagely(index: int, count: int, queues: Sequence[MessageQueue]) -> list[MessageQueue]:
    """Each consumer gets adjacent queues. If the queues do not divide evenly, the first consumers get one more."""
    share, rest = divmod(len(queues), count)
    first = index * share + min(index, rest)
    return list(queues[first : first + share + (index < rest)])


def by_circle(index: int, count: int, queues: Sequence[MessageQueue]) -> list[MessageQueue]:
    """The consumers get queues in turn."""
    return list(queues[index::count])


STRATEGIES: dict[str, Allocate] = {"AVG": averagely, "AVG_BY_CIRCLE": by_circle}
"""The strategies, by the names that clients send."""


def allocated(
    allocate: Allocate, client_id: str, consumers: Sequence[str], queues: Sequence[MessageQueue]
) -> list[MessageQueue]:
    """The queues of `client_id`; no queues if it is not in `consumers`."""
    if client_id not in consumers:
        return []
    ids = sorted(consumers)
    ordered = sorted(queues, key=lambda queue: (queue.topic, queue.broker_name, queue.queue_id))
    return allocate(ids.index(client_id), len(ids), ordered)
