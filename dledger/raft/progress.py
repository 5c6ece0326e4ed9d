"""A leader's knowledge of one follower, and what is in flight to it: PUSHes one behind the other, or a snapshot's parts [5].

Invariants:
- what is `in_flight`, and a `round_sent` above `read_round`, belong to calls that will end with an answer or a failure, and
  `loading` to a read that will end: nothing waits for an answer that cannot come;
- several PUSHes are in flight only behind entries that the follower has proven to hold, without a gap, and within the settings'
  limits: so a follower that is stuck has a limited cost; of a snapshot one part is in flight at a time;
- `match_index` moves by answers only: sent entries prove nothing. Pure."""

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
"""Older sessions are not remembered: nothing of them is still on its way, and a broken member may make up any number."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Bytes of a snapshot from `offset` on, and its identity."""

    index: int
    index_term: int
    size: int
    check: int
    offset: int
    data: bytes
    members: str = ""
    """The members of the group there (`dledger.raft.membership.encode_configurations`)."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The disk does not have entry `index` as it was written."""

    index: int


Loaded = Sequence[Entry] | Chunk | Unreadable
"""The result of a read for a follower: entries, or a part of a snapshot."""


@dataclass(slots=True)
class Install:
    """The state of a snapshot that is sent to a follower."""

    index: int = NO_INDEX
    """Its last entry; NO_INDEX: the newest snapshot."""
    index_term: int = NO_TERM
    size: int = 0
    offset: int = 0
    """The number of bytes that the follower has."""

    def begin(self, chunk: Chunk, term: int, session: int) -> InstallRequest:
        """The request with `chunk`, which may be the first one of a newer snapshot."""
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


class InFlight:
    """The requests in flight to one follower."""

    def __init__(self) -> None:
        self._requests: deque[tuple[PushRequest | InstallRequest, int]] = deque()
        self.size = 0
        """Bytes of all bodies."""
        self.waits_since_ms = 0
        """When the oldest was sent, or the one before it answered: they are carried one after the other."""
        self.newest_ms = 0
        """When the newest was sent."""

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
        """Whether one more may be sent: `everywhere` are the bytes in flight to all followers."""
        most = limits.push_bytes_max
        return (
            len(self._requests) < limits.pushes_in_flight_max
            and self.size + most <= limits.bytes_in_flight_max
            and everywhere + most <= limits.all_bytes_in_flight_max
        )

    def proven(self, end_index: int, now_ms: int) -> None:
        """The follower holds the entries up to `end_index`, by any answer."""
        while self._requests:
            request, size = self._requests[0]
            if not isinstance(request, PushRequest) or end_of(request) > end_index:
                break
            self._requests.popleft()
            self.size -= size
            self.waits_since_ms = now_ms

    def asked(self, response: PushResponse | InstallResponse) -> bool:
        """Whether its fields match one of these requests."""
        return any(answers(response, request) for request, _ in self._requests)

    def has(self, request: PushRequest | InstallRequest) -> bool:
        return any(request is one for one, _ in self._requests)

    def begin(self, otherwise: int) -> int:
        """The first entry of the oldest PUSH, or the next one if that has no entries; `otherwise` if there is no PUSH."""
        oldest = self._requests[0][0] if self._requests else None
        return oldest.prev_index + 1 if isinstance(oldest, PushRequest) else otherwise

    def clear(self) -> None:
        self._requests.clear()
        self.size = 0


def end_of(push: PushRequest) -> int:
    """The last entry that a follower holds once it has accepted `push`."""
    return push.prev_index + len(push.entries)


def answers(response: PushResponse | InstallResponse, request: PushRequest | InstallRequest) -> bool:
    if isinstance(request, PushRequest):
        return isinstance(response, PushResponse) and response.answers(request)
    return isinstance(response, InstallResponse) and response.index == request.index


