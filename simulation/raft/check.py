"""What must hold for a Raft group at every moment, checked from outside with knowledge that no member has.

Invariant: a checker only reads, and computes what it expects from what was said, told, answered and synced, over all
incarnations of all members; so it notices what a restart, or another disk, made a member forget.

Besides R1 to R10: R11, a member believes only what a member has said; R12, what is decided is durable on a majority of disks;
R13, no member cuts what is decided; R14, only its leader's word makes a member stand for election; R15, what a checkpoint
vouches for is durable; R16, a snapshot holds what the entries up to its last one made; R17, a leader
counts a follower for what that has answered to this leadership in its present life; R18 of simulation.raft.positions; M1 to M4
of simulation.raft.memberscheck; V2, what a leader waits for is under way; V3, what is under way to a follower has the limits of
the settings; V4, several PUSHes are under way only one behind the other, and behind what the follower has answered."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable
from zlib import crc32

from dledger.node.node import DLedgerNode
from dledger.raft.actions import Role
from dledger.raft.entries import NO_INDEX, Entry
from dledger.raft.errors import LogDamaged
from dledger.raft.messages import (
    HeartBeatResponse,
    InstallRequest,
    InstallResponse,
    Message,
    MessageCode,
    PushRequest,
    PushResponse,
    RecoveryRequest,
    ResultCode,
    TransferRequest,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from dledger.raft.raft import Raft
from dledger.storage.entry import ENTRY_HEADER_BYTES
from simulation.raft.memberscheck import MembersCheck
from simulation.raft.positions import PositionsCheck


class Violation(AssertionError):
    """An invariant of the group is broken; `rule` names it (R1 to R18, M1 to M4, V2 to V4)."""

    def __init__(self, rule: str, what: str) -> None:
        super().__init__(f"{rule}: {what}")
        self.rule = rule


def entry_of(node: DLedgerNode, index: int) -> Entry:
    """What stands in the log of a running member: of what it does not keep in memory, on its disk."""
    core, disk = node.core, node.store.log
    assert core is not None and disk is not None
    if core.log.holds(index):
        return core.log.entry(index)
    try:
        unit = disk.stored_unit(index)
    except LogDamaged as error:
        raise Violation("R8", str(error)) from error
    body = disk.data.rest_of_file(unit.position)[ENTRY_HEADER_BYTES : unit.size]
    return Entry(index, core.log.term_at(index), bytes(body))


def entries_of(node: DLedgerNode) -> dict[int, Entry]:
    """Behind the entry that its log begins after."""
    assert node.core is not None
    return {index: entry_of(node, index) for index in range(node.core.log.first_index, node.last_index + 1)}


def limit_of_one(core: Raft) -> int:
    """Bytes in one PUSH at most."""
    return max(core.settings.push_bytes_max, core.settings.entry_bytes_max)


class RaftCheck:
    """The history of one group."""

    def __init__(self) -> None:
        self.leaders: dict[int, str] = {}
        self.votes: dict[tuple[str, int], str] = {}
        self.on_vote: Callable[[str], None] = lambda voter: None
        """Called with the voter's id when its vote arrives, or its first answer in a new term."""
        self.on_message: Callable[[str, str, Message], None] = lambda receiver, sender, message: None
        """Called with each request that is sent and each answer that arrives."""
        self.terms: dict[str, int] = {}
        self.appended: dict[tuple[int, int], tuple[int, int]] = {}
        """(index, term) of each entry that any log ever had -> the term of the one before it, and a hash of its body."""
        self.decided: list[Entry] = []
        self.applied: list[tuple[int, int]] = []
        """(index, hash of all bodies so far) of each applied entry; no-ops are not applied."""
        self.answered: dict[bytes, int] = {}
        self.refused: set[bytes] = set()
        self.committed: dict[int, int] = {}
        """Committed index seen last, by core number: one number per incarnation."""
        self.led: dict[int, int] = {}
        """Term in which it led when it was seen last, by core number."""
        self.cores: list[Raft] = []
        self.nodes: dict[Raft, DLedgerNode] = {}
        self.moved: set[Raft] = set()
        """Those that have had a turn since they were looked at."""
        self.snapshots: Counter[str] = Counter()
        """How many were loaded, installed, and let the beginning of a log go."""
        self.answered_ends: dict[tuple[str, int, int], int] = {}
        """Up to where a member has said, in a term and a session, that its log is the leader's."""
        self.pipelined = 0
        """Looks at leaders that had several PUSHes under way to one follower."""
        self.batched = 0
        """Calls that had a state machine apply several entries."""
        self.said: set[tuple[str, Message]] = set()
        self.holders: Callable[[bytes, set[str]], set[str]] | None = None
        """On whose disks an entry with this body is durable, these members taken for holders; None: not looked at."""
        self.said_since_loss: dict[str, set[Message]] = {}
        self.lives: dict[str, set[int]] = {}
        """Of each member that lost its disk, the sessions in which it asked since, and who has heard of one."""
        self.heard_of_loss: dict[str, set[str]] = {}
        self.members = MembersCheck(self.found)
        self.positions = PositionsCheck(self.found)
        self.looks_at_members = False
        """Whether they may change."""
        self.violation: Violation | None = None
        """The first one. Raised inside a member it would only end that member, so the world asks for it."""

    def found(self, rule: str, what: str) -> Violation:
        violation = Violation(rule, what)
        self.violation = self.violation or violation
        return violation

    def says(self, sender: str, message: Message) -> None:
        self.said.add((sender, message))
        if sender in self.said_since_loss:
            self.said_since_loss[sender].add(message)
        if isinstance(message, RecoveryRequest) and sender in self.lives:
            self.lives[sender].add(message.session)
        if isinstance(message, PushResponse | InstallResponse) and message.code is ResultCode.SUCCESS:
            key = sender, message.term, message.session
            end = message.index + message.count - 1 if isinstance(message, PushResponse) else message.index
            self.answered_ends[key] = max(end, self.answered_ends.get(key, NO_INDEX))

    def is_of_present_life(self, sender: str, message: Message) -> bool:
        """Whether `sender` said it with the disk that it has now."""
        return sender not in self.said_since_loss or message in self.said_since_loss[sender]

    def believes(self, receiver: str, sender: str, message: Message) -> None:
        """A message reached the core of a member (R11)."""
        if (sender, message) not in self.said:
            raise self.found("R11", f"{receiver} believes {message} of {sender}, which never said it")
        if isinstance(message, RecoveryRequest) and message.session in self.lives.get(sender, ()):
            self.heard_of_loss[sender].add(receiver)

    def appends(self, core: Raft, entries: Iterable[Entry]) -> None:
        """These go behind its log (R3): what has equal index and term is the same everywhere, and follows the same."""
        before = core.log.last_term
        for entry in entries:
            made = before, crc32(entry.body)
            if self.appended.setdefault((entry.index, entry.term), made) != made:
                what = (
                    f"{core.self_id} appends another entry {entry.index} of term {entry.term} than was made"
                )
                raise self.found("R3", f"{what}, or behind another one")
            before = entry.term

    def cuts(self, core: Raft, index: int) -> None:
        """A member takes what stands from there on out of its log (R13). Of one that started a moment ago and was not looked at
        yet only what it keeps in memory is known."""
        node = self.nodes.get(core)
        for at in range(index, min(core.log.last_index + 1, len(self.decided))):
            if node is None and not core.log.holds(at):
                continue
            if self.decided[at] == (core.log.entry(at) if node is None else entry_of(node, at)):
                raise self.found("R13", f"{core.self_id} cuts entry {at}, which is decided")

    def told(self, receiver: str, sender: str, message: Message) -> None:
        """A message arrived: the vote that it tells must never have been told otherwise (R2)."""
        match message:
            case VoteRequest(pre_vote=False):
                self.voted(sender, message.term, sender)
            case VoteResponse(result=VoteResult.ACCEPT, pre_vote=False):
                self.voted(sender, message.ballot_term, receiver)
                self.on_vote(sender)
            case HeartBeatResponse() if message.term > self.terms.get(sender, 0):
                self.on_vote(sender)

    def voted(self, voter: str, term: int, candidate: str) -> None:
        known = self.votes.setdefault((voter, term), candidate)
        if known != candidate:
            raise self.found("R2", f"{voter} voted for {known} and for {candidate} in term {term}")

    def handed_over(
        self, core: Raft, before: tuple[int, str | None], sender: str, asked: TransferRequest
    ) -> None:
        """A member was told to stand for election: only the leader of its own term can make it (R14)."""
        if core.term != before[0] and (asked.term, sender) != before:
            raise self.found(
                "R14",
                f"{core.self_id} stood for election at the word of {sender}, leader of term {asked.term}",
            )

    def emptied(self, member: str) -> None:
        """Its disk is lost: it may begin in term 0, and must still never be heard to vote twice in a term."""
        self.terms.pop(member, None)
        self.said_since_loss[member] = set()
        self.lives[member], self.heard_of_loss[member] = set(), set()

    def new_core(self, node: DLedgerNode) -> int:
        """A member started. What it recovered must reach as far as its disk once promised (R2, terms only
        rise)."""
        core = node.core
        assert core is not None
        self.nodes[core] = node
        self.cores.append(core)
        self.moved.add(core)
        if self.looks_at_members:
            self.members.started(core, list(entries_of(node).values()))
        return len(self.cores) - 1

    def look(self, number: int, node: DLedgerNode) -> None:
        """After each step, at each running member: cheap unless something moved."""
        core = self.cores[number]
        if node.applied_index > core.committed_index:
            raise self.found("R5", f"{core.self_id} applied {node.applied_index} before it was committed")
        if core not in self.moved:
            return
        self.moved.discard(core)
        if core.term < self.terms.get(core.self_id, 0):
            raise self.found(
                "R2", f"{core.self_id} went back to term {core.term} from {self.terms[core.self_id]}"
            )
        if core.durable_index > core.log.last_index or core.committed_index > core.log.last_index:
            raise self.found(
                "R6", f"{core.self_id} committed {core.committed_index} beyond its end {core.log.last_index}"
            )
        self.members.look(core)
        if core.role is Role.LEADER:
            self.look_at_leader(core, node)
            self.look_at_progress(core)
            if not core.disk.has_vote:  # who votes alone leads at once, and is silent until that is durable
                self.look_at_calls(core, node)
        seen = self.committed.get(number, NO_INDEX)
        if core.committed_index != seen:
            self.look_at_commit(core, node, seen, led=self.led.get(number) == core.term)
            self.committed[number] = core.committed_index
        self.led[number] = core.term if core.role is Role.LEADER else NO_INDEX

    def look_at_progress(self, core: Raft) -> None:
        """What the leader counts its followers for (R17), and what is under way to them (V3, V4)."""
        limits, everywhere = core.settings, 0
        for peer, progress in core.progress.items():
            told = self.answered_ends.get((peer, core.term, progress.session), NO_INDEX)
            if progress.match_index > told:
                counted = f"{core.self_id} in term {core.term} counts {peer} for {progress.match_index}"
                raise self.found("R17", f"{counted}, which has answered that it holds {told}")
            pushes = [one for one in progress.in_flight.requests if isinstance(one, PushRequest)]
            size = sum(len(entry.body) for push in pushes for entry in push.entries)
            everywhere += size
            few = len(progress.in_flight.requests) <= limits.pushes_in_flight_max
            if not few or (len(pushes) > 1 and size > limits.bytes_in_flight_max):
                what = f"{len(progress.in_flight.requests)} requests and {size} bytes are under way to {peer}"
                raise self.found("V3", what)
            if len(pushes) > 1:
                self.pipelined += 1
                ends = [progress.held_index, *(push.prev_index + len(push.entries) for push in pushes)]
                if any(push.prev_index > end for push, end in zip(pushes, ends, strict=False)):
                    what = f"{peer}, which holds {progress.held_index}, is sent what follows none of {ends}"
                    raise self.found("V4", what)
                if progress.probing:
                    raise self.found("V4", f"{peer} is compared more than once at a time")
        if everywhere > limits.all_bytes_in_flight_max + limit_of_one(core) * len(core.progress):
            raise self.found("V3", f"{everywhere} bytes are under way to all followers of {core.self_id}")

    def look_at_calls(self, core: Raft, node: DLedgerNode) -> None:
        """What the leader waits for is carried by a call, whose end it will be told (V2)."""
        for peer, progress in core.progress.items():
            requests = progress.in_flight.requests
            waits = {
                MessageCode.PUSH: sum(isinstance(request, PushRequest) for request in requests),
                MessageCode.INSTALL_SNAPSHOT: sum(
                    isinstance(request, InstallRequest) for request in requests
                ),
                MessageCode.HEART_BEAT: int(progress.round_sent > progress.read_round),
            }
            reads = {task.get_name() for task in node._tasks._tasks} if progress.loading else ()
            if progress.loading and f"dledger-load {core.self_id}->{peer}" not in reads:
                raise self.found("V2", f"{core.self_id} waits for entries for {peer} that nobody reads")
            for code, waiting in waits.items():
                if waiting > node._transport.calls[peer, code]:
                    raise self.found(
                        "V2", f"{core.self_id} waits for a {code.name} that nobody carries to {peer}"
                    )

    def look_at_leader(self, core: Raft, node: DLedgerNode) -> None:
        if core.voters and core.disk.has_vote:
            raise self.found("R2", f"{core.self_id} leads, and its vote for itself may still be forgotten")
        known = self.leaders.get(core.term)
        if known is None:
            self.leaders[core.term] = core.self_id
            self.look_at_begin(core)
            for entry in self.decided[core.log.first_index :]:
                if entry.index > core.log.last_index or entry_of(node, entry.index) != entry:
                    raise self.found(
                        "R4", f"leader {core.self_id} of term {core.term} lacks decided entry {entry.index}"
                    )
        elif known != core.self_id:
            raise self.found("R1", f"{known} and {core.self_id} both lead in term {core.term}")

    def look_at_commit(self, core: Raft, node: DLedgerNode, seen: int, *, led: bool) -> None:
        """`led`: it led in this term when it was last looked at, so what is new it committed as its leader."""
        index = core.committed_index
        if index < seen:
            raise self.found("R6", f"{core.self_id} took its committed index back from {seen} to {index}")
        if led and core.role is Role.LEADER and seen != NO_INDEX and core.log.term_at(index) != core.term:
            raise self.found(
                "R6",
                f"{core.self_id} in term {core.term} committed {index} of term {core.log.term_at(index)}",
            )
        self.look_at_begin(core)
        behind = max(seen, core.log.prev_index) + 1
        for entry in (entry_of(node, new) for new in range(behind, index + 1)):
            if entry.index == len(self.decided):
                self.decided.append(entry)
                self.members.decides(entry)
                self.look_at_disks(core, entry)
            elif self.decided[entry.index] != entry:
                raise self.found("R5", f"{core.self_id} commits another entry {entry.index} than was decided")

    def look_at_begin(self, core: Raft) -> None:
        """Where a snapshot stands for what is before, that was decided, and ends with what was."""
        index = core.log.prev_index
        if index == NO_INDEX:
            return
        if index >= len(self.decided) or self.decided[index].term != core.log.term_at(index):
            raise self.found("R16", f"{core.self_id} begins after another entry {index} than was decided")

    def look_at_disks(self, core: Raft, entry: Entry) -> None:
        if self.holders is not None and entry.body:
            under_way = {member for member, heard in self.heard_of_loss.items() if core.self_id not in heard}
            holders = self.holders(entry.body, under_way)
            if not any(2 * len(group & holders) > len(group) for group in self.members.groups(core)):
                what = f"{core.self_id} takes entry {entry.index} for decided, which {sorted(holders)} hold"
                raise self.found("R12", what)

    def saw_durable_term(self, member: str, term: int) -> None:
        """A member said something in `term`: it must never live in an older one again."""
        self.terms[member] = max(self.terms.get(member, 0), term)

    def saw_apply(self, member: str, position: int, index: int, body: bytes, previous: int) -> int:
        """A member applied its `position`-th entry; returns the hash of its state."""
        state = crc32(body, previous)
        if position == len(self.applied):
            self.applied.append((index, state))
        elif self.applied[position] != (index, state):
            raise self.found("R5", f"{member} applied another entry {index} than others did")
        return state

    def saw_load(self, member: str, count: int, index: int, state: int) -> None:
        """A member takes a state of so many applied entries, the last of them `index`."""
        self.snapshots["loaded"] += 1
        if count and (count > len(self.applied) or self.applied[count - 1] != (index, state)):
            raise self.found("R16", f"{member} loads a state that no {count} entries up to {index} made")

    def look_at_state(self, node: DLedgerNode, index: int) -> None:
        """The state of `node` has its last change from `index`."""
        at = bisect_right(self.applied, (node.applied_index, 1 << 32)) - 1
        wanted = self.applied[at][0] if at >= 0 else NO_INDEX
        if index != wanted:
            what = (
                f"{node.self_id} has applied {node.applied_index}, its state ends with {index}, not {wanted}"
            )
            raise self.found("R16", what)

    def answer(self, body: bytes, index: int) -> None:
        """A proposal was answered with success."""
        if index >= len(self.decided) or self.decided[index].body != body:
            raise self.found("R8", f"entry {index} was answered before it was decided")
        self.answered[body] = index

    def logs_match(self, members: Iterable[DLedgerNode]) -> None:
        """R3 over the running members: equal index and term means equal prefix."""
        logs = [entries_of(member) for member in members]
        for number, one in enumerate(logs):
            for other in logs[number + 1 :]:
                both = sorted(one.keys() & other.keys())
                while both and one[both[-1]].term != other[both[-1]].term:
                    both.pop()
                if any(one[index] != other[index] for index in both):
                    raise self.found(
                        "R3", f"two logs agree on the term of entry {both[-1]} but not on what is before"
                    )

    def at_the_end(self) -> None:
        """What was answered is decided still, and what was refused never appeared (R8)."""
        bodies = {entry.body: entry.index for entry in self.decided}
        for body, index in self.answered.items():
            if bodies.get(body) != index:
                raise self.found("R8", f"the answered entry {index} is gone")
        if self.refused & bodies.keys():
            raise self.found("R8", "a refused proposal was decided")
