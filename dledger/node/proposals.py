"""Entries that callers on this member propose, until they are committed and applied. The module also has the callers that wait
for the proof that this member still leads, or for the end of a leadership transfer.

Invariant: entries are appended, and results delivered, in the order of the calls. Each call ends once: with results, with
OutcomeUnknown, or with NotLeader if nothing was appended. A read ends once: with True when a quorum has confirmed the
leadership and the state machine has caught up, else with False. The wait for a transfer ends once: when another member leads,
when the transfer fails, or at its timeout."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from dledger.raft.actions import Action, PersistThenSend, ReadReady
from dledger.raft.entries import NO_INDEX, Block, Entries
from dledger.raft.errors import NotLeader, OutcomeUnknown, TooManyProposals
from dledger.raft.messages import Message, PushRequest
from dledger.raft.settings import DLedgerSettings


@dataclass(frozen=True, slots=True)
class Committed:
    """Entries that follow each other in the log of every member."""

    first_index: int
    results: list[object]
    """For each entry the result of the state machine on this member, or the EntryRefused that the state machine raised."""
    position: int | None = None
    """The position of the first entry, if `Proposals.position_of` knows it."""


Done = asyncio.Future[Committed]


@dataclass(slots=True)
class Proposal:
    """The entries from `first_index` to `last_index`, which are appended and not applied yet."""

    first_index: int
    last_index: int
    size: int
    done: Done
    results: list[object] = field(default_factory=list)
    position: int | None = None


@dataclass(frozen=True, slots=True)
class Gathered:
    """Bodies to append, and the future of their proposer. Bodies without a future are appended in `term` or dropped."""

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
    """The proposals to one leader. They end with its leadership."""

    def __init__(self, settings: DLedgerSettings) -> None:
        self._settings = settings
        self._gathered: list[Gathered] = []
        self._waiting: deque[Proposal] = deque()
        self.gathered_count = 0
        """The number of entries to append."""
        self.waiting_bytes = 0
        """The bytes of all proposed bodies, until these are applied, refused or given up. Bodies with reserved positions do not
        count."""
        self.position_of: Callable[[int], int | None] = lambda index: None
        """Called with the first entry of each proposal when this entry is applied. Later, when the last entry is applied, a
        snapshot may have replaced the first entry."""

    def check_sizes(self, sizes: Sequence[int]) -> None:
        """Raises ValueError for an empty or oversized body."""
        bytes_max = self._settings.proposal_bytes_max
        for size in (min(sizes), max(sizes)) if sizes else ():
            if not 0 < size <= bytes_max:
                raise ValueError(f"an entry's body has 1 to {bytes_max} bytes, not {size}")

    def check_room(self, sizes: Sequence[int], waiting: int, waiting_bytes: int) -> None:
        """Checks whether bodies of these sizes may be added to `waiting` entries that are not applied yet. Raises
        TooManyProposals."""
        if waiting + len(sizes) > self._settings.pending_proposals_max:
            raise TooManyProposals(f"{waiting} entries wait to be committed")
        if waiting_bytes and waiting_bytes + sum(sizes) > self._settings.pending_bytes_max:
            raise TooManyProposals(
                f"entries of {waiting_bytes} bytes wait to be committed, or for this member's disk"
            )

    def gather(self, bodies: Sequence[bytes], term: int) -> Done:
        """Keeps `bodies` for the next `append`. The future resolves with their outcome."""
        done: Done = asyncio.get_running_loop().create_future()
        self._gathered.append(Gathered(bodies, done, term))
        self.gathered_count += len(bodies)
        self.waiting_bytes += self._gathered[-1].size
        return done

    def gather_reserved(self, block: Block) -> None:
        """Keeps entries whose positions were reserved; no proposer waits for them."""
        self._gathered.append(Gathered(block, None, block.term))
        self.gathered_count += len(block)

    @property
    def all_reserved(self) -> bool:
        """Whether there are bodies to append, and no proposer waits for any of them."""
        return bool(self._gathered) and all(each.done is None for each in self._gathered)

    def gathered_in(self, term: int) -> bool:
        """Whether there are bodies to append, and all of them are of `term`."""
        return bool(self._gathered) and all(each.term == term for each in self._gathered)

    def append(self, first_index: int, term: int) -> list[bytes | Block]:
        """Returns all gathered bodies that may be appended in `term`; their indexes begin at `first_index`. A body whose
        proposer was cancelled is appended too, because another proposer may already have a later index."""
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
        """Called when this member does not lead: the gathered bodies are not appended."""
        for each in self._take_gathered():
            if each.done is None:
                continue
            self.waiting_bytes -= each.size
            if not each.done.done():
                each.done.set_exception(NotLeader(leader_id, leader_address))

    def _take_gathered(self) -> list[Gathered]:
        gathered, self._gathered, self.gathered_count = self._gathered, [], 0
        return gathered

    def committed(self, index: int) -> None:
        """Called when entries up to `index` are committed, if there is no state machine."""
        while self._waiting and self._waiting[0].last_index <= index:
            proposal = self._waiting[0]
            count = proposal.last_index - proposal.first_index + 1
            proposal.results = [None] * count
            self._end_first()

    def applied(self, index: int, result: object) -> None:
        """Called when the state machine has returned `result` for entry `index`."""
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
            proposal.done.set_result(Committed(proposal.first_index, proposal.results, proposal.position))

    def give_up(self, why: str, above: int = NO_INDEX) -> None:
        """Ends proposals whose outcome this member will not learn. Entries up to `above` are committed, and their proposals
        wait until the entries are applied."""
        given_up: deque[Done] = deque()
        while self._waiting and self._waiting[-1].last_index > above:
            proposal = self._waiting.pop()
            self.waiting_bytes -= proposal.size
            given_up.appendleft(proposal.done)
        for done in given_up:
            if not done.done():
                done.set_exception(OutcomeUnknown(why))


class LiveEntries:
    """The entries that this process received before they were committed, so that it saw the moment of their commit. They are
    the entries above `history_end`, which begins at the end of the log on disk, and never falls."""

    def __init__(self, history_end: int) -> None:
        self.history_end = history_end

    def received(self, message: Message, actions: Sequence[Action]) -> None:
        """Handles `message`, to which the core returned `actions`. A commit index in the message may already cover its new
        entries."""
        if isinstance(message, PushRequest):
            for action in actions:
                if isinstance(action, PersistThenSend) and action.entries:
                    already = min(message.commit_index, Entries.of(action.entries).last_index)
                    self.history_end = max(self.history_end, already)


class Reads:
    """Waiting reads, by the id that the core knows."""

    def __init__(self) -> None:
        self._waiting: dict[int, asyncio.Future[bool]] = {}
        self._ready: deque[ReadReady] = deque()
        """Reads that the core has finished, and for which the state machine may still be behind."""
        self._last_id = 0

    def begin(self) -> tuple[int, asyncio.Future[bool]]:
        """Returns a new id, and a future that resolves to whether the leadership was confirmed."""
        self._last_id += 1
        proven: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting[self._last_id] = proven
        return self._last_id, proven

    def ready(self, ready: ReadReady) -> None:
        self._ready.append(ready)

    def finish(self, applied_index: int) -> None:
        """Ends reads in the order in which the core finished them. A read ends once its index is applied."""
        while self._ready and (self._ready[0].index is None or self._ready[0].index <= applied_index):
            ready = self._ready.popleft()
            self._ended(ready.read_id, proven=ready.index is not None)

    def _ended(self, read_id: int, *, proven: bool) -> None:
        """Ends a read, unless it was cancelled."""
        waiting = self._waiting.get(read_id)
        if waiting is not None and not waiting.done():
            waiting.set_result(proven)

    def forget(self, read_id: int) -> None:
        """Called when the reader of `read_id` does not wait any more."""
        self._waiting.pop(read_id, None)

    def give_up(self) -> None:
        """Ends all reads without a confirmation, because this member stops."""
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_result(False)


class TransferWaiters:
    """The callers on this member that wait for the end of a transfer."""

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[bool]] = []

    def wait(self) -> asyncio.Future[bool]:
        """Returns a future for `ended`."""
        ended: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append(ended)
        return ended

    async def ended(self, waiting: asyncio.Future[bool], timeout_ms: int) -> bool:
        """Waits for the end of the transfer. Returns whether another member leads; False after `timeout_ms`."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await waiting
        except TimeoutError:
            return False

    def end(self, *, another_leads: bool) -> None:
        waiting, self._waiting = self._waiting, []
        for ended in waiting:
            if not ended.done():
                ended.set_result(another_leads)
