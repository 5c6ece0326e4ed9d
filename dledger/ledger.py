"""One member of a group as others use it: a replicated log, and a state machine over it, behind a dozen names.

    async with DLedger(self_id="n0", peers=PEERS, group="g", runtime=real_runtime(folder), state_machine=counter) as ledger:
        appended = await ledger.append(b"+1")

Invariant: what `append` returned is decided for good, in the logs of a majority and synced there; what raised NotLeader or
TooManyProposals was not appended; only after OutcomeUnknown either may be. What `get` shows is decided."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from dledger.node.applying import AnyStateMachine, Snapshots
from dledger.node.callbacks import calling, not_awaited, usable_machine
from dledger.node.listener import NodeListener
from dledger.node.memberservice import MemberService
from dledger.node.node import DLedgerNode
from dledger.node.positions import Positions
from dledger.preference import yield_to_preferred
from dledger.raft.actions import Role
from dledger.raft.entries import NO_INDEX, Entry
from dledger.raft.errors import EntryRefused, IndexOutOfRange, NotLeader, OutcomeUnknown, TooManyProposals
from dledger.raft.messages import ResultCode
from dledger.raft.settings import DLedgerSettings
from dledger.storage.oldentries import read_entries
from dledger.storage.snapshot import SnapshotCounts
from mqruntime.runtime import Runtime
from mqruntime.tasks import Tasks
from remoting.client import RemotingClient
from remoting.router import Router
from remoting.server import RemotingServer

TIMEOUT_MS = 3000
"""Of one append or read where the caller names none; upstream's clients wait as long."""
CONNECT_TIMEOUT_MS = 1000
COUNTED_AS = {NotLeader: "not_leader", TooManyProposals: "too_many", OutcomeUnknown: "unknown"}
COUNTED = ("appended", "refused", *COUNTED_AS.values(), "reads", "gets", "elected", "transfers", "unreadable")


class Events(NodeListener):
    """Passes on the events of the member to the observers of one DLedger, and counts them."""

    def __init__(self, counts: Counter[str]) -> None:
        self._counts = counts
        self.failure: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        self.role_observers: list[Callable[[Role, int], None]] = []
        self.commit_observers: list[Callable[[int], None]] = []

    def role_changed(self, role: Role, term: int) -> None:
        self._counts["elected"] += role is Role.LEADER
        for observer in self.role_observers:
            with calling("an observer of roles"):
                observer(role, term)

    def committed(self, index: int) -> None:
        for observer in self.commit_observers:
            with calling("an observer of commits"):
                observer(index)

    def entry_unreadable(self, index: int) -> None:
        self._counts["unreadable"] += 1

    def failed(self, error: BaseException) -> None:
        if not self.failure.done():
            self.failure.set_result(error)


class NoState:
    """A log alone."""

    def apply(self, index: int, body: bytes) -> object:
        return None


@dataclass(frozen=True, slots=True)
class Appended:
    """Entries that are decided, one behind the other."""

    index: int
    """Of the first one; the others follow without a hole."""
    position: int
    """Where the first one begins in this member's data files, in bytes, as upstream counts; it may differ on others."""
    results: list[object]
    """Of each what `apply` returned on this member, or the EntryRefused that it raised."""


@dataclass(frozen=True, slots=True)
class Metadata:
    """A member at one moment, as it sees itself. An index of -1: there is no such entry."""

    group: str
    self_id: str
    peers: Mapping[str, str]
    role: Role
    term: int
    leader_id: str | None
    is_active: bool
    """Leads, and serves appends and reads."""
    first_index: int
    last_index: int
    committed_index: int
    applied_index: int


