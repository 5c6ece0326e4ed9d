"""What proposers on this member wait for: entries that are to be appended together, decided and applied.

Invariant: they are appended in the order in which they came and stand in that of their indexes; each wait ends once, with
what became of its entries, with OutcomeUnknown, or, before they were appended, with NotLeader.

What was decided before this process got it: whoever reports when a thing was decided cannot have seen that.

Invariant: `history_end` never falls; an entry above it came undecided."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from dledger.raft.actions import Action, PersistThenSend
from dledger.raft.entries import NO_INDEX, Block, Entries
from dledger.raft.errors import NotLeader, OutcomeUnknown
from dledger.raft.messages import Message, PushRequest


@dataclass(frozen=True, slots=True)
class Decided:
    """Entries that stand one behind the other in the log of every member, for good."""

    first_index: int
    results: list[object]
    """Of each what the state machine here returned, or the EntryRefused that it raised."""
    position: int | None = None
    """Of the first one, where `Proposals.position_of` knows it."""


Done = asyncio.Future[Decided]


@dataclass(slots=True)
class Proposal:
    """Entries first_index..last_index wait."""

    first_index: int
    last_index: int
    size: int
    done: Done
    results: list[object] = field(default_factory=list)
    position: int | None = None


@dataclass(frozen=True, slots=True)
class Gathered:
    """Bodies that are to be appended, with who waits for what becomes of them; or a block that nobody waits for, and that goes
    into its term or nowhere."""

    bodies: Sequence[bytes] | Block
    done: Done | None
    term: int

    @property
    def size(self) -> int:
        return (
            self.bodies.size(len(self.bodies))
            if isinstance(self.bodies, Block)
            else sum(map(len, self.bodies))
        )


class Proposals:
    """Those of one leader; they are given up when it leads no more."""

    def __init__(self) -> None:
        self._gathered: list[Gathered] = []
        self._waiting: deque[Proposal] = deque()
        self.gathered_count = 0
        """Entries that are to be appended."""
        self.waiting_bytes = 0
        """Of all bodies that were gathered and somebody waits for, until they are applied, refused or given up."""
        self.position_of: Callable[[int], int | None] = lambda index: None
        """Asked of the first entry of each proposal, when that is applied: a snapshot may stand for it when the last one is."""

    def gather(self, bodies: Sequence[bytes], term: int) -> Done:
        """Resolves with what became of `bodies`, which `append` hands out with others."""
        done: Done = asyncio.get_running_loop().create_future()
        self._gathered.append(Gathered(bodies, done, term))
        self.gathered_count += len(bodies)
        self.waiting_bytes += self._gathered[-1].size
        return done

    def gather_reserved(self, block: Block) -> None:
        """The same of entries that nobody waits for."""
        self._gathered.append(Gathered(block, None, block.term))
        self.gathered_count += len(block)

    @property
    def all_reserved(self) -> bool:
        """Whether something was gathered, and nobody waits for any of it."""
        return bool(self._gathered) and all(each.done is None for each in self._gathered)

    def gathered_in(self, term: int) -> bool:
        """Whether something was, and all of it in that term."""
        return bool(self._gathered) and all(each.term == term for each in self._gathered)

    def append(self, first_index: int, term: int) -> list[bytes | Block]:
        """All that was gathered and may stand in `term`; it gets the indexes from there on. Also what its proposer does not
        wait for any more: it was told an index that this lies below."""
        appended: list[bytes | Block] = []
        for each in self._take_gathered():
            end = first_index + len(each.bodies)
            if each.done is not None:
                self._waiting.append(Proposal(first_index, end - 1, each.size, each.done))
            elif each.term != term:
                continue
            appended += [each.bodies] if isinstance(each.bodies, Block) else each.bodies
            first_index = end
        return appended

    def refuse(self, leader_id: str | None, leader_address: str | None) -> None:
        """What was gathered is not appended: another leads, or nobody."""
        for each in self._take_gathered():
            if each.done is None:
                continue
            self.waiting_bytes -= each.size
            if not each.done.done():
                each.done.set_exception(NotLeader(leader_id, leader_address))

    def _take_gathered(self) -> list[Gathered]:
        gathered, self._gathered, self.gathered_count = self._gathered, [], 0
        return gathered

    def decided(self, index: int) -> None:
        """Entries up to there are, and there is no state machine that would return anything for them."""
        while self._waiting and self._waiting[0].last_index <= index:
            proposal = self._waiting[0]
            count = proposal.last_index - proposal.first_index + 1
            proposal.results = [None] * count
            self._end_first()

    def applied(self, index: int, result: object) -> None:
        """The state machine has returned `result` for the entry."""
        if not self._waiting or self._waiting[0].first_index > index:
            return
        proposal = self._waiting[0]
        if index == proposal.first_index:
            proposal.position = self.position_of(index)
        proposal.results.append(result)
        if index == proposal.last_index:
            self._end_first()

    def _end_first(self) -> None:
        proposal = self._waiting.popleft()
        self.waiting_bytes -= proposal.size
        if not proposal.done.done():
            proposal.done.set_result(Decided(proposal.first_index, proposal.results, proposal.position))

    def give_up(self, why: str, above: int = NO_INDEX) -> None:
        """Whether they will be decided is not for this member to know any more; entries up to `above` are, and wait until they
        are applied."""
        given_up: deque[Done] = deque()
        while self._waiting and self._waiting[-1].last_index > above:
            proposal = self._waiting.pop()
            self.waiting_bytes -= proposal.size
            given_up.appendleft(proposal.done)
        for done in given_up:
            if not done.done():
                done.set_exception(OutcomeUnknown(why))


class LiveEntries:
    """`history_end` begins at the end of what the disk held, which does not say what was decided."""

    def __init__(self, history_end: int) -> None:
        self.history_end = history_end

    def received(self, message: Message, actions: Sequence[Action]) -> None:
        """`actions` are what the core made of `message`: new entries may come with a commit index beyond them."""
        if isinstance(message, PushRequest):
            for action in actions:
                if isinstance(action, PersistThenSend) and action.entries:
                    already = min(message.commit_index, Entries.of(action.entries).last_index)
                    self.history_end = max(self.history_end, already)
