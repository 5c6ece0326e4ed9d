"""The whole of Raft, without clock, disk or network: ticks, messages and proposals go in, actions come out.

The base is Ongaro, "Consensus: Bridging Theory and Practice" (2014); its section numbers are in square brackets. The parts:
`Raft`, below, has a member's state at all times, and elections and following. `LeaderState` (dledger.raft.leader) has the state
while a member leads, with a `Progress` for each follower (dledger.raft.progress). `RejoinState` (dledger.raft.rejoin) decides
when a member that may have forgotten its vote may vote again. `RaftLog` (dledger.raft.log) is the log. Upstream: MemberState,
DLedgerLeaderElector.

The caller must keep three rules, on which the safety of the group depends:
1. It performs the actions in the order given, across calls. Other actions may overtake a PersistThenSend that waits for the
   disk, with two exceptions: no action overtakes a PersistThenSend with a vote, and neither a PersistThenSend nor an answer to
   a PUSH overtakes any PersistThenSend.
2. It calls `persisted` once for each PersistThenSend, in order, when the disk has it.
3. After a failed write it performs nothing any more.

Invariants:
- `term` never falls, and `voted_for` is set at most once in a term; both are durable before a message that shows them leaves;
- committed_index <= log.last_index, and no entry at or below committed_index is ever cut;
- `leader` exists while this member leads, and its log is not cut meanwhile;
- three kinds of members count in no majority: a newcomer (dledger.raft.rejoin), a member that has just started and whose disk
  the others have not vouched for, and a learner. Majorities are those of the newest configuration in the log, committed or not.
  A member that does not vote in this configuration opens no election (dledger.raft.membership);
- each request passed to `receive` is answered by exactly one Reply with its ticket.

Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from dledger.raft.actions import (
    Action,
    BecomeRole,
    LastReady,
    Load,
    LoadChunk,
    ReadReady,
    Reply,
    Role,
    Send,
    Turn,
    Vote,
)
from dledger.raft.election import Ballots, LeaderContact, refusal_of_log
from dledger.raft.entries import NO_INDEX, NO_TERM, Block, Entries, Entry
from dledger.raft.errors import ChangeRefused, RefusalReason
from dledger.raft.leader import LeaderState
from dledger.raft.log import RaftLog, Unsynced
from dledger.raft.membership import Change, Members, RaftMembership, decode_configurations, encode_members
from dledger.raft.messages import (
    HeartBeatRequest,
    HeartBeatResponse,
    InstallRequest,
    InstallResponse,
    Message,
    PushRequest,
    PushResponse,
    RecoveryRequest,
    RecoveryResponse,
    Request,
    Response,
    ResultCode,
    TransferRequest,
    TransferResponse,
    VoteRequest,
    VoteResponse,
    VoteResult,
    answer_to_push,
)
from dledger.raft.progress import Loaded, Progress
from dledger.raft.rejoin import NO_SESSION, SESSION_MAX, DiskFreshnessCheck, RejoinState
from dledger.raft.settings import DLedgerSettings
from dledger.raft.snapshot import IncomingSnapshot, Snapshot


class Raft:
    """One member. Only the inputs change its state, and each of them returns the actions to perform.

    Times are monotonic milliseconds. `draw(low, high)` returns a random whole number, both ends included."""

    def __init__(
        self,
        *,
        membership: RaftMembership,
        settings: DLedgerSettings,
        draw: Callable[[int, int], int],
        now_ms: int,
        vote: Vote,
        log: RaftLog,
        committed_index: int,
        proven: bool = True,
    ) -> None:
        """`vote`, `log`, `committed_index` and `membership` come from the disk; the log must contain every committed entry. If
        the member is not `proven` and there are other voters, these must vouch for its disk."""
        self.self_id = membership.self_id
        self.membership = membership
        self.newer_config_peers: set[str] = set()
        """Members that are not in this member's list but in a newer list, which also has this member. A known member has
        confirmed it."""
        self.ask_for_members_due_ms = now_ms
        self.settings = settings
        self.draw = draw
        self.now_ms = now_ms
        self.log = log
        assert committed_index <= log.last_index, "committed entries are missing"
        self.term = max(vote.term, log.last_term, 0)
        self.voted_for = vote.voted_for if self.term == vote.term else None
        session = draw(1, SESSION_MAX) if vote.newcomer else NO_SESSION
        self.rejoin = RejoinState(self.voters, newcomer=vote.newcomer, session=session)
        self.recovery_due_ms = now_ms
        self.proven = proven or not self.voters
        """Whether other members have vouched for this member's disk."""
        self.proving = DiskFreshnessCheck(now_ms, settings.election_timeout_min_ms)
        self.is_candidate = False
        self.leader: LeaderState | None = None
        self.leader_id: str | None = None
        self.committed_index = committed_index
        self.disk = Unsynced(log.last_index, now_ms)
        self.leader_contact = LeaderContact(settings.election_timeout_min_ms)
        self.elections_suppressed_until_ms = now_ms
        self.election_due_ms = now_ms if not self.voters else self.random_election_due_ms()
        self.ballots = Ballots()
        self.incoming = IncomingSnapshot()
        self.turn = Turn()
        self.last_ready = LastReady(vote, BecomeRole(self.role, self.term, None), committed_index)

    @property
    def role(self) -> Role:
        if self.leader is not None:
            return Role.LEADER
        return Role.CANDIDATE if self.is_candidate else Role.FOLLOWER

    @property
    def durable_index(self) -> int:
        return self.disk.durable_index

    @property
    def peers(self) -> tuple[str, ...]:
        return self.membership.peers

    @property
    def voters(self) -> tuple[str, ...]:
        """The other members that vote."""
        return self.membership.voters

    @property
    def quorum(self) -> int:
        return self.membership.quorum

    @property
    def progress(self) -> Mapping[str, Progress]:
        """A leader's knowledge of the other members; empty if this member does not lead."""
        return {} if self.leader is None else self.leader.progress

    @property
    def members_committed(self) -> bool:
        return self.membership.index <= self.committed_index

    @property
    def transfers(self) -> bool:
        """Whether a leadership transfer of this leader is running."""
        return self.leader is not None and self.leader.transfer.under_way

    @property
    def term_start_index(self) -> int:
        """The index of the no-op that opened this leader's term; NO_INDEX if this member does not lead."""
        return NO_INDEX if self.leader is None else self.leader.term_start_index

    @property
    def next_tick_ms(self) -> int:
        """The time at which `tick` should be called next."""
        if self.rejoin.newcomer:
            return self.recovery_due_ms
        if self.leader is not None:
            return self.leader.next_tick_ms
        due_ms = self.election_due_ms
        return due_ms if self.proven else min(due_ms, self.proving.due_ms)

    @property
    def may_serve(self) -> bool:
        """Whether this member leads, and an entry of its own term is committed. Then all entries that earlier leaders committed
        are known as committed [6.4]."""
        return self.leader is not None and self.committed_index >= self.term_start_index

    # Inputs

    def begin(self, now_ms: int) -> None:
        """Takes part from now on. The election timeout is extended by the time before this call, in which no leader could be
        heard."""
        self.election_due_ms += now_ms - self.now_ms
        self.proving.begin(now_ms)
        self.now_ms = now_ms

    def tick(self, now_ms: int) -> list[Action]:
        """Called when time has passed. A leader sends heartbeats, resends requests and checks its quorum. Another member starts
        an election when its leader fell silent."""
        self.now_ms = now_ms
        if self.rejoin.newcomer:
            self.send_recovery_requests()
        elif self.leader is not None:
            self.leader.tick()
        elif now_ms >= self.election_due_ms:
            self.start_pre_vote()
        if not (self.proven or self.rejoin.newcomer):
            self.ask_for_proof()
        return self.actions()

    def propose(self, bodies: Sequence[bytes | Block], now_ms: int) -> list[Action]:
        """Appends one entry for each body to the leader's log; a later Commit covers these entries. Allowed only while
        `may_serve`."""
        assert self.leader is not None and self.may_serve, "a proposal needs a leader whose term has begun"
        assert not self.transfers, "a leader that transfers its leadership takes no proposals"
        self.now_ms = now_ms
        self.leader.append(bodies)
        return self.actions()

    def next_members(self, change: Change, know_changes: Collection[str]) -> Members:
        """The list that `reconfigure` would append for `change`. Raises ChangeRefused."""
        if self.leader is None or not self.may_serve:
            raise ChangeRefused(
                RefusalReason.NOT_BEGUN, "the leader has committed nothing in its term yet; try again"
            )
        return self.leader.next_members(change, know_changes)

    def reconfigure(self, members: Members, now_ms: int) -> list[Action]:
        """Appends the list that `next_members` allowed. The list is used at once; a later Commit covers its entry."""
        assert self.may_serve and self.members_committed, (
            "an entry of its term, and the change before, come first"
        )
        assert self.self_id in members.voters, "a leader does not remove itself"
        return self.propose([encode_members(members)], now_ms)

    def newer_config_peers_are(self, peers: Collection[str]) -> None:
        """Sets the members of a confirmed newer list that are not in this member's list."""
        if (found := set(peers)) != self.newer_config_peers:
            self.newer_config_peers = found
            self.ask_for_members_due_ms = self.now_ms  # the added ones may have a still newer list

    def ask_for_members(self, now_ms: int) -> list[Action]:
        """Called when a node that is not in the list of members shows a newer list, which known members must confirm. Pre-votes
        ask them, because every answer has the list of the answering member and a pre-vote changes nothing there. Strangers can
        cause one round of pre-votes in the shortest election timeout."""
        self.now_ms = now_ms
        if now_ms >= self.ask_for_members_due_ms:
            self.ask_for_members_due_ms = now_ms + self.settings.election_timeout_min_ms
            for peer in sorted({*self.peers, *self.newer_config_peers}):
                self.send(peer, self.vote_request(pre_vote=True))
        return self.actions()

    def read(self, read_id: int, now_ms: int) -> list[Action]:
        """Asks for a read-index [6.4]. One ReadReady is the answer, at once or later."""
        self.now_ms = now_ms
        if self.leader is not None:
            self.leader.read(read_id)
        else:
            self.turn.reads.append(ReadReady(read_id, None))
        return self.actions()

    def persisted(self, now_ms: int) -> list[Action]:
        """Called when the oldest unconfirmed PersistThenSend is durable."""
        self.now_ms = now_ms
        confirmed = self.disk.confirmed(now_ms)
        self.log.forget(self.durable_index)
        if self.leader is not None:
            self.leader.advance_commit()
        elif confirmed.vote:
            self.election_due_ms = max(self.election_due_ms, self.random_election_due_ms())
        return self.actions()

    def reclaimed(self, index: int) -> None:
        """Called when a durable snapshot covers the entries up to `index`, which may then be deleted."""
        self.log.begin_after(index)
        self.membership.history.forget(index)

    def loaded(self, load: Load | LoadChunk, loaded: Loaded, now_ms: int) -> list[Action]:
        """Handles the result of the read `load`: entries (none if the log changed meanwhile), or a part of a snapshot."""
        self.now_ms = now_ms
        if self.leader is not None:
            self.leader.loaded(load, loaded)
        return self.actions()

    def receive(self, sender: str, message: Message, now_ms: int, ticket: int = 0) -> list[Action]:
        """Handles a message from `sender`. The Reply to a request has its `ticket`. A node outside the list of members is
        answered, and changes nothing."""
        self.now_ms = now_ms
        known = sender in self.newer_config_peers or self.membership.knows(sender, self.committed_index)
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
                self.reply(ticket, self.on_install(sender, message, known))
            case TransferRequest():
                code = self.on_transfer_request(sender, message) if known else ResultCode.UNKNOWN_MEMBER
                self.reply(ticket, TransferResponse(self.term, code))
            case RecoveryRequest():
                self.reply(ticket, self.on_recovery_request(sender, message, known))
            case _ if known:
                self.on_response(sender, message)
        return self.actions()

    def on_response(self, sender: str, message: Message) -> None:
        """Handles an answer of a member. A newer term ends the present term. An answer of an older term changes nothing."""
        if isinstance(message, RecoveryResponse):
            self.on_recovery_response(sender, message)
            return
        if message.term > self.term:
            self.become_follower(message.term, None)
            return
        leader = self.leader if message.term == self.term else None
        match message:
            case VoteResponse():
                self.on_vote_response(sender, message)
            case HeartBeatResponse() if leader is not None and sender in leader.progress:
                leader.on_heartbeat_response(sender, message)
            case PushResponse() | InstallResponse() if leader is not None and sender in leader.progress:
                leader.on_push_response(sender, message)
            case TransferResponse() if leader is not None and sender == leader.transfer.target:
                leader.give_up_transfer()

    def unsent(self, peer: str, request: Request, now_ms: int) -> list[Action]:
        """Called when a request was not sent, or no answer to it will come, so that it is not in flight any more. It is not
        repeated at once, because the next request may fail as fast."""
        self.now_ms = now_ms
        if self.leader is not None and request.term == self.term:
            self.leader.unsent(peer, request)
        elif isinstance(request, VoteRequest | RecoveryRequest):
            self.proving.unreached(peer)
            if isinstance(request, VoteRequest) and peer == self.leader_id:
                self.leader_is_gone()
        return self.actions()

    def connection_lost(self, peer: str, now_ms: int) -> list[Action]:
        """Called when the connection of the last request from `peer` has ended. If `peer` is the leader, it is asked over a new
        connection whether it still leads."""
        self.now_ms = now_ms
        if self.role is Role.FOLLOWER and peer == self.leader_id:
            self.leader_contact.suspected = True
            self.send(peer, self.vote_request(pre_vote=True))
        return self.actions()

    def transfer_leadership(self, target: str | None, now_ms: int) -> list[Action]:
        """Transfers the leadership to `target`, or to this leader's choice [3.10]. BecomeRole or TransferFailed follows within
        the shortest election timeout."""
        self.now_ms = now_ms
        assert self.leader is not None, "only a leader has leadership to transfer"
        self.leader.transfer_leadership(target)
        return self.actions()

    def suppress_elections(self, now_ms: int, for_ms: int) -> list[Action]:
        """Called when a leader of another list counts this member, or when this member could not serve. This member then
        neither leads nor opens an election for `for_ms`."""
        self.now_ms = now_ms
        self.elections_suppressed_until_ms = now_ms + for_ms
        if self.role is not Role.FOLLOWER:
            self.become_follower(self.term, None)
        return self.actions()

    # This member's disk; the rules are in dledger.raft.rejoin and dledger.raft.startnumbers

    @property
    def counts(self) -> bool:
        """Whether this member may vote, and its acknowledgements count."""
        return self.proven and not self.rejoin.newcomer

    @property
    def wants_proof(self) -> bool:
        """Whether enough other members have vouched for this disk. The caller then makes the next start number durable and
        calls `proved`."""
        return not self.proven and self.proving.is_enough(self.voters, self.quorum, self.now_ms)

    def ask_for_proof(self) -> None:
        """Sends pre-votes. Every answer has the start number of this member that the answering member knows."""
        if self.now_ms >= self.proving.due_ms:
            self.proving.due_ms = self.now_ms + self.settings.heartbeat_interval_ms
            for peer in self.voters:
                self.send(peer, self.vote_request(pre_vote=True))

    def vouched(self, peer: str, now_ms: int) -> list[Action]:
        """Called when `peer` knows no newer disk of this member."""
        self.now_ms = now_ms
        self.proving.vouched(peer)
        return self.actions()

    def proved(self, now_ms: int) -> list[Action]:
        """Called when this member's disk is proven. The member counts from now on, unless it is a newcomer. The other members
        receive its number at once."""
        self.now_ms = now_ms
        self.proven = True
        for peer in self.voters:
            self.send(peer, self.vote_request(pre_vote=True))
        return self.actions()

    def set_back(self, now_ms: int) -> list[Action]:
        """Called when other members know a newer disk of this member. This member has then lost votes and acknowledgements, as
        if its disk were empty. A newcomer has already lost them, but it also needs a newer number than the other members know:
        until then they ignore its messages."""
        self.now_ms = now_ms
        self.proven = False
        if not self.rejoin.newcomer:
            if self.role is not Role.FOLLOWER:
                self.become_follower(self.term, None)
            session = self.draw(1, SESSION_MAX)
            self.rejoin = RejoinState(self.voters, newcomer=True, session=session, set_back=True)
            self.recovery_due_ms = now_ms
        return self.actions()

    def restarted(self, peer: str, now_ms: int) -> list[Action]:
        """Called when `peer` has restarted and must still have the entries that it acknowledged."""
        self.now_ms = now_ms
        if self.leader is not None:
            self.leader.restarted(peer)
        return self.actions()

    # Rejoining

    @property
    def has_past(self) -> bool:
        return self.term > 0 or self.log.last_index > NO_INDEX

    def send_recovery_requests(self) -> None:
        """Sends recovery requests to all members, and to members of a newer list, because this member's list may not contain
        the leader yet."""
        if self.now_ms >= self.recovery_due_ms:
            self.recovery_due_ms = self.now_ms + self.settings.heartbeat_interval_ms
            for peer in sorted({*self.peers, *self.newer_config_peers}):
                self.send(peer, RecoveryRequest(self.term, self.rejoin.session))

    def on_recovery_request(self, peer: str, request: RecoveryRequest, known: bool) -> RecoveryResponse:
        """Answers a newcomer. A leader forgets everything that `peer` acknowledged before. An answer to a node outside the list
        of members never says that the group is new."""
        admits = NO_INDEX if self.leader is None else self.leader.admit(peer, request.session)
        return RecoveryResponse(self.term, request.session, self.has_past or not known, admits)

    def on_recovery_response(self, peer: str, response: RecoveryResponse) -> None:
        if response.term > self.term:
            self.become_follower(response.term, None)
        if response.session == self.rejoin.session:
            self.rejoin.answered(peer, has_past=response.has_past, term=response.term, admits=response.admits)

    def maybe_finish_recovery(self) -> None:
        """Lets a newcomer vote once it knows enough. Its vote in the term in which it was caught up counts as given. Only a
        committed list of members is used, because each member that may have got the newcomer's forgotten vote is in this list,
        and all voters of the list must have answered."""
        held_index = min(self.committed_index, self.durable_index)
        if not self.has_past and self.rejoin.group_is_new:
            self.rejoin.newcomer = False
            if self.voters:
                self.election_due_ms = self.random_election_due_ms()
            else:
                self.start_pre_vote()
        elif self.members_committed and self.rejoin.is_caught_up(self.term, held_index):
            self.rejoin.newcomer = False
            self.voted_for = self.leader_id

    # Elections

    @property
    def promotable(self) -> bool:
        """Whether this member may open an election, by itself or on a leader's request."""
        ready = self.counts and self.now_ms >= self.elections_suppressed_until_ms
        return ready and self.membership.votes

    def random_election_due_ms(self) -> int:
        """The time of the next election. It is random, so that two candidates seldom compete [3.4]."""
        settings = self.settings
        return self.now_ms + self.draw(settings.election_timeout_min_ms, settings.election_timeout_max_ms)

    def leader_is_alive(self) -> bool:
        """Whether a leader is alive. Disruptive servers are ignored meanwhile [4.2.3]."""
        return self.leader is not None or self.leader_contact.is_fresh(self.now_ms)

    def start_pre_vote(self) -> None:
        """Asks whether an election could be won, without opening a term [9.6]. So an isolated member uses up no terms."""
        self.election_due_ms = self.random_election_due_ms()
        if not self.promotable or self.disk.has_vote:
            return
        self.is_candidate = True
        self.leader_id = None
        self.campaign(pre_vote=True)

    def start_election(self, *, transfer: bool = False) -> None:
        """Opens a term, in which this member votes for itself [3.4]."""
        assert self.counts, "a member that may not vote does not vote for itself either"
        self.is_candidate = True
        self.leader_id = None
        self.adopt(self.term + 1)
        self.voted_for = self.self_id
        self.election_due_ms = self.random_election_due_ms()
        self.campaign(pre_vote=False, transfer=transfer)

    def campaign(self, *, pre_vote: bool, transfer: bool = False) -> None:
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
        """Grants one vote in a term, to the first candidate [3.4] whose log is at least as complete as this member's [3.6.1].
        The list of this member need not have the candidate or this member as a voter, because it may be older than the
        candidate's list [4.1]."""
        if request.term < self.term or (request.pre_vote and request.term == self.term):
            return VoteResult.REJECT_EXPIRED_VOTE_TERM
        if self.leader_is_alive() and self.leader_id != candidate and not request.transfer:
            return VoteResult.REJECT_ALREADY_HAS_LEADER
        if request.term > self.term and not request.pre_vote:
            self.become_follower(request.term, None)
        if not self.counts:
            return VoteResult.REJECT_NEWCOMER
        if (refusal := refusal_of_log(request, self.log)) is not None:
            return refusal
        if not request.pre_vote:
            if self.voted_for not in (None, candidate) or self.leader_id is not None:
                return VoteResult.REJECT_ALREADY_VOTED
            self.voted_for = candidate
            self.election_due_ms = self.random_election_due_ms()
        return VoteResult.ACCEPT

    def on_vote_response(self, voter: str, response: VoteResponse) -> None:
        """Counts a vote. A vote response from the leader is the answer to a suspicion: REJECT_ALREADY_HAS_LEADER means that it
        still leads."""
        if voter == self.leader_id:
            if response.result is VoteResult.REJECT_ALREADY_HAS_LEADER:
                self.leader_contact.suspected = False
            else:
                self.leader_is_gone()
        elif self.is_candidate and voter in self.voters:
            self.ballots.count(voter, response, self.term)
            self.count_votes()

    def leader_is_gone(self) -> None:
        """Called when the suspected leader is gone: its connection ended, so there is no need to wait for the timeout. Members
        open elections one after the other, so that votes do not split."""
        if not self.leader_contact.suspected:
            return
        rank = sum(peer < self.self_id and peer != self.leader_id for peer in self.voters)
        self.become_follower(self.term, None)
        turn_ms = self.leader_contact.gone(self.now_ms, rank, self.settings.heartbeat_interval_ms)
        self.election_due_ms = min(self.election_due_ms, turn_ms)

    def on_transfer_request(self, leader: str, request: TransferRequest) -> ResultCode:
        """Opens an election because the leader of this term transfers its leadership. There is no pre-vote, and voters need not
        wait until the leader is silent [3.10]."""
        if leader != self.leader_id or request.transferee_id != self.self_id:
            return ResultCode.INCONSISTENT_LEADER
        if request.term != self.term:
            return ResultCode.INCONSISTENT_TERM
        if self.log.last_index < request.take_index or not self.promotable:
            return ResultCode.TAKE_LEADERSHIP_FAILED
        self.start_election(transfer=True)
        return ResultCode.SUCCESS

    # Roles

    def adopt(self, term: int) -> None:
        assert term > self.term, "terms only rise"
        self.term = term
        self.voted_for = None
        self.ballots.close()

    def become_follower(self, term: int, leader_id: str | None) -> None:
        """Follows `leader_id` in `term`; if this is None, waits for a leader's message."""
        if term > self.term:
            self.adopt(term)
        if self.role is not Role.FOLLOWER:
            self.election_due_ms = self.random_election_due_ms()
        if self.leader is not None:
            self.turn.reads.extend(self.leader.reads.give_up())
            self.leader = None
        self.is_candidate = False
        self.leader_id = leader_id

    def become_leader(self) -> None:
        self.is_candidate = False
        self.leader_id = self.self_id
        self.ballots.close()
        self.leader = LeaderState(self)
        self.leader.begin()

    # Following

    def follow(self, sender: str, term: int) -> ResultCode:
        """Accepts `sender` as the leader of `term`, unless the term is over or has another leader."""
        if term < self.term:
            return ResultCode.EXPIRED_TERM
        if term == self.term and self.leader_id not in (None, sender):
            return ResultCode.INCONSISTENT_LEADER
        self.become_follower(term, sender)
        self.leader_contact.heard(self.now_ms)
        self.election_due_ms = self.random_election_due_ms()
        return ResultCode.SUCCESS

    def on_push(self, leader: str, request: PushRequest, known: bool) -> PushResponse:
        """Accepts entries that follow a common entry. The log is cut only at a proven conflict, and never at a committed entry
        [3.5]."""
        code = self.follow(leader, request.term) if known else ResultCode.UNKNOWN_MEMBER
        hint = (NO_TERM, NO_INDEX)
        if code is ResultCode.SUCCESS:
            prev, ours = request.prev_index, trim_to_log_start(request, self.log)
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
        self.commit(min(request.commit_index, proven_end))
        return ResultCode.SUCCESS

    def on_install(self, leader: str, request: InstallRequest, known: bool) -> InstallResponse:
        """Receives a part of a snapshot. The last part replaces the log, unless the log holds the snapshot's last entry [5]."""
        code = self.follow(leader, request.term) if known else ResultCode.UNKNOWN_MEMBER
        held = 0
        if code is ResultCode.SUCCESS:
            code, held = self.take_part(request)
        return InstallResponse(self.term, code, request.index, held, request.session, not self.counts)

    def take_part(self, request: InstallRequest) -> tuple[ResultCode, int]:
        """Returns the code of the answer, and the number of bytes of the snapshot that are here."""
        index = request.index
        if index <= self.committed_index or self.log.matches(index, request.index_term):
            self.commit(index)
            self.incoming.forget()
            return ResultCode.SUCCESS, request.size
        if request.size > self.settings.snapshot_bytes_max:
            return ResultCode.UNEXPECTED_ARGUMENT, 0
        held = self.incoming.take(request)
        if held < request.size:
            return ResultCode.SUCCESS, held
        state = self.incoming.complete()
        if state is None:
            return ResultCode.INCONSISTENT_STATE, 0
        configurations = decode_configurations(f"the snapshot that ends with entry {index}", request.members)
        self.restore(Snapshot(index, request.index_term, state, configurations=configurations))
        return ResultCode.SUCCESS, held

    def restore(self, snapshot: Snapshot) -> None:
        """Replaces the log, which does not hold the last entry of `snapshot`. This entry is committed, so every committed entry
        of the log is covered by the snapshot. Until the snapshot is durable, the entries committed before count as durable."""
        self.disk.cut(self.committed_index + 1)
        self.log.restart(snapshot.last_index, snapshot.last_term)
        self.membership.restart(snapshot.configurations)
        self.members_changed()
        self.commit(snapshot.last_index)
        self.turn.snapshot = snapshot

    # The log

    def commit(self, index: int) -> None:
        """Moves the commit index to `index`, but never back."""
        self.committed_index = max(self.committed_index, index)

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
        """Called when the configuration changes. Votes under the former configuration do not count any more, because they might
        be a majority of a smaller configuration."""
        self.ballots.close()
        self.newer_config_peers.clear()
        self.rejoin.voters_changed(self.voters)
        if self.leader is not None:
            self.leader.members_changed()

    # Output

    def send(self, to: str, request: Request) -> None:
        self.turn.messages.append(Send(to, request))

    def reply(self, ticket: int, response: Response) -> None:
        self.turn.messages.append(Reply(ticket, response))

    def actions(self) -> list[Action]:
        """Ends a turn, and returns its actions."""
        if self.rejoin.newcomer:
            self.maybe_finish_recovery()
        turn, self.turn = self.turn, Turn()
        vote = self.last_ready.new_vote(Vote(self.term, self.voted_for, self.rejoin.newcomer))
        if turn.persists(vote):
            self.disk.waits(self.log.last_index, vote=vote is not None, now_ms=self.now_ms)
        changed = self.last_ready.changed(
            BecomeRole(self.role, self.term, self.leader_id), self.committed_index
        )
        return turn.actions(vote, changed, leads=self.leader is not None)


def trim_to_log_start(push: PushRequest, log: RaftLog) -> PushRequest | None:
    """The part of `push` after the beginning of `log`. Earlier entries are committed, so they are the same here; None if `push`
    contradicts this."""
    behind = log.prev_index - push.prev_index
    if behind <= 0:
        return push
    gone = push.entries[:behind]
    if len(gone) == behind and gone[-1].term != log.term_at(log.prev_index):
        return None
    return replace(
        push, prev_index=log.prev_index, prev_term=log.term_at(log.prev_index), entries=push.entries[behind:]
    )
