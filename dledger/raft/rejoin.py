"""Recovery of a member that may have forgotten its vote. After Viewstamped Replication Revisited, section 4.3.

A member without a term file on its disk (found by dledger/storage/store.py) may be new, or may have forgotten its votes and
acknowledgements. Until it knows which, the member is a newcomer: it grants no vote, opens no election, and its acknowledgements
do not count. It may vote in one of two cases:
- Every other voter answers that it has no past either. Then there was no election, because a candidate has a past.
- Every other voter has reported its term, and the leader of the newest of these terms has caught up the newcomer to the
  leader's commit index at the time of the request. The vote that the newcomer may have forgotten is in the term that its
  receiver reported, or in an older term. An entry that the newcomer may have acknowledged was committed by a leader of such a
  term, so the newest leader has this entry committed with its no-op. In the term in which the newcomer is caught up its vote
  counts as given.

If the members change meanwhile (dledger.raft.raft has the rule), the members of the committed list in the newcomer's log must
answer. A member outside this list is missing the list's entry, so it can win no newer term.

The leader forgets what a former life of the newcomer acknowledged. Each life has a `session`; PUSHes carry it, and their
answers echo it.

A member whose disk was set back to an earlier image has forgotten votes and acknowledgements too (dledger.raft.startnumbers
detects this). It becomes a newcomer with a log.

`DiskFreshnessCheck` decides whether a member that has started may count: the other members must answer that they know no newer
disk of this member. The answers of a majority, this member included, are enough, because no election succeeds without a
majority. But the check waits for each other reachable member, up to the shortest election timeout, in case a later answer names
a newer disk.

Invariant: a member that may vote becomes a newcomer again only if its disk was set back. Only `DiskFreshnessCheck.begin`
forgets an answer. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from dledger.raft.entries import NO_INDEX

SESSION_MAX = (1 << 53) - 1
NO_SESSION = 0


class RejoinState:
    """The recovery of one member. `session` distinguishes this life of a newcomer from its other lives. `peers` are all other
    voters."""

    def __init__(self, peers: Iterable[str], *, newcomer: bool, session: int, set_back: bool = False) -> None:
        self.newcomer = newcomer
        self.set_back = set_back
        """Whether the member's disk was found to be an older image, so that the member has a past."""
        self.session = session
        self.answered_by: set[str] = set()
        self.unanswered = set(peers)
        """The voters that have not answered in this life."""
        self.group_has_past = False
        self.admission: tuple[int, int] | None = None
        """The term of the admitting leader, and the index up to which this member must hold the log."""

    def answered(self, peer: str, *, has_past: bool, term: int, admits: int) -> None:
        """Handles the answer of `peer`. `admits` is the commit index of `peer`, if `peer` led in `term` and might serve; else
        NO_INDEX."""
        self.answered_by.add(peer)
        self.unanswered.discard(peer)
        self.group_has_past = self.group_has_past or has_past
        if admits != NO_INDEX and (self.admission is None or self.admission[0] < term):
            self.admission = (term, admits)

    def voters_changed(self, peers: Iterable[str]) -> None:
        """Sets the other voters to those of a new configuration."""
        self.unanswered = set(peers) - self.answered_by

    @property
    def group_is_new(self) -> bool:
        return not self.unanswered and not self.group_has_past

    def is_caught_up(self, term: int, held_index: int) -> bool:
        """Whether the leader of `term`, the present term, has caught up this member. The member holds the committed entries up
        to `held_index`."""
        if self.unanswered or self.admission is None:
            return False
        admitted_in, index = self.admission
        return admitted_in == term and index <= held_index


class DiskFreshnessCheck:
    """The check at one start. It waits at most `wait_ms` for members that do not answer."""

    def __init__(self, now_ms: int, wait_ms: int) -> None:
        self._wait_ms = wait_ms
        self.begin(now_ms)

    def begin(self, now_ms: int) -> None:
        self.due_ms = now_ms
        """The time at which the other members should be asked next."""
        self._begun_ms = now_ms
        self._vouching: set[str] = set()
        self._unreached: set[str] = set()

    def vouched(self, peer: str) -> None:
        """Called when `peer` knows no newer disk of this member."""
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
