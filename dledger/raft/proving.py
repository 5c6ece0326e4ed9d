"""Whether a member that has started may count: the others must say that they have heard of no newer disk of it.

As many others as make a majority with it are enough, for no election succeeds without them; but each other one that can be
reached is waited for, up to the shortest election timeout, so that the first answer does not pass over one that knows better.

Invariant: nothing is taken back but by `begin`. Pure."""

from __future__ import annotations

from collections.abc import Collection


class Proving:
    """Of one start; `wait_ms` is how long those are waited for that have not answered."""

    def __init__(self, now_ms: int, wait_ms: int) -> None:
        self._wait_ms = wait_ms
        self.begin(now_ms)

    def begin(self, now_ms: int) -> None:
        self.due_ms = now_ms
        """When the others are to be asked next."""
        self._begun_ms = now_ms
        self._heard: set[str] = set()
        self._unreached: set[str] = set()

    def heard(self, peer: str) -> None:
        """`peer` knows of no newer disk."""
        self._heard.add(peer)

    def unreached(self, peer: str) -> None:
        self._unreached.add(peer)

    def has_heard(self, peer: str) -> bool:
        return peer in self._heard

    def is_enough(self, voters: Collection[str], quorum: int, now_ms: int) -> bool:
        """`voters` are the others that vote."""
        heard = self._heard.intersection(voters)
        if len(heard) < quorum - 1:
            return False
        waited = now_ms - self._begun_ms >= self._wait_ms
        return waited or heard | self._unreached >= set(voters)
