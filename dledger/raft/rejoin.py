"""Whether a member may vote, and what one without a past still has to learn.

A member whose disk holds no term file may be new, or may have forgotten what it voted and acknowledged. Until it knows which,
it is a newcomer: it grants no vote, opens no election, and what it acknowledges does not count. It may vote when
- every other member says that it has no past either: then there was no election, for who stands in one says so; or
- every other member has told its term, and the leader of the newest of them has caught it up to what that leader had committed
  when asked. Whoever this member can have voted for is in the term of that vote or a later one and has said so; whatever it can
  have acknowledged was decided by leaders of terms not above that, so the newest leader had it committed with its no-op. In
  the term in which it is caught up its vote counts as given.

Of members that change meanwhile (dledger.raft.admission says when) those count that the decided list names which this one
holds: who is not in it can win no term that is newer than its entry, for want of that entry.

The leader forgets what an earlier life of the newcomer acknowledged: each life has a `session`, which pushes carry and their
answers echo.

A member whose disk was set back to an earlier image of itself has forgotten the same (dledger.raft.startnumbers says how that
is known), and becomes a newcomer that has a log.

Invariant: who may vote becomes a newcomer again by that alone.

Proving: Whether a member that has started may count: the others must say that they have heard of no newer disk of it.

As many others as make a majority with it are enough, for no election succeeds without them; but each other one that can be
reached is waited for, up to the shortest election timeout, so that the first answer does not pass over one that knows better.

Invariant: nothing is taken back but by `begin`. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from dledger.raft.entries import NO_INDEX

SESSION_MAX = (1 << 53) - 1
NO_SESSION = 0


class RejoinState:
    """`session` tells this life of a newcomer from others; `peers` are all others that vote."""

    def __init__(self, peers: Iterable[str], *, newcomer: bool, session: int, set_back: bool = False) -> None:
        self.newcomer = newcomer
        self.set_back = set_back
        """Whether it has a past, and its disk was found to be an older one."""
        self.session = session
        self.heard: set[str] = set()
        self.unheard = set(peers)
        """Who has not told of its past and term in this life."""
        self.group_has_past = False
        self.admission: tuple[int, int] | None = None
        """The term of the leader that admits, and the index that this member must hold for it."""

    def answered(self, peer: str, *, has_past: bool, term: int, admits: int) -> None:
        """`admits` is what `peer` had committed, if it led in `term` and knew all that was; else NO_INDEX."""
        self.heard.add(peer)
        self.unheard.discard(peer)
        self.group_has_past = self.group_has_past or has_past
        if admits != NO_INDEX and (self.admission is None or self.admission[0] < term):
            self.admission = (term, admits)

    def must_hear(self, peers: Iterable[str]) -> None:
        """These are the others that vote."""
        self.unheard = set(peers) - self.heard

    @property
    def group_is_new(self) -> bool:
        return not self.unheard and not self.group_has_past

    def is_caught_up(self, term: int, held_index: int) -> bool:
        """Whether the leader of `term`, the own one, has caught up who holds everything decided up to `held_index`."""
        if self.unheard or self.admission is None:
            return False
        admitted_in, index = self.admission
        return admitted_in == term and index <= held_index


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
