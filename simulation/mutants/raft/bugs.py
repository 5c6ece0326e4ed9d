"""Bugs that are planted into the members of a group for one run, to prove that the checks find them.

Invariant: each bug breaks one promise of Raft, of its disk or of its guards. It changes only what its docstring says, and
nothing is left of it when its context ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from dledger import ledger
from dledger.node.applying import Applier
from dledger.node.authenticator import MemberAddresses
from dledger.node.catchup import SnapshotSender
from dledger.node.node import DLedgerNode
from dledger.node.syncqueue import Step, SyncQueue
from dledger.raft.actions import Action, LoadChunk, PersistThenSend, ReadReady, Reply, Role, Vote
from dledger.raft.election import Ballots, TermBound
from dledger.raft.entries import Entry
from dledger.raft.leader import LeaderState, PendingReads
from dledger.raft.log import RaftLog, TermRuns, runs_of
from dledger.raft.messages import (
    TERM_MAX,
    HeartBeatResponse,
    InstallResponse,
    Message,
    PushRequest,
    PushResponse,
    RecoveryRequest,
    RecoveryResponse,
    Request,
    ResultCode,
    TransferRequest,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from dledger.raft.progress import Chunk, InFlight, Progress
from dledger.raft.raft import Raft
from dledger.raft.rejoin import RejoinState
from dledger.raft.settings import DLedgerSettings
from dledger.raft.snapshot import Begin, Snapshot
from dledger.storage import store
from dledger.storage.entrylog import EntryLog, begin_up_to
from dledger.storage.hardstate import TermFile
from dledger.storage.store import Store
from simulation.kernel.plants import Bugs
from simulation.mutants.raft.members import plant_members_bugs
from simulation.mutants.raft.olddisks import plant_old_disks_bugs
from simulation.mutants.raft.positions import plant_positions_bugs

BUGS = Bugs()
bug, planted = BUGS.bug, BUGS.planted
plant_members_bugs(BUGS)
plant_positions_bugs(BUGS)
plant_old_disks_bugs(BUGS)


# Votes

stored_vote = TermFile.store
asked_for_vote = Raft.on_vote_request
got_vote = Raft.on_vote_response
counted_vote = Ballots.count


@bug("vote-not-persisted", TermFile, "store")
async def vote_not_persisted(self: TermFile, vote: Vote) -> None:
    """After a crash the term is still known, but not the candidate that got the vote."""
    await stored_vote(self, replace(vote, voted_for=None))


@bug("vote-without-comparing-logs", Raft, "on_vote_request")
def vote_without_comparing_logs(self: Raft, candidate: str, request: VoteRequest) -> VoteResult:
    return asked_for_vote(
        self, candidate, replace(request, ledger_end_index=1 << 40, ledger_end_term=1 << 40)
    )


@bug("vote-compares-terms-alone", Raft, "on_vote_request")
def vote_compares_terms_alone(self: Raft, candidate: str, request: VoteRequest) -> VoteResult:
    """A member with a shorter log may lead if the last terms are equal."""
    return asked_for_vote(self, candidate, replace(request, ledger_end_index=1 << 40))


@bug("votes-twice", Raft, "on_vote_request")
def votes_twice(self: Raft, candidate: str, request: VoteRequest) -> VoteResult:
    if request.term == self.term and self.role is Role.FOLLOWER:
        self.voted_for = None
    return asked_for_vote(self, candidate, request)


@bug("pre-vote-counts", Raft, "on_vote_response")
def pre_vote_counts(self: Raft, voter: str, response: VoteResponse) -> None:
    """A granted vote counts for the present election, even if it was granted for another."""
    pre_voting = self.ballots.pre_voting
    ballot = self.term + 1 if pre_voting else self.term
    got_vote(self, voter, replace(response, ballot_term=ballot, pre_vote=pre_voting))


@bug("any-answer-is-a-vote", Ballots, "count")
def any_answer_is_a_vote(self: Ballots, voter: str, response: VoteResponse, term: int) -> None:
    """R1: a vote for another candidate counts for the candidate that asked."""
    counted_vote(self, voter, replace(response, result=VoteResult.ACCEPT), term)


@bug("quorum-of-half", Raft, "quorum")
def quorum_of_half(self: Raft) -> int:
    return max(1, len(self.membership.members.voters) // 2)


# What must be durable first

turned = Raft.actions


def told_first(self: Raft, *, votes: bool) -> list[Action]:
    actions: list[Action] = []
    for action in turned(self):
        early = isinstance(action, PersistThenSend) and (action.vote is not None) == votes
        if early and isinstance(action, PersistThenSend):
            actions.extend(action.messages)
            action = replace(action, messages=())
        actions.append(action)
    return actions


@bug("vote-sent-before-durable", Raft, "actions", plays=("kill-voter",))
def vote_sent_before_durable(self: Raft) -> list[Action]:
    return told_first(self, votes=True)


@bug("ack-sent-before-durable", Raft, "actions", plays=("power-all",))
def ack_sent_before_durable(self: Raft) -> list[Action]:
    return told_first(self, votes=False)


@bug("ack-before-fsync", EntryLog, "sync", plays=("power-all",))
async def ack_before_fsync(self: EntryLog) -> None:
    """The log reports that entries are synced although they are not."""
    self.batch_count = 0


counted_replicas = LeaderState.advance_commit


@bug("early-durable-count", LeaderState, "advance_commit", plays=("power-all",))
def early_durable_count(self: LeaderState) -> None:
    """A leader counts itself for entries that its disk has not confirmed."""
    raft = self._member
    kept, raft.disk.durable_index = raft.durable_index, raft.log.last_index
    try:
        counted_replicas(self)
    finally:
        raft.disk.durable_index = min(kept, raft.log.last_index)


@bug("cut-not-durable", Store, "cut", plays=("power-all",))
async def cut_not_durable(self: Store, log: EntryLog, index: int) -> None:
    """After a power cut a truncated tail may be back, behind entries that were acknowledged since."""
    log.end = log.stored_unit(index).position
    log.end_index = index - 1


@bug("index-not-synced", EntryLog, "sync_index", plays=("power",))
async def index_not_synced(self: EntryLog) -> None:
    """The checkpoint covers index units that a power cut may take."""


@bug("cut-still-vouched-for", Store, "vouch_below", plays=("power",))
def cut_still_vouched_for(self: Store, index: int) -> None:
    """The checkpoint covers entries that a truncation removes."""


forgot = RaftLog.forget
read_runs = runs_of


@bug("forgets-what-the-disk-is-missing", RaftLog, "forget")
def forgets_what_the_disk_is_missing(self: RaftLog, durable_index: int) -> None:
    """Entries are read from the disk while they are still on their way to it."""
    forgot(self, self.last_index)


@bug("old-terms-are-the-last", store, "runs_of")
def old_terms_are_the_last(last_index: int, term_of: Callable[[int], int], before: TermRuns) -> TermRuns:
    """All entries below the checkpoint's entry are taken for entries of its term."""
    return read_runs(last_index, lambda index: term_of(last_index), before)


