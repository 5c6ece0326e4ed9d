"""What is under way to one follower: PUSHes one behind the other, or a part of a snapshot.

Invariant: each belongs to a call whose end, an answer or a failure, is still to be told. They stand in the order in which they
went out, and the entries of each follow those of the one before. Pure."""

from __future__ import annotations

from collections import deque

from dledger.raft.messages import InstallRequest, InstallResponse, PushRequest, PushResponse
from dledger.raft.settings import DLedgerSettings


class InFlight:
    """Empty at first."""

    def __init__(self) -> None:
        self._requests: deque[tuple[PushRequest | InstallRequest, int]] = deque()
        self.size = 0
        """Bytes of all bodies."""
        self.waits_since_ms = 0
        """When the oldest went out, or the one before it was answered: they are carried one after the other."""
        self.newest_ms = 0
        """When the newest went out."""

    def __len__(self) -> int:
        return len(self._requests)

    @property
    def requests(self) -> tuple[PushRequest | InstallRequest, ...]:
        return tuple(request for request, _ in self._requests)

    def add(self, request: PushRequest | InstallRequest, size: int, now_ms: int) -> None:
        if not self._requests:
            self.waits_since_ms = now_ms
        self.newest_ms = now_ms
        self._requests.append((request, size))
        self.size += size

    def has_room(self, limits: DLedgerSettings, everywhere: int) -> bool:
        """Whether one more may go out beside those that are: `everywhere` are the bytes under way to all followers."""
        most = limits.push_bytes_max
        return (
            len(self._requests) < limits.pushes_in_flight_max
            and self.size + most <= limits.bytes_in_flight_max
            and everywhere + most <= limits.all_bytes_in_flight_max
        )

    def proven(self, end_index: int, now_ms: int) -> None:
        """The follower holds all up to there, whichever answer said so."""
        while self._requests:
            request, size = self._requests[0]
            if not isinstance(request, PushRequest) or end_of(request) > end_index:
                break
            self._requests.popleft()
            self.size -= size
            self.waits_since_ms = now_ms

    def asked(self, response: PushResponse | InstallResponse) -> bool:
        """Whether it is the answer to one of these, as far as it tells."""
        return any(answers(response, request) for request, _ in self._requests)

    def has(self, request: PushRequest | InstallRequest) -> bool:
        return any(request is one for one, _ in self._requests)

    def begin(self, otherwise: int) -> int:
        """The first entry of the oldest PUSH, or, of one without entries, what follows; `otherwise` where there is no PUSH."""
        oldest = self._requests[0][0] if self._requests else None
        return oldest.prev_index + 1 if isinstance(oldest, PushRequest) else otherwise

    def clear(self) -> None:
        self._requests.clear()
        self.size = 0


def end_of(push: PushRequest) -> int:
    """What the follower holds that accepts it."""
    return push.prev_index + len(push.entries)


def answers(response: PushResponse | InstallResponse, request: PushRequest | InstallRequest) -> bool:
    if isinstance(request, PushRequest):
        return isinstance(response, PushResponse) and response.answers(request)
    return isinstance(response, InstallResponse) and response.index == request.index
