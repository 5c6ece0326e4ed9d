"""Why a proposal or a read did not succeed, and why a member does not start.

Invariant: OutcomeUnknown is the only one after which a proposal may still take effect."""

from __future__ import annotations

from enum import Enum


class NotLeader(Exception):
    """This member does not lead, does not serve yet, or could not prove in time that it leads; nothing was
    appended.

    `leader_id` and `leader_address` are its newest guess of who does, or None."""

    def __init__(self, leader_id: str | None, leader_address: str | None) -> None:
        super().__init__(f"the leader is {leader_id or 'unknown'} {leader_address or ''}".rstrip())
        self.leader_id = leader_id
        self.leader_address = leader_address


class TooManyProposals(Exception):
    """`pending_proposals_max` entries or `pending_bytes_max` bytes of them wait already; nothing was appended, try again
    later."""


class EntryRefused(Exception):
    """A state machine's word, raised in `apply`, for an entry that it does not want. The entry is decided and stays in the log;
    its proposer gets this among the results, and the next entry is applied."""


class CallbackFailed(Exception):
    """What the embedding program gave to call as `name`, of its state machine or an observer, did what it must not. This member
    ends: the state may be half changed."""

    def __init__(self, name: str, what: str) -> None:
        super().__init__(f"{name} {what}")
        self.name = name
        self.what = what


class IndexOutOfRange(Exception):
    """Entry `index` is not to be had here: the log begins at `first` and is decided up to `committed`. Behind that nothing is
    shown, for it may vanish; ask the leader, or for what is there."""

    def __init__(self, index: int, first: int, committed: int) -> None:
        held = f"has entries {first} to {committed}" if first <= committed else "is empty"
        super().__init__(f"there is no decided entry {index} here; this member's log {held}")
        self.index = index
        self.first = first
        self.committed = committed


class OutcomeUnknown(Exception):
    """The entries were appended here, and then leadership, the disk or the time ran out: they may be
    decided or vanish."""


EMPTY_AND_RESTART = (
    "this disk lost or changed it: once a majority of the other members runs, stop this one, move its folder away, of a "
    "Raft-mode broker all of storePathRootDir, and start it empty; it gets the log from them"
)


class LogDamaged(Exception):
    """The data files contradict what was durable. Not repaired by itself: remove this member's folder only
    after making sure that a majority of the others is healthy, then start it empty."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"{where}: {why}")
        self.where = where
        self.why = why


class EntryUnreadable(LogDamaged):
    """Entry `index` is not as it was written, or its index unit is not; or its check value goes on from another one than the
    entry before has, which then may be the one that rotted."""

    def __init__(self, where: str, index: int) -> None:
        super().__init__(
            where,
            f"entry {index}, which was durable, or its index unit cannot be read; stop this member and remove its folder "
            "index, which it makes anew: if it still ends like this, its data is damaged",
        )
        self.index = index


class EntryMisplaced(Exception):
    """Entry `index`, or a log that begins with it, says that it stands at `position` of the data files, and its place here is
    `wanted`: whoever names it by its position would not find it. It was not written."""

    def __init__(self, index: int, position: int, wanted: int) -> None:
        super().__init__(
            f"entry {index} stands at {position} in the leader's log, and would stand at {wanted} in this member's: give all "
            "members the same mappedFileSizeCommitLog, or, if they have that, empty this member's store and start it again"
        )
        self.index = index
        self.position = position
        self.wanted = wanted


class SnapshotUnknown(Exception):
    """A snapshot is of a form that this version cannot read. Nothing is lost: a version that can goes on from it."""

    def __init__(self, found: str, known: str) -> None:
        super().__init__(
            f"{found}, and this version reads {known}; a newer version wrote it: start this member with that one"
        )
        self.found = found
        self.known = known


class SnapshotDamaged(Exception):
    """A snapshot file is not as it was written."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(
            f"{where}: {why}; move this member's folder away and start it empty, once a majority of the others is healthy: it "
            "gets a snapshot from the leader"
        )
        self.where = where


class MembersChanged(Exception):
    """The list of members has other ids than the one with which this member voted: two lists have two majorities, and so two
    leaders."""

    def __init__(self, where: str, recorded: str, listed: str) -> None:
        super().__init__(
            f"{where}: this member voted as one of {recorded}, and its list of members (controllerDLegerPeers, of Raft mode "
            f"dLegerPeers) names {listed}; correct the list. To change the group for good, stop all of its members, give all "
            "the same list and remove the line members= from this file of each"
        )
        self.recorded = recorded
        self.listed = listed


class Why(Enum):
    """Why a change of the members is not made."""

    ID_TAKEN = "ID_TAKEN"
    ADDRESS_TAKEN = "ADDRESS_TAKEN"
    BAD_ADDRESS = "BAD_ADDRESS"
    BAD_ID = "BAD_ID"
    UNKNOWN_ID = "UNKNOWN_ID"
    VOTES_ALREADY = "VOTES_ALREADY"
    LAST_VOTER = "LAST_VOTER"
    LEADS = "LEADS"
    NOT_BEGUN = "NOT_BEGUN"
    HANDING_OVER = "HANDING_OVER"
    UNDER_WAY = "UNDER_WAY"
    NOT_LEVEL = "NOT_LEVEL"
    TOO_FEW = "TOO_FEW"
    OLD_MEMBER = "OLD_MEMBER"


class ChangeRefused(Exception):
    """The group's members stay as they are: nothing was appended."""

    def __init__(self, why: Why, what: str) -> None:
        super().__init__(what)
        self.why = why


class MembersUnknown(Exception):
    """A list of members is of a form that this version cannot read."""

    def __init__(self, found: str) -> None:
        super().__init__(f"{found}; a newer version wrote it: start this member with that one")


class LogOfAnother(Exception):
    """The store folder has the log of another member and none of this one, which would begin anew beside it: without the votes
    that it has given, and as one of two emptied members where disks were exchanged."""

    def __init__(self, own: str, found: str) -> None:
        super().__init__(
            f"the store folder holds {found}, which is another member's, and no {own}; mount this member's own disk, "
            "correct its id, or name an empty store folder if its own is lost"
        )
        self.own = own
        self.found = found