# Replication

pushed = Raft.on_push
accepted = Raft.accept_entries


@bug("old-term-push-accepted", Raft, "on_push")
def old_term_push_accepted(self: Raft, leader: str, request: PushRequest, known: bool) -> PushResponse:
    if known and request.term < self.term:
        self.follow = lambda sender, term: ResultCode.SUCCESS  # type: ignore[method-assign]
        try:
            return pushed(self, leader, request, known)
        finally:
            del self.follow
    return pushed(self, leader, request, known)


@bug("term-before-ignored", Raft, "on_push")
def term_before_ignored(self: Raft, leader: str, request: PushRequest, known: bool) -> PushResponse:
    """The entry before a push's entries must have only the same index, but not the same term."""
    prev = request.prev_index
    if self.log.prev_index <= prev <= self.log.last_index:
        request = replace(request, prev_term=self.log.term_at(prev))
    return pushed(self, leader, request, known)


@bug("append-compares-nothing", Raft, "on_push")
def append_compares_nothing(self: Raft, leader: str, request: PushRequest, known: bool) -> PushResponse:
    """R3: as in Java, an APPEND may follow any entry with the right index; only a COMPARE checks the term."""
    if request.entries:
        return term_before_ignored(self, leader, request, known)
    return pushed(self, leader, request, known)


