"""One member of a group: the shell around the Raft core.

Invariant: it performs the core's actions in their order, but for what waits for the disk (dledger.node.syncqueue says what
must), so a message never overtakes what it depends on. After the first failed write it sends, answers and applies nothing any
more."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence

from dledger.node.applying import AnyStateMachine, Applier, NullApplier, Snapshots
from dledger.node.authenticator import PeerAuthenticator
from dledger.node.catchupreader import CatchupReader
from dledger.node.checkpointing import Checkpointing
from dledger.node.logstart import LogStart
from dledger.node.positions import PositionTracker
from dledger.node.proposals import LiveEntries, Proposals
from dledger.node.proposing import Proposing
from dledger.node.snapshotsender import SnapshotSender
from dledger.node.starts import RejoinNotice, Starts
from dledger.node.syncqueue import AdvanceLogStart, SaveCheckpoint, SaveSnapshot, Step, SyncQueue
from dledger.node.transport import PeerTransport
from dledger.node.waiters import Reads, TransferWaiters
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
from dledger.raft.entries import NO_INDEX
from dledger.raft.errors import NotLeader
from dledger.raft.membership import Members, Membership
from dledger.raft.messages import Message, Request, ResultCode
from dledger.raft.progress import Loaded, Unreadable
from dledger.raft.raft import Raft
from dledger.raft.settings import DLedgerSettings
from dledger.raft.snapshot import Begin, Snapshot
from dledger.storage.entrylog import PositionInBody, nowhere
from dledger.storage.store import FOLDER_PREFIX, Store
from mqruntime.coretimer import CoreTimer
from mqruntime.diskfull import RetriedWrite
from mqruntime.runtime import Runtime
from mqruntime.tasks import Tasks
from remoting.client import RemotingClient
from remoting.router import Router

logger = logging.getLogger(__name__)

TRANSFER_MS_MAX = 1500
"""A member that ends waits no longer for its successor."""


class DLedgerNode(Proposing):
    """`peers` maps each member's id, this one's too, to its "host:port". `snapshots` is the state machine, where its state can
    be written down; without a state machine nobody is told of entries, and nothing is read for that.

    `on_role_change(role, term)` hears of LEADER only once this member is active. `on_fatal` hears of the
    first failed write, `on_commit(index)` of the end of what is decided each time that it moves, before that is applied,
    `on_hand_over(True)` of each hand-over that begins, from when on a leader takes no proposals, and `on_hand_over(False)` when
    it leads on.

    `on_unreadable(index)` hears of each entry that a follower lacks and that cannot be read here.

    `on_forgetful()` runs where this member starts as a newcomer, or its disk was set back: it may have forgotten what it said.

    `why_no_members(ids)` tells what keeps members from having these ids; None where nothing does.

    Where the settings say `same_positions`, `position_in_body` tells where a body says that its entry stands;
    `on_readable(end)` hears of where the last `readable` entry ends each time that this grew, and `on_restarted(position)`, before that, that a
    snapshot of another member stands in the place of all that was in the log, which begins there now; `on_replaced(position)`
    that this is so on the disk, before the first file goes. What these raise ends this member."""

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
        state_machine: AnyStateMachine | None,
        client: RemotingClient,
        settings: DLedgerSettings,
        on_role_change: Callable[[Role, int], None],
        on_fatal: Callable[[BaseException], None],
        on_commit: Callable[[int], None] | None = None,
        snapshots: Snapshots | None = None,
        position_in_body: PositionInBody = nowhere,
        on_readable: Callable[[int], None] | None = None,
        on_replaced: Callable[[int], None] | None = None,
        on_restarted: Callable[[int], None] | None = None,
        on_hand_over: Callable[[bool], None] | None = None,
        on_unreadable: Callable[[int], None] = lambda index: None,
        why_no_members: Callable[[Collection[str]], str | None] = lambda ids: None,
        on_forgetful: Callable[[], None] = lambda: None,
    ) -> None:
        if settings.same_positions and state_machine is not None:
            raise ValueError("the snapshots of a log with same_positions hold no state machine")
        if self_id not in peers:
            raise ValueError(f"{self_id} is not among the members {sorted(peers)} of group {group}")
        self.self_id = self_id
        self.peers = dict(peers)
        self._members: Members | None = None
        self.settings = settings
        self.clock = runtime.clock
        self.random = runtime.random
        self.store = Store(
            runtime.files,
            runtime.segments,
            f"{FOLDER_PREFIX}{self_id}",
            settings,
            peers,
            position_in_body,
            on_replaced,
        )
        self.on_role_change = on_role_change
        self.on_fatal = on_fatal
        self._on_commit = on_commit
        self._on_readable = on_readable
        self._on_restarted = on_restarted
        self._on_hand_over = on_hand_over
        self._why_no_members = why_no_members
        self.core: Raft | None = None
        self._live_entries = LiveEntries(NO_INDEX)
        self._tasks = Tasks(self._fail)
        self._failure: BaseException | None = None
        self.guard = PeerAuthenticator(
            self_id=self_id,
            peers=self.peers,
            checks_addresses=settings.checks_addresses,
            clock=self.clock,
            term=lambda: self.term,
        )
        self._starts = Starts(
            runtime.files,
            f"{self.store.name}/starts",
            self_id,
            chance=runtime.random,
            tasks=self._tasks,
            members=lambda: self.peers,
            take=self._take,
            on_forgetful=on_forgetful,
        )
        self._transport = self.transport_class(
            group=group,
            self_id=self_id,
            peers=self.peers,
            client=client,
            tasks=self._tasks,
            clock=self.clock,
            settings=settings,
            receive=self._receive,
            unsent=self._unsent,
            connection_lost=self._connection_lost,
            hand_over=self.hand_over,
            guard=self.guard,
            starts=self._starts,
            stand_back=lambda: self._stand_back(2 * settings.election_timeout_max_ms),
        )
        self._arrived: deque[Step] = deque()
        self._performing = False
        self._sync_queue = self.sync_queue_class()
        self._disk_is_busy = False
        self._closed = False
        self._started = False
        self._timer = CoreTimer(self.clock, self._tasks, self._tick)
        self._checkpointing = Checkpointing(
            self.store, settings.checkpoint_interval_ms, lambda: self._take(lambda now_ms: [SaveCheckpoint()])
        )
        self._announced: tuple[Role, int] = (Role.FOLLOWER, 0)
        self._standing_notice = RejoinNotice(self_id)
        self._proposals = Proposals()
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
        self.catchup_reader = CatchupReader(self.clock, on_unreadable)
        self._transfers = TransferWaiters()
        self._hands_over = False

    def _applier_of(
        self, state_machine: AnyStateMachine | None, snapshots: Snapshots | None
    ) -> Applier | NullApplier:
        if state_machine is None:
            return NullApplier(on_decided=self._proposals.decided, on_turn=self._applied_some)
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

    # What others may ask

    def is_live_entry(self, index: int) -> bool:
        """Whether the entry reached this process before it was decided: then it is applied about when that happens,
        not later."""
        return self.core is not None and index > self._live_entries.history_end

    def set_position_lookup(self, position_of: Callable[[int], int | None]) -> None:
        """What is `Decided` says where it begins, as `position_of` an entry that is being applied does."""
        self._proposals.position_of = position_of

    def register(self, router: Router) -> None:
        """The members' requests arrive at the server that `router` belongs to."""
        self._transport.register(router)

    def goes_on_from(self, position: int, origin: str) -> None:
        """To be called before `open`: the log begins at `position`, where a data file does, behind what `origin` tells of, if
        no snapshot says where. Members that are told another one share no group with this one."""
        self.store.whole = Begin(position=position)
        self.guard.origin = origin

    async def open(self) -> None:
        """Recovers the log; what is known to be decided is applied in the turns that follow. Nothing is sent or answered before
        `start`.

        Raises LogDamaged, LogOfAnother, MembersChanged, MembersUnknown, BadKeyValues, OSError."""
        recovered = await self.store.open()
        await self._starts.open()
        log = self.store.log
        assert log is not None
        self.core = self.core_class(
            membership=Membership(self.self_id, Members(dict(self.peers)), recovered.stated),
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
        """Takes part from now on. Raises what `open` does, which it calls if nobody did."""
        if self.core is None:
            await self.open()
        assert self.core is not None
        self._started = True
        self.core.begin(self.clock.monotonic_ms())
        self._starts.begin(self.core)
        self._timer.due_at(self.core.next_tick_ms)

    async def replayed(self) -> None:
        """Returns once what the disk knew to be decided is applied. Raises what ended this member meanwhile, as LogDamaged."""
        await self._applier.replayed()
        if self._failure is not None:
            raise self._failure

    async def stop(self) -> None:
        """Leaves the group's conversation; proposals that wait get OutcomeUnknown."""
        if not self._closed:
            self._close()
        await self._tasks.stop()
        await self.store.close(self._committed_and_durable)

    async def hand_over(self, target: str | None = None) -> ResultCode:
        """Gives the leadership to `target`, or to the member that holds most, and returns when it is known who leads: SUCCESS;
        TAKE_LEADERSHIP_FAILED, and this member leads on or nobody does; NOT_LEADER, UNKNOWN_MEMBER, LEADER_TRANSFERRING:
        nothing was done. Takes `TRANSFER_MS_MAX` at most."""
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
        """Returns once the state machine holds everything that was decided before the call. Raises
        NotLeader."""
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

    # Time

    def _tick(self) -> None:
        assert self.core is not None
        if self._positions is not None:  # a hand-over may begin, and what was placed is to be before it
            self._append_gathered()
        if self._applier.replays and self.core.voters:  # others may serve as soon as they are elected
            self._stand_back(self.settings.heartbeat_interval_ms)
        self._take(self.core.tick)
        self._standing_notice.look(self.core.rejoin, self.clock.monotonic_ms())

    def _look_at_members(self) -> None:
        """Who is spoken to, and believed, follows the log at once."""
        assert self.core is not None
        membership = self.core.membership
        if membership.members is not self._members:
            self._members = membership.members
            self.peers.clear()
            self.peers.update(self._members.addresses)
            before = membership.before(self.core.committed_index)
            self._starts.members_changed()
            self.guard.members_are(membership.index, membership.members, before)

    # Actions, in order

    def _take(self, turn: Callable[[int], Sequence[Step]]) -> None:
        """Takes the actions of one turn, which gets the time, and performs what can be now. What it raises
        is a bug, and the end of this member, wherever the call came from."""
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

    def _set_timer(self) -> None:
        if self._started and self.core is not None:
            self._timer.due_at(self.core.next_tick_ms)

    def _look_at_log(self, steps: Sequence[Step]) -> None:
        if self._positions is not None:
            for step in steps:
                if isinstance(step, PersistThenSend):
                    self._positions.took(step)

    def _look_at_transfer(self) -> None:
        """A hand-over has begun, or is over: of one that failed others hear when that is performed."""
        under_way = self.core is not None and self.core.transfers
        if under_way and not self._hands_over and self._on_hand_over is not None:
            self._on_hand_over(True)
        self._hands_over = under_way

    def _perform_arrived(self) -> None:
        """Performs what need not wait; what must shares the next sync."""
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
            [step for step in batch if isinstance(step, PersistThenSend)], self._begin_where_told
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
        await self._begin_where_told()
        self._disk_is_busy = False
        self._perform_arrived()

    async def _begin_where_told(self) -> None:
        assert self.core is not None
        while (step := self._sync_queue.next_log_start()) is not None:
            await self._log_start.perform(step.position, step.note, self.core.reclaimed)

    def _perform(self, action: Step) -> None:
        assert self.core is not None
        if self._closed:
            return
        match action:
            case PersistThenSend():
                if action.snapshot is not None:
                    self._restarted()
                if action.vote is not None:
                    self._starts.persisted(action.vote)
                for message in action.messages:
                    self._perform(message)
                self._arrived.extend(self.core.persisted(self.clock.monotonic_ms()))
                self._set_timer()
                self._starts.look()
                self._look_at_readable()
            case Send():
                self._transport.ask(action.to, action.request)
            case Reply():
                self._transport.answer(action.ticket, action.response)
            case Commit():
                if self._on_commit is not None:
                    self._on_commit(action.index)
                self._applier.decide(action.index)
                self._look_at_readable()
            case BecomeRole():
                self._change_role(action)
            case ReadReady():
                self._reads.ready(action)
                self._reads.finish(self.applied_index)
            case Restore():
                self._proposals.give_up("a snapshot stands for the entries")
                self._applier.restore(action.snapshot)
            case Load() | LoadChunk():
                self._tasks.start(self._load(action), name=f"dledger-load {self.self_id}->{action.peer}")
            case TransferFailed():
                self._transfers.end(another_leads=False)
                self._settle_reserved()
                if self.core.role is Role.LEADER and not self._hands_over and self._on_hand_over is not None:
                    self._on_hand_over(False)
            case Forgot():
                self._starts.contradicted(action)
            case SaveCheckpoint() | SaveSnapshot() | AdvanceLogStart():
                pass

    def _restarted(self) -> None:
        """A snapshot of another member has replaced the log."""
        if self._positions is not None and self._on_restarted is not None:
            self._on_restarted(self.log_begin())

    def _look_at_readable(self) -> None:
        """Something was decided, or is durable."""
        placing = self._positions
        if (
            placing is not None
            and placing.reached(self._committed_and_durable)
            and self._on_readable is not None
        ):
            self._on_readable(placing.readable[1])

    def _applied_some(self) -> None:
        assert self.core is not None
        if self.is_active:
            self._announce(Role.LEADER, self.core.term)
        self._checkpointing.note()
        self._reads.finish(self.applied_index)

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
            self._stand_back(2 * self.settings.election_timeout_max_ms)  # others may have it, and decide it

    def _made_snapshot(self, index: int, state: bytearray) -> None:
        """What is applied is in the log; it is durable when what waits for the disk before this is."""
        assert self.core is not None
        if index < self.core.log.prev_index:  # another member's snapshot stands for more
            return
        if len(state) > self.settings.snapshot_bytes_max:  # nobody would take it, and stay behind for good
            logger.error(
                "self=%s the state has %d bytes, and a snapshot %d at most: none is written, and the log keeps all entries; "
                "raise snapshot_bytes_max on all members", self.self_id, len(state), self.settings.snapshot_bytes_max,
            )  # fmt: skip
            return
        stated = self.core.membership.at(index)
        snapshot = Snapshot(index, self.core.log.term_at(index), state, stated=stated)
        self._take(lambda now_ms: [SaveSnapshot(snapshot)])

    async def _remake_snapshot(self) -> None:
        if isinstance(self._applier, Applier):
            self._applier.save()
        else:
            self._take(lambda now_ms: [SaveSnapshot(None)])
        await asyncio.sleep(self.settings.heartbeat_interval_ms / 1000)

    async def _save_snapshot(self, snapshot: Snapshot | None) -> None:
        """Nothing waits for it: where the disk is full, the next one may find room. One of another member may have overtaken
        it."""
        log = self.store.log
        assert self.core is not None and log is not None
        if snapshot is None:
            await self._snapshot_write.attempt(self.store.tell_begin_anew())
        elif snapshot.last_index >= self.store.snapshot_index:  # equal: that one could not be read
            await self._snapshot_write.attempt(self.store.save_snapshot(snapshot))
            self.core.reclaimed(log.begin.index)
            await self._snapshot_write.attempt(self.store.reclaim())

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
            self.on_role_change(role, term)

    @property
    def _committed_and_durable(self) -> int:
        """What others decided is known here also before the own disk has it."""
        return min(self._applier.committed_index, self.core.durable_index) if self.core else NO_INDEX

    # Messages

    def _receive(self, sender: str, message: Message, ticket: int) -> bool:
        """Hands a message to the core; False when this member takes part no more."""
        core = self.core
        if core is None or self._closed or not self._started:
            return False
        if sender in self.guard.vouched:
            core.note_newer_config_peer(sender)

        def receive(now_ms: int) -> list[Action]:
            actions = core.receive(sender, message, now_ms, ticket)
            self._live_entries.received(message, actions)
            return actions

        self._take(receive)
        return True

    def _unsent(self, peer: str, request: Request) -> None:
        core = self.core
        if core is not None:
            self._take(lambda now_ms: core.unsent(peer, request, now_ms))

    def _connection_lost(self, peer: str) -> None:
        core = self.core
        if core is not None:
            self._take(lambda now_ms: core.connection_lost(peer, now_ms))

    def _stand_back(self, for_ms: int) -> None:
        core = self.core
        if core is not None:
            self._take(lambda now_ms: core.suppress_elections(now_ms, for_ms))

    # The end

    def _fail(self, error: BaseException) -> None:
        if not self._closed:
            logger.error("self=%s gives up: %s", self.self_id, error)
            self._failure = error
            self._close()
            self.on_fatal(error)

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
