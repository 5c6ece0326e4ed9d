"""Recovery of a member that may have forgotten its vote. After Viewstamped Replication Revisited, section 4.3.

A member whose disk holds no term file may be new, or may have forgotten its votes and acknowledgements. Until it knows which,
it is a newcomer: it grants no vote, opens no election, and its acknowledgements do not count. It may vote when
- every other member answers that it has no past either: then there was no election, because a candidate has a past; or
- every other member has reported its term, and the leader of the newest of these terms has caught it up to the commit index
  that this leader had when it was asked. A member for which this one may have voted is in the term of that vote or a later one,
  and has reported it; an entry that this member may have acknowledged was committed by leaders of terms not above that, so the
  newest leader had it committed with its no-op. In the term in which it is caught up its vote counts as given.

If the members change meanwhile (dledger.raft.raft has the rule), the members of the committed list in this member's log must
answer. A member outside that list is missing the list's entry, so it can win no newer term.

The leader forgets what a former life of the newcomer acknowledged: each life has a `session`, which pushes carry and their
answers echo.

A member whose disk was set back to an earlier image of itself has forgotten the same (dledger.raft.startnumbers finds it out),
and becomes a newcomer that has a log.

Invariant: a member that may vote becomes a newcomer again only if its disk was set back.

`DiskFreshnessCheck` decides whether a member that has started may count. The others must answer that they know no newer disk
of it.

The answers of a majority, with this member, are enough, because no election succeeds without them. But each other reachable
member is waited for, up to the shortest election timeout, so that the first answers do not hide one that knows better.

Invariant: only `begin` forgets an answer. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from dledger.raft.entries import NO_INDEX

SESSION_MAX = (1 << 53) - 1
NO_SESSION = 0


class RejoinState:
    """`session` distinguishes this life of a newcomer from others; `peers` are all other voters."""

    def __init__(self, peers: Iterable[str], *, newcomer: bool, session: int, set_back: bool = False) -> None:
        self.newcomer = newcomer
        self.set_back = set_back
        """Whether its disk was found to be an older image, so that it has a past."""
        self.session = session
        self.answered_by: set[str] = set()
        self.unanswered = set(peers)
        """The voters that have not answered in this life."""
        self.group_has_past = False
        self.admission: tuple[int, int] | None = None
        """The term of the admitting leader, and the index that this member must hold."""

    def answered(self, peer: str, *, has_past: bool, term: int, admits: int) -> None:
        """`admits` is the commit index of `peer`, if it led in `term` and might serve; else NO_INDEX."""
        self.answered_by.add(peer)
        self.unanswered.discard(peer)
        self.group_has_past = self.group_has_past or has_past
        if admits != NO_INDEX and (self.admission is None or self.admission[0] < term):
            self.admission = (term, admits)

    def voters_changed(self, peers: Iterable[str]) -> None:
        """Takes the other voters of a new configuration."""
        self.unanswered = set(peers) - self.answered_by

    @property
    def group_is_new(self) -> bool:
        return not self.unanswered and not self.group_has_past

    def is_caught_up(self, term: int, held_index: int) -> bool:
        """Whether the leader of `term`, the present one, has caught up this member, which holds the committed entries up to
        `held_index`."""
        if self.unanswered or self.admission is None:
            return False
        admitted_in, index = self.admission
        return admitted_in == term and index <= held_index


class DiskFreshnessCheck:
    """The check of one start; members that do not answer are waited for `wait_ms`."""

    def __init__(self, now_ms: int, wait_ms: int) -> None:
        self._wait_ms = wait_ms
        self.begin(now_ms)

    def begin(self, now_ms: int) -> None:
        self.due_ms = now_ms
        """When to ask the others next."""
        self._begun_ms = now_ms
        self._vouching: set[str] = set()
        self._unreached: set[str] = set()

    def vouched(self, peer: str) -> None:
        """`peer` knows no newer disk of this member."""
        self._vouching.add(peer)

    def unreached(self, peer: str) -> None:
        self._unreached.add(peer)

    def has_vouched(self, peer: str) -> bool:
        return peer in self._vouching

    def is_enough(self, voters: Collection[str], quorum: int, now_ms: int) -> bool:
        """Whether enough of the other `voters` have vouched."""
        vouching = self._vouching.intersection(voters)
        if len(vouching) < quorum - 1:
            return False
        waited = now_ms - self._begun_ms >= self._wait_ms
        return waited or vouching | self._unreached >= set(voters)
