"""One member of a group as a program uses it: a replicated log, and a state machine over it.

    async with DLedger(self_id="n0", peers=PEERS, group="g", runtime=real_runtime(folder), state_machine=counter) as ledger:
        appended = await ledger.append(b"+1")

The module also has the planned leadership transfer to a preferred member. Upstream: preferredLeaderIds.

Invariant: entries that `append` returned are committed: a majority has synced them. After NotLeader or TooManyProposals nothing
was appended; only after OutcomeUnknown entries may have been appended. `get` returns only committed entries. A planned transfer
goes only to a member that can lead at once: it answered lately, has caught up, and the wait after the last transfer to it
(Trials) is over."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import NoReturn, Self

from dledger.node.applying import AnyStateMachine, Snapshots
from dledger.node.listener import NodeListener, calling, not_awaited, usable_machine
from dledger.node.memberservice import MemberService
from dledger.node.node import DLedgerNode
from dledger.node.positions import Positions
from dledger.raft.actions import Role
from dledger.raft.entries import NO_INDEX, Entry
from dledger.raft.errors import EntryRefused, IndexOutOfRange, NotLeader, OutcomeUnknown, TooManyProposals
from dledger.raft.leader import most_up_to_date
from dledger.raft.messages import ResultCode
from dledger.raft.progress import Progress
from dledger.raft.settings import DLedgerSettings
from dledger.storage.entrylog import read_entries
from dledger.storage.snapshot import SnapshotCounts
from mqruntime.runtime import Runtime
from mqruntime.tasks import Tasks
from remoting.client import RemotingClient
from remoting.router import Router
from remoting.server import RemotingServer

logger = logging.getLogger(__name__)

TIMEOUT_MS = 3000
"""Default timeout of an append or read. Upstream's clients wait as long."""
CONNECT_TIMEOUT_MS = 1000
COUNTED_AS = {NotLeader: "not_leader", TooManyProposals: "too_many", OutcomeUnknown: "unknown"}
COUNTED = ("appended", "refused", *COUNTED_AS.values(), "reads", "gets", "elected", "transfers", "unreadable")


class Events(NodeListener):
    """Counts the member's events, and passes them on to the observers of one DLedger."""

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
    """A log without a state machine."""

    def apply(self, index: int, body: bytes) -> object:
        return None


@dataclass(frozen=True, slots=True)
class Appended:
    """Committed entries that follow each other in the log."""

    index: int
    """The index of the first entry. The other entries follow without a gap."""
    position: int
    """The byte position of the first entry in this member's data files, as upstream counts. It may differ on other members."""
    results: list[object]
    """For each entry the result of `apply` on this member, or the EntryRefused that `apply` raised."""


@dataclass(frozen=True, slots=True)
class Metadata:
    """A member's view of itself at one moment. An index is -1 if there is no such entry."""

    group: str
    self_id: str
    peers: Mapping[str, str]
    role: Role
    term: int
    leader_id: str | None
    is_active: bool
    """Whether the member leads, and serves appends and reads."""
    first_index: int
    last_index: int
    committed_index: int
    applied_index: int


