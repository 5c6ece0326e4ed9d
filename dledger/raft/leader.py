"""The state of a member while it leads: replication, heartbeats, reads, leadership transfer, changes of the members.

Upstream: DLedgerEntryPusher and the leader's half of DLedgerLeaderElector.

Invariants:
- a LeaderState belongs to one term, and ends with the leadership;
- a leader counts a follower only for entries that the follower acknowledged as durable, and itself only for entries that its
  own disk confirmed; it counts neither for entries of an earlier term [3.6.2];
- while a transfer is running the leader accepts no proposals;
- no entry is appended that could give two majorities without a common member: the members change only once an entry of this
  term and the change before are committed [4.1, as corrected in 2015], and only if enough voters answer to commit entries after
  the change. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from dledger.raft.actions import Forgot, Load, LoadChunk, ReadReady, Turn
from dledger.raft.entries import NO_INDEX, Block, Entries, Entry, blocks_of
from dledger.raft.errors import ChangeRefused, RefusalReason
from dledger.raft.log import RaftLog, Unsynced
from dledger.raft.membership import Change, Members, RaftMembership, Step
from dledger.raft.messages import (
    HeartBeatRequest,
    HeartBeatResponse,
    InstallResponse,
    PushResponse,
    Request,
    TransferRequest,
)
from dledger.raft.progress import Loaded, Progress, joined
from dledger.raft.settings import DLedgerSettings


class LeadingMember(Protocol):
    """The part of `dledger.raft.raft.Raft` that LeaderState uses. A LeaderState changes the member only through these methods,
    and adds its output to `turn`."""

    @property
    def self_id(self) -> str: ...
    @property
    def now_ms(self) -> int: ...
    @property
    def settings(self) -> DLedgerSettings: ...
    @property
    def term(self) -> int: ...
    @property
    def log(self) -> RaftLog: ...
    @property
    def disk(self) -> Unsynced: ...
    @property
    def durable_index(self) -> int: ...
    @property
    def committed_index(self) -> int: ...
    @property
    def may_serve(self) -> bool: ...
    @property
    def membership(self) -> RaftMembership: ...
    @property
    def members_committed(self) -> bool: ...
    @property
    def voters(self) -> tuple[str, ...]: ...
    @property
    def quorum(self) -> int: ...
    @property
    def turn(self) -> Turn: ...
    def send(self, to: str, request: Request) -> None: ...
    def append(self, entries: Sequence[Entry]) -> None: ...
    def commit(self, index: int) -> None: ...
    def become_follower(self, term: int, leader_id: str | None) -> None: ...


class LeaderState:
    """The leader's state in one term of `member`, from `begin` on."""

    def __init__(self, member: LeadingMember) -> None:
        last_index = member.log.last_index
        self._member = member
        self.term_start_index = last_index + 1
        """The index of the no-op that opens the term."""
        self.progress = {
            peer: Progress(last_index + 1, heard_ms=member.now_ms) for peer in member.membership.peers
        }
        self.heartbeat_due_ms = member.now_ms + member.settings.heartbeat_interval_ms
        self.transfer = Transfer()
        self.reads = PendingReads()

    def begin(self) -> None:
        """Opens the term with a no-op: earlier entries can be committed only through an entry of the leader's own term [3.6.2,
        6.4]."""
        self.append([b""])
        self.broadcast_heartbeat()

    @property
    def voting(self) -> dict[str, Progress]:
        """The progress of the other voters."""
        return {peer: self.progress[peer] for peer in self._member.voters}

    @property
    def next_tick_ms(self) -> int:
        if self.transfer.under_way:
            return min(self.heartbeat_due_ms, self.transfer.due_ms)
        return self.heartbeat_due_ms

    # Heartbeats

    def tick(self) -> None:
        """Sends heartbeats and unanswered entries, and steps down if no quorum answers."""
        member = self._member
        if self.transfer.under_way and member.now_ms >= self.transfer.due_ms:
            self.give_up_transfer()
        if member.now_ms >= self.heartbeat_due_ms:
            self.heartbeat_due_ms = member.now_ms + member.settings.heartbeat_interval_ms
            if not self.quorum_active():
                member.become_follower(member.term, None)
            else:
                self.broadcast_heartbeat()
                if member.disk.silent_ms(member.now_ms) >= member.settings.election_timeout_max_ms:
                    self.transfer_leadership(None)

    def quorum_active(self) -> bool:
        """Whether a quorum answered within the longest election timeout; a leader without one steps down [6.2]."""
        since_ms = self._member.now_ms - self._member.settings.election_timeout_max_ms
        return 1 + sum(known.votes_since(since_ms) for known in self.voting.values()) >= self._member.quorum

    def broadcast_heartbeat(self) -> None:
        for peer, progress in self.progress.items():
            self.send_heartbeat(peer)
            progress.beat(self._member.now_ms, self._member.settings.push_timeout_ms)
            self.replicate(peer)

    def send_heartbeat(self, peer: str) -> None:
        self.progress[peer].round_sent = self.reads.round
        self._member.send(peer, HeartBeatRequest(self._member.term, self.reads.round))

    def on_heartbeat_response(self, peer: str, response: HeartBeatResponse) -> None:
        if self.progress[peer].echoed(response, self.reads.round, self._member.now_ms):
            self.finish_reads()
            self.send_round(peer)
            self.replicate(peer)

    # Replication

    def append(self, bodies: Sequence[bytes | Block]) -> None:
        """Appends entries. The leader writes its own disk while the followers write their disks [10.2.1]."""
        first_index, term = self._member.log.last_index + 1, self._member.term
        self._member.append(Entries(first_index, blocks_of(term, bodies)))
        self.replicate_to_all()

    def replicate_to_all(self) -> None:
        for peer in self._member.membership.peers:
            self.replicate(peer)

    def replicate(self, peer: str, loaded: Loaded = ()) -> None:
        """Sends all entries that `peer` is missing, as far as there is room. `loaded` are entries, or a part of a snapshot,
        that were read for `peer`."""
        member, progress = self._member, self.progress[peer]
        state = member.term, member.committed_index, member.now_ms, member.log, member.settings
        others = sum(known.in_flight.size for known in self.progress.values()) - progress.in_flight.size
        while (work := progress.begin(peer, *state, loaded, others + progress.in_flight.size)) is not None:
            if isinstance(work, Load | LoadChunk):
                member.turn.loads.append(work)
                return
            member.send(peer, work)
            loaded = ()

    def loaded(self, load: Load | LoadChunk, loaded: Loaded) -> None:
        """Handles the result of the read `load`."""
        if load.peer in self.progress and self.progress[load.peer].took(load):
            self.replicate(load.peer, loaded)

    def on_push_response(self, peer: str, response: PushResponse | InstallResponse) -> None:
        progress = self.progress[peer]
        was_whole = not progress.forgot
        if progress.answered(response, self._member.log, self._member.now_ms):
            self.advance_commit()
            self.replicate(peer)
            self.send_transfer_request()
        elif progress.forgot and was_whole:
            self._member.turn.forgot = Forgot(peer, progress.promised_index, self._member.term)

    def advance_commit(self) -> None:
        """Commits the entries that a quorum holds, but counts replicas only for an entry of the current term [3.6.2]."""
        member = self._member
        held = sorted([member.durable_index, *(progress.match_index for progress in self.voting.values())])
        index = held[-member.quorum]
        if index > member.committed_index and self.may_count(index):
            member.commit(index)
            self.open_read_round()
            self.replicate_to_all()

    def may_count(self, index: int) -> bool:
        return self._member.log.term_at(index) == self._member.term

    def unsent(self, peer: str, request: Request) -> None:
        """Called when no answer to `request` will come."""
        if peer in self.progress:
            self.progress[peer].unsent(request)
        if isinstance(request, TransferRequest) and peer == self.transfer.target:
            self.give_up_transfer()

    def restarted(self, peer: str) -> None:
        """Called when `peer` has begun a new life and must still have the entries that it acknowledged."""
        if peer in self.progress:
            self.progress[peer].restarted()
            self.replicate(peer)

    def admit(self, peer: str, session: int) -> int:
        """Called when a new life of `peer`, which does not count yet, asks to be caught up (dledger.raft.rejoin). Returns the
        index that `peer` must hold before it votes. Returns NO_INDEX while this index is not known, or while a change of the
        members is not committed."""
        if peer not in self.progress:
            return NO_INDEX
        life = self.progress[peer].next_life(session, self._member.log.last_index + 1)
        if life is not None:
            self.progress[peer] = life
            self.replicate(peer)
        may_admit = self._member.may_serve and self._member.members_committed
        return self._member.committed_index if may_admit else NO_INDEX

    # Reads [6.4]

    def read(self, read_id: int) -> None:
        self.reads.add(read_id)
        self.open_read_round()

    def open_read_round(self) -> None:
        """Records the commit index for each new read, and opens a round of heartbeats. A quorum's echo proves that no later
        leader had committed anything when the read came [6.4]."""
        if self._member.may_serve and self.reads.open_round(self._member.committed_index):
            for peer in self._member.membership.peers:
                self.send_round(peer)
            self.finish_reads()

    def send_round(self, peer: str) -> None:
        """Sends the newest round to `peer`, unless a round is in flight to it. The answer triggers the next round, for all
        reads that came meanwhile."""
        progress = self.progress[peer]
        if progress.round_sent <= progress.read_round < self.reads.round:
            self.send_heartbeat(peer)

    def finish_reads(self) -> None:
        rounds = sorted([self.reads.round, *(progress.read_round for progress in self.voting.values())])
        self._member.turn.reads.extend(self.reads.proven(rounds[-self._member.quorum]))

    # Leadership transfer [3.10]

    def transfer_leadership(self, target: str | None) -> None:
        """Transfers the leadership to `target`, or to the most up-to-date voter. A leader whose disk hangs calls this by
        itself, because it should not lead."""
        if self.transfer.under_way:
            return
        timeout_ms = self._member.settings.election_timeout_min_ms
        target = target or most_up_to_date(self.voting, self._member.now_ms - timeout_ms)
        if target is None or target not in self.voting or self.progress[target].newcomer:
            self.give_up_transfer()
        else:
            self.transfer.begin(target, self._member.now_ms + timeout_ms)
            self.send_transfer_request()

    def send_transfer_request(self) -> None:
        member = self._member
        request = self.transfer.request(member.self_id, member.term, member.log.last_index, self.progress)
        if request is not None:
            member.send(request.transferee_id, request)

    def give_up_transfer(self) -> None:
        self.transfer.end()
        self._member.turn.transfer_failed = True

    # Members [4.1]

    def members_changed(self) -> None:
        """Called when another configuration is used from now on."""
        peers = self._member.membership.peers
        for peer in self.progress.keys() - {*peers}:
            del self.progress[peer]
        for peer in [peer for peer in peers if peer not in self.progress]:
            self.progress[peer] = joined(self._member.log.last_index + 1, self._member.membership.index)

    def next_members(self, change: Change, know_changes: Collection[str]) -> Members:
        """The list of members to append for `change`. The members in `know_changes` can read such entries. A leader does not
        remove itself: it transfers its leadership first.

        Raises: ChangeRefused, for the moment or for ever."""
        member = self._member
        if self.transfer.under_way:
            raise ChangeRefused(RefusalReason.HANDING_OVER, "the leadership is being transferred; try again")
        if not member.members_committed:
            index = member.membership.index
            raise ChangeRefused(
                RefusalReason.UNDER_WAY, f"the change before, entry {index}, is not committed yet; try again"
            )
        if old := [
            peer
            for peer in member.membership.peers
            if self.recently_active(peer) and peer not in know_changes
        ]:
            raise ChangeRefused(
                RefusalReason.OLD_MEMBER, f"{', '.join(old)} run a version that cannot change the members"
            )
        members = change.of(member.membership.members)
        if change.step is Step.REMOVE and change.member == member.self_id:
            raise ChangeRefused(RefusalReason.LEADS, f"{member.self_id} leads; transfer its leadership first")
        if change.step is Step.PROMOTE:
            self._check_caught_up(change.member)
        if change.step is not Step.ADD:
            active = [member.self_id, *(peer for peer in members.voters if self.recently_active(peer))]
            if len(active) < members.quorum:
                voters = ", ".join(members.voters)
                what = f"a majority of {voters} must answer, and only {', '.join(active)} did lately"
                raise ChangeRefused(RefusalReason.TOO_FEW, what)
        return members

    def _check_caught_up(self, learner: str) -> None:
        missing = self.lag(learner)
        if missing is None or missing > self._member.settings.push_entries_max:
            state = (
                "did not answer, or may not vote yet" if missing is None else f"is missing {missing} entries"
            )
            raise ChangeRefused(
                RefusalReason.NOT_LEVEL, f"{learner} {state}; it stays a learner until it has caught up"
            )

    def recently_active(self, peer: str) -> bool:
        """Whether `peer` answered lately, and counts."""
        since_ms = self._member.now_ms - self._member.settings.election_timeout_min_ms
        return peer in self.progress and self.progress[peer].votes_since(since_ms)

    def lag(self, peer: str) -> int | None:
        """The number of committed entries that `peer` is missing. None if `peer` is no member, did not answer lately, or if its
        acknowledgements do not count yet."""
        known = self.progress.get(peer)
        if known is None or not self.recently_active(peer) or known.match_index < max(0, known.held_index):
            return None
        return max(0, self._member.committed_index - known.match_index)