@bug("conflict-ignored", RaftLog, "find_conflict")
def conflict_ignored(self: RaftLog, entries: Sequence[Entry]) -> int | None:
    """If the log already has an entry with an index, a pushed entry with that index is taken for the same entry."""
    return next((entry.index for entry in entries if entry.index > self.last_index), None)


@bug("cuts-without-conflict", Raft, "accept_entries")
def cuts_without_conflict(self: Raft, request: PushRequest) -> ResultCode:
    """Entries that are not in a push are truncated, even if the push came late."""
    start = request.prev_index + 1 + len(request.entries)
    if self.committed_index < start <= self.log.last_index and self.role is not Role.LEADER:
        self.cut(start)
    return accepted(self, request)


@bug("commit-beyond-proven", Raft, "accept_entries")
def commit_beyond_proven(self: Raft, request: PushRequest) -> ResultCode:
    """A follower applies the leader's commit index to entries that were not compared with the leader's."""
    code = accepted(self, request)
    if code is ResultCode.SUCCESS:
        self.committed_index = max(self.committed_index, min(request.commit_index, self.log.last_index))
    return code


@bug("commit-by-counting", LeaderState, "may_count", plays=("short-majority",))
def commit_by_counting(self: LeaderState, index: int) -> bool:
    """The leader commits an entry of an old term by counting replicas."""
    return True


# Pipelining

held_up_to = Progress.holds
answered_so_far = Progress.answered
received = Raft.receive
gave_up = Progress.not_pushed


@bug("sent-is-held", Progress, "holds")
def sent_is_held(self: Progress, end_index: int, now_ms: int, *, newcomer: bool) -> None:
    """The next index to send is taken for the end of the follower's log."""
    held_up_to(self, max(end_index, self.next_index - 1), now_ms, newcomer=newcomer)


@bug("answer-of-a-former-term-counts", Raft, "receive", plays=("late",))
def answer_of_a_former_term_counts(
    self: Raft, sender: str, message: Message, now_ms: int, ticket: int = 0
) -> list[Action]:
    """Entries that a follower held in an earlier term of this leader still count, though the follower may have truncated
    them."""
    if isinstance(message, PushResponse) and self.role is Role.LEADER and message.term < self.term:
        message = replace(message, term=self.term)
    return received(self, sender, message, now_ms, ticket)


@bug("answer-of-a-former-life-counts", Progress, "answered")
def answer_of_a_former_life_counts(
    self: Progress, response: PushResponse | InstallResponse, log: RaftLog, now_ms: int
) -> bool:
    """Entries that a follower held before it lost its disk count when the answer comes late."""
    return answered_so_far(self, replace(response, session=self.session), log, now_ms)


@bug("window-never-closes", InFlight, "has_room")
def window_never_closes(self: InFlight, limits: DLedgerSettings, everywhere: int) -> bool:
    return True


@bug("level-after-a-failure", Progress, "not_pushed")
def level_after_a_failure(self: Progress) -> None:
    """After a failed push the leader keeps pipelining, so it repeats the comparison as often as there is room."""
    pipelining = self.pipelining
    gave_up(self)
    self.pipelining = pipelining


# Reads

wanted = PendingReads.add
opened = PendingReads.open_round


@bug("stale-read-round", PendingReads, "open_round", plays=("deposed-leader",))
def stale_read_round(self: PendingReads, committed_index: int) -> bool:
    """A read is confirmed by a round that began before the read came."""
    if not self._new or not self.round:
        return opened(self, committed_index)
    self._asked.extend((self.round, ReadReady(read_id, committed_index)) for read_id in self._new)
    self._new.clear()
    return True


@bug("read-without-round", Raft, "read", plays=("deposed-leader",))
def read_without_round(self: Raft, read_id: int, now_ms: int) -> list[Action]:
    self.now_ms = now_ms
    self.turn.reads.append(ReadReady(read_id, self.committed_index if self.may_serve else None))
    return self.actions()


@bug("serves-before-its-no-op", DLedgerNode, "is_active")
def serves_before_its_no_op(self: DLedgerNode) -> bool:
    return self.core is not None and not self._closed and self.core.role is Role.LEADER