class DLedger:
    """`peers` maps the id of each member, this member included, to its "host:port". This member listens at its own address, or
    on the host `listens_on`. `snapshots` is the state machine, if its state can be saved; `settings.snapshot_entries` sets how
    often. `runtime` is rooted at this member's own folder, which is locked while the member runs. A leader whose id is not in
    `preferred` transfers its leadership to a preferred member that holds all committed entries. `router` accepts handlers for
    request codes of the embedding program, which are served on the same port."""

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
        """Raises ValueError if this member or a preferred member is not in `peers`; TypeError if the state machine has no
        `apply` or `apply_batch`, or if that method is `async`."""
        if state_machine is not None:
            usable_machine(state_machine)
        if strangers := sorted(set(preferred) - set(peers)):
            raise ValueError(f"preferred {', '.join(strangers)}: not among the members {sorted(peers)}")
        self.group = group
        self.settings = settings or DLedgerSettings()
        self.counts: Counter[str] = Counter(dict.fromkeys(COUNTED, 0))
        """Counts of this member since its start: appended entries, entries that the state machine refused, calls that ended
        with NotLeader, TooManyProposals or OutcomeUnknown, proven reads, entries returned by `get`, won elections, and
        leadership transfers."""
        self._preferred = frozenset(preferred)
        self._lock = runtime.lock
        self._life = asyncio.Lock()
        self._begun = False
        """Whether `start` or `stop` was called."""
        self._events = Events(self.counts)
        self._tasks = Tasks(self._events.failed)
        self.clock = runtime.clock
        self._client = RemotingClient(
            clock=runtime.clock, network=runtime.network, connect_timeout_ms=CONNECT_TIMEOUT_MS
        )
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
            self.router,
            host=listens_on or host,
            port=int(port),
            clock=runtime.clock,
            network=runtime.network,
        )

    # Start and stop

    async def start(self) -> None:
        """Takes part in the group. On return all entries are applied that were known as committed on the disk.

        Raises: StoreLocked, StoreUnusable, AddressInUse, CannotListen, LogDamaged, LogOfAnother, MembersChanged, BadKeyValues,
        OSError; the member is then closed. RuntimeError if it was started or stopped before; create another DLedger."""
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
            self._node.set_position_lookup(self._positions.if_intact)
            await self._node.replayed()
        except BaseException:
            await self._close()
            raise
        if self._preferred and self._node.self_id not in self._preferred:
            self._tasks.start(
                yield_to_preferred(self._node, self._preferred, self.transfer), name="dledger-preferred"
            )

    async def stop(self) -> None:
        """Stops the member. A leader transfers its leadership first, so that the group need not wait for an election timeout.
        If the caller is cancelled meanwhile, the member is closed all the same. Waits for a start or another stop that is
        running."""
        async with self._life:
            self._begun = True
            try:
                await self._node.transfer_leadership()
            finally:
                await self._close()

    async def _close(self) -> None:
        """Closes the member. If this is cancelled, the folder stays locked, because writes may still run; `stop` then
        continues."""
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
        """Waits for the error that ends this member, for example of a failed disk or of the state machine. A member with such
        an error answers nothing any more: `stop` it, and start another DLedger."""
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
        """Appends one entry for each body, in this order, and returns once all entries are committed and applied here.

        Raises: NotLeader, TooManyProposals, TypeError or ValueError if nothing was appended; OutcomeUnknown if the entries may
        have been appended. ValueError: there is no body, a body is empty or too large, or there are more bodies than may ever
        wait."""
        if not 0 < len(bodies) <= self.settings.pending_proposals_max:
            limits = f"1 to {self.settings.pending_proposals_max} bodies"
            raise ValueError(f"append takes {limits}, not {len(bodies)}")
        if not all(isinstance(body, bytes) for body in bodies):
            raise TypeError("a body is bytes, which cannot change; convert text or a buffer with bytes(...)")
        if not isinstance(timeout_ms, int | float):
            raise TypeError(f"timeout_ms is a number, not {timeout_ms!r}")
        with self._counting():
            committed = await self._node.propose(bodies, timeout_ms)
        assert self._positions is not None
        self.counts["appended"] += len(bodies)
        self.counts["refused"] += sum(isinstance(result, EntryRefused) for result in committed.results)
        position = committed.position
        if position is None:
            position = self._positions.of(committed.first_index)
        return Appended(committed.first_index, position, committed.results)

    async def get(self, index: int) -> Entry:
        """The committed entry `index`, read from this member's own log, whether the member leads or not. The no-op that opens a
        term has an empty body.

        Raises: IndexOutOfRange, LogDamaged, OSError."""
        core, disk = self._node.core, self._node.store.log
        if core is None or disk is None:
            raise IndexOutOfRange(index, 0, NO_INDEX)
        while True:  # a snapshot or a cut may overtake the read
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
        """Returns an index at or above all entries that were committed before the call, once a majority has confirmed this
        leader and the state machine has applied this index. Reads of the state machine are linearizable then (thesis 6.4).

        Raises: NotLeader."""
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
        """Counts of the snapshots written since the start, and data of the newest snapshot."""
        return self._node.store.snapshot_file.counts

    async def transfer(self, target: str | None = None) -> ResultCode:
        """Transfers the leadership to `target`, or to the most up-to-date voter (thesis 3.10). Returns when the leader is
        known, after 1.5 s at most. TAKE_LEADERSHIP_FAILED: this member still leads, or no member leads. NOT_LEADER,
        UNKNOWN_MEMBER, LEADER_TRANSFERRING: nothing was done."""
        code = await self._node.transfer_leadership(target)
        self.counts["transfers"] += code is ResultCode.SUCCESS
        return code

    def on_role_change(self, observer: Callable[[Role, int], None]) -> None:
        """Calls `observer(role, term)` at each change of the role; for LEADER only once this member serves. The observer must
        return at once, and an exception that it raises ends this member.

        Raises: TypeError, if the observer is `async`."""
        not_awaited("an observer of roles", observer)
        self._events.role_observers.append(observer)

    def on_commit(self, observer: Callable[[int], None]) -> None:
        """Calls `observer(index)` each time that the commit index moves, before the entries are applied. The observer must
        return at once, and an exception that it raises ends this member.

        Raises: TypeError, if the observer is `async`."""
        not_awaited("an observer of commits", observer)
        self._events.commit_observers.append(observer)

    @contextmanager
    def _counting(self) -> Iterator[None]:
        """Counts the errors of a call."""
        try:
            yield
        except (NotLeader, TooManyProposals, OutcomeUnknown) as error:
            self.counts[COUNTED_AS[type(error)]] += 1
            raise