class DLedger:
    """`peers` maps the id of each member, this one too, to its "host:port"; `self_id` is listened on there, or on the host
    `listens_on`. `snapshots` is the state machine, where its state can be written down; `settings.snapshot_entries` says how
    often that is done. `runtime` is rooted at this member's own folder, which is locked while it runs. A leader that is not
    among the ids `preferred` hands over to one that is, once that holds all that is decided. `router` takes request codes of
    the embedding program, served on the same port."""

    def __init__(
        self,
        *,
        self_id: str,
        peers: Mapping[str, str],
        group: str,
        runtime: Runtime,
        state_machine: AnyStateMachine | None = None,
        snapshots: Snapshots | None = None,
        settings: DLedgerSettings | None = None,
        preferred: Collection[str] = (),
        listens_on: str | None = None,
    ) -> None:
        """Raises ValueError: this member, or a preferred one, is not in the list; TypeError: a state machine has no `apply` or
        `apply_batch`, or one that is `async`."""
        if state_machine is not None:
            usable_machine(state_machine)
        if strangers := sorted(set(preferred) - set(peers)):
            raise ValueError(f"preferred {', '.join(strangers)}: not among the members {sorted(peers)}")
        self.group = group
        self.settings = settings or DLedgerSettings()
        self.counts: Counter[str] = Counter(dict.fromkeys(COUNTED, 0))
        """Since the start, of this member: entries appended, and those that the state machine refused; calls that ended with
        NotLeader, TooManyProposals, OutcomeUnknown; reads proven, entries got; how often elected, and handed over."""
        self._preferred = frozenset(preferred)
        self._lock = runtime.lock
        self._life = asyncio.Lock()
        self._begun = False
        """Started or stopped."""
        self._events = Events(self.counts)
        self._tasks = Tasks(self._events.failed)
        self.clock = runtime.clock
        self._client = RemotingClient(clock=runtime.clock, connect_timeout_ms=CONNECT_TIMEOUT_MS)
        self._node = DLedgerNode(
            self_id=self_id,
            peers=peers,
            group=group,
            runtime=runtime,
            client=self._client,
            settings=self.settings,
            listener=self._events,
            state_machine=state_machine or NoState(),
            snapshots=snapshots,
        )
        self._positions: Positions | None = None
        self.router = Router(on_fatal=self._events.failed)
        self._node.register(self.router)
        MemberService(self._node, group, lambda: self.counts).register(self.router)
        host, _, port = peers[self_id].rpartition(":")
        self._server = RemotingServer(
            self.router, host=listens_on or host, port=int(port), clock=runtime.clock
        )

    # Its life

    async def start(self) -> None:
        """Takes part; what is known to be decided is applied on return. Raises StoreLocked, StoreUnusable, AddressInUse,
        CannotListen, LogDamaged, LogOfAnother, MembersChanged, BadKeyValues, OSError; it is closed then. RuntimeError: it was
        started or stopped before; make another."""
        async with self._life:
            if self._begun:
                raise RuntimeError(f"{self.self_id} was started or stopped before; make another DLedger")
            self._lock.acquire()
            self._begun = True
            await self._started()

    async def _started(self) -> None:
        try:
            await self._server.start()
            await self._node.start()
            assert self._node.core is not None and self._node.store.log is not None
            self._positions = Positions(self._node.core, self._node.store.log)
            self._node.set_position_lookup(self._positions.if_sound)
            await self._node.replayed()
        except BaseException:
            await self._close()
            raise
        if self._preferred and self._node.self_id not in self._preferred:
            self._tasks.start(
                yield_to_preferred(self._node, self._preferred, self.transfer), name="dledger-preferred"
            )

    async def stop(self) -> None:
        """A leader hands over first, so that the others need not wait until it is missed; who is cancelled meanwhile closes
        all the same. A start that is under way is waited for, and so is another stop."""
        async with self._life:
            self._begun = True
            try:
                await self._node.transfer_leadership()
            finally:
                await self._close()

    async def _close(self) -> None:
        """Cancelled, it keeps the folder, in which something may still be written: `stop` goes on then."""
        try:
            try:
                await self._tasks.stop()
                await self._node.stop()
            finally:
                await self._server.stop()
                await self._client.close()
        except Exception:
            self._lock.release()
            raise
        self._lock.release()

    async def wait_failed(self) -> BaseException:
        """What ended this member, once something has: a disk that fails, a state machine that raised. It answers nothing any
        more; `stop` it, and start another."""
        return await asyncio.shield(self._events.failure)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    # The log

    async def append(self, *bodies: bytes, timeout_ms: int = TIMEOUT_MS) -> Appended:
        """Appends one entry for each body, side by side, and returns once all are decided and applied here.

        Raises NotLeader, TooManyProposals, ValueError (no body, an empty or oversized one, more than may ever wait), TypeError:
        nothing was appended; OutcomeUnknown: perhaps it was."""
        if not 0 < len(bodies) <= self.settings.pending_proposals_max:
            limits = f"one body at least, and {self.settings.pending_proposals_max} at most"
            raise ValueError(f"append wants {limits}, not {len(bodies)}")
        if not all(isinstance(body, bytes) for body in bodies):
            raise TypeError("a body is bytes, which stay as they are; of text or a buffer give bytes(...)")
        if not isinstance(timeout_ms, int | float):
            raise TypeError(f"timeout_ms is a number, not {timeout_ms!r}")
        with self._counting():
            decided = await self._node.propose(bodies, timeout_ms)
        assert self._positions is not None
        self.counts["appended"] += len(bodies)
        self.counts["refused"] += sum(isinstance(result, EntryRefused) for result in decided.results)
        position = decided.position
        if position is None:
            position = self._positions.of(decided.first_index)
        return Appended(decided.first_index, position, decided.results)

    async def get(self, index: int) -> Entry:
        """The decided entry `index`, from this member's own log, whoever leads; the body of the no-op that opens a term is
        empty. Raises IndexOutOfRange, LogDamaged, OSError."""
        core, disk = self._node.core, self._node.store.log
        if core is None or disk is None:
            raise IndexOutOfRange(index, 0, NO_INDEX)
        while True:  # a snapshot, or a cut of later entries, may overtake a read of the disk
            if not core.log.first_index <= index <= core.committed_index:
                raise IndexOutOfRange(index, core.log.first_index, core.committed_index)
            if core.log.holds(index):
                found = core.log.entry(index)
                break
            if entries := await read_entries(disk, index, 1, self.settings.entry_bytes_max):
                found = entries[0]
                break
        self.counts["gets"] += 1
        return found

    async def read_index(self, timeout_ms: int = TIMEOUT_MS) -> int:
        """An index at or above all that was decided before the call, once a majority has confirmed that this member led
        meanwhile, and the state machine has applied all up to there: what is read from it now is linearizable. Raises
        NotLeader."""
        with self._counting():
            await self._node.read_barrier(timeout_ms)
        self.counts["reads"] += 1
        return self._node.applied_index

    # The group

    @property
    def self_id(self) -> str:
        return self._node.self_id

    @property
    def leader_id(self) -> str | None:
        return self._node.leader_id

    @property
    def term(self) -> int:
        return self._node.term

    @property
    def metadata(self) -> Metadata:
        node = self._node
        core = node.core
        return Metadata(
            group=self.group,
            self_id=node.self_id,
            peers=node.peers,
            role=node.role,
            term=node.term,
            leader_id=node.leader_id,
            is_active=node.is_active,
            first_index=core.log.first_index if core else 0,
            last_index=node.last_index,
            committed_index=core.committed_index if core else NO_INDEX,
            applied_index=node.applied_index,
        )

    @property
    def snapshots(self) -> SnapshotCounts:
        """What was written of snapshots since the start, and which is the newest."""
        return self._node.store.snapshot_file.counts

    async def transfer(self, target: str | None = None) -> ResultCode:
        """Hands the leadership to `target`, or to who holds most; returns when it is known who leads, after 1.5 s at most.
        SUCCESS; TAKE_LEADERSHIP_FAILED: it leads on, or nobody does; NOT_LEADER, UNKNOWN_MEMBER, LEADER_TRANSFERRING: nothing
        was done."""
        code = await self._node.transfer_leadership(target)
        self.counts["transfers"] += code is ResultCode.SUCCESS
        return code

    def on_role_change(self, observer: Callable[[Role, int], None]) -> None:
        """`observer(role, term)` hears of each change; of LEADER only once this member serves. It returns at once, and an
        exception of it ends this member. Raises TypeError: it is `async`."""
        not_awaited("an observer of roles", observer)
        self._events.role_observers.append(observer)

    def on_commit(self, observer: Callable[[int], None]) -> None:
        """`observer(index)` hears of the end of what is decided each time that it moves, before it is applied. It returns at
        once, and an exception of it ends this member. Raises TypeError: it is `async`."""
        not_awaited("an observer of commits", observer)
        self._events.commit_observers.append(observer)

    @contextmanager
    def _counting(self) -> Iterator[None]:
        """Counts what a call raises."""
        try:
            yield
        except (NotLeader, TooManyProposals, OutcomeUnknown) as error:
            self.counts[COUNTED_AS[type(error)]] += 1
            raise