class Transfer:
    """A leadership transfer to one follower; it is abandoned at `due_ms`."""

    def __init__(self) -> None:
        self.target: str | None = None
        self.asked = False
        self.due_ms = 0

    @property
    def under_way(self) -> bool:
        return self.target is not None

    def begin(self, target: str, due_ms: int) -> None:
        self.target, self.asked, self.due_ms = target, False, due_ms

    def end(self) -> None:
        self.target = None

    def request(
        self, leader: str, term: int, end: int, progress: Mapping[str, Progress]
    ) -> TransferRequest | None:
        """The request to the target; None before the target holds all entries up to `end`, the end of the leader's log. It is
        returned only once."""
        if self.target is None or self.asked or progress[self.target].match_index < end:
            return None
        self.asked = True
        return TransferRequest(term, leader, self.target, end)


def most_up_to_date(progress: Mapping[str, Progress], heard_since_ms: int) -> str | None:
    """The follower that holds most entries, among those that answered lately and may be elected; None if there is none."""
    active = [peer for peer, known in progress.items() if known.votes_since(heard_since_ms)]
    return max(active, key=lambda peer: progress[peer].match_index, default=None)


class PendingReads:
    """Reads that wait for the proof that the leader still led when they came [6.4]. A round is one question to all followers. A
    follower that echoes a round followed no other leader when it was asked.

    Reads are kept in the order in which they came, so their rounds never fall. The cost of all reads grows with their number
    and not with the square of this number."""

    def __init__(self) -> None:
        self.round = 0
        self._new: list[int] = []
        self._asked: deque[tuple[int, ReadReady]] = deque()

    def add(self, read_id: int) -> None:
        self._new.append(read_id)

    def open_round(self, committed_index: int) -> bool:
        """Opens a round for all new reads. False if there is no new read."""
        if not self._new:
            return False
        self.round += 1
        self._asked.extend((self.round, ReadReady(read_id, committed_index)) for read_id in self._new)
        self._new.clear()
        return True

    def proven(self, up_to_round: int) -> list[ReadReady]:
        """The reads that are proven by a quorum's echo of this round."""
        ready: list[ReadReady] = []
        while self._asked and self._asked[0][0] <= up_to_round:
            ready.append(self._asked.popleft()[1])
        return ready

    def give_up(self) -> list[ReadReady]:
        """Returns all reads as refused, because the leadership is lost."""
        waiting = [*(read.read_id for _, read in self._asked), *self._new]
        self._asked.clear()
        self._new.clear()
        return [ReadReady(read_id, None) for read_id in waiting]
