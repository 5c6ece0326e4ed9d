"""Held pulls: they found nothing and wait for the next message of their queue. Upstream: PullRequestHoldService.

Invariant: a held pull is in the table of its queue until it is taken out exactly once: by a message that arrives, by
its deadline, or by the end of its connection; or all are taken out at once, by a caller that answers them one by one. Held
pulls are bounded, including those that this caller has not got yet; beyond the bound a pull is answered at once. Those of one
connection are bounded, too, and its end costs no more than it held."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from broker.pulls.request import PullRequest
from remoting.peer import Peer

K = TypeVar("K")
Queue = tuple[str, int]
PER_CONNECTION_MAX = 10_000
"""Per connection: a client waits for each queue that it reads, once for each of its groups."""
STALE_MAX = 64  # entries of answered pulls in the heap of deadlines, on top of the number held


@dataclass(slots=True, eq=False)
class HeldPull:
    """A pull that is answered at `deadline_ms` (monotonic) at the latest; `request.offset` is its next offset."""

    peer: Peer
    request: PullRequest
    deadline_ms: int
    done: bool = field(default=False)


class HeldPulls:
    """The held pulls by queue, by connection and by deadline."""

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._by_queue: dict[Queue, dict[HeldPull, None]] = {}
        self._by_peer: dict[Peer, dict[HeldPull, None]] = {}
        self._deadlines: list[tuple[int, int, HeldPull]] = []
        self._count = 0
        self._leaving = 0
        """Taken out all together, and not returned yet."""
        self._order = 0

    def __len__(self) -> int:
        return self._count + self._leaving

    @property
    def full(self) -> bool:
        return len(self) >= self._count_max

    def holds_all_of(self, peer: Peer) -> bool:
        """Whether this connection has reached its limit."""
        return len(self._by_peer.get(peer, ())) >= PER_CONNECTION_MAX

    def hold(self, pull: HeldPull) -> None:
        assert not pull.done
        self._by_queue.setdefault(pull.request.queue, {})[pull] = None
        self._by_peer.setdefault(pull.peer, {})[pull] = None
        self._order += 1
        heapq.heappush(self._deadlines, (pull.deadline_ms, self._order, pull))
        self._count += 1

    def waiting(self, queue: Queue, next_offset: int) -> list[HeldPull]:
        """Pulls of `queue` that want messages below `next_offset`; they stay held."""
        held = self._by_queue.get(queue)
        return [pull for pull in held if pull.request.offset < next_offset] if held else []

    def is_waited_for(self, queue: Queue) -> bool:
        return queue in self._by_queue

    def holds(self, pull: HeldPull) -> bool:
        """False once it was taken out, even if it was not returned yet."""
        return pull in self._by_queue.get(pull.request.queue, ())

    def queues(self) -> list[Queue]:
        """Every queue with held pulls."""
        return list(self._by_queue)

    def release(self, pull: HeldPull) -> bool:
        """Take a pull out; False when it already was."""
        if pull.done:
            return False
        pull.done = True
        _take_out(self._by_queue, pull.request.queue, pull)
        _take_out(self._by_peer, pull.peer, pull)
        self._count -= 1
        if len(self._deadlines) > 2 * self._count + STALE_MAX:
            self._deadlines = [entry for entry in self._deadlines if not entry[2].done]
            heapq.heapify(self._deadlines)
        return True

    def release_expired(self, now_ms: int) -> Iterator[HeldPull | None]:
        """Take out, each on demand, those whose time is over at `now_ms`; None for one that already was."""
        while self._deadlines and (self._deadlines[0][0] <= now_ms or self._deadlines[0][2].done):
            pull = heapq.heappop(self._deadlines)[2]
            yield pull if self.release(pull) else None

    def release_all(self) -> Iterator[HeldPull]:
        """Take all out, at once and for the cost of a few: they are returned one by one, in order within a queue, and no other
        caller finds them any more."""
        queues = deque(self._by_queue.values())
        self._by_queue, self._by_peer, self._deadlines = {}, {}, []
        self._leaving, self._count = self._leaving + self._count, 0
        return self._given(queues)

    def _given(self, queues: deque[dict[HeldPull, None]]) -> Iterator[HeldPull]:
        while queues:
            pulls = deque(queues.popleft())
            while pulls:
                pull = pulls.popleft()
                pull.done = True
                self._leaving -= 1
                yield pull

    def release_of(self, peer: Peer) -> None:
        """Drop the pulls of a connection that ended."""
        for pull in list(self._by_peer.get(peer, ())):
            self.release(pull)


def _take_out(table: dict[K, dict[HeldPull, None]], key: K, pull: HeldPull) -> None:
    held = table[key]
    del held[pull]
    if not held:
        del table[key]
