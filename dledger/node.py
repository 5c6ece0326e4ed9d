"""One member of a group: the shell around the Raft core.

Invariant: it performs the core's actions one after the other in their order, and none while an earlier one
waits for the disk. So a message never overtakes what it depends on, and a member whose disk hangs falls
silent and is replaced. After the first failed write it sends, answers and applies nothing any more."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from dledger.actions import Action, BecomeRole, Commit, PersistThenSend, ReadReady, Reply, Role, Send
from dledger.arrivals import Arrivals
from dledger.conversation import Conversation
from dledger.entry import NO_INDEX
from dledger.errors import NotLeader, OutcomeUnknown, TooManyProposals
from dledger.messages import Message, Request
from dledger.proposals import Proposals
from dledger.raft import Raft
from dledger.raftlog import RaftLog
from dledger.reads import Reads
from dledger.settings import DLedgerSettings
from dledger.store import FOLDER_PREFIX, Store
from mqruntime.diskfull import RetriedWrite
from mqruntime.runtime import Runtime
from mqruntime.tasks import Tasks
from remoting.client import RemotingClient
from remoting.router import Router

logger = logging.getLogger(__name__)


class StateMachine(Protocol):
    def apply(self, index: int, body: bytes) -> object:
        """Called once for each decided entry in order, again from the first one at each start of the
        process; never with an empty body. Total: an exception ends the process. What it returns goes to the
        proposer, if that is here."""
        ...


@dataclass(frozen=True, slots=True)
class SaveCheckpoint:
    """An action of the shell's own: note in the checkpoint file how far the log is decided."""


