"""One member of a group: the shell that runs the Raft core. Upstream: DLedgerServer.

Invariant: the shell performs the core's actions in their order, except that other actions may pass actions that wait for the
disk (dledger.node.syncqueue has the rules). So a message never overtakes an action on which it depends. After the first failed
write the shell sends, answers and applies nothing any more. All bodies that are proposed in one turn of the event loop are
appended together, in the order of the calls. A body with a reserved position is appended at that position or not at all."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from dledger.node.applying import AnyStateMachine, Applier, NullApplier, Snapshots
from dledger.node.authenticator import PeerAuthenticator
from dledger.node.catchup import CatchupReader, SnapshotSender
from dledger.node.checkpointing import Checkpointing
from dledger.node.listener import NodeListener
from dledger.node.logstart import LogStart
from dledger.node.positions import PositionTracker
from dledger.node.proposals import Committed, Done, LiveEntries, Proposals, Reads, TransferWaiters
from dledger.node.starts import RejoinNotice, Starts
from dledger.node.syncqueue import AdvanceLogStart, SaveCheckpoint, SaveSnapshot, Step, SyncQueue
from dledger.node.transport import PeerTransport
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
)
from dledger.raft.entries import NO_INDEX, Block, block_of
from dledger.raft.errors import ChangeRefused, NotLeader, OutcomeUnknown, RefusalReason
from dledger.raft.membership import (
    MAGIC,
    Change,
    ConfigurationAt,
    Members,
    RaftMembership,
    encode_members,
    is_members,
)
from dledger.raft.messages import Message, Request, ResultCode
from dledger.raft.progress import Loaded, Unreadable
from dledger.raft.raft import Raft
from dledger.raft.settings import DLedgerSettings
from dledger.raft.snapshot import Begin, Snapshot
from dledger.storage.entrylog import PositionInBody, nowhere, outermost_positions
from dledger.storage.filelist import FileList
from dledger.storage.store import FOLDER_PREFIX, Store
from mqruntime.coretimer import CoreTimer
from mqruntime.diskfull import RetriedWrite
from mqruntime.runtime import Runtime
from mqruntime.tasks import Tasks
from remoting.client import RemotingClient
from remoting.router import Router

logger = logging.getLogger(__name__)

TRANSFER_MS_MAX = 1500
"""A leader that stops waits for its successor at most this long."""


class DLedgerNode:
    """The member. `peers` maps the id of each member, this member included, to its "host:port". `snapshots` is the state
    machine, if its state can be saved. Without a state machine entries are only committed, and no entry is read to be applied.

    With the setting `same_positions`, `position_in_body(body)` returns the position of the entry as the body contains it."""

    core_class: type[Raft] = Raft
    sync_queue_class: type[SyncQueue] = SyncQueue
    transport_class: type[PeerTransport] = PeerTransport

    def __init__(
        self,
        *,
        self_id: str,
        peers: Mapping[str, str],
        group: str,
        runtime: Runtime,
        client: RemotingClient,
        settings: DLedgerSettings,
        listener: NodeListener,
        state_machine: AnyStateMachine | None,
        snapshots: Snapshots | None = None,
        position_in_body: PositionInBody = nowhere,
    ) -> None:
        if settings.same_positions and state_machine is not None:
            raise ValueError("the snapshots of a log with same_positions hold no state machine")
        if self_id not in peers:
            raise ValueError(f"{self_id} is not among the members {sorted(peers)} of group {group}")
        self.self_id = self_id
        self.peers = dict(peers)
        self.settings = settings
        self.clock = runtime.clock
        self.random = runtime.random
        self.listener = listener
        self.core: Raft | None = None
        self.store = Store(
            runtime.files,
            runtime.segments,
            f"{FOLDER_PREFIX}{self_id}",
            settings,
            peers,
            position_in_body,
            lambda position: self.listener.log_replaced(position),
        )
        self._tasks = Tasks(self._fail)
        self.guard = PeerAuthenticator(
            self_id=self_id,
            peers=self.peers,
            checks_addresses=settings.checks_addresses,
            clock=self.clock,
            term=lambda: self.term,
            role=settings.certificate_role,
        )
        self._starts = Starts(
            runtime.files,
            f"{self.store.name}/starts",
            self_id,
            chance=runtime.random,
            tasks=self._tasks,
            members=lambda: self.peers,
            take=self._take,
            on_memory_lost=lambda: self.listener.memory_lost(),
        )
        self._transport = self.transport_class(
            group=group,
            self_id=self_id,
            peers=self.peers,
            client=client,
            tasks=self._tasks,
            clock=self.clock,
            settings=settings,
            receiver=self,
            guard=self.guard,
            starts=self._starts,
        )
        self._members: Members | None = None
        self._live_entries = LiveEntries(NO_INDEX)
        self._arrived: deque[Step] = deque()
        self._performing = False
        self._sync_queue = self.sync_queue_class()
        self._disk_is_busy = False
        self._started = self._closed = False
        self._failure: BaseException | None = None
        self._timer = CoreTimer(self.clock, self._tasks, self._tick)
        self._checkpointing = Checkpointing(
            self.store, settings.checkpoint_interval_ms, lambda: self._take(lambda now_ms: [SaveCheckpoint()])
        )
        self._announced: tuple[Role, int] = (Role.FOLLOWER, 0)
        self._rejoin_notice = RejoinNotice(self_id)
        self._proposals = Proposals(settings)
        self._positions: PositionTracker | None = None
        self._log_start = LogStart(self.store)
        self._applier = self._applier_of(state_machine, snapshots)
        self._snapshot_write = RetriedWrite(
            logger,
            f"{self.store.snapshot_file.name} cannot be written, the next one may",
            server="controller",
        )
        self._sender = SnapshotSender(
            self.store.snapshot_file.load,
            settings.snapshot_chunk_bytes,
            remake=self._remake_snapshot,
            clock=self.clock,
        )
        self._reads = Reads()
        self.catchup_reader = CatchupReader(self.clock, lambda index: self.listener.entry_unreadable(index))
        self._transfers = TransferWaiters()
        self._transfers_now = False

    def _applier_of(
        self, state_machine: AnyStateMachine | None, snapshots: Snapshots | None
    ) -> Applier | NullApplier:
        if state_machine is None:
            return NullApplier(on_committed=self._proposals.committed, on_turn=self._applied_some)
        settings = self.settings
        return Applier(
            state_machine,
            snapshots=snapshots,
            every=settings.snapshot_entries if snapshots is not None else 0,
            every_bytes=settings.snapshot_bytes,
            on_snapshot=self._made_snapshot,
            clock=self.clock,
            tasks=self._tasks,
            on_applied=self._proposals.applied,
            on_turn=self._applied_some,
            on_failure=self._fail,
        )

    # Start and stop

    def register(self, router: Router) -> None:
        """Add the handlers of the members' requests to `router`."""
        self._transport.register(router)

    def set_position_lookup(self, position_of: Callable[[int], int | None]) -> None:
        """Set the function that returns an entry's position. It is called for the first entry of each proposal, for the
        position in `Committed`."""
        self._proposals.position_of = position_of

    def set_log_origin(self, position: int, origin: str) -> None:
        """Set where the log begins if there is no snapshot; call this before `open`. `position` is the start of a data file,
        and `origin` describes the older log before it. All members of a group must have the same origin."""
        self.store.whole = Begin(position=position)
        self.guard.origin = origin

    async def open(self) -> None:
        """Recovers the log. Entries that are known to be committed are applied in the following turns of the event loop.
        Nothing is sent or answered before `start`.

        Raises: LogDamaged, LogOfAnother, MembersChanged, MembersUnknown, BadKeyValues, OSError."""
        recovered = await self.store.open()
        await self._starts.open()
        log = self.store.log
        assert log is not None
        self.core = self.core_class(
            membership=RaftMembership(self.self_id, Members(dict(self.peers)), recovered.configurations),
            settings=self.settings,
            draw=self.random.randint,
            now_ms=self.clock.monotonic_ms(),
            vote=recovered.vote,
            log=recovered.log,
            committed_index=recovered.committed_index,
            proven=False,
        )
        self._look_at_members()
        self._live_entries = LiveEntries(self.last_index)
        if self.settings.same_positions:
            self._positions = PositionTracker(log, recovered.committed_index)
        self._applier.begin(recovered.log, log, recovered.committed_index, recovered.snapshot)

    async def start(self) -> None:
        """Takes part in the group from now on. Calls `open` if it was not called before.

        Raises: what `open` raises."""
        if self.core is None:
            await self.open()
        assert self.core is not None
        self._started = True
        self.core.begin(self.clock.monotonic_ms())
        self._starts.begin(self.core)
        self._timer.due_at(self.core.next_tick_ms)

    async def replayed(self) -> None:
        """Returns once the entries that were known as committed on the disk are applied.

        Raises: the error that ended this member meanwhile, for example LogDamaged."""
        await self._applier.replayed()
        if self._failure is not None:
            raise self._failure

    async def stop(self) -> None:
        """Stops taking part in the group. Waiting proposals end with OutcomeUnknown."""
        if not self._closed:
            self._close()
        await self._tasks.stop()
        await self.store.close(self._committed_and_durable)

    # State

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
        """The last index of the log, with the entries that this turn of the event loop appends. Not all entries are
        committed."""
        return self.core.log.last_index + self._proposals.gathered_count if self.core else NO_INDEX

    @property
    def is_active(self) -> bool:
        """Whether this member leads and has applied the no-op of its term. Its state then has all entries that earlier leaders
        committed."""
        core = self.core
        return (
            core is not None
            and not self._closed
            and core.may_serve
            and self.applied_index >= core.term_start_index
        )

    def is_live_entry(self, index: int) -> bool:
        """Whether this process received the entry before it was committed. Such an entry is applied at about the time of its
        commit."""
        return self.core is not None and index > self._live_entries.history_end

    def _serving_core(self) -> Raft:
        if self.core is None or not self.is_active:
            raise NotLeader(self.leader_id, self.leader_address)
        return self.core

    # Proposals

    async def propose(self, bodies: Sequence[bytes], timeout_ms: int = 3000) -> Committed:
        """Appends `bodies` together, and returns once all are committed and applied. During a leadership transfer it waits
        until the transfer ends.

        Raises: NotLeader, TooManyProposals or ValueError (empty or oversized body) if nothing was appended, else
        OutcomeUnknown."""
        core = self._serving_core()
        if any(is_members(body) for body in bodies):
            raise ValueError("an entry cannot begin as a list of the group's members does")
        sizes = list(map(len, bodies))
        self._proposals.check_sizes(sizes)
        if not bodies:
            return Committed(core.log.last_index + 1, [])
        if core.transfers:
            term = core.term
            await self._transfers.ended(self._transfers.wait(), timeout_ms)
            if self._serving_core().term != term or core.transfers:
                raise NotLeader(self.leader_id, self.leader_address)
        self._proposals.check_room(sizes, *self._waiting)
        self._append_later(sizes)
        return await self._committed(self._proposals.gather(bodies, core.term), timeout_ms)

    async def _committed(self, done: Done, timeout_ms: int) -> Committed:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await done
        except TimeoutError:
            raise OutcomeUnknown(f"not committed within {timeout_ms} ms") from None

    @property
    def _waiting(self) -> tuple[int, int]:
        """The number of entries that are not applied yet, and the waiting bytes. These are the bytes of the proposals or, if
        that is more, the bytes that are not on this disk yet, because a quorum may commit without this disk. With
        `same_positions` the entries that are not readable yet count."""
        assert self.core is not None
        if self._positions is not None:
            return self.last_index - self._positions.readable[0], self._positions.waiting_bytes
        unsynced = self.core.log.recent_bytes - self.settings.recent_bytes_max
        return self.last_index - self.applied_index, max(self._proposals.waiting_bytes, unsynced, 0)

    def _append_later(self, sizes: Sequence[int]) -> None:
        """Called when bodies of these sizes are gathered next. They are appended at the end of this turn of the event loop."""
        if not self._proposals.gathered_count:
            asyncio.get_running_loop().call_soon(self._append_gathered)
        if self._positions is not None:
            self._positions.gather(sizes)

    def _append_gathered(self) -> None:
        """Appends the gathered bodies, with one PUSH to each follower and one sync for all of them."""
        core, positions = self.core, self._positions
        if core is None or not self.is_active:
            self._proposals.refuse(self.leader_id, self.leader_address)
        elif core.transfers and self._proposals.all_reserved:
            return  # they are appended if this member still leads after the transfer, and no proposer waits
        elif core.transfers:
            self._proposals.refuse(self.leader_id, self.leader_address)
        else:
            has_reserved = self._proposals.gathered_in(core.term)
            bodies = self._proposals.append(core.log.last_index + 1, core.term)

            def proposed(now_ms: int) -> Sequence[Step]:
                as_reserved = positions is None or not has_reserved or positions.ends_where_it_did
                assert as_reserved, "the log moved under reserved positions"
                return core.propose(bodies, now_ms)

            if bodies:
                self._take(proposed)
        if positions is not None:
            positions.nothing_gathered()

    def _settle_reserved(self) -> None:
        """Called when a transfer has ended: entries that were held back are appended or dropped."""
        if self._proposals.all_reserved:
            self._append_gathered()

    # Members

    def allowed(self, change: Change) -> Members:
        """The members after `change`, if it is allowed now.

        Raises: NotLeader, ChangeRefused."""
        members = self._serving_core().next_members(change, self.guard.knows_changes)
        if change.adds and (why := self.listener.refusal_of_ids(members.addresses)) is not None:
            raise ChangeRefused(RefusalReason.BAD_ID, why)
        return members

    async def change_members(self, change: Change, timeout_ms: int = 3000) -> ConfigurationAt:
        """Makes `change`. Returns the index of the change's entry and the new members, once the entry is committed.

        Raises: NotLeader or ChangeRefused if nothing was appended, else OutcomeUnknown."""
        core, members = self._serving_core(), self.allowed(change)
        self._append_gathered()
        done = self._proposals.gather([encode_members(members)], core.term)
        self._proposals.append(core.log.last_index + 1, core.term)
        self._take(lambda now_ms: core.reconfigure(members, now_ms))
        return (await self._committed(done, timeout_ms)).first_index, members

    # The leadership

    async def transfer_leadership(self, target: str | None = None) -> ResultCode:
        """Transfers the leadership to `target`, or to the most up-to-date voter (thesis 3.10). Returns when the outcome is
        known, after `TRANSFER_MS_MAX` at the latest. TAKE_LEADERSHIP_FAILED: this member still leads, or no member leads.
        NOT_LEADER, UNKNOWN_MEMBER, LEADER_TRANSFERRING: nothing was done."""
        core = self.core
        if core is None or self._closed or core.role is not Role.LEADER:
            return ResultCode.NOT_LEADER
        if target is not None and target not in core.voters:
            return ResultCode.UNKNOWN_MEMBER
        if core.transfers:
            return ResultCode.LEADER_TRANSFERRING
        ended = self._transfers.wait()
        self._append_gathered()
        self._take(lambda now_ms: core.transfer_leadership(target, now_ms))
        done = await self._transfers.ended(ended, TRANSFER_MS_MAX)
        return ResultCode.SUCCESS if done else ResultCode.TAKE_LEADERSHIP_FAILED

    async def read_barrier(self, timeout_ms: int = 3000) -> None:
        """Returns once the state machine holds all entries that were committed before the call (thesis 6.4).

        Raises: NotLeader."""
        core = self._serving_core()
        read_id, proven = self._reads.begin()
        self._take(lambda now_ms: core.read(read_id, now_ms))
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                if await proven:
                    return
        except TimeoutError:
            pass
        finally:
            self._reads.forget(read_id)
        raise NotLeader(self.leader_id, self.leader_address)

    # A log with `same_positions`

    def reserve(self, sizes: Sequence[int]) -> list[int]:
        """Reserves the positions of entries with bodies of these sizes. The positions are the same in the data files of every
        member. The caller must pass the bodies to `append_reserved` in this turn of the event loop, before anything else is
        appended.

        Raises: NotLeader, also during a leadership transfer; TooManyProposals; ValueError for an empty or oversized body."""
        core = self._serving_core()
        if core.transfers:
            raise NotLeader(self.leader_id, self.leader_address)
        self._proposals.check_sizes(sizes)
        self._proposals.check_room(sizes, *self._waiting)
        if not self._proposals.gathered_in(core.term):
            self._append_gathered()
        return self._tracker.reserve(sizes)

    def append_reserved(self, bodies: Sequence[bytes] | Block) -> None:
        """Appends the bodies whose positions were reserved last, together with all bodies proposed in this turn. The entries
        are committed once they are `readable`. They are dropped if this member does not lead in this term any more when the
        turn ends, or when a transfer that began meanwhile ends. If they are dropped, the listener's `role_changed` is
        called."""
        core = self._serving_core()
        if not bodies:
            return
        block = bodies if isinstance(bodies, Block) else block_of(core.term, bodies)
        assert block.term == core.term, f"a block of term {block.term} in term {core.term}"
        claimed = outermost_positions(block, self.store.position_in_body)
        assert self._tracker.matches_reservation(block.sizes, claimed), "other positions were reserved"
        assert not block.beginning_with(MAGIC), "an entry cannot begin as a list of members does"
        self._append_later(block.sizes)
        self._proposals.gather_reserved(block)

    @property
    def _tracker(self) -> PositionTracker:
        assert self._positions is not None, "it is open, and its settings say `same_positions`"
        return self._positions

    @property
    def data(self) -> FileList:
        """The data files of the open log. Bytes from `log_begin` to the end of `readable` do not change until
        `advance_log_start` deletes a file, or a snapshot replaces all files. The listener's `log_replaced` is called before a
        snapshot replaces the files."""
        assert self.store.log is not None, "it is open"
        return self.store.log.data

    def readable(self) -> tuple[int, int]:
        """The last entry that is committed and durable on this disk, and the position of its end."""
        return self._tracker.readable

    def log_begin(self) -> int:
        """The position where the log begins: the start of a data file."""
        assert self.store.log is not None, "it is open"
        return self.store.log.begin.position

    def log_end(self) -> int:
        """The position where the log ends, including entries in memory and bodies of this turn."""
        return self._tracker.gathered_end

    @property
    def waits_for_room(self) -> bool:
        """Whether this disk is full. New entries are then not readable here before there is room, even if the other members
        hold them."""
        return self.store.waits_for_room

    @property
    def note(self) -> bytes:
        """The note of the last `advance_log_start`, which was called here or on the member that sent the log's beginning."""
        return self.store.note

    async def advance_log_start(self, position: int, note: bytes = b"") -> None:
        """Deletes the files before `position`, the start of a data file with a `readable` entry. Durable on return. `note` is
        stored, and sent to members that receive the log's beginning from here. Does nothing if the log begins at `position` or
        later. A follower that is missing deleted entries gets a snapshot.

        Raises: OSError (full disk) or LogDamaged (the entry before or at the new beginning is corrupt) if nothing has changed;
        OutcomeUnknown if this member stops."""
        assert not position % self.data.file_bytes and position <= self.readable()[1], f"begin at {position}"
        if self._closed:
            raise OutcomeUnknown("this member stopped")
        done = self._log_start.ask()
        self._take(lambda now_ms: [AdvanceLogStart(position, note)])
        await done

    # Time

    def _tick(self) -> None:
        assert self.core is not None
        if self._positions is not None:  # reserved entries must be appended before a transfer begins
            self._append_gathered()
        if self._applier.replays and self.core.voters:  # another member may serve as soon as it is elected
            self._suppress_elections(self.settings.heartbeat_interval_ms)
        self._take(self.core.tick)
        self._rejoin_notice.look(self.core.rejoin, self.clock.monotonic_ms())

    def _set_timer(self) -> None:
        if self._started and self.core is not None:
            self._timer.due_at(self.core.next_tick_ms)

    # Actions, in order

    def _take(self, turn: Callable[[int], Sequence[Step]]) -> None:
        """Calls `turn` with the time in ms, and performs the returned actions that need not wait.

        Performing an action may start another turn. For example, `core.propose` returns a PersistThenSend, its sync calls
        `core.persisted`, and the resulting Commit lets a proposer propose again. Such a nested call only queues its actions in
        `_arrived`. The outer call performs them, so actions keep the order of their turns. An exception is a bug and ends this
        member, whichever caller gets it."""
        if self._closed:
            return
        try:
            steps = turn(self.clock.monotonic_ms())
            self._arrived.extend(steps)
            self._look_at_members()
            self._look_at_log(steps)
            self._look_at_transfer()
            self._set_timer()
            if not self._performing:
                self._perform_arrived()
            self._starts.look()
        except Exception as error:
            self._fail(error)
            raise

    def _look_at_members(self) -> None:
        """Handles a change of the members: the newest list in the log counts as soon as it is appended (thesis 4.1)."""
        assert self.core is not None
        membership = self.core.membership
        if membership.members is not self._members:
            self._members = membership.members
            self.peers.clear()
            self.peers.update(self._members.addresses)
            before = membership.before(self.core.committed_index)
            self._starts.members_changed()
            self.guard.members_are(membership.index, membership.members, before)

    def _look_at_log(self, steps: Sequence[Step]) -> None:
        if self._positions is not None:
            for step in steps:
                if isinstance(step, PersistThenSend):
                    self._positions.took(step)

    def _look_at_transfer(self) -> None:
        """Notifies the listener when a transfer begins. If the transfer fails, the listener is notified when TransferFailed is
        performed."""
        transfers = self.core is not None and self.core.transfers
        if transfers and not self._transfers_now:
            self.listener.transfer_began()
        self._transfers_now = transfers

    def _perform_arrived(self) -> None:
        """Performs actions that need not wait; all other actions share the next sync."""
        self._performing = True
        while self._arrived:
            step = self._arrived.popleft()
            if not self._sync_queue.takes(step):
                self._perform(step)
        self._performing = False
        if not self._disk_is_busy and not self._closed and self._sync_queue.wants_the_disk:
            self._disk_is_busy = True
            batch = self._sync_queue.next_batch()
            self._tasks.start(self._persist(batch), name=f"dledger-disk {self.self_id}")

    async def _persist(self, batch: list[Step]) -> None:
        await self.store.persist(
            [step for step in batch if isinstance(step, PersistThenSend)], self._move_log_start
        )
        self._performing = True
        for step in batch:
            self._sync_queue.synced(step)
            self._perform(step)
        self._arrived.extendleft(reversed(self._sync_queue.reconsidered()))
        self._perform_arrived()
        if any(isinstance(step, SaveCheckpoint) for step in batch):
            await self._checkpointing.save(
                lambda: self._committed_and_durable, lambda: self._applier.committed_index
            )
        for step in batch:
            if isinstance(step, SaveSnapshot):
                await self._save_snapshot(step.snapshot)
        await self._move_log_start()
        self._disk_is_busy = False
        self._perform_arrived()

    async def _move_log_start(self) -> None:
        assert self.core is not None
        while (step := self._sync_queue.next_log_start()) is not None:
            await self._log_start.perform(step.position, step.note, self.core.reclaimed)

    def _perform(self, action: Step) -> None:
        assert self.core is not None
        if self._closed:
            return
        match action:
            case PersistThenSend():
                self._persisted(action)
            case Send():
                self._transport.ask(action.to, action.request)
            case Reply():
                self._transport.answer(action.ticket, action.response)
            case Commit():
                self.listener.committed(action.index)
                self._applier.commit(action.index)
                self._look_at_readable()
            case BecomeRole():
                self._change_role(action)
            case ReadReady():
                self._reads.ready(action)
                self._reads.finish(self.applied_index)
            case Restore():
                self._proposals.give_up("a snapshot replaced the entries")
                self._applier.restore(action.snapshot)
            case Load() | LoadChunk():
                self._tasks.start(self._load(action), name=f"dledger-load {self.self_id}->{action.peer}")
            case TransferFailed():
                self._transfers.end(another_leads=False)
                self._settle_reserved()
                if self.core.role is Role.LEADER and not self._transfers_now:
                    self.listener.transfer_failed()
            case Forgot():
                self._starts.contradicted(action)
            case SaveCheckpoint() | SaveSnapshot() | AdvanceLogStart():
                pass

    def _persisted(self, action: PersistThenSend) -> None:
        assert self.core is not None
        if action.snapshot is not None and self._positions is not None:
            self.listener.log_restarted(self.log_begin())
        if action.vote is not None:
            self._starts.persisted(action.vote)
        for message in action.messages:
            self._perform(message)
        self._arrived.extend(self.core.persisted(self.clock.monotonic_ms()))
        self._set_timer()
        self._starts.look()
        self._look_at_readable()

    def _look_at_readable(self) -> None:
        """Called when more entries are committed, or durable here."""
        positions = self._positions
        if positions is not None and positions.reached(self._committed_and_durable):
            self.listener.readable_to(positions.readable[1])

    def _applied_some(self) -> None:
        assert self.core is not None
        if self.is_active:
            self._announce(Role.LEADER, self.core.term)
        self._checkpointing.note()
        self._reads.finish(self.applied_index)

    def _change_role(self, change: BecomeRole) -> None:
        logger.info(
            "role=%s term=%d leader=%s self=%s",
            change.role.value,
            change.term,
            change.leader_id,
            self.self_id,
        )
        if change.role is not Role.LEADER:
            lost = f"leadership was lost in term {change.term}"
            self._proposals.give_up(lost, above=self._applier.committed_index)
            self._settle_reserved()
            self._announce(change.role, change.term)
        if change.leader_id is not None:
            self._transfers.end(another_leads=change.leader_id != self.self_id)

    def _announce(self, role: Role, term: int) -> None:
        if self._announced != (role, term):
            self._announced = (role, term)
            self.listener.role_changed(role, term)

    @property
    def _committed_and_durable(self) -> int:
        """The index up to which entries are both committed and durable here. An entry can be committed before it is durable
        here, by a majority of other disks."""
        return min(self._applier.committed_index, self.core.durable_index) if self.core else NO_INDEX

    # Snapshots, and reads for followers

    async def _load(self, load: Load | LoadChunk) -> None:
        core, log = self.core, self.store.log
        assert core is not None and log is not None
        loaded: Loaded = ()
        if isinstance(load, LoadChunk):
            loaded = await self._sender.chunk(load) or ()
        elif log.begin.index < load.first_index <= log.end_index:
            loaded = await self.catchup_reader.read(log, load, self.settings.push_bytes_max)
        self._take(lambda now_ms: core.loaded(load, loaded, now_ms))
        if isinstance(loaded, Unreadable) and loaded.index > core.committed_index:
            self.suppress_elections()  # the other members may have the entry, and commit it

    def _made_snapshot(self, index: int, state: bytearray) -> None:
        """Called when a snapshot is made. Applied entries are in the log, and become durable before the snapshot, which waits
        for the disk after them."""
        assert self.core is not None
        if index < self.core.log.prev_index:  # another member's snapshot covers more
            return
        if len(state) > self.settings.snapshot_bytes_max:  # no member would accept it, so none could catch up
            logger.error(
                "self=%s the state has %d bytes, and a snapshot %d at most: none is written, and the log keeps all entries; "
                "raise snapshot_bytes_max on all members", self.self_id, len(state), self.settings.snapshot_bytes_max,
            )  # fmt: skip
            return
        configurations = self.core.membership.at(index)
        snapshot = Snapshot(index, self.core.log.term_at(index), state, configurations=configurations)
        self._take(lambda now_ms: [SaveSnapshot(snapshot)])

    async def _remake_snapshot(self) -> None:
        if isinstance(self._applier, Applier):
            self._applier.save()
        else:
            self._take(lambda now_ms: [SaveSnapshot(None)])
        await asyncio.sleep(self.settings.heartbeat_interval_ms / 1000)

    async def _save_snapshot(self, snapshot: Snapshot | None) -> None:
        """Saves a snapshot. Nothing waits for this write: if the disk is full, a later snapshot may find room. A snapshot of
        another member may already be newer."""
        log = self.store.log
        assert self.core is not None and log is not None
        if snapshot is None:
            await self._snapshot_write.attempt(self.store.rewrite_log_start())
        elif snapshot.last_index >= self.store.snapshot_index:  # if equal, the present file could not be read
            await self._snapshot_write.attempt(self.store.save_snapshot(snapshot))
            self.core.reclaimed(log.begin.index)
            await self._snapshot_write.attempt(self.store.reclaim())

    # Messages: dledger.node.transport.Receiver

    def receive(self, sender: str, message: Message, ticket: int) -> bool:
        """Passes a message to the core; False if this member does not take part any more."""
        core = self.core
        if core is None or self._closed or not self._started:
            return False
        core.newer_config_peers_are(self.guard.vouched)

        def receive(now_ms: int) -> list[Action]:
            actions = core.receive(sender, message, now_ms, ticket)
            self._live_entries.received(message, actions)
            return actions

        self._take(receive)
        return True

    def unsent(self, peer: str, request: Request) -> None:
        core = self.core
        if core is not None:
            self._take(lambda now_ms: core.unsent(peer, request, now_ms))

    def connection_lost(self, peer: str) -> None:
        core = self.core
        if core is not None:
            self._take(lambda now_ms: core.connection_lost(peer, now_ms))

    def suppress_elections(self) -> None:
        self._suppress_elections(2 * self.settings.election_timeout_max_ms)

    def ask_for_members(self) -> None:
        core = self.core
        if core is not None and self._started:
            core.newer_config_peers_are(self.guard.vouched)
            self._take(core.ask_for_members)

    def _suppress_elections(self, for_ms: int) -> None:
        core = self.core
        if core is not None:
            self._take(lambda now_ms: core.suppress_elections(now_ms, for_ms))

    # The end

    def _fail(self, error: BaseException) -> None:
        if not self._closed:
            logger.error("self=%s stops: %s", self.self_id, error)
            self._failure = error
            self._close()
            self.listener.failed(error)

    def _close(self) -> None:
        self._closed = True
        self._arrived.clear()
        self._timer.cancel()
        self._starts.close()
        self._checkpointing.close()
        self._applier.close()
        self._proposals.give_up("this member stopped")
        self._log_start.give_up()
        self._transport.close()
        self._reads.give_up()
        self._transfers.end(another_leads=False)
