"""The whole of Raft, without clock, disk or network: ticks, messages and proposals go in, actions come out.

After Ongaro, "Consensus: Bridging Theory and Practice" (2014); where a rule comes from stands in square brackets.

The caller keeps three promises, and the safety of the group rests on them:
1. it performs the actions in the order given, across calls, but for what waits: nothing passes a PersistThenSend with a
   vote before that is durable, and no PersistThenSend and no answer to a PUSH passes any other before that is;
2. it calls `persisted` once for each PersistThenSend, in order, when the disk has it;
3. after a failed write it performs nothing any more.

Invariants:
- `term` never falls, and `voted_for` is set at most once in a term; both are durable before a message that tells them leaves;
- committed_index <= log.last_index, and no entry at or below committed_index is ever cut;
- a leader never cuts its own log; it counts itself only for what `persisted` confirmed;
- what a newcomer says counts in no majority (dledger.raft.standing), nor what one that has just started says before others
  vouch for its disk (dledger.raft.proving), nor what a learner says; majorities are those of the newest
  configuration in the log, decided or not, and who does not vote in it opens no election (dledger.raft.membership);
- each request handed to `receive` is answered by exactly one Reply with its ticket.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dledger.raft.actions import (
    Action,
    BecomeRole,
    Forgot,
    Load,
    LoadChunk,
    ReadReady,
    Reply,
    Role,
    Send,
    Vote,
)
from dledger.raft.admission import ask_for_standing, heed_standing_answer, settle_standing, standing_answer
from dledger.raft.ballots import Ballots, judged_vote
from dledger.raft.entries import NO_INDEX, NO_TERM, Block, Entries, Entry, blocks_of
from dledger.raft.installing import Arriving, Loaded, beyond_begin, on_install
from dledger.raft.leadersign import LeaderSign
from dledger.raft.log import RaftLog
from dledger.raft.membership import Members, Membership, encode_members
from dledger.raft.messages import (
    HeartBeatRequest,
    HeartBeatResponse,
    InstallRequest,
    InstallResponse,
    Message,
    PushRequest,
    PushResponse,
    Request,
    Response,
    ResultCode,
    StandingRequest,
    StandingResponse,
    TransferRequest,
    TransferResponse,
    VoteRequest,
    VoteResponse,
    VoteResult,
    answer_to_push,
)
from dledger.raft.progress import Progress, joined
from dledger.raft.proving import Proving
from dledger.raft.pushing import push_what_it_lacks
from dledger.raft.readindex import PendingReads, ask_for_reads, ask_round, finish_reads
from dledger.raft.settings import DLedgerSettings
from dledger.raft.standing import NO_SESSION, SESSION_MAX, Standing
from dledger.raft.told import Told
from dledger.raft.transfer import Transfer, begin_transfer, judged
from dledger.raft.turn import Turn
from dledger.raft.unsynced import Unsynced


class Raft:
    """One member. Its state changes by the inputs alone, and each of them returns what is to be done.

    Times are monotonic milliseconds; `draw(low, high)` gives a random whole number, both ends included."""

    def __init__(
        self,
        *,
        membership: Membership,
        settings: DLedgerSettings,
        draw: Callable[[int, int], int],
        now_ms: int,
        vote: Vote,
        log: RaftLog,
        committed_index: int,
        proven: bool = True,
    ) -> None:
        """`vote`, `log`, `committed_index` and `membership` are what the disk holds; the log must contain every committed
        entry. Others must vouch for the disk of a member that is not `proven`, where there are others."""
        self.self_id = membership.self_id
        self.membership = membership
        self.acquainted: set[str] = set()
        """Who is no member here, and is one by a newer list that names this one too."""
        self.settings = settings
        self.draw = draw
        self.now_ms = now_ms
        self.log = log
        assert committed_index <= log.last_index, "committed entries are missing"
        self.term = max(vote.term, log.last_term, 0)
        self.voted_for = vote.voted_for if self.term == vote.term else None
        session = draw(1, SESSION_MAX) if vote.newcomer else NO_SESSION
        self.standing = Standing(self.voters, newcomer=vote.newcomer, session=session)
        self.standing_due_ms = now_ms
        self.proven = proven or not self.voters
        """Others have vouched for the own disk."""
        self.proving = Proving(now_ms, settings.election_timeout_min_ms)
        self.role = Role.FOLLOWER
        self.leader_id: str | None = None
        self.committed_index = committed_index
        self.disk = Unsynced(log.last_index, now_ms)
        self.leader_sign = LeaderSign(settings.election_timeout_min_ms)
        self.stands_back_until_ms = now_ms
        self.election_due_ms = now_ms if not self.voters else self.draw_election_due()
        self.ballots = Ballots()
        self.progress: dict[str, Progress] = {}
        self.heartbeat_due_ms = 0
        self.term_start_index = NO_INDEX
        self.transfer = Transfer()
        self.arriving = Arriving()
        self.reads = PendingReads()
        self.turn = Turn()
        self.told = Told(vote, BecomeRole(self.role, self.term, None), committed_index)

    @property
    def durable_index(self) -> int:
        return self.disk.durable_index

    @property
    def peers(self) -> tuple[str, ...]:
        return self.membership.peers

    @property
    def voters(self) -> tuple[str, ...]:
        return self.membership.voters

    @property
    def quorum(self) -> int:
        return self.membership.quorum

    @property
    def voting(self) -> dict[str, Progress]:
        """What a leader knows of the others that vote."""
        return {peer: self.progress[peer] for peer in self.voters}

    @property
    def members_are_decided(self) -> bool:
        return self.membership.index <= self.committed_index

    @property
    def next_tick_ms(self) -> int:
        """When `tick` is wanted next."""
        if self.standing.newcomer:
            return self.standing_due_ms
        if self.role is not Role.LEADER:
            due_ms = self.election_due_ms
            return due_ms if self.proven else min(due_ms, self.proving.due_ms)
        due_ms = self.heartbeat_due_ms
        return min(due_ms, self.transfer.due_ms) if self.transfer.under_way else due_ms

    @property
    def may_serve(self) -> bool:
        """Leads, and an entry of its own term is committed, and so all that any earlier leader committed [6.4]."""
        return self.role is Role.LEADER and self.committed_index >= self.term_start_index

    # Inputs

    def begin(self, now_ms: int) -> None:
        """It takes part from now on; as long as it did not, no leader could be heard."""
        self.election_due_ms += now_ms - self.now_ms
        self.proving.begin(now_ms)
        self.now_ms = now_ms

    def tick(self, now_ms: int) -> list[Action]:
        """Time passed. A leader beats, resends and checks its quorum; others start an election when their
        leader fell silent."""
        self.now_ms = now_ms
        if self.standing.newcomer:
            ask_for_standing(self)
        elif self.role is Role.LEADER:
            if self.transfer.under_way and now_ms >= self.transfer.due_ms:
                self.give_up_transfer()
            if now_ms >= self.heartbeat_due_ms:
                self.heartbeat_due_ms = now_ms + self.settings.heartbeat_interval_ms
                if not self.hears_quorum():
                    self.become_follower(self.term, None)
                else:
                    self.beat()
                    if self.disk.silent_ms(now_ms) >= self.settings.election_timeout_max_ms:
                        self.hand_over(None)
        elif now_ms >= self.election_due_ms:
            self.start_pre_vote()
        if not (self.proven or self.standing.newcomer):
            self.ask_for_proof()
        return self.actions()

    def propose(self, bodies: Sequence[bytes | Block], now_ms: int) -> list[Action]:
        """Appends one entry for each body to the leader's log; a Commit decides them. Only while `may_serve`."""
        assert self.may_serve, "a proposal needs a leader whose term has begun"
        assert not self.transfer.under_way, "a leader that hands over takes no proposals"
        self.now_ms = now_ms
        self.append_as_leader(bodies)
        return self.actions()

    def reconfigure(self, members: Members, now_ms: int) -> list[Action]:
        """Appends what `dledger.raft.changing` allowed; it is in force at once, and a Commit decides it."""
        assert self.may_serve and self.members_are_decided, (
            "an entry of its term, and the change before, come first"
        )
        assert self.self_id in members.voters, "a leader does not remove itself"
        return self.propose([encode_members(members)], now_ms)

    def met(self, peer: str) -> None:
        """A newer list of members than the own one names `peer`, who speaks, and this member."""
        self.acquainted.add(peer)

    def read(self, read_id: int, now_ms: int) -> list[Action]:
        """Asks for a read-index [6.4]; one ReadReady answers, at once or later."""
        self.now_ms = now_ms
        if self.role is Role.LEADER:
            self.reads.add(read_id)
            ask_for_reads(self)
        else:
            self.turn.reads.append(ReadReady(read_id, None))
        return self.actions()

    def persisted(self, now_ms: int) -> list[Action]:
        """The oldest unconfirmed PersistThenSend is durable."""
        self.now_ms = now_ms
        confirmed = self.disk.confirmed(now_ms)
        self.log.forget(self.durable_index)
        if self.role is Role.LEADER:
            self.advance_commit()
        elif confirmed.vote:
            self.election_due_ms = max(self.election_due_ms, self.draw_election_due())
        return self.actions()

    def reclaimed(self, index: int) -> None:
        """A durable snapshot stands for the entries up to there, which may be gone."""
        self.log.begin_after(index)
        self.membership.history.forget(index)

    def loaded(self, load: Load | LoadChunk, loaded: Loaded, now_ms: int) -> list[Action]:
        """What was read for `load`: entries from there on, none where the log changed meanwhile, or a part of a snapshot."""
        self.now_ms = now_ms
        if load.peer in self.progress and self.progress[load.peer].took(load):
            self.push(load.peer, loaded)
        return self.actions()

    def receive(self, sender: str, message: Message, now_ms: int, ticket: int = 0) -> list[Action]:
        """A message from `sender`. A request's answer will carry `ticket`. Strangers are answered, and change nothing."""
        self.now_ms = now_ms
        known = sender in self.acquainted or self.membership.knows(sender, self.committed_index)
        counts = sender in self.progress and message.term == self.term
        match message:
            case VoteRequest():
                result = self.on_vote_request(sender, message) if known else VoteResult.REJECT_UNKNOWN_LEADER
                self.reply(ticket, VoteResponse(self.term, message.term, result, message.pre_vote))
            case HeartBeatRequest():
                code = self.follow(sender, message.term) if known else ResultCode.UNKNOWN_MEMBER
                mine = not self.counts, self.committed_index
                self.reply(ticket, HeartBeatResponse(self.term, code, message.read_round, *mine))
            case PushRequest():
                self.reply(ticket, self.on_push(sender, message, known))
            case InstallRequest():
                self.reply(ticket, on_install(self, sender, message, known))
            case TransferRequest():
                code = self.on_transfer_request(sender, message) if known else ResultCode.UNKNOWN_MEMBER
                self.reply(ticket, TransferResponse(self.term, code))
            case StandingRequest():
                self.reply(ticket, self.on_standing_request(sender, message, known))
            case StandingResponse() if known:
                heed_standing_answer(self, sender, message)
            case _ if known and message.term > self.term:
                self.become_follower(message.term, None)
            case VoteResponse() if known:
                self.on_vote_response(sender, message)
            case HeartBeatResponse() if counts:
                self.on_heartbeat_response(sender, message)
            case PushResponse() | InstallResponse() if counts:
                self.on_push_response(sender, message)
            case TransferResponse() if known and sender == self.transfer.target and message.term == self.term:
                self.give_up_transfer()
        return self.actions()

    def unsent(self, peer: str, request: Request, now_ms: int) -> list[Action]:
        """A request that was to be sent was not, or no answer to it will come: it is under way no more. It is not repeated at
        once, for what refused it may refuse the next one as fast."""
        self.now_ms = now_ms
        if self.role is Role.LEADER and request.term == self.term:
            if peer in self.progress:
                self.progress[peer].unsent(request)
            if isinstance(request, TransferRequest) and peer == self.transfer.target:
                self.give_up_transfer()
        elif isinstance(request, VoteRequest | StandingRequest):
            self.proving.unreached(peer)
            if isinstance(request, VoteRequest) and peer == self.leader_id:
                self.leader_is_gone()
        return self.actions()

    def connection_lost(self, peer: str, now_ms: int) -> list[Action]:
        """The connection on which `peer` spoke last has ended; a leader's own word, on a new one, decides whether it leads."""
        self.now_ms = now_ms
        if self.role is Role.FOLLOWER and peer == self.leader_id:
            self.leader_sign.doubted = True
            self.send(peer, self.vote_request(pre_vote=True))
        return self.actions()

    def give_way(self, target: str | None, now_ms: int) -> list[Action]:
        """The leader hands over to `target` or its choice [3.10]: BecomeRole or TransferFailed within the shortest timeout."""
        self.now_ms = now_ms
        assert self.role is Role.LEADER, "only a leader has leadership to give"
        self.hand_over(target)
        return self.actions()

    def stand_back(self, now_ms: int, for_ms: int) -> list[Action]:
        """A leader of another list counts this member, or this one could not serve: it neither leads nor tries."""
        self.now_ms = now_ms
        self.stands_back_until_ms = now_ms + for_ms
        if self.role is not Role.FOLLOWER:
            self.become_follower(self.term, None)
        return self.actions()

    # The own disk: dledger.raft.proving and dledger.raft.startnumbers have the rules

    @property
    def counts(self) -> bool:
        """Whether it may vote, and what it acknowledges counts."""
        return self.proven and not self.standing.newcomer

    @property
    def wants_proof(self) -> bool:
        """Enough others have vouched for the disk; once its next number is durable it is to be `proved`."""
        return not self.proven and self.proving.is_enough(self.voters, self.quorum, self.now_ms)

    def ask_for_proof(self) -> None:
        """Whatever others answer, what they know of this member's disk comes with it."""
        if self.now_ms >= self.proving.due_ms:
            self.proving.due_ms = self.now_ms + self.settings.heartbeat_interval_ms
            for peer in self.voters:
                self.send(peer, self.vote_request(pre_vote=True))

    def vouched(self, peer: str, now_ms: int) -> list[Action]:
        """`peer` has heard of no newer disk of this member."""
        self.now_ms = now_ms
        self.proving.heard(peer)
        return self.actions()

    def proved(self, now_ms: int) -> list[Action]:
        """It counts from now on, unless it is a newcomer; others hear its number at once."""
        self.now_ms = now_ms
        self.proven = True
        for peer in self.voters:
            self.send(peer, self.vote_request(pre_vote=True))
        return self.actions()

    def set_back(self, now_ms: int) -> list[Action]:
        """Others have heard of a newer disk than it has: what it voted and acknowledged is forgotten, as by one that was
        emptied."""
        self.now_ms = now_ms
        if not self.standing.newcomer:
            if self.role is not Role.FOLLOWER:
                self.become_follower(self.term, None)
            session = self.draw(1, SESSION_MAX)
            self.standing = Standing(self.voters, newcomer=True, session=session, set_back=True)
            self.standing_due_ms = now_ms
            self.proven = False
        return self.actions()

    def restarted(self, peer: str, now_ms: int) -> list[Action]:
        """`peer` has begun a new life: it still has what it acknowledged before."""
        self.now_ms = now_ms
        if peer in self.progress:
            self.progress[peer].restarted()
            self.push(peer)
        return self.actions()

    # Standing: dledger.raft.standing has the rules, dledger.raft.admission what is done

    @property
    def has_past(self) -> bool:
        return self.term > 0 or self.log.last_index > NO_INDEX

    def on_standing_request(self, peer: str, request: StandingRequest, known: bool) -> StandingResponse:
        return standing_answer(self, peer, request, known)

    def settle_standing(self) -> None:
        settle_standing(self)

    # Elections

    @property
    def may_stand(self) -> bool:
        """Whether it may open an election, by itself or at a leader's word."""
        ready = self.counts and self.now_ms >= self.stands_back_until_ms
        return ready and self.membership.votes

    def draw_election_due(self) -> int:
        """Randomised, so that candidates seldom meet [3.4]."""
        settings = self.settings
        return self.now_ms + self.draw(settings.election_timeout_min_ms, settings.election_timeout_max_ms)

    def leader_is_alive(self) -> bool:
        """Disruptive servers are not listened to while a leader is heard [4.2.3]."""
        return self.role is Role.LEADER or self.leader_sign.is_fresh(self.now_ms)

    def start_pre_vote(self) -> None:
        """Asks whether an election could be won, without opening a term [9.6]: an isolated member inflates no terms."""
        self.election_due_ms = self.draw_election_due()
        if not self.may_stand or self.disk.has_vote:
            return
        self.role = Role.CANDIDATE
        self.leader_id = None
        self.ask_for_votes(pre_vote=True)

    def start_election(self, *, transfer: bool = False) -> None:
        """Opens a term and votes for itself [3.4]."""
        assert self.counts, "who may not vote does not vote for itself either"
        self.role = Role.CANDIDATE
        self.leader_id = None
        self.adopt(self.term + 1)
        self.voted_for = self.self_id
        self.election_due_ms = self.draw_election_due()
        self.ask_for_votes(pre_vote=False, transfer=transfer)

    def ask_for_votes(self, *, pre_vote: bool, transfer: bool = False) -> None:
        self.ballots.open(self.self_id, pre_vote=pre_vote)
        for peer in self.voters:
            self.send(peer, self.vote_request(pre_vote=pre_vote, transfer=transfer))
        self.count_votes()

    def vote_request(self, *, pre_vote: bool, transfer: bool = False) -> VoteRequest:
        ballot = self.term + int(pre_vote)
        return VoteRequest(ballot, self.log.last_index, self.log.last_term, pre_vote, transfer)

    def count_votes(self) -> None:
        if len(self.ballots.votes) >= self.quorum:
            self.become_leader()
        elif self.ballots.pre_voting and len(self.ballots.pre_votes) >= self.quorum:
            self.start_election()

    def on_vote_request(self, candidate: str, request: VoteRequest) -> VoteResult:
        return judged_vote(self, candidate, request)

    def on_vote_response(self, voter: str, response: VoteResponse) -> None:
        """From the leader it is the answer to a doubt: only a leader says that there is one."""
        if voter == self.leader_id:
            if response.result is VoteResult.REJECT_ALREADY_HAS_LEADER:
                self.leader_sign.doubted = False
            else:
                self.leader_is_gone()
        elif self.role is Role.CANDIDATE and voter in self.voters:
            self.ballots.count(voter, response, self.term)
            self.count_votes()

    def leader_is_gone(self) -> None:
        """What led is gone, and its connection ended: no need to wait. Members stand one after the other, lest votes split."""
        if not self.leader_sign.doubted:
            return
        rank = sum(peer < self.self_id and peer != self.leader_id for peer in self.voters)
        self.become_follower(self.term, None)
        turn_ms = self.leader_sign.gone(self.now_ms, rank, self.settings.heartbeat_interval_ms)
        self.election_due_ms = min(self.election_due_ms, turn_ms)

    def adopt(self, term: int) -> None:
        assert term > self.term, "terms only rise"
        self.term = term
        self.voted_for = None
        self.ballots.close()

    def become_follower(self, term: int, leader_id: str | None) -> None:
        """Follows `leader_id` in `term`, or waits for a leader to show itself."""
        if term > self.term:
            self.adopt(term)
        if self.role is Role.LEADER:
            self.turn.reads.extend(self.reads.give_up())
            self.transfer.end()
            self.progress.clear()
        if self.role is not Role.FOLLOWER:
            self.election_due_ms = self.draw_election_due()
        self.role = Role.FOLLOWER
        self.leader_id = leader_id

    def become_leader(self) -> None:
        """Opens its term with a no-op: only an entry of its own term can carry earlier ones over the commit
        line [3.6.2, 6.4]."""
        self.role = Role.LEADER
        self.leader_id = self.self_id
        self.ballots.close()
        self.progress = {peer: Progress(self.log.last_index + 1, heard_ms=self.now_ms) for peer in self.peers}
        self.term_start_index = self.log.last_index + 1
        self.heartbeat_due_ms = self.now_ms + self.settings.heartbeat_interval_ms
        self.append_as_leader([b""])
        self.beat()

    # Leading

    def append_as_leader(self, bodies: Sequence[bytes | Block]) -> None:
        """The leader writes its own disk while the followers write theirs [10.2.1]."""
        self.append(Entries(self.log.last_index + 1, blocks_of(self.term, bodies)))
        for peer in self.peers:
            self.push(peer)

    def hears_quorum(self) -> bool:
        """A leader that a quorum has not answered for the longest election timeout steps down [6.2]."""
        since = self.now_ms - self.settings.election_timeout_max_ms
        return 1 + sum(known.votes_since(since) for known in self.voting.values()) >= self.quorum

    def beat(self) -> None:
        for peer, progress in self.progress.items():
            self.send_heartbeat(peer)
            progress.beat(self.now_ms, self.settings.push_timeout_ms)
            self.push(peer)

    def send_heartbeat(self, peer: str) -> None:
        self.progress[peer].round_sent = self.reads.round
        self.send(peer, HeartBeatRequest(self.term, self.reads.round))

    def push(self, peer: str, loaded: Loaded = ()) -> None:
        push_what_it_lacks(self, peer, loaded)

    def on_push_response(self, peer: str, response: PushResponse | InstallResponse) -> None:
        progress = self.progress[peer]
        was_whole = not progress.forgot
        if progress.answered(response, self.log, self.now_ms):
            self.advance_commit()
            self.push(peer)
            self.ask_transferee()
        elif progress.forgot and was_whole:
            self.turn.forgot = Forgot(peer, progress.promised_index, self.term)

    def advance_commit(self) -> None:
        """Commits what a quorum holds, but counts replicas only for an entry of the current term [3.6.2]."""
        held = sorted([self.durable_index, *(progress.match_index for progress in self.voting.values())])
        index = held[-self.quorum]
        if index > self.committed_index and self.may_count(index):
            self.committed_index = index
            ask_for_reads(self)
            for peer in self.peers:
                self.push(peer)

    def may_count(self, index: int) -> bool:
        return self.log.term_at(index) == self.term

    # Handing over

    def hand_over(self, target: str | None) -> None:
        begin_transfer(self, target)

    def ask_transferee(self) -> None:
        request = self.transfer.request(self.self_id, self.term, self.log.last_index, self.progress)
        if request is not None:
            self.send(request.transferee_id, request)

    def give_up_transfer(self) -> None:
        self.transfer.end()
        self.turn.transfer_failed = True

    def on_transfer_request(self, leader: str, request: TransferRequest) -> ResultCode:
        """The leader of this very term gives way: no pre-vote, and the votes need not wait until it is silent [3.10]."""
        own = self.self_id if leader == self.leader_id else None
        code = judged(request, own, self.term, self.log.last_index, may_stand=self.may_stand)
        if code is ResultCode.SUCCESS:
            self.start_election(transfer=True)
        return code

    def on_heartbeat_response(self, peer: str, response: HeartBeatResponse) -> None:
        if self.progress[peer].echoed(response, self.reads.round, self.now_ms):
            finish_reads(self)
            ask_round(self, peer)
            self.push(peer)

    # Following

    def follow(self, sender: str, term: int) -> ResultCode:
        """Accepts `sender` as the leader of `term`, unless the term is over or has another leader (then the sender lies)."""
        if term < self.term:
            return ResultCode.EXPIRED_TERM
        if term == self.term and self.leader_id not in (None, sender):
            return ResultCode.INCONSISTENT_LEADER
        self.become_follower(term, sender)
        self.leader_sign.heard(self.now_ms)
        self.election_due_ms = self.draw_election_due()
        return ResultCode.SUCCESS

    def on_push(self, leader: str, request: PushRequest, known: bool) -> PushResponse:
        """Accepts entries that follow a common one; cuts only at a proven conflict, never a committed entry [3.5]."""
        code = self.follow(leader, request.term) if known else ResultCode.UNKNOWN_MEMBER
        hint = (NO_TERM, NO_INDEX)
        if code is ResultCode.SUCCESS:
            prev, ours = request.prev_index, beyond_begin(request, self.log)
            if ours is not None and self.log.matches(ours.prev_index, ours.prev_term):
                code = self.accept_entries(ours)
            elif prev <= self.committed_index:
                code = ResultCode.INCONSISTENT_INDEX
            else:
                code, hint = ResultCode.INCONSISTENT_STATE, self.log.term_and_its_first_index(prev)
        return answer_to_push(request, self.term, code, self.log.last_index, hint, not self.counts)

    def accept_entries(self, request: PushRequest) -> ResultCode:
        conflict = self.log.find_conflict(request.entries)
        if conflict is not None:
            if conflict <= self.committed_index:
                return ResultCode.INCONSISTENT_INDEX
            if conflict <= self.log.last_index:
                self.cut(conflict)
            new = Entries.of(request.entries)[conflict - request.prev_index - 1 :]
            self.append(new.alone())
        proven_end = request.prev_index + len(request.entries)
        self.committed_index = max(self.committed_index, min(request.commit_index, proven_end))
        return ResultCode.SUCCESS

    def cut(self, index: int) -> None:
        self.log.cut(index)
        if self.membership.cut(index):
            self.members_changed()
        self.disk.cut(index)
        self.turn.cut_from = index

    def append(self, entries: Sequence[Entry]) -> None:
        self.log.append(entries)
        self.turn.entries += Entries.of(entries)
        if self.membership.take(entries):
            self.members_changed()

    def members_changed(self) -> None:
        """Votes that were given in another group count no more: a smaller one might take them for its majority."""
        self.ballots.close()
        self.acquainted.clear()
        self.standing.must_hear(self.voters)
        if self.role is Role.LEADER:
            for peer in self.progress.keys() - {*self.peers}:
                del self.progress[peer]
            for peer in [peer for peer in self.peers if peer not in self.progress]:
                self.progress[peer] = joined(self.log.last_index + 1, self.membership.index)

    # What goes out

    def send(self, to: str, request: Request) -> None:
        self.turn.messages.append(Send(to, request))

    def reply(self, ticket: int, response: Response) -> None:
        self.turn.messages.append(Reply(ticket, response))

    def actions(self) -> list[Action]:
        """Ends a turn."""
        if self.standing.newcomer:
            self.settle_standing()
        turn, self.turn = self.turn, Turn()
        vote = self.told.new_vote(Vote(self.term, self.voted_for, self.standing.newcomer))
        if turn.persists(vote):
            self.disk.waits(self.log.last_index, vote=vote is not None, now_ms=self.now_ms)
        told = self.told.news(BecomeRole(self.role, self.term, self.leader_id), self.committed_index)
        return turn.actions(vote, told, leads=self.role is Role.LEADER)
