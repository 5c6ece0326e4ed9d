"""What must hold for a Raft group at every moment, checked from outside with knowledge that no member has.

Invariant: a checker only reads. It keeps what was decided, told and answered over all incarnations of all
members, so it notices what a restart made a member forget."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from zlib import crc32

from dledger.actions import Role
from dledger.entry import NO_INDEX, Entry
from dledger.messages import (
    HeartBeatResponse,
    Message,
    MessageCode,
    TransferRequest,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from dledger.node import DLedgerNode
from dledger.raft import Raft


class Violation(AssertionError):
    """An invariant of the group is broken; `rule` names it (R1 to R11, V2)."""

    def __init__(self, rule: str, what: str) -> None:
        super().__init__(f"{rule}: {what}")
        self.rule = rule


def entries_of(core: Raft) -> list[Entry]:
    return [core.log.entry(index) for index in range(core.log.first_index, core.log.last_index + 1)]


class RaftCheck:
    """The history of one group."""

    def __init__(self) -> None:
        self.leaders: dict[int, str] = {}
        self.votes: dict[tuple[str, int], str] = {}
        self.on_vote: Callable[[str], None] = lambda voter: None
        """Called with the voter's id when its vote arrives, or its first answer in a new term."""
        self.terms: dict[str, int] = {}
        self.decided: list[Entry] = []
        self.applied: list[tuple[int, int]] = []
        """(index, hash of all bodies so far) of each applied entry; no-ops are not applied."""
        self.answered: dict[bytes, int] = {}
        self.refused: set[bytes] = set()
        self.committed: dict[int, int] = {}
        """Committed index seen last, by core number: one number per incarnation."""
        self.cores: list[Raft] = []
        self.violation: Violation | None = None
        """The first one. Raised inside a member it would only end that member, so the world asks for it."""

    def found(self, rule: str, what: str) -> Violation:
        violation = Violation(rule, what)
        self.violation = self.violation or violation
        return violation

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
        """A member was told to stand for election: only the leader of its own term can make it (R11)."""
        if core.term != before[0] and (asked.term, sender) != before:
            raise self.found(
                "R11",
                f"{core.self_id} stood for election at the word of {sender}, leader of term {asked.term}",
            )

    def emptied(self, member: str) -> None:
        """Its disk is lost: it may begin in term 0, and must still never be heard to vote twice in a term."""
        self.terms.pop(member, None)

    def new_core(self, core: Raft) -> int:
        """A member started. What it recovered must reach as far as its disk once promised (R2, terms only
        rise)."""
        self.cores.append(core)
        return len(self.cores) - 1

    def look(self, number: int, node: DLedgerNode) -> None:
        """After each step, at each running member: cheap unless something moved."""
        core = self.cores[number]
        if core.term < self.terms.get(core.self_id, 0):
            raise self.found(
                "R2", f"{core.self_id} went back to term {core.term} from {self.terms[core.self_id]}"
            )
        if core.durable_index > core.log.last_index or core.committed_index > core.log.last_index:
            raise self.found(
                "R6", f"{core.self_id} committed {core.committed_index} beyond its end {core.log.last_index}"
            )
        if core.role is Role.LEADER:
            self.look_at_leader(core)
            self.look_at_calls(core, node)
        seen = self.committed.get(number, NO_INDEX)
        if core.committed_index != seen:
            self.look_at_commit(core, seen)
            self.committed[number] = core.committed_index
        if node.applied_index > core.committed_index:
            raise self.found("R5", f"{core.self_id} applied {node.applied_index} before it was committed")

    def look_at_calls(self, core: Raft, node: DLedgerNode) -> None:
        """What the leader waits for is carried by a call, whose end it will be told (V2)."""
        for peer, progress in core.progress.items():
            waits = {
                MessageCode.PUSH: progress.in_flight is not None,
                MessageCode.HEART_BEAT: progress.round_sent > progress.read_round,
            }
            for code, waiting in waits.items():
                if waiting and not node._conversation.calls[peer, code]:
                    raise self.found(
                        "V2", f"{core.self_id} waits for a {code.name} that nobody carries to {peer}"
                    )

    def look_at_leader(self, core: Raft) -> None:
        known = self.leaders.get(core.term)
        if known is None:
            self.leaders[core.term] = core.self_id
            for entry in self.decided:
                if entry.index > core.log.last_index or core.log.entry(entry.index) != entry:
                    raise self.found(
                        "R4", f"leader {core.self_id} of term {core.term} lacks decided entry {entry.index}"
                    )
        elif known != core.self_id:
            raise self.found("R1", f"{known} and {core.self_id} both lead in term {core.term}")

    def look_at_commit(self, core: Raft, seen: int) -> None:
        index = core.committed_index
        if index < seen:
            raise self.found("R6", f"{core.self_id} took its committed index back from {seen} to {index}")
        if core.role is Role.LEADER and seen != NO_INDEX and core.log.term_at(index) != core.term:
            raise self.found(
                "R6",
                f"{core.self_id} in term {core.term} committed {index} of term {core.log.term_at(index)}",
            )
        for entry in map(core.log.entry, range(seen + 1, index + 1)):
            if entry.index == len(self.decided):
                self.decided.append(entry)
            elif self.decided[entry.index] != entry:
                raise self.found("R5", f"{core.self_id} commits another entry {entry.index} than was decided")

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

    def answer(self, body: bytes, index: int) -> None:
        """A proposal was answered with success."""
        if index >= len(self.decided) or self.decided[index].body != body:
            raise self.found("R8", f"entry {index} was answered before it was decided")
        self.answered[body] = index

    def logs_match(self, cores: Iterable[Raft]) -> None:
        """R3 over the running members: equal index and term means equal prefix."""
        logs = [entries_of(core) for core in cores]
        for number, one in enumerate(logs):
            for other in logs[number + 1 :]:
                common = min(len(one), len(other))
                while common and one[common - 1].term != other[common - 1].term:
                    common -= 1
                if one[:common] != other[:common]:
                    raise self.found(
                        "R3", f"two logs agree on the term of entry {common - 1} but not on what is before"
                    )

    def at_the_end(self) -> None:
        """What was answered is decided still, and what was refused never appeared (R8)."""
        bodies = {entry.body: entry.index for entry in self.decided}
        for body, index in self.answered.items():
            if bodies.get(body) != index:
                raise self.found("R8", f"the answered entry {index} is gone")
        if self.refused & bodies.keys():
            raise self.found("R8", "a refused proposal was decided")
