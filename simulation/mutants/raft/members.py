"""Bugs planted into changes of a group's members, in addition to those of simulation.mutants.raft.bugs.

Invariant: each bug removes one rule, and the product's assertions of that rule."""

from __future__ import annotations

from collections.abc import Mapping

from dledger.node.authenticator import MessageRefusal, PeerAuthenticator, TheirList
from dledger.node.node import DLedgerNode
from dledger.raft.actions import Action, Role
from dledger.raft.errors import ChangeRefused, NotLeader, RefusalReason
from dledger.raft.leader import LeaderState
from dledger.raft.membership import (
    Change,
    ConfigurationAt,
    ConfigurationHistory,
    Members,
    RaftMembership,
    encode_members,
    listed,
)
from dledger.raft.newermembers import NewerMembers
from dledger.raft.progress import Progress
from dledger.raft.raft import Raft
from dledger.storage.store import Recovered, Store
from simulation.kernel.plants import Bugs

EXCUSED = {
    "change-before-its-own-entry": RefusalReason.NOT_BEGUN,
    "two-changes-at-once": RefusalReason.UNDER_WAY,
    "leader-leaves-itself-out": RefusalReason.LEADS,
}
"""Planted bug -> the rejection that is ignored."""


def plant_members_bugs(bugs: Bugs) -> None:
    bug = bugs.playing("changes")

    changed = RaftMembership._changed
    turned = Raft.actions

    @bug("members-when-committed", RaftMembership, "_changed")
    def members_when_committed(self: RaftMembership, changed: bool) -> bool:
        """A member uses a configuration only once it is committed."""
        return False

    @bug("members-when-committed", Raft, "actions")
    def members_when_committed_2(self: Raft) -> list[Action]:
        history, membership = self.membership.history, self.membership
        configuration = history.up_to(self.committed_index)
        if configuration is not None and configuration[0] != membership.index:
            later = history.span(configuration[0], 1 << 62)
            history.restart([configuration])
            changed(membership, True)
            history.restart(later)
            self.members_changed()
        return turned(self)

    @bug("learner-counts", LeaderState, "voting")
    def learner_counts(self: Raft) -> dict[str, Progress]:
        return dict(self.progress)

    @bugs.bug("promoted-though-it-counts-for-nothing", LeaderState, "lag")
    def of_whatever_counts(self: LeaderState, peer: str) -> int | None:
        """A learner that holds all entries but may not vote yet is promoted, so there is one voter less than it seems."""
        if not self.recently_active(peer):
            return None
        return max(0, self._member.committed_index - self.progress[peer].match_index)

    opened = Store.open

    @bugs.bug("lists-before-the-commit-index-forgotten", Store, "open", plays=("changes", "positions"))
    async def what_is_in_force_suffices(self: Store) -> Recovered:
        """A start keeps the present list of members but no earlier list. So a log that begins at an older entry has no list."""
        found = await opened(self)
        self.history.forget(self.committed_index)
        return found

    needed = PeerAuthenticator.needs_confirmation

    @bug("former-member-not-vouched", PeerAuthenticator, "needs_confirmation")
    def former_member_not_vouched(self: PeerAuthenticator, sender: str, theirs: TheirList) -> bool:
        """If a leader was removed and added again, a member that was away meanwhile does not ask for it."""
        return sender not in self._before and needed(self, sender, theirs)

    judged = PeerAuthenticator._judge_changed

    @bugs.bug("made-up-list-believed", PeerAuthenticator, "_judge_changed", plays=("forge",))
    def made_up_list_believed(
        self: PeerAuthenticator, sender: str, theirs: TheirList
    ) -> MessageRefusal | None:
        """R11: a newer list that only its sender shows makes the sender a member."""
        if needed(self, sender, theirs):
            self._newer._addresses[sender] = listed(theirs.text)[sender]
        return judged(self, sender, theirs)

    @bug("confirmed-for-ever", NewerMembers, "at")
    def confirmed_for_ever(self: NewerMembers, now_ms: int) -> Mapping[str, str]:
        """A member that was confirmed and then removed is still believed by a member that is behind."""
        return self._addresses

    @bug("cut-members-stay", ConfigurationHistory, "cut")
    def cut_members_stay(self: ConfigurationHistory, index: int) -> bool:
        """A member still uses a configuration whose entry was truncated."""
        return False

    @bug("removed-member-is-a-candidate", Raft, "promotable")
    def removed_member_is_a_candidate(self: Raft) -> bool:
        return self.counts and self.now_ms >= self.elections_suppressed_until_ms

    @bug("snapshot-forgets-members", RaftMembership, "at")
    def snapshot_forgets_members(self: RaftMembership, index: int) -> tuple[ConfigurationAt, ...]:
        return ()

    @bug("checkpoint-forgets-members", ConfigurationHistory, "span")
    def checkpoint_forgets_members(
        self: ConfigurationHistory, decided: int, last: int
    ) -> list[ConfigurationAt]:
        """A start ignores configurations that it has not read."""
        return []

    for name, passed_over in EXCUSED.items():
        plant_excuse(bugs, name, passed_over)


def plant_excuse(bugs: Bugs, name: str, passed_over: RefusalReason) -> None:
    """A leader makes a change that it must reject."""

    @bugs.bug(name, DLedgerNode, "change_members")
    async def nevertheless(self: DLedgerNode, change: Change, timeout_ms: int = 3000) -> ConfigurationAt:
        core = self.core
        if core is None or self._closed or core.role is not Role.LEADER:
            raise NotLeader(None, None)
        try:
            members = core.next_members(change, self.guard.knows_changes)
        except ChangeRefused as refusal:
            if refusal.why is not passed_over:
                raise
            members = change.of(core.membership.members)
        self._take(lambda now_ms: core.reconfigure(members, now_ms))
        return core.membership.index, members

    @bugs.bug(name, Raft, "reconfigure")
    def without_asking(self: Raft, members: Members, now_ms: int) -> list[Action]:
        self.now_ms = now_ms
        assert self.leader is not None
        self.leader.append([encode_members(members)])
        return self.actions()