@bug("serves-before-its-no-op", Raft, "may_serve")
def serves_before_its_no_op_2(self: Raft) -> bool:
    """The second part of the bug: a leader serves before it knows what its predecessors committed."""
    return self.role is Role.LEADER


# Members without a past

answered_push = LeaderState.on_push_response
answered_beat = LeaderState.on_heartbeat_response


@bug("newcomer-votes", Raft, "maybe_finish_recovery", plays=("emptied-acker",))
def newcomer_votes(self: Raft) -> None:
    self.election_due_ms = self.random_election_due_ms() if self.peers else self.now_ms
    self.rejoin.newcomer = False


@bug("newcomer-counts", LeaderState, "on_push_response", plays=("emptied-and-caught-up",))
def newcomer_counts(self: LeaderState, peer: str, response: PushResponse) -> None:
    answered_push(self, peer, replace(response, newcomer=False))


@bug("newcomer-counts", LeaderState, "on_heartbeat_response", plays=("emptied-and-caught-up",))
def newcomer_counts_2(self: LeaderState, peer: str, response: HeartBeatResponse) -> None:
    answered_beat(self, peer, replace(response, newcomer=False))


@bug("admitted-at-once", RejoinState, "answered")
def admitted_at_once(self: RejoinState, peer: str, *, has_past: bool, term: int, admits: int) -> None:
    """A recovering member votes as soon as all have answered and one of them leads."""
    answered(self, peer, has_past=has_past, term=term, admits=min(admits, 0))


answered = RejoinState.answered


@bug("admitted-unheard", RejoinState, "is_caught_up", plays=("emptied-beside-a-stale-leader",))
def admitted_unheard(self: RejoinState, term: int, held_index: int) -> bool:
    """A recovering member votes when a leader has caught it up, though another leader may be newer."""
    return self.admission is not None and self.admission[0] == term and self.admission[1] <= held_index


@bug("former-life-counts", Raft, "on_recovery_request", plays=("emptied-under-its-leader",))
def former_life_counts(self: Raft, peer: str, request: RecoveryRequest, known: bool) -> RecoveryResponse:
    """Entries that a member acknowledged before it was emptied still count while it catches up."""
    progress = self.progress.get(peer)
    response = asked_to_recover(self, peer, request, known)
    if progress is not None:
        self.progress[peer].match_index = progress.match_index
    return response


asked_to_recover = Raft.on_recovery_request


@bug("silent-peers-count-as-new", RejoinState, "group_is_new", plays=("emptied-acker",))
def silent_peers_count_as_new(self: RejoinState) -> bool:
    return not self.group_has_past


# Guards


@bug("any-term-believed", TermBound, "allows", plays=("forge",))
def any_term_believed(self: TermBound, sender: str, term: int, own_term: int) -> bool:
    return True


@bug("any-address-believed", MemberAddresses, "is_host", plays=("forge",))
async def any_address_believed(self: MemberAddresses, host: str, remote_address: str) -> bool:
    return True


# Slow disks, ended connections, hand-overs

must_wait = SyncQueue.must_wait
counted = Ballots.count


def answers(step: object, kind: type) -> bool:
    return isinstance(step, Reply) and isinstance(step.response, kind)


@bug("heartbeat-answered-before-vote", Raft, "actions")
def heartbeat_answered_before_vote(self: Raft) -> list[Action]:
    """The answer to a leader of a new term is sent before that term is durable."""
    actions: list[Action] = []
    for action in turned(self):
        if isinstance(action, PersistThenSend):
            actions += [message for message in action.messages if answers(message, HeartBeatResponse)]
        actions.append(action)
    return actions


@bug("heartbeat-answered-before-vote", SyncQueue, "must_wait")
def heartbeat_answered_before_vote_2(self: SyncQueue, step: Step) -> bool:
    return not answers(step, HeartBeatResponse) and must_wait(self, step)


@bug("push-answered-before-entries", SyncQueue, "must_wait")
def push_answered_before_entries(self: SyncQueue, step: Step) -> bool:
    """A repeated push is answered while the first one's entries are on their way to the disk."""
    return self._votes > 0 if answers(step, PushResponse) else must_wait(self, step)


