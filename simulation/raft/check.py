"""Checks the rules that must hold for a Raft group at every moment. The checker knows the state of all members, which no member
does.

Invariant: a checker only reads. It computes its expectations from the messages, votes, answers and syncs of all incarnations of
all members. So it notices if a member has forgotten something after a restart or after its disk was lost or set back.

Besides R1 to R10: R11, a member accepts only messages that a member sent; R12, a committed entry is durable on a majority of
disks; R13, no member truncates a committed entry; R14, only the leader of a member's own term makes it campaign; R15, entries
that a checkpoint covers are durable; R16, a snapshot holds the state that the entries up to its last one made; R17, a leader
counts a follower only for what it has answered in this term and since it last lost its disk; R18 of simulation.raft.positions;
M1 to M4 of simulation.raft.memberscheck; V2, each request that a leader waits for is under way; V3, the requests under way to
a follower keep the limits of the settings; V4, of several PUSHes under way each follows the one before it, and the first
follows what the follower has answered."""

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
from simulation.kernel.violation import Violation
from simulation.raft.memberscheck import MembersCheck
from simulation.raft.positions import PositionsCheck


def entry_of(node: DLedgerNode, index: int) -> Entry:
    """Entry `index` of a running member's log, from memory or, if the member does not keep it in memory, from the disk."""
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
    """All entries of the member's log, which begins after `prev_index`."""
    assert node.core is not None
    return {index: entry_of(node, index) for index in range(node.core.log.first_index, node.last_index + 1)}


def limit_of_one(core: Raft) -> int:
    """The greatest number of bytes in one PUSH."""
    return max(core.settings.push_bytes_max, core.settings.entry_bytes_max)


