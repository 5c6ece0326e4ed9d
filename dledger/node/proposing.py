"""What a member proposes, and where it stands: the half of a node that callers on this member talk to.

Invariant: all that is proposed in one turn of the loop is appended together, in the order in which it came; a body that was
placed lands where `place` said, or nowhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence

from dledger.node.applying import Applier, NullApplier
from dledger.node.authenticator import PeerAuthenticator
from dledger.node.logstart import LogStart
from dledger.node.positions import PositionTracker
from dledger.node.proposals import Decided, Done, Proposals
from dledger.node.syncqueue import AdvanceLogStart, Step
from dledger.node.waiters import TransferWaiters
from dledger.raft.actions import Role
from dledger.raft.entries import NO_INDEX, Block, block_of
from dledger.raft.errors import ChangeRefused, NotLeader, OutcomeUnknown, TooManyProposals, Why
from dledger.raft.membership import MAGIC, Change, Members, Stated, encode_members, is_members
from dledger.raft.raft import Raft
from dledger.raft.settings import DLedgerSettings
from dledger.storage.entrylog import outermost_positions
from dledger.storage.filelist import FileList
from dledger.storage.store import Store


class Proposing:
    """Of a node, which sets these and performs what `_take` gets."""

    self_id: str
    settings: DLedgerSettings
    store: Store
    core: Raft | None
    guard: PeerAuthenticator
    _closed: bool
    _proposals: Proposals
    _transfers: TransferWaiters
    _applier: Applier | NullApplier
    _positions: PositionTracker | None
    _log_start: LogStart
    _why_no_members: Callable[[Collection[str]], str | None]

    def _take(self, turn: Callable[[int], Sequence[Step]]) -> None:
        raise NotImplementedError

    @property
    def role(self) -> Role:
        return self.core.role if self.core else Role.FOLLOWER

    @property
    def term(self) -> int:
        return self.core.term if self.core else 0

    @property
    def leader_id(self) -> str | None:
        return self.core.leader_id if self.core else None

    @property
    def leader_address(self) -> str | None:
        return self.guard.address_of(self.leader_id) if self.leader_id else None

    @property
    def applied_index(self) -> int:
        return self._applier.applied_index

    @property
    def last_index(self) -> int:
        """Of the log, and of what this turn of the loop appends to it; not everything up to there is decided."""
        return self.core.log.last_index + self._proposals.gathered_count if self.core else NO_INDEX

    @property
    def is_active(self) -> bool:
        """Leads, and has applied the no-op of its term: its state holds all that any earlier leader
        decided."""
        core = self.core
        return (
            core is not None
            and not self._closed
            and core.may_serve
            and self.applied_index >= core.term_start_index
        )

    def _serving_core(self) -> Raft:
        if self.core is None or not self.is_active:
            raise NotLeader(self.leader_id, self.leader_address)
        return self.core

    async def propose(self, bodies: Sequence[bytes], timeout_ms: int = 3000) -> Decided:
        """Appends `bodies` in one go, together with all that is proposed in the same turn of the loop, and returns once all are
        decided and applied. While the leadership is handed over they wait for how that ends.

        Raises NotLeader, TooManyProposals, ValueError (empty or oversized body): nothing was appended;
        OutcomeUnknown."""
        core = self._serving_core()
        if any(is_members(body) for body in bodies):
            raise ValueError("an entry cannot begin as a list of the group's members does")
        sizes = list(map(len, bodies))
        self._refuse_oversized(sizes)
        if not bodies:
            return Decided(core.log.last_index + 1, [])
        if core.transfers:
            term = core.term
            await self._transfers.ended(self._transfers.wait(), timeout_ms)
            if self._serving_core().term != term or core.transfers:
                raise NotLeader(self.leader_id, self.leader_address)
        self._refuse_beyond_room(sizes)
        self._arrange_append(sizes)
        return await self._decided(self._proposals.gather(bodies, core.term), timeout_ms)

    def _refuse_oversized(self, sizes: Sequence[int]) -> None:
        bytes_max = self.settings.proposal_bytes_max
        for size in (min(sizes), max(sizes)) if sizes else ():
            if not 0 < size <= bytes_max:
                raise ValueError(f"an entry's body has 1 to {bytes_max} bytes, not {size}")

    def _refuse_beyond_room(self, sizes: Sequence[int]) -> None:
        waiting, size = self._waiting
        if waiting + len(sizes) > self.settings.pending_proposals_max:
            raise TooManyProposals(f"{waiting} entries wait to be decided")
        if size and size + sum(sizes) > self.settings.pending_bytes_max:
            raise TooManyProposals(f"entries of {size} bytes wait to be decided, or for this member's disk")

    def _arrange_append(self, sizes: Sequence[int]) -> None:
        """Bodies of these sizes are to be gathered now, and to be appended at the end of this turn of the loop."""
        if not self._proposals.gathered_count:
            asyncio.get_running_loop().call_soon(self._append_gathered)
        if self._positions is not None:
            self._positions.gather(sizes)

    # Entries that are placed before they are made

    def place(self, sizes: Sequence[int]) -> list[int]:
        """Where entries with bodies of these sizes stand in the data files of every member, if `append_reserved` gets them next
        in this very turn of the loop. Only where the settings say `same_positions`.

        Raises NotLeader, also while the leadership is handed over, TooManyProposals, ValueError (an empty or oversized
        body)."""
        core, placing = self._serving_core(), self._the_placing
        if core.transfers:
            raise NotLeader(self.leader_id, self.leader_address)
        self._refuse_oversized(sizes)
        self._refuse_beyond_room(sizes)
        if not self._proposals.gathered_in(core.term):
            self._append_gathered()
        return placing.place(sizes)

    @property
    def waits_for_room(self) -> bool:
        """This member's disk is full: nothing that comes is readable here before there is room, whatever the others hold."""
        return self.store.waits_for_room

    def append_reserved(self, bodies: Sequence[bytes] | Block) -> None:
        """Appends what was placed last, together with all that is proposed in this turn. Nobody waits: it is decided once it is
        `readable`, or dropped where this member leads no more, or in another term, when the turn ends, or when a hand-over has
        ended that began meanwhile; then `on_role_change` tells of that."""
        core, placing = self._serving_core(), self._the_placing
        if not bodies:
            return
        block = bodies if isinstance(bodies, Block) else block_of(core.term, bodies)
        assert block.term == core.term, f"a block of term {block.term} in term {core.term}"
        told = outermost_positions(block, self.store.position_in_body)
        assert placing.matches_reservation(block.sizes, told), "it was placed elsewhere"
        assert not block.beginning_with(MAGIC), "an entry cannot begin as a list of members does"
        self._arrange_append(block.sizes)
        self._proposals.gather_reserved(block)

    @property
    def _the_placing(self) -> PositionTracker:
        assert self._positions is not None, "it is open, and its settings say `same_positions`"
        return self._positions

    # The log with `same_positions`, for who reads and places

    @property
    def data(self) -> FileList:
        """The data files of the log that is open. Their bytes from `log_begin` up to what is `readable` stay as they are, until
        `begin_at` deletes a file, or a snapshot all, of which `on_replaced` tells first."""
        assert self.store.log is not None, "it is open"
        return self.store.log.data

    def readable(self) -> tuple[int, int]:
        """The last entry that is decided and on this member's own disk, and the position where it ends."""
        return self._the_placing.readable

    def log_begin(self) -> int:
        """The position where the log begins: the start of a data file."""
        assert self.store.log is not None, "it is open"
        return self.store.log.begin.position

    def log_end(self) -> int:
        """The position where it ends, with what is in memory alone, and what this turn gathered."""
        return self._the_placing.gathered_end

    @property
    def note(self) -> bytes:
        """What `begin_at` was told with the present beginning of the log, here or on the member that it came from."""
        return self.store.note

    async def begin_at(self, position: int, note: bytes = b"") -> None:
        """Nobody needs what is before `position`, where a data file starts that has something `readable`: durable on return,
        and `note` with it, which whoever gets this log's beginning from here gets, too; nothing where the log begins there or
        later already. Who lacks what went gets a snapshot.

        Raises OSError (of a full disk: nothing has changed), LogDamaged (what the log would begin with, or behind, has rotted:
        nothing has changed), OutcomeUnknown when this member stops."""
        assert not position % self.data.file_bytes and position <= self.readable()[1], f"begin at {position}"
        if self._closed:
            raise OutcomeUnknown("this member stopped")
        done = self._log_start.ask()
        self._take(lambda now_ms: [AdvanceLogStart(position, note)])
        await done

    async def _decided(self, done: Done, timeout_ms: int) -> Decided:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await done
        except TimeoutError:
            raise OutcomeUnknown(f"not decided within {timeout_ms} ms") from None

    def allowed(self, change: Change) -> Members:
        """What the group's members would become by `change` if it were made now. Raises NotLeader, ChangeRefused."""
        members = self._serving_core().next_members(change, self.guard.knows_changes)
        if change.adds and (why := self._why_no_members(members.addresses)) is not None:
            raise ChangeRefused(Why.BAD_ID, why)
        return members

    async def change_members(self, change: Change, timeout_ms: int = 3000) -> Stated:
        """Makes `change`, and returns once it is decided, with the index of its entry. Raises NotLeader, ChangeRefused: nothing
        was appended; OutcomeUnknown."""
        core, members = self._serving_core(), self.allowed(change)
        self._append_gathered()
        done = self._proposals.gather([encode_members(members)], core.term)
        self._proposals.append(core.log.last_index + 1, core.term)
        self._take(lambda now_ms: core.reconfigure(members, now_ms))
        return (await self._decided(done, timeout_ms)).first_index, members

    @property
    def _waiting(self) -> tuple[int, int]:
        """How many entries are not applied yet, and the bytes of their proposals or, if that is more, of the log that the own
        disk lacks: a quorum may decide without it. Where positions are told: what is not readable yet."""
        assert self.core is not None
        if self._positions is not None:
            return self.last_index - self._positions.readable[0], self._positions.waiting_bytes
        unsynced = self.core.log.recent_bytes - self.settings.recent_bytes_max
        return self.last_index - self.applied_index, max(self._proposals.waiting_bytes, unsynced, 0)

    def _settle_reserved(self) -> None:
        """It is known who leads: what was placed, and held back until then, is appended or dropped."""
        if self._proposals.all_reserved:
            self._append_gathered()

    def _append_gathered(self) -> None:
        """One push to each follower and one sync for all of them."""
        core, placing = self.core, self._positions
        if core is None or not self.is_active:
            self._proposals.refuse(self.leader_id, self.leader_address)
        elif core.transfers and self._proposals.all_reserved:
            return  # its proposer is told of a lost leadership and of nothing else: appended if this member leads on
        elif core.transfers:
            self._proposals.refuse(self.leader_id, self.leader_address)
        else:
            planned = self._proposals.gathered_in(core.term)
            bodies = self._proposals.append(core.log.last_index + 1, core.term)

            def proposed(now_ms: int) -> Sequence[Step]:
                as_planned = placing is None or not planned or placing.ends_where_it_did
                assert as_planned, "what was placed would stand elsewhere"
                return core.propose(bodies, now_ms)

            if bodies:
                self._take(proposed)
        if placing is not None:
            placing.nothing_gathered()
