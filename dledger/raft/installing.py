"""A snapshot on its way from a leader, whose log begins behind what a follower lacks, to that follower [5].

Invariant: a follower takes a snapshot whole, once its check value is right, or not at all; it replaces a log only where that
does not hold the snapshot's last entry, which is decided: then nothing in it that is decided is missing from the snapshot. One
chunk is under way to a follower at a time. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol
from zlib import crc32

from dledger.raft.entries import NO_INDEX, NO_TERM, Entry
from dledger.raft.log import RaftLog
from dledger.raft.membership import Membership, decode_stated
from dledger.raft.messages import InstallRequest, InstallResponse, PushRequest, ResultCode
from dledger.raft.settings import DLedgerSettings
from dledger.raft.snapshot import Snapshot
from dledger.raft.turn import Turn
from dledger.raft.unsynced import Unsynced


@dataclass(frozen=True, slots=True)
class Chunk:
    """Bytes of a snapshot from `offset` on, and which it is."""

    index: int
    index_term: int
    size: int
    check: int
    offset: int
    data: bytes
    members: str = ""
    """Who belonged to the group there (`dledger.raft.membership.encode_stated`)."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Nothing: the disk does not have entry `index` as it was written."""

    index: int


Loaded = Sequence[Entry] | Chunk | Unreadable
"""What was read for a follower: entries, or a part of a snapshot."""


class Arriving:
    """The part of a snapshot that has come."""

    def __init__(self) -> None:
        self._of: tuple[int, int, int, int] | None = None
        self._data = bytearray()
        self._check = 0

    def take(self, request: InstallRequest) -> int:
        """How many bytes are here now: what follows them is wanted next."""
        snapshot = request.index, request.index_term, request.size, request.check
        if self._of != snapshot:
            self.forget()
            self._of = snapshot
        if request.offset == len(self._data):
            self._data += request.data
            self._check = crc32(request.data, self._check)
        return len(self._data)

    def complete(self) -> bytearray | None:
        """All of it; None where its check value is wrong. Either way it is forgotten."""
        assert self._of is not None
        state = self._data if self._check == self._of[3] else None
        self.forget()
        return state

    def forget(self) -> None:
        self._of, self._check = None, 0
        self._data = bytearray()


class Follower(Protocol):
    """What of a member is asked and changed here."""

    term: int
    log: RaftLog
    disk: Unsynced
    turn: Turn
    settings: DLedgerSettings
    committed_index: int
    arriving: Arriving
    membership: Membership

    @property
    def counts(self) -> bool: ...

    def members_changed(self) -> None: ...

    def follow(self, sender: str, term: int) -> ResultCode: ...


def on_install(member: Follower, leader: str, request: InstallRequest, known: bool) -> InstallResponse:
    """Takes a chunk; the last one replaces the log, unless that holds what the snapshot ends with."""
    code = member.follow(leader, request.term) if known else ResultCode.UNKNOWN_MEMBER
    held = 0
    if code is ResultCode.SUCCESS:
        code, held = take(member, request)
    return InstallResponse(member.term, code, request.index, held, request.session, not member.counts)


def take(member: Follower, request: InstallRequest) -> tuple[ResultCode, int]:
    index = request.index
    if index <= member.committed_index or member.log.matches(index, request.index_term):
        member.committed_index = max(member.committed_index, index)
        member.arriving.forget()
        return ResultCode.SUCCESS, request.size
    if request.size > member.settings.snapshot_bytes_max:
        return ResultCode.UNEXPECTED_ARGUMENT, 0
    held = member.arriving.take(request)
    if held < request.size:
        return ResultCode.SUCCESS, held
    state = member.arriving.complete()
    if state is None:
        return ResultCode.INCONSISTENT_STATE, 0
    stated = decode_stated(f"the snapshot that ends with entry {index}", request.members)
    begin_behind(member, Snapshot(index, request.index_term, state, stated=stated))
    return ResultCode.SUCCESS, held


def begin_behind(member: Follower, snapshot: Snapshot) -> None:
    """The disk is known to have what was decided before, until it has the snapshot."""
    member.disk.cut(member.committed_index + 1)
    member.log.restart(snapshot.last_index, snapshot.last_term)
    member.membership.restart(snapshot.stated)
    member.members_changed()
    member.committed_index = snapshot.last_index
    member.turn.snapshot = snapshot


def beyond_begin(push: PushRequest, log: RaftLog) -> PushRequest | None:
    """The part of `push` behind where `log` begins: what is before is decided, and so the same here. None where `push` says
    otherwise."""
    behind = log.prev_index - push.prev_index
    if behind <= 0:
        return push
    gone = push.entries[:behind]
    if len(gone) == behind and gone[-1].term != log.term_at(log.prev_index):
        return None
    return replace(
        push, prev_index=log.prev_index, prev_term=log.term_at(log.prev_index), entries=push.entries[behind:]
    )


@dataclass(slots=True)
class Install:
    """What a leader knows of the snapshot that a follower is sent."""

    index: int = NO_INDEX
    """Its last entry; NO_INDEX: whichever is the newest."""
    index_term: int = NO_TERM
    size: int = 0
    offset: int = 0
    """So much of it the follower has."""

    def begin(self, chunk: Chunk, term: int, session: int) -> InstallRequest:
        """What goes out with `chunk`, which may be the first one of a newer snapshot."""
        self.index, self.index_term, self.size, self.offset = (
            chunk.index,
            chunk.index_term,
            chunk.size,
            chunk.offset,
        )
        return InstallRequest(
            term,
            chunk.index,
            chunk.index_term,
            chunk.size,
            chunk.check,
            chunk.offset,
            chunk.data,
            session,
            chunk.members,
        )

    def answered(self, response: InstallResponse) -> bool:
        """Whether the follower has all of it."""
        if response.index != self.index:
            return False
        self.offset = response.offset
        return response.offset >= self.size