class RaftCheck:
    """The history of one group."""

    def __init__(self) -> None:
        self.leaders: dict[int, str] = {}
        self.votes: dict[tuple[str, int], str] = {}
        self.on_vote: Callable[[str], None] = lambda voter: None
        """Called with the voter's id when its vote, or its first answer in a new term, arrives."""
        self.on_message: Callable[[str, str, Message], None] = lambda receiver, sender, message: None
        """Called with each request that is sent and each answer that arrives."""
        self.terms: dict[str, int] = {}
        self.appended: dict[tuple[int, int], tuple[int, int]] = {}
        """(index, term) of each entry that any log ever had -> the term of the entry before it, and a hash of its body."""
        self.committed_log: list[Entry] = []
        self.applied: list[tuple[int, int]] = []
        """(index, hash of all bodies so far) of each applied entry. No-ops are not applied."""
        self.answered: dict[bytes, int] = {}
        self.refused: set[bytes] = set()
        self.committed: dict[int, int] = {}
        """By core number: the commit index that was seen last. Each incarnation has its own core number."""
        self.led: dict[int, int] = {}
        """By core number: the term in which the core led when it was seen last."""
        self.cores: list[Raft] = []
        self.nodes: dict[Raft, DLedgerNode] = {}
        self.moved: set[Raft] = set()
        """Cores that have run since the last look at them."""
        self.snapshots: Counter[str] = Counter()
        """How many snapshots were loaded, how many were installed, and how often the beginning of a log was deleted."""
        self.answered_ends: dict[tuple[str, int, int], int] = {}
        """(member, term, session) -> the index up to which the member has answered that its log matches the leader's."""
        self.pipelined = 0
        """How many looks saw a leader with several PUSHes under way to one follower."""
        self.batched = 0
        """How many calls applied several entries to a state machine."""
        self.said: set[tuple[str, Message]] = set()
        self.holders: Callable[[bytes, set[str]], set[str]] | None = None
        """Returns the members on whose disks an entry with this body is durable. The given members are assumed to hold it.
        None: not checked."""
        self.said_since_loss: dict[str, set[Message]] = {}
        self.lives: dict[str, set[int]] = {}
        """For each member that lost its disk: the sessions of its recovery requests since then, and the members that got
        one."""
        self.notified_of_loss: dict[str, set[str]] = {}
        self.members = MembersCheck(self.found)
        self.positions = PositionsCheck(self.found)
        self.looks_at_members = False
        """Whether the members of the group may change."""
        self.violation: Violation | None = None
        """The first violation. The world raises it, because raised inside a member it would only end that member."""

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
        """Whether `sender` sent the message with its present disk."""
        return sender not in self.said_since_loss or message in self.said_since_loss[sender]

    def believes(self, receiver: str, sender: str, message: Message) -> None:
        """Called when a message has reached the core of a member that has `sender` in its list."""
        self.was_said(receiver, sender, message)
        if isinstance(message, RecoveryRequest) and message.session in self.lives.get(sender, ()):
            self.notified_of_loss[sender].add(receiver)

    def was_said(self, receiver: str, sender: str, message: Message) -> None:
        """Called when a member accepts a message (R11)."""
        if (sender, message) not in self.said:
            raise self.found("R11", f"{receiver} accepts {message} of {sender}, which never sent it")

    def appends(self, core: Raft, entries: Iterable[Entry]) -> None:
        """Called when entries are appended to a member's log. Rule R3: two entries with equal index and term have the same body
        and the same entries before them."""
        before = core.log.last_term
        for entry in entries:
            made = before, crc32(entry.body)
            if self.appended.setdefault((entry.index, entry.term), made) != made:
                what = f"{core.self_id} appends entry {entry.index} of term {entry.term} with {made}"
                first = self.appended[entry.index, entry.term]
                raise self.found(
                    "R3", f"{what} (previous term, hash of the body), expected {first} as elsewhere"
                )
            before = entry.term

    def cuts(self, core: Raft, index: int) -> None:
        """A member truncates its log from `index` on (R13). If the member has just started and was not looked at yet, only the
        entries that it keeps in memory are checked."""
        node = self.nodes.get(core)
        for at in range(index, min(core.log.last_index + 1, len(self.committed_log))):
            if node is None and not core.log.holds(at):
                continue
            if self.committed_log[at] == (core.log.entry(at) if node is None else entry_of(node, at)):
                raise self.found(
                    "R13",
                    f"{core.self_id} truncates committed entry {at} of term {self.committed_log[at].term}",
                )

    def arrived(self, receiver: str, sender: str, message: Message) -> None:
        """A message arrived. The vote in it must agree with each earlier report of the vote (R2)."""
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
        """A member got a request to campaign. Only the leader of its own term may make it campaign (R14)."""
        if core.term != before[0] and (asked.term, sender) != before:
            raise self.found(
                "R14",
                f"{core.self_id} campaigns at the request of {sender} in term {asked.term}, "
                f"its leader was {before[1]} in term {before[0]}",
            )

    def emptied(self, member: str) -> None:
        """The member's disk is lost. It may begin in term 0, but must still never vote twice in a term."""
        self.terms.pop(member, None)
        self.said_since_loss[member] = set()
        self.lives[member], self.notified_of_loss[member] = set(), set()

    def new_core(self, node: DLedgerNode) -> int:
        """A member started. The recovered state must contain everything that its disk once promised to hold (R2), and terms
        never go down."""
        core = node.core
        assert core is not None
        self.nodes[core] = node
        self.cores.append(core)
        self.moved.add(core)
        if self.looks_at_members:
            self.members.started(core, list(entries_of(node).values()))
        return len(self.cores) - 1

    def look(self, number: int, node: DLedgerNode) -> None:
        """Check a running member after a step. This is cheap unless the member ran."""
        core = self.cores[number]
        if node.applied_index > core.committed_index:
            raise self.found(
                "R5", f"{core.self_id} applied {node.applied_index} and has committed {core.committed_index}"
            )
        if core not in self.moved:
            return
        self.moved.discard(core)
        if core.term < self.terms.get(core.self_id, 0):
            raise self.found(
                "R2", f"{core.self_id} went back to term {core.term} from {self.terms[core.self_id]}"
            )
        if core.durable_index > core.log.last_index or core.committed_index > core.log.last_index:
            raise self.found(
                "R6",
                f"{core.self_id} ends at {core.log.last_index}, "
                f"{core.committed_index} is committed, {core.durable_index} durable",
            )
        self.members.look(core)
        if core.role is Role.LEADER:
            self.look_at_leader(core, node)
            self.look_at_progress(core)
            if not core.disk.has_vote:  # a single voter sends nothing until its vote is durable
                self.look_at_calls(core, node)
        seen = self.committed.get(number, NO_INDEX)
        if core.committed_index != seen:
            self.look_at_commit(core, node, seen, led=self.led.get(number) == core.term)
            self.committed[number] = core.committed_index
        self.led[number] = core.term if core.role is Role.LEADER else NO_INDEX

    def look_at_progress(self, core: Raft) -> None:
        """Check the match index of each follower (R17), and the requests under way to them (V3, V4)."""
        limits, everywhere = core.settings, 0
        for peer, progress in core.progress.items():
            answered = self.answered_ends.get((peer, core.term, progress.session), NO_INDEX)
            if progress.match_index > answered:
                counted = f"{core.self_id} in term {core.term} counts {peer} for {progress.match_index}"
                raise self.found("R17", f"{counted}, which has answered {answered}")
            pushes = [one for one in progress.in_flight.requests if isinstance(one, PushRequest)]
            size = sum(len(entry.body) for push in pushes for entry in push.entries)
            everywhere += size
            few = len(progress.in_flight.requests) <= limits.pushes_in_flight_max
            if not few or (len(pushes) > 1 and size > limits.bytes_in_flight_max):
                what = f"{len(progress.in_flight.requests)} requests and {size} bytes are under way to {peer}"
                most = f"allowed are {limits.pushes_in_flight_max} and {limits.bytes_in_flight_max}"
                raise self.found("V3", f"{what}, {most}")
            if len(pushes) > 1:
                self.pipelined += 1
                ends = [progress.held_index, *(push.prev_index + len(push.entries) for push in pushes)]
                if any(push.prev_index > end for push, end in zip(pushes, ends, strict=False)):
                    what = f"{peer}, which holds {progress.held_index}, is sent a PUSH that follows none of {ends}"
                    raise self.found("V4", what)
                if progress.probing:
                    raise self.found(
                        "V4", f"{len(pushes)} PUSHes are under way to {peer}, which is probed: expected one"
                    )
        allowed = limits.all_bytes_in_flight_max + limit_of_one(core) * len(core.progress)
        if everywhere > allowed:
            what = (
                f"{everywhere} bytes are under way to all followers of {core.self_id}, allowed are {allowed}"
            )
            raise self.found("V3", what)

    def look_at_calls(self, core: Raft, node: DLedgerNode) -> None:
        """Each request that the leader waits for is carried by a call that will report its end (V2)."""
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
                raise self.found("V2", f"{core.self_id} waits for entries for {peer}, and no task reads them")
            for code, waiting in waits.items():
                if waiting > node._transport.calls[peer, code]:
                    raise self.found(
                        "V2", f"{core.self_id} waits for a {code.name} that nobody carries to {peer}"
                    )

    def look_at_leader(self, core: Raft, node: DLedgerNode) -> None:
        if core.voters and core.disk.has_vote:
            raise self.found(
                "R2", f"{core.self_id} leads term {core.term}, and its vote for itself is not durable"
            )
        known = self.leaders.get(core.term)
        if known is None:
            self.leaders[core.term] = core.self_id
            self.look_at_begin(core)
            for entry in self.committed_log[core.log.first_index :]:
                if entry.index > core.log.last_index or entry_of(node, entry.index) != entry:
                    raise self.found(
                        "R4",
                        f"leader {core.self_id} of term {core.term} is missing committed entry {entry.index}",
                    )
        elif known != core.self_id:
            raise self.found("R1", f"{known} and {core.self_id} both lead in term {core.term}")

    def look_at_commit(self, core: Raft, node: DLedgerNode, seen: int, *, led: bool) -> None:
        """Check the commit index. `led` means that the member led in this term at the last look, so it committed the new
        entries as leader."""
        index = core.committed_index
        if index < seen:
            raise self.found("R6", f"{core.self_id} took its commit index back from {seen} to {index}")
        if led and core.role is Role.LEADER and seen != NO_INDEX and core.log.term_at(index) != core.term:
            raise self.found(
                "R6",
                f"{core.self_id} in term {core.term} committed {index} of term {core.log.term_at(index)}",
            )
        self.look_at_begin(core)
        behind = max(seen, core.log.prev_index) + 1
        for entry in (entry_of(node, new) for new in range(behind, index + 1)):
            if entry.index == len(self.committed_log):
                self.committed_log.append(entry)
                self.members.decides(entry)
                self.look_at_disks(core, entry)
            elif self.committed_log[entry.index] != entry:
                known = self.committed_log[entry.index].term
                what = f"{core.self_id} commits entry {entry.index} of term {entry.term} that differs"
                raise self.found("R5", f"{what} from the committed one of term {known}")

    def look_at_begin(self, core: Raft) -> None:
        """Check a log that begins after a snapshot: the snapshot's last entry is committed (R16)."""
        index = core.log.prev_index
        if index == NO_INDEX:
            return
        if index >= len(self.committed_log) or self.committed_log[index].term != core.log.term_at(index):
            what = f"{core.self_id} begins after entry {index} of term {core.log.term_at(index)}"
            raise self.found("R16", f"{what}, which is not committed")

    def look_at_disks(self, core: Raft, entry: Entry) -> None:
        if self.holders is not None and entry.body:
            under_way = {
                member for member, notified in self.notified_of_loss.items() if core.self_id not in notified
            }
            holders = self.holders(entry.body, under_way)
            if not any(2 * len(group & holders) > len(group) for group in self.members.groups(core)):
                what = (
                    f"{core.self_id} commits entry {entry.index}, which is durable only on {sorted(holders)}"
                )
                raise self.found("R12", what)

    def saw_durable_term(self, member: str, term: int) -> None:
        """A member sent something in `term`, so it must never live in an older term again."""
        self.terms[member] = max(self.terms.get(member, 0), term)

    def saw_apply(self, member: str, position: int, index: int, body: bytes, previous: int) -> int:
        """A member applied its `position`-th entry. Returns the hash of its state."""
        state = crc32(body, previous)
        if position == len(self.applied):
            self.applied.append((index, state))
        elif self.applied[position] != (index, state):
            raise self.found("R5", f"{member} applied another entry {index} than others did")
        return state

    def saw_load(self, member: str, count: int, index: int, state: int) -> None:
        """A member loads a state of `count` applied entries, of which the last is `index`."""
        self.snapshots["loaded"] += 1
        if count and (count > len(self.applied) or self.applied[count - 1] != (index, state)):
            raise self.found("R16", f"{member} loads a state that no {count} entries up to {index} made")

    def look_at_state(self, node: DLedgerNode, index: int) -> None:
        """Check that the last change in the state of `node` is that of entry `index`."""
        at = bisect_right(self.applied, (node.applied_index, 1 << 32)) - 1
        wanted = self.applied[at][0] if at >= 0 else NO_INDEX
        if index != wanted:
            what = f"{node.self_id} has applied {node.applied_index}, its state ends with {index}, expected {wanted}"
            raise self.found("R16", what)

    def answer(self, body: bytes, index: int) -> None:
        """Called when a proposal was answered with success."""
        if index >= len(self.committed_log) or self.committed_log[index].body != body:
            raise self.found("R8", f"entry {index} was answered before it was committed")
        self.answered[body] = index

    def logs_match(self, members: Iterable[DLedgerNode]) -> None:
        """Check R3 for all running members: equal index and term mean equal prefix."""
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
        """Check that answered entries are still committed, and that rejected entries never appeared (R8)."""
        bodies = {entry.body: entry.index for entry in self.committed_log}
        for body, index in self.answered.items():
            if bodies.get(body) != index:
                raise self.found(
                    "R8", f"answered entry {index} is gone: its body is committed at {bodies.get(body)}"
                )
        if rejected := self.refused & bodies.keys():
            raise self.found(
                "R8", f"rejected proposals were committed at {sorted(bodies[body] for body in rejected)}"
            )