LOOK_MS = 1_000
"""A leader that is not preferred looks for a preferred member at this interval, as upstream's does."""

BACK_OFF_MS_MIN = 5_000
BACK_OFF_MS_MAX = 60_000
LED_MS = 60_000
"""After a leadership of this length the next wait is BACK_OFF_MS_MIN again."""


@dataclass(slots=True)
class Trial:
    """The transfers to one member. `at_ms` is the time of the last transfer. No transfer begins before `until_ms`, which is
    None while this member has not got the leadership back."""

    at_ms: int
    wait_ms: int
    until_ms: int | None = None


class Trials:
    """The last transfer to each member. A transfer to a member that cannot lead, for example because its disk is full, costs an
    outage. So the next transfer to this member waits for BACK_OFF_MS_MIN, and the wait doubles each time, up to
    BACK_OFF_MS_MAX. Pure."""

    def __init__(self) -> None:
        self._trials: dict[str, Trial] = {}

    def gave(self, target: str, now_ms: int) -> None:
        """Called when a transfer to `target` begins."""
        former = self._trials.get(target)
        wait_ms = BACK_OFF_MS_MIN if former is None else min(2 * former.wait_ms, BACK_OFF_MS_MAX)
        self._trials[target] = Trial(now_ms, wait_ms)

    def leads(self, now_ms: int) -> None:
        """Called when this member leads: the targets of its transfers lost the leadership, or never got it."""
        for trial in self._trials.values():
            if trial.until_ms is None:
                if now_ms - trial.at_ms >= LED_MS:
                    trial.wait_ms = BACK_OFF_MS_MIN
                trial.until_ms = now_ms + trial.wait_ms

    def allowed(self, among: Collection[str], now_ms: int) -> list[str]:
        """The members of `among` to which a transfer may begin now."""
        return [peer for peer in among if now_ms >= self._until_ms(peer)]

    def _until_ms(self, peer: str) -> int:
        trial = self._trials.get(peer)
        return 0 if trial is None or trial.until_ms is None else trial.until_ms


def caught_up_among(
    preferred: Collection[str], progress: Mapping[str, Progress], held_index: int, heard_since_ms: int
) -> str | None:
    """The most up-to-date of the `preferred` members that answered lately, may be elected, and hold all entries up to
    `held_index`; None if there is none. A transfer to a member far behind would stop the group until the member has caught up.
    Pure."""
    caught_up = {
        peer: known
        for peer, known in progress.items()
        if peer in preferred and known.match_index >= held_index
    }
    return most_up_to_date(caught_up, heard_since_ms)


async def yield_to_preferred(
    node: DLedgerNode, preferred: Collection[str], hand_over: Callable[[str], Awaitable[object]]
) -> NoReturn:
    """While `node` leads, calls `hand_over` with a preferred member that has caught up and did not just fail to lead."""
    trials = Trials()
    while True:
        await asyncio.sleep(LOOK_MS / 1000)
        core = node.core
        if core is None or not node.is_active:
            continue
        now_ms = node.clock.monotonic_ms()
        trials.leads(now_ms)
        since_ms = now_ms - node.settings.election_timeout_min_ms
        target = caught_up_among(
            trials.allowed(preferred, now_ms), core.progress, core.committed_index, since_ms
        )
        if target is not None:
            logger.info("handing over to the preferred %s self=%s", target, node.self_id)
            trials.gave(target, now_ms)
            await hand_over(target)
