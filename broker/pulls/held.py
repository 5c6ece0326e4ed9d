"""Held pulls, which found no message and wait for the next message of their queue. Upstream: PullRequestHoldService.

Invariant: a held pull is in the table of its queue until it is taken out, exactly once: by a message that arrives, by its
deadline, or by the end of its connection. A caller may also take out all pulls together and answer them one by one. The number
of held pulls is limited, including pulls that such a caller has not received yet; beyond the limit a pull is answered at once.
The number for one connection is limited too, and the size of the filters that pulls bring. The end of a connection costs no
more than the pulls that it held."""

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
"""Limit for one connection: a client has one held pull for each queue that it reads, for each of its groups."""
FREE_CHARACTERS = 64
CHARACTERS_MAX = 4 << 20
"""Limit of the texts of filters, beyond the first FREE_CHARACTERS of each. A filter takes 10 to 110 times as much."""
STALE_MAX = 64  # limit of answered pulls in the heap of deadlines, in addition to the held pulls


@dataclass(slots=True, eq=False)
class HeldPull:
    """A pull that is answered at `deadline_ms` (monotonic) at the latest. `request.offset` is the next offset to read."""

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
        self._characters = 0
        self._leaving = 0
        """The number of pulls that `release_all` took out and has not returned yet."""
        self._order = 0

    def __len__(self) -> int:
        return self._count + self._leaving

    def is_full(self, request: PullRequest) -> bool:
        """Whether there is no room for one more pull, or for this pull's filter."""
        characters = _counted(request)
        too_long = characters > 0 and self._characters + characters > CHARACTERS_MAX
        return len(self) >= self._count_max or too_long

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
        self._characters += _counted(pull.request)

    def waiting(self, queue: Queue, next_offset: int) -> list[HeldPull]:
        """The pulls of `queue` that wait for messages below `next_offset`. They stay held."""
        held = self._by_queue.get(queue)
        return [pull for pull in held if pull.request.offset < next_offset] if held else []

    def is_waited_for(self, queue: Queue) -> bool:
        return queue in self._by_queue

    def holds(self, pull: HeldPull) -> bool:
        """Whether the pull is held. False once it was taken out, even if it was not returned to the caller yet."""
        return pull in self._by_queue.get(pull.request.queue, ())

    def queues(self) -> list[Queue]:
        """Every queue with held pulls."""
        return list(self._by_queue)

    def release(self, pull: HeldPull) -> bool:
        """Take a pull out. Returns False if it was taken out before."""
        if pull.done:
            return False
        pull.done = True
        _take_out(self._by_queue, pull.request.queue, pull)
        _take_out(self._by_peer, pull.peer, pull)
        self._count -= 1
        self._characters -= _counted(pull.request)
        if len(self._deadlines) > 2 * self._count + STALE_MAX:
            self._deadlines = [entry for entry in self._deadlines if not entry[2].done]
            heapq.heapify(self._deadlines)
        return True

    def release_expired(self, now_ms: int) -> Iterator[HeldPull | None]:
        """Take out the pulls whose deadline is over at `now_ms`, each when the iterator reaches it. Yields None for a pull that
        was taken out before."""
        while self._deadlines and (self._deadlines[0][0] <= now_ms or self._deadlines[0][2].done):
            pull = heapq.heappop(self._deadlines)[2]
            yield pull if self.release(pull) else None

    def release_all(self) -> Iterator[HeldPull]:
        """Take out all pulls at once. They are returned one by one, in order within a queue; no other caller finds them any
        more. Taking them out costs as little as taking out a few."""
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
                self._characters -= _counted(pull.request)
                yield pull

    def release_of(self, peer: Peer) -> None:
        """Drop the pulls of a connection that ended."""
        for pull in list(self._by_peer.get(peer, ())):
            self.release(pull)


def _counted(request: PullRequest) -> int:
    return max(request.characters - FREE_CHARACTERS, 0)


def _take_out(table: dict[K, dict[HeldPull, None]], key: K, pull: HeldPull) -> None:
    held = table[key]
    del held[pull]
    if not held:
        del table[key]
