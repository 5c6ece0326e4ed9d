"""A leader's knowledge of one follower, and the requests in flight to the follower: several PUSHes in a row, or a snapshot's
parts [5].

Invariants:
- each request in `in_flight`, and a `round_sent` above `read_round`, belongs to a call that will end with an answer or a
  failure; `loading` belongs to a read that will end. So nothing waits for an answer that cannot come;
- several PUSHes are in flight only after entries that the follower has proven to hold, without a gap, and within the settings'
  limits. So a stuck follower has a limited cost. Of a snapshot one part is in flight at a time;
- `match_index` moves only by answers, because sent entries prove nothing. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from dledger.raft.actions import Load, LoadChunk
from dledger.raft.entries import NO_INDEX, NO_TERM, Entries, Entry
from dledger.raft.log import RaftLog
from dledger.raft.messages import (
    HeartBeatRequest,
    HeartBeatResponse,
    InstallRequest,
    InstallResponse,
    PushRequest,
    PushResponse,
    PushType,
    Request,
    ResultCode,
)
from dledger.raft.rejoin import NO_SESSION, SESSION_MAX
from dledger.raft.settings import DLedgerSettings

FORMER_SESSIONS_MAX = 64
"""Only so many former sessions are remembered: no message of an older session is still on its way, and a broken member may
invent any number of sessions."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """The bytes of a snapshot from `offset` on, and the snapshot's identity."""

    index: int
    index_term: int
    size: int
    check: int
    offset: int
    data: bytes
    members: str = ""
    """The members of the group at the snapshot's last entry (`dledger.raft.membership.encode_configurations`)."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The result of a read if the disk does not have entry `index` as it was written."""

    index: int


Loaded = Sequence[Entry] | Chunk | Unreadable
"""The result of a read for a follower: entries, or a part of a snapshot."""


@dataclass(slots=True)
class Install:
    """The state of a snapshot that is sent to a follower."""

    index: int = NO_INDEX
    """The snapshot's last entry; NO_INDEX means the newest snapshot."""
    index_term: int = NO_TERM
    size: int = 0
    offset: int = 0
    """The number of bytes that the follower has."""

    def begin(self, chunk: Chunk, term: int, session: int) -> InstallRequest:
        """The request with `chunk`, which may be the first chunk of a newer snapshot."""
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
        """Whether the follower has the whole snapshot."""
        if response.index != self.index:
            return False
        self.offset = response.offset
        return response.offset >= self.size


class InFlight:
    """The requests in flight to one follower."""

    def __init__(self) -> None:
        self._requests: deque[tuple[PushRequest | InstallRequest, int]] = deque()
        self.size = 0
        """The number of bytes in all bodies."""
        self.waits_since_ms = 0
        """The time when the oldest request was sent, or when the request before it was answered: requests are handled one after
        the other."""
        self.newest_ms = 0
        """The time when the newest request was sent."""

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
        """Whether one more request may be sent. `everywhere` is the number of bytes in flight to all followers."""
        most = limits.push_bytes_max
        return (
            len(self._requests) < limits.pushes_in_flight_max
            and self.size + most <= limits.bytes_in_flight_max
            and everywhere + most <= limits.all_bytes_in_flight_max
        )

    def proven(self, end_index: int, now_ms: int) -> None:
        """Called when any answer proves that the follower holds the entries up to `end_index`."""
        while self._requests:
            request, size = self._requests[0]
            if not isinstance(request, PushRequest) or end_of(request) > end_index:
                break
            self._requests.popleft()
            self.size -= size
            self.waits_since_ms = now_ms

    def asked(self, response: PushResponse | InstallResponse) -> bool:
        """Whether the fields of `response` match one of these requests."""
        return any(answers(response, request) for request, _ in self._requests)

    def has(self, request: PushRequest | InstallRequest) -> bool:
        return any(request is one for one, _ in self._requests)

    def begin(self, otherwise: int) -> int:
        """The index at which the oldest PUSH in flight begins: the one after the PUSH's previous entry. Without a PUSH in
        flight, `otherwise`."""
        oldest = self._requests[0][0] if self._requests else None
        return oldest.prev_index + 1 if isinstance(oldest, PushRequest) else otherwise

    def clear(self) -> None:
        self._requests.clear()
        self.size = 0