class DLedgerNode:
    """`peers` maps each member's id, this one's too, to its "host:port".

    `on_role_change(role, term)` hears of LEADER only once this member is active. `on_fatal` hears of the
    first failed write."""

    core_class: type[Raft] = Raft

    def __init__(
        self,
        *,
        self_id: str,
        peers: Mapping[str, str],
        group: str,
        runtime: Runtime,
        state_machine: StateMachine,
        client: RemotingClient,
        settings: DLedgerSettings,
        on_role_change: Callable[[Role, int], None],
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        if self_id not in peers:
            raise ValueError(f"{self_id} is not among the members {sorted(peers)} of group {group}")
        self.self_id = self_id
        self.peers = dict(peers)
        self.settings = settings
        self.clock = runtime.clock
        self.random = runtime.random
        self.store = Store(runtime.files, runtime.segments, f"{FOLDER_PREFIX}{self_id}", settings)
        self.state_machine = state_machine
        self.on_role_change = on_role_change
        self.on_fatal = on_fatal
        self.core: Raft | None = None
        self.applied_index = NO_INDEX
        self._arrivals = Arrivals(NO_INDEX)
        self._tasks = Tasks(self._fail)
        self._conversation = Conversation(
            group=group,
            self_id=self_id,
            peers=self.peers,
            client=client,
            tasks=self._tasks,
            timeout_ms=settings.election_timeout_min_ms,
            receive=self._receive,
            unsent=self._unsent,
        )
        self._queue: deque[Action | SaveCheckpoint] = deque()
        self._busy = False
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due_ms = 0
        self._checkpoint_timer: asyncio.TimerHandle | None = None
        self._checkpoint_write = RetriedWrite(
            logger, f"{self.store.checkpoint_file.name} cannot be written, trying on", server="controller"
        )
        self._announced: tuple[Role, int] = (Role.FOLLOWER, 0)
        self._proposals = Proposals()
        self._reads = Reads()

    # What others may ask

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
        return self.peers.get(self.leader_id) if self.leader_id else None

    @property
    def last_index(self) -> int:
        """Of the log; not everything up to there is decided."""
        return self.core.log.last_index if self.core else NO_INDEX

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

    def came_undecided(self, index: int) -> bool:
        """Whether the entry reached this process before it was decided: then it is applied about when that happens,
        not later."""
        return self.core is not None and index > self._arrivals.decided_end

    def register(self, router: Router) -> None:
        """The members' requests arrive at the server that `router` belongs to."""
        self._conversation.register(router)

    async def start(self) -> None:
        """Recovers the log, applies what is known to be decided, and takes part from then on.

        Raises LogDamaged, LogOfAnother, BadKeyValues, OSError."""
        recovered = await self.store.open()
        self.core = self.core_class(
            self_id=self.self_id,
            members=self.peers,
            settings=self.settings,
            draw=self.random.randint,
            now_ms=self.clock.monotonic_ms(),
            vote=recovered.vote,
            log=RaftLog(recovered.entries),
            committed_index=recovered.committed_index,
        )
        self._arrivals = Arrivals(self.last_index)
        self._apply_up_to(recovered.committed_index)
        self._arm_timer()

    async def stop(self) -> None:
        """Leaves the group's conversation; proposals that wait get OutcomeUnknown."""
        if not self._closed:
            self._close()
        await self._tasks.stop()
        await self.store.close(self.applied_index)

    async def propose(self, bodies: Sequence[bytes], timeout_ms: int = 3000) -> list[object]:
        """Appends `bodies` in one go and returns what `apply` returned for each, once all are decided.

        Raises NotLeader, TooManyProposals, ValueError (empty or oversized body): nothing was appended;
        OutcomeUnknown."""
        core = self._serving_core()
        for body in bodies:
            if not 0 < len(body) <= self.settings.entry_bytes_max:
                raise ValueError(
                    f"an entry's body has 1 to {self.settings.entry_bytes_max} bytes, not {len(body)}"
                )
        if not bodies:
            return []
        waiting = self.last_index - self.applied_index
        if waiting + len(bodies) > self.settings.pending_proposals_max:
            raise TooManyProposals(f"{waiting} entries wait to be decided")
        done = self._proposals.add(self.last_index + 1, len(bodies))
        self._take(lambda now_ms: core.propose(bodies, now_ms))
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await done
        except TimeoutError:
            raise OutcomeUnknown(f"not decided within {timeout_ms} ms") from None

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

    def _serving_core(self) -> Raft:
        if self.core is None or not self.is_active:
            raise NotLeader(self.leader_id, self.leader_address)
        return self.core

    # Time

    def _arm_timer(self) -> None:
        assert self.core is not None
        due_ms = self.core.next_tick_ms
        if self._timer is not None:
            if self._timer_due_ms <= due_ms:
                return
            self._timer.cancel()
        # readings are cut to whole ms: not a hair too early
        delay_ms = max(0, due_ms - self.clock.monotonic_ms()) + 1
        self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._tick)
        self._timer_due_ms = due_ms

    def _tick(self) -> None:
        assert self.core is not None
        self._timer = None
        self._take(self.core.tick)

    # Actions, in order

    def _take(self, turn: Callable[[int], Sequence[Action | SaveCheckpoint]]) -> None:
        """Queues the actions of one turn, which gets the time, and performs what can be now. What it raises
        is a bug, and the end of this member, wherever the call came from."""
        if self._closed:
            return
        try:
            self._queue.extend(turn(self.clock.monotonic_ms()))
            self._arm_timer()
            if not self._busy:
                self._busy = True
                self._perform_queued()
        except Exception as error:
            self._fail(error)
            raise

    def _perform_queued(self) -> None:
        """Performs up to the next action that waits for the disk; that one and all queued behind it share
        one sync."""
        while self._queue:
            if isinstance(self._queue[0], PersistThenSend | SaveCheckpoint):
                batch = list(self._queue)
                self._queue.clear()
                self._tasks.start(self._persist(batch), name=f"dledger-disk {self.self_id}")
                return
            self._perform(self._queue.popleft())
        self._busy = False

    async def _persist(self, batch: list[Action | SaveCheckpoint]) -> None:
        await self.store.persist([action for action in batch if isinstance(action, PersistThenSend)])
        if any(isinstance(action, SaveCheckpoint) for action in batch):
            await self._save_checkpoint()
        for action in batch:
            self._perform(action)
        self._perform_queued()

    def _perform(self, action: Action | SaveCheckpoint) -> None:
        assert self.core is not None
        if self._closed:
            return
        match action:
            case PersistThenSend():
                for message in action.messages:
                    self._perform(message)
                self._queue.extend(self.core.persisted(self.clock.monotonic_ms()))
                self._arm_timer()
            case Send():
                self._conversation.ask(action.to, action.request)
            case Reply():
                self._conversation.answer(action.ticket, action.response)
            case Commit():
                self._apply_up_to(action.index)
                self._note_checkpoint()
            case BecomeRole():
                self._change_role(action)
            case ReadReady():
                self._finish_read(action)
            case SaveCheckpoint():
                pass

    def _apply_up_to(self, index: int) -> None:
        assert self.core is not None
        while self.applied_index < index:
            entry = self.core.log.entry(self.applied_index + 1)
            result = self.state_machine.apply(entry.index, entry.body) if entry.body else None
            self.applied_index = entry.index
            self._proposals.applied(entry.index, result)
        if self.is_active:
            self._announce(Role.LEADER, self.core.term)

    def _change_role(self, change: BecomeRole) -> None:
        logger.info(
            "role=%s term=%d leader=%s self=%s",
            change.role.value,
            change.term,
            change.leader_id,
            self.self_id,
        )
        if change.role is not Role.LEADER:
            self._proposals.give_up(f"leadership was lost in term {change.term}")
            self._announce(change.role, change.term)

    def _announce(self, role: Role, term: int) -> None:
        if self._announced != (role, term):
            self._announced = (role, term)
            self.on_role_change(role, term)

    def _finish_read(self, ready: ReadReady) -> None:
        assert ready.index is None or ready.index <= self.applied_index, (
            "a read-index is committed, and commits come first"
        )
        self._reads.ended(ready.read_id, proven=ready.index is not None)

    # The checkpoint file follows the commits, at most once an interval

    def _note_checkpoint(self) -> None:
        if self._checkpoint_timer is None:
            delay = self.settings.checkpoint_interval_ms / 1000
            self._checkpoint_timer = asyncio.get_running_loop().call_later(delay, self._checkpoint_due)

    def _checkpoint_due(self) -> None:
        self._checkpoint_timer = None
        self._take(lambda now_ms: [SaveCheckpoint()])

    async def _save_checkpoint(self) -> None:
        """Nothing waits for what it says: a full disk delays it, and the next one says more."""
        if not await self._checkpoint_write.attempt(self.store.save_checkpoint(self.applied_index)):
            self._note_checkpoint()

    # Messages

    def _receive(self, sender: str, message: Message, ticket: int) -> bool:
        """Hands a message to the core; False when this member takes part no more."""
        core = self.core
        if core is None or self._closed:
            return False

        def receive(now_ms: int) -> list[Action]:
            actions = core.receive(sender, message, now_ms, ticket)
            self._arrivals.received(message, actions)
            return actions

        self._take(receive)
        return True

    def _unsent(self, peer: str, request: Request) -> None:
        core = self.core
        if core is not None:
            self._take(lambda now_ms: core.unsent(peer, request, now_ms))

    # The end

    def _fail(self, error: BaseException) -> None:
        if not self._closed:
            logger.error("self=%s gives up: %s", self.self_id, error)
            self._close()
            self.on_fatal(error)

    def _close(self) -> None:
        self._closed = True
        self._queue.clear()
        for timer in (self._timer, self._checkpoint_timer):
            if timer is not None:
                timer.cancel()
        self._proposals.give_up("this member stopped")
        self._conversation.close()
        self._reads.give_up()
