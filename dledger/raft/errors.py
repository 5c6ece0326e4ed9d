"""Errors of proposals and reads, and errors that keep a member from starting.

Invariant: only after OutcomeUnknown a proposal may still take effect."""

from __future__ import annotations

from enum import Enum


class NotLeader(Exception):
    """This member does not lead, does not serve yet, or could not prove in time that it leads. Nothing was appended.

    `leader_id` and `leader_address` are those of the leader that this member knows, or None."""

    def __init__(self, leader_id: str | None, leader_address: str | None) -> None:
        super().__init__(f"the leader is {leader_id or 'unknown'} {leader_address or ''}".rstrip())
        self.leader_id = leader_id
        self.leader_address = leader_address


class TooManyProposals(Exception):
    """`pending_proposals_max` entries or `pending_bytes_max` bytes already wait. Nothing was appended; try again later."""


class EntryRefused(Exception):
    """Raised by a state machine in `apply` for an entry that it refuses. The entry is committed and stays in the log. The
    proposer gets this error among the results, and the next entry is applied."""


class CallbackFailed(Exception):
    """The callback `name` of the embedding program (of its state machine or an observer) broke a rule. This member ends,
    because the state may be half changed."""

    def __init__(self, name: str, what: str) -> None:
        super().__init__(f"{name} {what}")
        self.name = name
        self.what = what


class IndexOutOfRange(Exception):
    """Entry `index` is not available here: the log begins at `first` and is committed up to `committed`. Later entries are not
    returned, because they may be cut. Ask the leader for this entry, or ask for an available entry."""

    def __init__(self, index: int, first: int, committed: int) -> None:
        held = f"has entries {first} to {committed}" if first <= committed else "is empty"
        super().__init__(f"there is no committed entry {index} here; this member's log {held}")
        self.index = index
        self.first = first
        self.committed = committed


class OutcomeUnknown(Exception):
    """The entries were appended here, and then the leadership was lost, the disk failed or the time ran out. They may be
    committed or cut."""


EMPTY_AND_RESTART = (
    "this disk lost or changed it: once a majority of the other members runs, stop this one, move its folder away, of a "
    "Raft-mode broker all of storePathRootDir, and start it empty; it gets the log from them"
)


class LogDamaged(Exception):
    """The data files contradict what was durable. They are not repaired automatically. Make sure that a majority of the other
    members is healthy; only then remove this member's folder and start the member empty."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"{where}: {why}")
        self.where = where
        self.why = why


class EntryUnreadable(LogDamaged):
    """Entry `index` or its index unit is corrupt, or the entry does not continue the check value of the entry before. In the
    last case the entry before may be corrupt."""

    def __init__(self, where: str, index: int) -> None:
        super().__init__(
            where,
            f"entry {index}, which was durable, or its index unit cannot be read; stop this member and remove its folder "
            "index, which it rebuilds: if it still ends like this, its data is damaged",
        )
        self.index = index


class EntryMisplaced(Exception):
    """Entry `index`, or a log that begins with it, has `position` as its position in the data files, but would get position
    `wanted` here. Readers that use positions would not find the entry, so it was not written."""

    def __init__(self, index: int, position: int, wanted: int) -> None:
        super().__init__(
            f"entry {index} is at {position} in the leader's log, and would be at {wanted} in this member's: give all "
            "members the same mappedFileSizeCommitLog, or, if they have that, empty this member's store and start it again"
        )
        self.index = index
        self.position = position
        self.wanted = wanted


class SnapshotUnknown(Exception):
    """A snapshot has a form that this version cannot read. Nothing is lost: a version that can read the snapshot continues from
    it."""

    def __init__(self, found: str, known: str) -> None:
        super().__init__(
            f"{found}, and this version reads {known}; a newer version wrote it: start this member with that one"
        )
        self.found = found
        self.known = known


class SnapshotDamaged(Exception):
    """A snapshot file is corrupt."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(
            f"{where}: {why}; move this member's folder away and start it empty, once a majority of the others is healthy: it "
            "gets a snapshot from the leader"
        )
        self.where = where


class MembersChanged(Exception):
    """The list of members has other ids than the list with which this member voted. Two lists have two majorities, so there
    could be two leaders."""

    def __init__(self, where: str, recorded: str, listed: str) -> None:
        super().__init__(
            f"{where}: this member voted as one of {recorded}, and its list of members (controllerDLegerPeers, of Raft mode "
            f"dLegerPeers) names {listed}; correct the list. To change the group for good, stop all of its members, give all "
            "the same list and remove the line members= from this file of each"
        )
        self.recorded = recorded
        self.listed = listed


class RefusalReason(Enum):
    """The reason to refuse a change of the members."""

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
    """A change of the members was refused. Nothing was appended."""

    def __init__(self, why: RefusalReason, what: str) -> None:
        super().__init__(what)
        self.why = why


class MembersUnknown(Exception):
    """A list of members has a form that this version cannot read."""

    def __init__(self, found: str) -> None:
        super().__init__(f"{found}; a newer version wrote it: start this member with that one")


class LogOfAnother(Exception):
    """The store folder has the log of another member and no log of this member. This member would start from nothing: it would
    forget the votes that it gave, and if disks were exchanged, two members would be empty."""

    def __init__(self, own: str, found: str) -> None:
        super().__init__(
            f"the store folder holds {found}, which is another member's, and no {own}; mount this member's own disk, "
            "correct its id, or name an empty store folder if its own is lost"
        )
        self.own = own
        self.found = found
