"""What a leader makes of a wish to change the group's members.

Invariant: nothing is appended that could let two majorities miss each other: a leader changes the members only once an entry
of its own term is decided and the change before is [4.1, as corrected in 2015]; or after which too few of those that vote
were heard lately to decide anything. A leader does not remove itself: it hands over first. Pure."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from dledger.raft.errors import ChangeRefused, Why
from dledger.raft.membership import Change, Members, Step

if TYPE_CHECKING:
    from dledger.raft.raft import Raft


def next_members(leader: Raft, change: Change, know_changes: Collection[str]) -> Members:
    """What is to be appended; `know_changes` can read it. Raises ChangeRefused."""
    if not leader.may_serve:
        raise ChangeRefused(Why.NOT_BEGUN, "the leader has decided nothing in its term yet; try again")
    if leader.transfer.under_way:
        raise ChangeRefused(Why.HANDING_OVER, "the leadership is being handed over; try again")
    if not leader.members_are_decided:
        index = leader.membership.index
        raise ChangeRefused(Why.UNDER_WAY, f"the change before, entry {index}, is not decided yet; try again")
    if old := [peer for peer in leader.peers if is_heard(leader, peer) and peer not in know_changes]:
        raise ChangeRefused(Why.OLD_MEMBER, f"{', '.join(old)} run a version that cannot change the members")
    members = change.of(leader.membership.members)
    if change.step is Step.REMOVE and change.member == leader.self_id:
        raise ChangeRefused(Why.LEADS, f"{leader.self_id} leads; hand its leadership over first")
    if change.step is Step.PROMOTE:
        lacks = lacking(leader, change.member)
        if lacks is None or lacks > leader.settings.push_entries_max:
            state = "was not heard, or may not vote yet" if lacks is None else f"lacks {lacks} entries"
            raise ChangeRefused(
                Why.NOT_LEVEL, f"{change.member} {state}; it stays a learner until it is level"
            )
    if change.step is not Step.ADD:
        heard = [leader.self_id, *(peer for peer in members.voters if is_heard(leader, peer))]
        if len(heard) < members.quorum:
            what = f"of {', '.join(members.voters)} a majority must answer, and only {', '.join(heard)} did lately"
            raise ChangeRefused(Why.TOO_FEW, what)
    return members


def is_heard(leader: Raft, peer: str) -> bool:
    """Lately, and its word counts."""
    since_ms = leader.now_ms - leader.settings.election_timeout_min_ms
    return peer in leader.progress and leader.progress[peer].votes_since(since_ms)


def lacking(leader: Raft, peer: str) -> int | None:
    """Entries that are decided and not held there; None where it was not heard lately, or may not vote yet."""
    if not is_heard(leader, peer):
        return None
    return max(0, leader.committed_index - leader.progress[peer].match_index)