def end_of(push: PushRequest) -> int:
    """The last entry that a follower is proven to hold once it has accepted `push`."""
    return push.prev_index + len(push.entries)


def answers(response: PushResponse | InstallResponse, request: PushRequest | InstallRequest) -> bool:
    if isinstance(request, PushRequest):
        return isinstance(response, PushResponse) and response.answers(request)
    return isinstance(response, InstallResponse) and response.index == request.index


@dataclass(slots=True)
class Progress:
    """The knowledge of one follower. `next_index` is the next entry to send. It starts after the leader's last entry, and runs
    ahead of the follower's answers."""

    next_index: int
    held_index: int = NO_INDEX
    """The follower's log is durable and equal to the leader's up to this entry."""
    match_index: int = NO_INDEX
    """The part of `held_index` that counts: all of it, unless the follower is a newcomer."""
    commit_index_sent: int = NO_INDEX
    probing: bool = False
    """Whether the logs are known to differ at next_index - 1, or the follower did not answer there. The leader then compares,
    as often as needed, before it sends bodies again. So at most one PUSH of bodies is in flight to a follower that is stuck or
    gone."""
    pipelining: bool = False
    """Whether the follower has proven, since the last failure, that it holds all entries before the oldest PUSH in flight (or
    before next_index). Further PUSHes may then be sent before an answer [10.2.1]. Otherwise one PUSH is in flight at a time."""
    in_flight: InFlight = field(default_factory=InFlight)
    loading: Load | LoadChunk | None = None
    """The read that is running for the follower: of its next entries, which are not in memory, or of the next part of a
    snapshot."""
    install: Install = field(default_factory=Install)
    """The snapshot that is sent while the follower is missing entries from before the log's beginning."""
    held: bool = False
    """Whether the last PUSH failed, or its entries could not be read. The next PUSH is sent when the follower answers, or with
    the next heartbeat."""
    heard_ms: int = 0
    round_sent: int = 0
    read_round: int = 0
    """The last round that the follower echoed. A later `round_sent` is in flight."""
    newcomer: bool = False
    session: int = NO_SESSION
    """The session of the newcomer's last recovery request."""
    promised_index: int = NO_INDEX
    """The last entry that the follower had acknowledged before its last restart, and that it must still have."""
    forgot: bool = False
    """Whether the follower has lost such entries, because its disk was set back. Before its next life it gets no entries and
    does not count."""
    former_sessions: tuple[int, ...] = ()
    """The sessions of the follower's last former lives. Late answers from them change nothing."""

    def next_life(self, session: int, next_index: int) -> Progress | None:
        """The progress of a newcomer with this `session`; None if the session is known."""
        known = (*self.former_sessions, self.session)
        if session in known:
            return None
        former = known[-FORMER_SESSIONS_MAX:]
        return Progress(next_index, newcomer=True, session=session, former_sessions=former)

    def restarted(self) -> None:
        self.promised_index = self.held_index

    def forgets(self) -> None:
        """Called when an answer shows that the follower has lost entries that it had acknowledged."""
        self.not_pushed()
        self.forgot = self.newcomer = True
        self.match_index = NO_INDEX

    def heard(self, now_ms: int) -> None:
        """Called when the follower has answered."""
        self.heard_ms = now_ms
        self.held = False

    def votes_since(self, since_ms: int) -> bool:
        """Whether the follower answered since `since_ms`, and counts."""
        return not self.newcomer and self.heard_ms >= since_ms

    def beat(self, now_ms: int, push_timeout_ms: int) -> None:
        """Called when a heartbeat is sent. Refused requests, and requests without an answer for too long, may be repeated."""
        self.held = False
        if self.in_flight and now_ms - self.in_flight.waits_since_ms >= push_timeout_ms:
            self.unanswered()

    def begin(
        self,
        to: str,
        term: int,
        committed_index: int,
        now_ms: int,
        log: RaftLog,
        limits: DLedgerSettings,
        loaded: Loaded,
        everywhere: int = 0,
    ) -> PushRequest | InstallRequest | Load | LoadChunk | None:
        """The next request to the follower `to`, or the next read for it. A PUSH has the entries that the follower is missing;
        while probing it has no entries, only the previous entry to compare. If the log begins after the missing entries, a part
        of a snapshot is sent. If entries are not in memory, they are read first and then passed as `loaded`. None if there is
        nothing to send, or no room; `everywhere` is the number of bytes in flight to all followers."""
        commit_sent = bool(self.in_flight) or self.commit_index_sent >= committed_index
        nothing_new = self.next_index > log.last_index and commit_sent
        if isinstance(loaded, Unreadable):
            self.held = True
            return None
        if self.forgot or self.loading or self.held or (nothing_new and not self.probing):
            return None
        if self.in_flight and not self.may_add(log, limits, everywhere, now_ms):
            return None
        if self.next_index <= log.prev_index:
            if isinstance(loaded, Chunk):
                install = self.install.begin(loaded, term, self.session)
                self.in_flight.add(install, len(loaded.data), now_ms)
                return install
            self.loading = LoadChunk(to, self.install.index, self.install.offset)
            return self.loading
        entries = Entries()
        if not self.probing:
            if self.next_index >= log.recent_from:
                entries = log.slice(self.next_index, limits.push_entries_max, limits.push_bytes_max)
            elif isinstance(loaded, Chunk) or not loaded or loaded[0].index != self.next_index:
                older = log.recent_from - self.next_index  # the disk has these entries as they are in the log
                self.loading = Load(to, self.next_index, min(older, limits.push_entries_max))
                return self.loading
            else:
                assert log.find_conflict(loaded) is None, "entries that a leader has read are in its log"
                entries = Entries.of(loaded)
        size = entries.body_bytes
        if self.in_flight and size > limits.push_bytes_max:  # a larger entry is sent alone
            return None
        kind = PushType.APPEND if entries else PushType.COMPARE if self.probing else PushType.COMMIT
        prev_index = self.next_index - 1
        prev_term = log.term_at(prev_index)
        push = PushRequest(term, kind, prev_index, prev_term, committed_index, entries, self.session)
        self.in_flight.add(push, size, now_ms)
        self.next_index += len(entries)
        self.commit_index_sent = min(
            committed_index, prev_index + len(entries)
        )  # the PUSH commits no more than it proves
        return push

    def may_add(self, log: RaftLog, limits: DLedgerSettings, everywhere: int, now_ms: int) -> bool:
        """Whether a PUSH may be sent while others are in flight. Few entries wait a moment, because entries cost less in one
        PUSH."""
        if not self.pipelining or self.next_index <= log.prev_index:
            return False
        if not self.in_flight.has_room(limits, everywhere):
            return False
        late = now_ms - self.in_flight.newest_ms >= limits.push_gap_ms
        return late or log.fills(self.next_index, limits.push_entries_max, limits.push_bytes_max)

    def took(self, load: Load | LoadChunk) -> bool:
        """Called when the read `load` has ended. False if `load` is not the awaited read."""
        if self.loading is not load:
            return False
        self.loading = None
        return True

    def not_pushed(self) -> None:
        """Forgets the requests in flight; their entries are sent again, because it is not known whether they arrived."""
        self.next_index = max(self.held_index + 1, self.in_flight.begin(otherwise=self.next_index))
        self.in_flight.clear()
        self.pipelining = False
        self.commit_index_sent = NO_INDEX

    def unanswered(self) -> None:
        """Called when the requests in flight may have arrived or not."""
        self.not_pushed()
        self.probing = True

    def answered(self, response: PushResponse | InstallResponse, log: RaftLog, now_ms: int) -> bool:
        """Handles an answer. Success moves `held_index`. A mismatch moves the place to compare back [3.5], and later entries
        are sent again. A refusal of a request that is not in flight any more changes nothing. Returns False if nothing should
        be sent at once."""
        if response.session != self.session:
            return False
        self.heard(now_ms)
        if isinstance(response, InstallResponse):
            return self.took_part(response, log, now_ms)
        end = response.index + response.count - 1
        if response.code is ResultCode.SUCCESS and end <= log.last_index:
            self.holds(end, now_ms, newcomer=response.newcomer)
        elif self.in_flight.asked(response):
            inconsistent = response.code is ResultCode.INCONSISTENT_STATE
            if inconsistent and NO_INDEX < response.index - 1 <= self.promised_index:
                self.forgets()
                return False
            self.not_pushed()
            if response.code is not ResultCode.INCONSISTENT_STATE or response.index <= 0:
                self.held = True
                return False
            self.probing = True
            self.next_index = max(self.held_index + 1, back_up(log, response))
        return True

    def took_part(self, response: InstallResponse, log: RaftLog, now_ms: int) -> bool:
        """Handles the answer to a part of a snapshot. If the snapshot did not arrive as it was sent, it is sent from the
        beginning after the next heartbeat."""
        if self.in_flight.asked(response):
            self.not_pushed()
        if response.code is not ResultCode.SUCCESS:
            self.install = Install()
            self.held = True
            return False
        if self.install.answered(response) and response.index <= log.last_index:
            self.install = Install()
            self.holds(response.index, now_ms, newcomer=response.newcomer)
        return True

    def holds(self, end_index: int, now_ms: int, *, newcomer: bool) -> None:
        """Called when the follower has answered that it holds the entries up to `end_index`."""
        self.held_index = max(self.held_index, end_index)
        if not (newcomer or self.forgot):
            self.match_index = self.held_index
        self.in_flight.proven(self.held_index, now_ms)
        if not self.in_flight:
            self.next_index = self.held_index + 1
            self.probing, self.pipelining = False, True

    def echoed(self, response: HeartBeatResponse, newest_round: int, now_ms: int) -> bool:
        """Handles the answer to a heartbeat. Returns whether the answer counts for reads; a newcomer's answer does not."""
        self.heard(now_ms)
        if self.newcomer and not response.newcomer:
            self.commit_index_sent = NO_INDEX  # the follower's answers count from now on
        self.newcomer = response.newcomer or self.forgot
        if not self.in_flight and response.committed_index < self.commit_index_sent:
            self.commit_index_sent = response.committed_index  # it was restarted, and has forgotten
        if response.newcomer or response.code is not ResultCode.SUCCESS or response.read_round > newest_round:
            self.not_echoed(response.read_round)
            return False
        self.read_round = max(self.read_round, response.read_round)
        return True

    def not_echoed(self, read_round: int) -> None:
        if self.round_sent == read_round:
            self.round_sent = self.read_round

    def unsent(self, request: Request) -> None:
        """Called when no answer to `request` will come."""
        match request:
            case PushRequest() | InstallRequest() if self.in_flight.has(request):
                self.unanswered()
                self.held = True
            case PushRequest():  # another answer was taken for the answer to it
                self.commit_index_sent = NO_INDEX
            case HeartBeatRequest():
                self.not_echoed(request.read_round)


def joined(next_index: int, members_index: int) -> Progress:
    """The progress of a member that joined by entry `members_index`. Its session is one that no newcomer has, so late answers
    from before it joined do not count."""
    return Progress(next_index, session=SESSION_MAX + 1 + members_index)


def back_up(log: RaftLog, response: PushResponse) -> int:
    """The next index to compare after a mismatch: after the follower's end, after the leader's last entry of the follower's
    conflicting term, or at the beginning of this term."""
    compared = response.index - 1
    if response.end_index < compared:
        return response.end_index + 1
    last = log.last_index_up_to_term(response.x_term, before=compared)
    if last >= response.x_index and log.term_at(last) == response.x_term:
        return last + 1
    return min(max(response.x_index, 0), compared)
