"""Raft cores joined by a list of messages: nothing moves unless a test says so."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from dledger.raft.actions import Action, Commit, PersistThenSend, ReadReady, Reply, Role, Send, Vote
from dledger.raft.entries import NO_INDEX, Entry
from dledger.raft.leader import LeaderState
from dledger.raft.log import UNLIMITED, RaftLog
from dledger.raft.membership import ConfigurationAt, Members, RaftMembership
from dledger.raft.messages import Message, VoteRequest, VoteResponse, VoteResult
from dledger.raft.raft import Raft
from dledger.raft.settings import DLedgerSettings

SETTINGS = DLedgerSettings(
    heartbeat_interval_ms=150, election_timeout_min_ms=600, election_timeout_max_ms=1200, push_timeout_ms=400
)
NAMES = ("a", "b", "c")


def entries(*terms: int) -> list[Entry]:
    """A log whose n-th entry has the n-th of these terms; bodies name index and term."""
    return [Entry(index, term, f"{index}@{term}".encode()) for index, term in enumerate(terms)]


def core(
    name: str = "a",
    members: Sequence[str] = NAMES,
    *,
    now_ms: int = 0,
    vote: Vote = Vote(),  # noqa: B008 (frozen)
    log: Sequence[Entry] = (),
    committed_index: int = NO_INDEX,
    recent_bytes_max: int = UNLIMITED,
    configurations: Sequence[ConfigurationAt] = (),
    proven: bool = True,
) -> Raft:
    """A member that draws the shortest timeout, started at `now_ms` with `log` on its disk; memory holds as
    many entries as allowed."""
    held = RaftLog(log, recent_bytes_max=recent_bytes_max)
    held.forget(held.last_index)
    return Raft(
        membership=RaftMembership(name, Members(dict.fromkeys(members, "")), configurations),
        settings=SETTINGS,
        draw=lambda low, high: low,
        now_ms=now_ms,
        vote=vote,
        log=held,
        committed_index=committed_index,
        proven=proven,
    )


def held(raft: Raft) -> list[Entry]:
    """The entries in its log."""
    return [raft.log.entry(index) for index in range(raft.log.first_index, raft.log.last_index + 1)]


def replies(actions: Iterable[Action]) -> list[object]:
    """The replies among actions, including those that wait for the disk."""
    found: list[object] = []
    for action in actions:
        if isinstance(action, PersistThenSend):
            found += replies(action.messages)
        elif isinstance(action, Reply):
            found.append(action.response)
    return found


def sent(actions: Iterable[Action]) -> list[tuple[str, object]]:
    """The requests among actions with their receivers."""
    found: list[tuple[str, object]] = []
    for action in actions:
        if isinstance(action, PersistThenSend):
            found += sent(action.messages)
        elif isinstance(action, Send):
            found.append((action.to, action.request))
    return found


def elected(raft: Raft, now_ms: int = 600) -> Raft:
    """Elect `raft` with all votes; its disk has confirmed nothing yet."""
    asked = sent(raft.tick(now_ms))
    while asked:
        peer, ballot = asked.pop(0)
        if isinstance(ballot, VoteRequest):
            vote = VoteResponse(raft.term, ballot.term, VoteResult.ACCEPT, ballot.pre_vote)
            asked += sent(raft.receive(peer, vote, now_ms))
    assert raft.role is Role.LEADER
    return raft


@dataclass
class Group:
    """Cores whose disk is instant; messages wait in `inbox` until `deliver` or are lost."""

    cores: dict[str, Raft]
    now_ms: int = 0
    inbox: list[tuple[str, str, Message]] = field(default_factory=list)
    commits: dict[str, int] = field(default_factory=dict)
    reads: dict[int, int | None] = field(default_factory=dict)
    disks: dict[str, tuple[Vote, list[Entry]]] = field(default_factory=dict)

    def take(self, name: str, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case PersistThenSend():
                    vote, log = self.disks.get(name, (Vote(), []))
                    log = log[: action.cut_from] + list(action.entries)
                    self.disks[name] = (action.vote or vote, log)
                    self.take(name, list(action.messages))
                    self.take(name, self.cores[name].persisted(self.now_ms))
                case Send(to, request):
                    self.inbox.append((name, to, request))
                case Commit(index):
                    self.commits[name] = index
                case ReadReady(read_id, index):
                    self.reads[read_id] = index

    def deliver(self, *, only: Iterable[str] = (), rounds: int = 12) -> None:
        """Deliver waiting messages and their replies until all is quiet; only members in `only` are
        connected."""
        allowed = set(only) or set(self.cores)
        for _ in range(rounds):
            waiting, self.inbox = self.inbox, []
            for sender, receiver, message in waiting:
                if {sender, receiver} <= allowed:
                    self.request(sender, receiver, message)

    def request(self, sender: str, receiver: str, message: Message) -> None:
        actions = self.cores[receiver].receive(sender, message, self.now_ms, 1)
        answers = replies(actions)
        self.take(receiver, actions)
        for answer in answers:
            self.take(sender, self.cores[sender].receive(receiver, answer, self.now_ms))  # type: ignore[arg-type]

    def elect(self, name: str, *, only: Iterable[str] = ()) -> None:
        """`name` times out long after the others heard a leader, and asks `only`."""
        self.now_ms += 5000
        self.take(name, self.cores[name].tick(self.now_ms))
        self.deliver(only=only)
        assert self.cores[name].role is Role.LEADER

    def beat(self, name: str, *, only: Iterable[str] = ()) -> None:
        self.now_ms += SETTINGS.heartbeat_interval_ms
        self.take(name, self.cores[name].tick(self.now_ms))
        self.deliver(only=only)

    def propose(self, name: str, *bodies: bytes) -> None:
        self.take(name, self.cores[name].propose(list(bodies), self.now_ms))

    def restart(self, name: str) -> None:
        vote, log = self.disks.get(name, (Vote(), []))
        self.cores[name] = core(name, list(self.cores), now_ms=self.now_ms, vote=vote, log=log)


def group(*names: str, **logs: list[Entry]) -> Group:
    """Members with these logs, all in the term of their last entry."""
    made = Group({})
    for name in names or NAMES:
        log = logs.get(name, [])
        term = log[-1].term if log else 0
        made.cores[name] = core(name, names or NAMES, vote=Vote(term), log=log)
        made.disks[name] = (Vote(term), list(log))
    return made


def leading(raft: Raft) -> LeaderState:
    """The leader state of `raft`, which must lead."""
    assert raft.leader is not None, "it does not lead"
    return raft.leader