@bug("late-pre-vote-counts", Ballots, "count")
def late_pre_vote_counts(self: Ballots, voter: str, response: VoteResponse, term: int) -> None:
    """A pre-vote that arrives after the election has begun counts as a vote."""
    counted(self, voter, response, term)
    if self.votes and response.result is VoteResult.ACCEPT and response.ballot_term == term:
        self.votes.add(voter)


@bug("transfer-of-any-term", Raft, "on_transfer_request", plays=("late-transfer",))
def transfer_of_any_term(self: Raft, leader: str, request: TransferRequest) -> ResultCode:
    """A transfer request of a leader that was deposed long ago makes a member campaign."""
    if self.promotable:
        self.start_election(transfer=True)
    return ResultCode.SUCCESS


@bug("dropped-push-in-flight", Raft, "unsent", plays=("drop",))
def dropped_push_in_flight(self: Raft, peer: str, request: Request, now_ms: int) -> list[Action]:
    """The leader waits for a request that was not sent."""
    return []


@bug("bodies-again-unanswered", Progress, "unanswered")
def bodies_again_unanswered(self: Progress) -> None:
    """Entries are sent again and again to a member that does not answer."""
    self.not_pushed()


@bug("ended-connection-is-a-dead-leader", Raft, "connection_lost")
def ended_connection_is_a_dead_leader(self: Raft, peer: str, now_ms: int) -> list[Action]:
    """A new leader does not ask the old one whether it leads."""
    self.now_ms = now_ms
    if peer == self.leader_id:
        self.leader_contact.suspected = True
        self.leader_is_gone()
    return self.actions()


@bug("checkpoint-ahead-of-disk", DLedgerNode, "_committed_and_durable")
def checkpoint_ahead_of_disk(self: DLedgerNode) -> int:
    """The checkpoint records entries as committed that are not on this member's disk yet."""
    return self.applied_index


@bug("preferred-never-lead", ledger, "caught_up_among")
def preferred_never_lead(*known: object) -> None:
    """A leader never steps down for a preferred member."""


# Batches

applied_batch = Applier._apply


@bug("part-of-a-batch-is-all", Applier, "_apply")
def part_of_a_batch_is_all(self: Applier, batch: Sequence[Entry]) -> None:
    """If a state machine applies only a part of a batch, the rest is never applied."""
    applied_batch(self, batch)
    self.applied_index = batch[-1].index


# Snapshots

saved_snapshot = Store.save_snapshot
made_snapshot = DLedgerNode._made_snapshot
read_chunk = SnapshotSender.chunk


@bug("reclaims-before-the-snapshot", Store, "save_snapshot")
async def reclaims_before_the_snapshot(self: Store, snapshot: Snapshot) -> None:
    """The beginning of the log is deleted before the snapshot that replaces it is durable."""
    assert self.log is not None
    begin = await begin_up_to(self.log, snapshot.last_index - self.settings.snapshot_margin_entries)
    await self.log.data.begin_at(begin.position)
    await saved_snapshot(self, snapshot)


@bug("begin-not-in-the-snapshot", Snapshot, "behind")
def begin_not_in_the_snapshot(self: Snapshot, begin: Begin) -> Snapshot:
    """A start looks for entries that the snapshot has replaced."""
    return self


@bug("snapshot-of-committed-entries", DLedgerNode, "_made_snapshot")
def snapshot_of_committed_entries(self: DLedgerNode, index: int, state: bytearray) -> None:
    """A snapshot claims to contain entries that are not in its state."""
    made_snapshot(self, self._applier.committed_index, state)


@bug("snapshot-forgets-its-term", SnapshotSender, "chunk")
async def snapshot_forgets_its_term(self: SnapshotSender, load: LoadChunk) -> Chunk | None:
    """The receiver does not know the term of the entry before its log."""
    chunk = await read_chunk(self, load)
    return None if chunk is None else replace(chunk, index_term=0)


echoed = Progress.echoed


@bug("restarted-unreported", Progress, "echoed")
def restarted_unreported(self: Progress, response: HeartBeatResponse, newest_round: int, now_ms: int) -> bool:
    """A restarted follower gets the commit index only with the next proposal."""
    return echoed(self, replace(response, committed_index=TERM_MAX), newest_round, now_ms)
