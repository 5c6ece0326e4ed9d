"""Scenarios of Raft as readable transcripts: commands, each followed by the results that the cores reported.

    > group a b c        members, with the terms of their entries after a colon: a:1,1,2
    > elect a            it is elected, and all messages are delivered; the steps are not shown
    > tick a 600         600 ms pass for `a`
    > deliver            delivers all messages in flight; `deliver all` until none is left; `deliver a>b b>a`
    > lose a>b           messages from a to b are lost; without a pair, all
    > cut a b            a and b are partitioned from now on; `heal`
    > hold a             the disk of `a` hangs; `sync a`: its writes complete
    > propose a x y      one entry for each body
    > read a 1           a read, by its number
    > transfer a b       leadership; `transfer a` to the most up-to-date member
    > change a add d     add, promote, remove
    > restart a          from its disk; `empty a`: another disk; `start d a b c`: a newcomer with that list
    > reclaim a 2        a snapshot up to entry 2 is on disk at `a`, and these entries are gone
    > show               each member's role, term, log and committed index

An entry is written as index@term. `python -m tests.unit.dledger.transcript` rewrites the results: read them
before you commit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from zlib import crc32

from dledger.raft.actions import (
    Action,
    BecomeRole,
    Commit,
    Forgot,
    Load,
    LoadChunk,
    PersistThenSend,
    ReadReady,
    Reply,
    Restore,
    Role,
    Send,
    TransferFailed,
    Vote,
)
from dledger.raft.entries import NO_INDEX, Entries, Entry
from dledger.raft.errors import ChangeRefused
from dledger.raft.log import RaftLog
from dledger.raft.membership import Change, Members, RaftMembership, Step
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
    ResultCode,
    TransferRequest,
    TransferResponse,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from dledger.raft.progress import Chunk
from dledger.raft.raft import Raft
from dledger.raft.settings import DLedgerSettings
from dledger.raft.snapshot import Snapshot

FOLDER = Path(__file__).with_name("transcripts")
SETTINGS = DLedgerSettings(
    heartbeat_interval_ms=150, election_timeout_min_ms=600, election_timeout_max_ms=1200, push_timeout_ms=400
)
ROUNDS_MAX = 30
COMMANDS = frozenset(
    {
        "group", "start", "elect", "tick", "deliver", "lose", "cut", "heal", "hold", "sync", "propose", "read",
        "transfer", "change", "restart", "empty", "reclaim", "show",
    }
)  # fmt: skip


@dataclass
class Disk:
    """The durable state of a member, and the writes that wait while its disk hangs."""

    vote: Vote = field(default_factory=Vote)
    log: list[Entry] = field(default_factory=list)
    hangs: bool = False
    waiting: list[PersistThenSend] = field(default_factory=list)


@dataclass
class InFlight:
    """A message in flight."""

    sender: str
    receiver: str
    message: Message
    is_answer: bool


class Transcript:
    """Runs commands and collects their results."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.cores: dict[str, Raft] = {}
        self.disks: dict[str, Disk] = {}
        self.on_the_way: list[InFlight] = []
        self.cuts: set[frozenset[str]] = set()
        self.asked: dict[int, tuple[str, str]] = {}
        self.said: list[str] = []
        self.sessions: dict[int, int] = {}

    def run(self, command: str) -> list[str]:
        """Run `command` and return its lines. Raises: ValueError for an unknown command."""
        self.said = []
        name, *words = command.split()
        if name not in COMMANDS:
            raise ValueError(f"no such command: {command}")
        getattr(self, name)(*words)
        return self.said

    # Commands

    def group(self, *members: str) -> None:
        logs = {name: terms for name, _, terms in (member.partition(":") for member in members)}
        for name, terms in logs.items():
            log = [Entry(index, int(term), b"") for index, term in enumerate(filter(None, terms.split(",")))]
            self.disks[name] = Disk(Vote(log[-1].term if log else 0), log)
            self._begin(name, tuple(logs))

    def start(self, name: str, *members: str) -> None:
        self.disks[name] = Disk(Vote(newcomer=True))
        self._begin(name, members)

    def elect(self, name: str) -> None:
        self.tick(name, str(SETTINGS.election_timeout_max_ms))
        self.deliver("all")
        assert self.cores[name].role is Role.LEADER
        self.said = []

    def tick(self, name: str, ms: str) -> None:
        self.now_ms += int(ms)
        self._take(name, self.cores[name].tick(self.now_ms))

    def deliver(self, *pairs: str) -> None:
        """One round, or `all`."""
        for _ in range(ROUNDS_MAX if pairs == ("all",) else 1):
            wanted = [
                each for each in self.on_the_way if pairs in ((), ("all",)) or self._pair(each) in pairs
            ]
            self.on_the_way = [each for each in self.on_the_way if each not in wanted]
            for each in wanted:
                self._hand_over(each)

    def lose(self, *pairs: str) -> None:
        self.on_the_way = [each for each in self.on_the_way if pairs and self._pair(each) not in pairs]

    def cut(self, one: str, *others: str) -> None:
        self.cuts |= {frozenset((one, other)) for other in others}

    def heal(self) -> None:
        self.cuts.clear()

    def hold(self, name: str) -> None:
        self.disks[name].hangs = True

    def sync(self, name: str) -> None:
        disk = self.disks[name]
        disk.hangs, waiting, disk.waiting = False, disk.waiting, []
        for write in waiting:
            self._persist(name, write)

    def propose(self, name: str, *bodies: str) -> None:
        self._take(name, self.cores[name].propose([body.encode() for body in bodies], self.now_ms))

    def read(self, name: str, number: str) -> None:
        self._take(name, self.cores[name].read(int(number), self.now_ms))

    def transfer(self, name: str, target: str | None = None) -> None:
        self._take(name, self.cores[name].transfer_leadership(target, self.now_ms))

    def change(self, name: str, step: str, member: str) -> None:
        core = self.cores[name]
        try:
            wanted = Change(Step(step), member, f"{member}:1" if step == "add" else "")
            members = core.next_members(wanted, set(core.peers))
        except ChangeRefused as refusal:
            self._say(f"refused: {refusal}")
            return
        self._take(name, core.reconfigure(members, self.now_ms))

    def restart(self, name: str) -> None:
        self._begin(name, tuple(self.cores[name].membership.members.addresses))

    def empty(self, name: str) -> None:
        self.disks[name] = Disk(Vote(newcomer=True))
        self.restart(name)

    def reclaim(self, name: str, index: str) -> None:
        """A snapshot up to entry `index` is durable, and those entries are deleted."""
        self.cores[name].reclaimed(int(index))

    def show(self) -> None:
        for name, core in self.cores.items():
            log = f"log {ends(core.log)}" if core.log.last_index > NO_INDEX else "log empty"
            votes = "" if core.counts else ", does not vote"
            self._say(
                f"{name}  {core.role.name} of term {core.term}, {log}, committed {core.committed_index}{votes}"
            )

    # Results

    def _begin(self, name: str, members: tuple[str, ...]) -> None:
        disk = self.disks[name]
        log = RaftLog(disk.log)
        log.forget(log.last_index)
        self.cores[name] = Raft(
            membership=RaftMembership(name, Members({member: f"{member}:1" for member in members}), ()),
            settings=SETTINGS,
            draw=lambda low, high: low if high < 1 << 40 else len(self.sessions) + 1,
            now_ms=self.now_ms,
            vote=disk.vote,
            log=log,
            committed_index=NO_INDEX,
        )

    def _pair(self, each: InFlight) -> str:
        return f"{each.sender}>{each.receiver}"

    def _hand_over(self, each: InFlight) -> None:
        if frozenset((each.sender, each.receiver)) in self.cuts:
            return
        core = self.cores[each.receiver]
        ticket = 0
        if not each.is_answer:
            ticket = len(self.asked) + 1
            self.asked[ticket] = each.receiver, each.sender
        self._take(each.receiver, core.receive(each.sender, each.message, self.now_ms, ticket))

    def _take(self, name: str, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Send(to, request):
                    self._send(InFlight(name, to, request, is_answer=False))
                case Reply(ticket, response):
                    self._send(InFlight(*self.asked[ticket], response, is_answer=True))
                case PersistThenSend():
                    self._say(f"{name} writes  {write(action)}")
                    if self.disks[name].hangs:
                        self.disks[name].waiting.append(action)
                    else:
                        self._persist(name, action)
                case LoadChunk():
                    log = self.cores[name].log
                    begin = log.prev_index, log.term_at(log.prev_index)
                    chunk = Chunk(*begin, len(STATE), crc32(STATE), 0, STATE)
                    self._take(name, self.cores[name].loaded(action, chunk, self.now_ms))
                case _:
                    self._say(f"{name} {event(action)}")

    def _persist(self, name: str, action: PersistThenSend) -> None:
        disk = self.disks[name]
        disk.vote = action.vote or disk.vote
        if action.snapshot is None:
            disk.log = disk.log[: action.cut_from] + list(action.entries)
        self._take(name, list(action.messages))
        self._take(name, self.cores[name].persisted(self.now_ms))

    def _send(self, each: InFlight) -> None:
        self.on_the_way.append(each)
        self._say(f"{each.sender} -> {each.receiver}  {described(each.message)}")

    def _say(self, line: str) -> None:
        self.said.append(line)


STATE = b"state"
"""The state in every snapshot."""


def ends(log: RaftLog) -> str:
    terms = [f"{index}@{log.term_at(index)}" for index in range(log.first_index, log.last_index + 1)]
    return " ".join(terms) if len(terms) < 9 else f"{terms[0]} .. {terms[-1]}"


def place(index: int, term: int) -> str:
    return "nothing" if index == NO_INDEX else f"{index}@{term}"


def listed(entries: object) -> str:
    return " ".join(f"{entry.index}@{entry.term}" for entry in Entries.of(entries))  # type: ignore[arg-type]


def write(action: PersistThenSend) -> str:
    parts = []
    if action.vote is not None:
        vote = action.vote
        parts.append(
            f"term {vote.term}, vote {vote.voted_for or 'none'}" + (", may not vote" * vote.newcomer)
        )
    if action.snapshot is not None:
        parts.append(f"a snapshot up to {place(action.snapshot.last_index, action.snapshot.last_term)}")
    if action.cut_from is not None:
        parts.append(f"cut from {action.cut_from}")
    if action.entries:
        parts.append(f"entries {listed(action.entries)}")
    return "; ".join(parts)


def event(action: Action) -> str:
    match action:
        case BecomeRole(role, term, leader):
            follows = f", {'follows ' + leader if leader else 'knows no leader'}" * (role is Role.FOLLOWER)
            return f"is {role.name} of term {term}{follows}"
        case Commit(index):
            return f"commits up to {index}"
        case ReadReady(number, index):
            return (
                f"read {number}: {'refused' if index is None else f'may be served once {index} is applied'}"
            )
        case TransferFailed():
            return "leads on: the transfer failed"
        case Load(peer, first, _):
            return f"reads entries from {first} on from its disk, for {peer}"
        case Restore(Snapshot(last_index, last_term)):
            return f"takes the state up to {place(last_index, last_term)}"
        case Forgot(peer, index):
            return f"finds out that {peer} forgot entries up to {index}"
    raise TypeError(action)


def described(message: Message) -> str:
    match message:
        case VoteRequest():
            kind = (
                "pre-vote"
                if message.pre_vote
                else "vote, at the leader's word,"
                if message.transfer
                else "vote"
            )
            end = place(message.ledger_end_index, message.ledger_end_term)
            return f"asks for a {kind} in term {message.term}; its log ends with {end}"
        case VoteResponse():
            kind = "pre-vote" if message.pre_vote else "vote"
            said = "gives its" if message.result is VoteResult.ACCEPT else f"{message.result.name}: no"
            return f"{said} {kind} in term {message.ballot_term}; its term is {message.term}"
        case HeartBeatRequest():
            return f"heartbeat of term {message.term}" + f", round {message.read_round}" * bool(
                message.read_round
            )
        case HeartBeatResponse():
            counts = ", counts for nothing" * message.newcomer
            code = "" if message.code is ResultCode.SUCCESS else f", {message.code.name}"
            return (
                f"answers a heartbeat in term {message.term}"
                + f", round {message.read_round}" * bool(message.read_round)
                + code
                + counts
            )
        case PushRequest():
            what = f": {listed(message.entries)}" if message.entries else ""
            behind = place(message.prev_index, message.prev_term)
            return f"{message.type.name} behind {behind}{what}; committed {message.commit_index}"
        case PushResponse():
            counts = ", counts for nothing" * message.newcomer
            if message.code is ResultCode.SUCCESS:
                return f"holds up to {message.index + message.count - 1}{counts}"
            hint = f", and term {message.x_term} from {message.x_index} on" * (message.x_index != NO_INDEX)
            return f"{message.code.name}: has not {message.index - 1}, ends with {message.end_index}{hint}{counts}"
        case InstallRequest():
            end = place(message.index, message.index_term)
            return f"snapshot up to {end}, bytes {message.offset} to {message.offset + len(message.data)} of {message.size}"
        case InstallResponse():
            return (
                f"has {message.offset} bytes of the snapshot up to {message.index}"
                + ", counts for nothing" * message.newcomer
            )
        case TransferRequest():
            return f"take the leadership, once your log has {message.take_index}"
        case TransferResponse():
            return f"{message.code.name} in term {message.term}"
        case RecoveryRequest():
            return "may have lost its vote: what do you know?"
        case RecoveryResponse():
            past = "knows of a past" if message.has_past else "knows of no past"
            admits = (
                "" if message.admits == NO_INDEX else f", it may vote once it holds up to {message.admits}"
            )
            return f"{past}; term {message.term}{admits}"
    raise TypeError(message)


def played(text: str) -> str:
    """`text` with the results of its commands."""
    return "\n".join(_lines(text)) + "\n"


def _lines(text: str) -> Iterator[str]:
    transcript = Transcript()
    for line in text.splitlines():
        if line.startswith("# "):
            yield line
            transcript = Transcript() if line.startswith("# ") and line.endswith(":") else transcript
        elif line.startswith("> "):
            yield line
            yield from (f"    {said}" for said in transcript.run(line[2:]))
        elif not line.startswith("    "):
            yield line


if __name__ == "__main__":
    for file in sorted(FOLDER.glob("*.txt")):
        file.write_text(played(file.read_text()))