@dataclass(slots=True)
class Progress:
    """`next_index` is the next entry to send. It starts with the entry after the leader's last one, and runs ahead of the
    follower's answers."""

    next_index: int
    held_index: int = NO_INDEX
    """The follower's log is durable and equal to the leader's up to this entry."""
    match_index: int = NO_INDEX
    """The part of it that counts: all of it, except a newcomer's."""
    commit_index_sent: int = NO_INDEX
    probing: bool = False
    """The logs are known to differ at next_index - 1, or nobody answered there: the leader compares, as often as needed, before
    it sends bodies again. So at most one PUSH of bodies is in flight to a follower that is stuck or gone."""
    pipelining: bool = False
    """The follower has proven, since the last failure, to hold all entries before the oldest PUSH in flight, or before
    next_index: further PUSHes may be sent before that is answered [10.2.1]. Otherwise one PUSH is in flight at a time."""
    in_flight: InFlight = field(default_factory=InFlight)
    loading: Load | LoadChunk | None = None
    """A read of its next entries, which are not in memory, or of the next part of a snapshot."""
    install: Install = field(default_factory=Install)
    """In use while the follower is missing entries from before the log's beginning."""
    held: bool = False
    """The last PUSH failed, or its entries could not be read: the next one is sent when the follower answers, or with the next
    beat."""
    heard_ms: int = 0
    round_sent: int = 0
    read_round: int = 0
    """The last round that it echoed; a later `round_sent` is in flight."""
    newcomer: bool = False
    session: int = NO_SESSION
    """The session of the newcomer's last recovery request."""
    promised_index: int = NO_INDEX
    """The last entry that it had acknowledged before its last restart; it must still have it."""
    forgot: bool = False
    """Whether it has lost that: its disk was set back, and it gets and counts for nothing before its next life."""
    former_sessions: tuple[int, ...] = ()
    """The sessions of its last former lives: late answers from them change nothing."""

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
        """It has answered that it has lost entries that it had acknowledged."""
        self.not_pushed()
        self.forgot = self.newcomer = True
        self.match_index = NO_INDEX

    def heard(self, now_ms: int) -> None:
        """The follower has answered."""
        self.heard_ms = now_ms
        self.held = False

    def votes_since(self, since_ms: int) -> bool:
        """Whether it answered since then, and its word counts."""
        return not self.newcomer and self.heard_ms >= since_ms

    def beat(self, now_ms: int, push_timeout_ms: int) -> None:
        """A heartbeat is sent: refused requests, and those unanswered for too long, may be repeated."""
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
        """The next request to the follower `to`: a PUSH of entries that it is missing, or while probing only of the pair to
        compare; a part of a snapshot, if the log begins behind those entries; a read of entries that are not in memory, until
        they are `loaded`. None if there is nothing to send, or no room: `everywhere` are the bytes in flight to all
        followers."""
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
                older = log.recent_from - self.next_index  # the disk has these as they are in the log
                self.loading = Load(to, self.next_index, min(older, limits.push_entries_max))
                return self.loading
            else:
                assert log.find_conflict(loaded) is None, "entries that a leader has read are in its log"
                entries = Entries.of(loaded)
        size = entries.body_bytes
        if self.in_flight and size > limits.push_bytes_max:  # a larger one is sent alone
            return None
        kind = PushType.APPEND if entries else PushType.COMPARE if self.probing else PushType.COMMIT
        prev_index = self.next_index - 1
        prev_term = log.term_at(prev_index)
        push = PushRequest(term, kind, prev_index, prev_term, committed_index, entries, self.session)
        self.in_flight.add(push, size, now_ms)
        self.next_index += len(entries)
        self.commit_index_sent = min(
            committed_index, prev_index + len(entries)
        )  # it commits no more than it proves
        return push

    def may_add(self, log: RaftLog, limits: DLedgerSettings, everywhere: int, now_ms: int) -> bool:
        """Whether a PUSH may be sent behind those in flight: not one for each few entries, which cost less together."""
        if not self.pipelining or self.next_index <= log.prev_index:
            return False
        if not self.in_flight.has_room(limits, everywhere):
            return False
        late = now_ms - self.in_flight.newest_ms >= limits.push_gap_ms
        return late or log.fills(self.next_index, limits.push_entries_max, limits.push_bytes_max)

    def took(self, load: Load | LoadChunk) -> bool:
        """The read `load` has ended; False if it is not the one that is waited for."""
        if self.loading is not load:
            return False
        self.loading = None
        return True

    def not_pushed(self) -> None:
        """It is not known whether the requests in flight arrived; their entries are sent again."""
        self.next_index = max(self.held_index + 1, self.in_flight.begin(otherwise=self.next_index))
        self.in_flight.clear()
        self.pipelining = False
        self.commit_index_sent = NO_INDEX

    def unanswered(self) -> None:
        """The PUSHes in flight may have arrived or not."""
        self.not_pushed()
        self.probing = True

    def answered(self, response: PushResponse | InstallResponse, log: RaftLog, now_ms: int) -> bool:
        """Success moves what the follower holds; a mismatch moves the place to compare back [3.5], and entries behind it are
        sent again. A refusal of a request that is not in flight any more changes nothing. Returns False if nothing is to be
        sent again at once."""
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
        """Takes the answer to a part of a snapshot. A snapshot that did not arrive as it was sent is restarted after the next
        beat."""
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
        """The follower has answered that it holds the entries up to `end_index`."""
        self.held_index = max(self.held_index, end_index)
        if not (newcomer or self.forgot):
            self.match_index = self.held_index
        self.in_flight.proven(self.held_index, now_ms)
        if not self.in_flight:
            self.next_index = self.held_index + 1
            self.probing, self.pipelining = False, True

    def echoed(self, response: HeartBeatResponse, newest_round: int, now_ms: int) -> bool:
        """Takes an answer to a heartbeat. Returns whether it proves anything for reads: a newcomer's does not."""
        self.heard(now_ms)
        if self.newcomer and not response.newcomer:
            self.commit_index_sent = NO_INDEX  # its answers count from now on
        self.newcomer = response.newcomer or self.forgot
        if not self.in_flight and response.committed_index < self.commit_index_sent:
            self.commit_index_sent = response.committed_index  # it was restarted since, and has forgotten
        if response.newcomer or response.code is not ResultCode.SUCCESS or response.read_round > newest_round:
            self.not_echoed(response.read_round)
            return False
        self.read_round = max(self.read_round, response.read_round)
        return True

    def not_echoed(self, read_round: int) -> None:
        if self.round_sent == read_round:
            self.round_sent = self.read_round

    def unsent(self, request: Request) -> None:
        """No answer to `request` will come."""
        match request:
            case PushRequest() | InstallRequest() if self.in_flight.has(request):
                self.unanswered()
                self.held = True
            case PushRequest():  # another answer was taken for its own
                self.commit_index_sent = NO_INDEX
            case HeartBeatRequest():
                self.not_echoed(request.read_round)


def joined(next_index: int, members_index: int) -> Progress:
    """The progress of a member that joined by that entry: its session is no newcomer's, and late answers from before do not
    count."""
    return Progress(next_index, session=SESSION_MAX + 1 + members_index)


def back_up(log: RaftLog, response: PushResponse) -> int:
    """The next index to compare after a mismatch: behind the follower's end, behind the leader's last entry of its conflicting
    term, or at the beginning of that term."""
    compared = response.index - 1
    if response.end_index < compared:
        return response.end_index + 1
    last = log.last_index_up_to_term(response.x_term, before=compared)
    if last >= response.x_index and log.term_at(last) == response.x_term:
        return last + 1
    return min(max(response.x_index, 0), compared)
