"""Allocation of a topic's queues to a group's consumers: upstream's strategies. Brokers allocate for consumers that ask
(QUERY_ASSIGNMENT, 400), other consumers for themselves. Upstream: AllocateMessageQueueAveragely,
AllocateMessageQueueAveragelyByCircle.

Invariant: with the same queues and consumers everybody makes the same allocation. Each queue goes to one consumer. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar


class AllocatedQueue(Protocol):
    """A queue by topic, broker set and number."""

    @property
    def topic(self) -> str: ...

    @property
    def broker_name(self) -> str: ...

    @property
    def queue_id(self) -> int: ...


QueueT = TypeVar("QueueT", bound=AllocatedQueue)
Allocate = Callable[[int, int, Sequence[Any]], list[Any]]
"""Called with the index of a consumer, the number of consumers, and all queues in order. Returns the consumer's queues."""


def averagely(index: int, count: int, queues: Sequence[QueueT]) -> list[QueueT]:
    """Each consumer gets adjacent queues. If the queues do not divide evenly, the first consumers get one more."""
    share, rest = divmod(len(queues), count)
    first = index * share + min(index, rest)
    return list(queues[first : first + share + (index < rest)])


def by_circle(index: int, count: int, queues: Sequence[QueueT]) -> list[QueueT]:
    """The consumers get queues in turn."""
    return list(queues[index::count])


STRATEGIES: dict[str, Allocate] = {"AVG": averagely, "AVG_BY_CIRCLE": by_circle}
"""The strategies, by the names that clients send."""


def allocated(
    allocate: Allocate, client_id: str, consumers: Sequence[str], queues: Sequence[QueueT]
) -> list[QueueT]:
    """The queues of `client_id`; no queues if it is not in `consumers`."""
    if client_id not in consumers:
        return []
    ids = sorted(consumers)
    ordered = sorted(queues, key=lambda queue: (queue.topic, queue.broker_name, queue.queue_id))
    return allocate(ids.index(client_id), len(ids), ordered)
