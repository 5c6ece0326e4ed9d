"""One mastership of this broker: its links and its SyncStateSet, and the effects when they change. Upstream:
AutoSwitchHAService.

Invariant: a link counts only after the controllers' table confirmed its id and host. Of several links with one id only the
newest counts. The log's confirm offset is the confirm offset of the SyncStateSet, and waiters are notified after every
change."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Protocol

from epochfile.history import EpochHistory
from ha.counters import HACounters
from ha.epochs import KeptEpochs
from ha.frames import Handshake
from ha.log import ReplicatedLog
from ha.master.admittance import Why
from ha.master.connection import MasterConnection
from ha.master.duplicateids import DuplicateIds
from ha.master.gate import Gate
from ha.master.link import Hold, MasterState
from ha.master.unreadableranges import UnreadableRanges
from ha.settings import HASettings
from ha.slaveprogress import SetLimits
from ha.syncstateset import Action, Alter, AlterOutcome, AlterUnknown, Confirmed, SyncStateSet
from mqruntime.clock import Clock
from mqruntime.coretimer import CoreTimer
from mqruntime.log import fields
from mqruntime.repeatedfailure import RepeatedFailure
from mqruntime.tasks import Tasks

logger = logging.getLogger("ha.master")

LEARNER = "it is a learner"
ACKS_EARLY = (
    "it acknowledges what is not on its disk yet: set allFlushInSyncStateSet=true there, as on this master"
)
CUTS_AGAIN = "it cuts its log again at each connection"
JAVA_CUTS_AGAIN = (
    "it cuts to where an epoch began, and acknowledged messages with it: brokers of 5.4.0 to 5.5.1 do so once they were cut to "
    "another master's log. It is kept out of the SyncStateSet until this broker begins an epoch: mqadmin electMaster of this "
    "master ends it; do not run these versions"
)
UNTRUE = "check that controllerAddr names only the controllers of this cluster; the answer was ignored"
WANTED_REMIND_MS = 1_000  # the same wish is logged again after this time at the earliest


class Controllers(Protocol):
    """Sends this master's requests to the controllers."""

    def alter_sync_state_set(self, alter: Alter) -> None:
        """Send `alter` once, and report the outcome to `Mastership.alter_ended`."""
        ...

    def read_sync_state_set(self) -> None:
        """Read the SyncStateSet soon, and report it to `Mastership.observe`."""
        ...


class Mastership:
    """The mastership, from a change to master to the next change of role. It is also the MasterView of its links."""

    def __init__(
        self,
        log: ReplicatedLog,
        epochs: KeptEpochs,
        *,
        broker_id: int,
        sync_state_set: frozenset[int],
        sync_state_set_epoch: int,
        members_min: Callable[[], int],
        catch_up_limit: Callable[[], int | None],
        settings: HASettings,
        clock: Clock,
        tasks: Tasks,
        counters: HACounters,
        controllers: Controllers,
        gate: Gate,
        on_confirm: Callable[[], None],
        is_java: Callable[[int, str], bool],
    ) -> None:
        """`is_java(broker_id, host)` returns whether this slave is known to be upstream's."""
        self.broker_id = broker_id
        self._log = log
        self._epochs = epochs
        self._members_min = members_min
        self._catch_up_limit = catch_up_limit
        self._settings = settings
        self._clock = clock
        self._tasks = tasks
        self._counters = counters
        self._controllers = controllers
        self._gate = gate
        self._on_confirm = on_confirm
        self._is_java = is_java
        self._former_links: dict[int, tuple[int, int]] = {}  # by broker id: start and end of the link's acks
        self._cutting: set[int] = set()
        """Slaves that cut their logs again at each connection. They do not count in this epoch."""
        self._loop = asyncio.get_running_loop()
        self._ended = False
        self._epoch_pending = False
        self._connections: dict[MasterConnection, None] = {}  # in order of arrival
        self._newest: dict[int, MasterConnection] = {}  # by broker id
        self._duplicate_ids = DuplicateIds()
        self._unreadable = UnreadableRanges(clock)
        self._wanted = RepeatedFailure(remind_ms=WANTED_REMIND_MS)
        self._untrue = RepeatedFailure()
        self._confirm_timer: asyncio.TimerHandle | None = None
        self._timer = CoreTimer(clock, tasks, self._tick)
        last = self.history.last()
        assert last is not None, "a mastership begins with its epoch entry"
        self.sync_state_set = SyncStateSet(
            own_id=broker_id,
            members=sync_state_set,
            set_epoch=sync_state_set_epoch,
            master_epoch=last.epoch,
            epoch_start=last.start_offset,
            log_end=self._counted_end(),
            confirm_offset=log.confirm_offset(),
            members_min=members_min(),
            limits=SetLimits(
                not_caught_up_ms_max=settings.slave_not_caught_up_ms_max,
                disconnected_ms_max=settings.slave_disconnected_ms_max,
                join_lag_ms_max=settings.join_lag_ms_max,
                join_ms_max=settings.join_ms_max,
                join_stall_ms_max=settings.join_stall_ms_max,
                check_ms=settings.sync_state_set_check_ms,
                alter_retry_ms=settings.alter_retry_ms,
            ),
            now_ms=self._now_ms(),
        )

    def begin(self) -> None:
        """Start, once the controllers can be called."""
        self._gate.begin(self.broker_id)
        self._perform(self.sync_state_set.begin(self._now_ms()))
        self._arm_timer()

    # -- read by the links

    @property
    def segment_size_bytes(self) -> int:
        return self._log.segment_size_bytes

    @property
    def log_min(self) -> int:
        return self._log.min_offset()

    @property
    def log_end(self) -> int:
        return self._log.max_offset()

    @property
    def history(self) -> EpochHistory:
        return self._epochs.history

    @property
    def confirm_offset(self) -> int:
        return self.sync_state_set.confirm_offset

    @property
    def connections(self) -> list[MasterConnection]:
        return list(self._connections)

    def read_from(self) -> int | None:
        """The offset from which on connected slaves still read the log; None without a connected slave."""
        sending = (each.link for each in self._connections if each.link.state is MasterState.SENDING)
        return min((link.ack_offset for link in sending), default=None)

    # -- called by the links

    def accept(self) -> MasterConnection:
        """Returns the protocol of a connection that a slave opens."""
        return MasterConnection(
            self,
            self._log,
            self,
            settings=self._settings,
            clock=self._clock,
            tasks=self._tasks,
            counters=self._counters,
            unreadable=self._unreadable,
        )

    def opened(self, connection: MasterConnection) -> None:
        self._connections[connection] = None
        if self._epoch_pending:
            connection.link.hold(Hold.NEW_EPOCH)
        if self._ended:
            connection.close("change of role")

    def claimed(self, connection: MasterConnection, handshake: Handshake) -> None:
        self._gate.come(connection, handshake)

    def rejected(self, connection: MasterConnection, handshake: Handshake, why: Why) -> None:
        broker_id = handshake.slave_broker_id
        present = self._newest.get(broker_id)
        if present is not None and why is Why.ELSEWHERE:  # a copy of the store may have registered there
            self._duplicate_ids.replaced(broker_id, present.address, connection.address, self._now_ms())

    def handshaken(self, connection: MasterConnection, handshake: Handshake) -> None:
        broker_id = connection.slave_broker_id
        former = self._newest.get(broker_id)
        self._newest[broker_id] = connection
        excluded = self._why_excluded(handshake) or (CUTS_AGAIN if broker_id in self._cutting else None)
        self._perform(self.sync_state_set.connected(broker_id, excluded=excluded))
        logger.info("slave connected", extra=fields(slave=broker_id, address=connection.address))
        if excluded is not None and excluded is not LEARNER:
            logger.warning("slave not counted", extra=fields(slave=broker_id, why=excluded))
        if former is not None:
            former.close("replaced by a newer connection of this broker")
            self._duplicate_ids.replaced(broker_id, former.address, connection.address, self._now_ms())

    def _why_excluded(self, handshake: Handshake) -> str | None:
        if handshake.is_async_learner:
            return LEARNER
        return ACKS_EARLY if self._settings.acks_flushed and not handshake.acks_flushed else None

    def acked(self, connection: MasterConnection, offset: int) -> None:
        broker_id = connection.slave_broker_id
        if self._newest.get(broker_id) is connection:
            if connection.began_at is None:
                self._began(connection, offset)
            caught_up_ms = connection.link.caught_up_ms
            self._perform(self.sync_state_set.acked(broker_id, offset, caught_up_ms, self._now_ms()))

    def _began(self, connection: MasterConnection, offset: int) -> None:
        """Note that the slave's log ends at `offset`, and find out whether a Java slave cuts its log at each connection. A log
        that was cut ends at the start of an epoch. If the last link began at this offset too, and acknowledged more before it
        ended, the log was cut again."""
        broker_id = connection.slave_broker_id
        connection.began_at = offset
        former = self._former_links.get(broker_id)
        if former is None or broker_id in self._cutting:
            return
        began, ended = former
        at_an_epoch = any(entry.start_offset == offset for entry in self.history)
        if offset == began < ended and at_an_epoch and self._is_java(broker_id, connection.peer_host):
            self._cutting.add(broker_id)
            said = fields(slave=broker_id, cut_to=offset, had_acknowledged=ended, hint=JAVA_CUTS_AGAIN)
            logger.error("a Java slave cuts its log again at each connection", extra=said)
            self._perform(self.sync_state_set.connected(broker_id, excluded=CUTS_AGAIN))

    def lost(self, connection: MasterConnection, reason: str) -> None:
        self._connections.pop(connection, None)
        self._gate.left(connection)
        broker_id = connection.slave_broker_id
        logger.info("slave gone", extra=fields(slave=broker_id, address=connection.address, reason=reason))
        if self._newest.get(broker_id) is connection:
            if connection.began_at is not None:
                self._former_links[broker_id] = connection.began_at, connection.link.ack_offset
            del self._newest[broker_id]
            self._perform(self.sync_state_set.disconnected(broker_id, self._now_ms()))

    def pace_of(self, broker_id: int) -> int | None:
        """The limit of bytes a second for a slave that is catching up. None if no limit is set, or if acknowledgements wait for
        this slave."""
        limit = self._catch_up_limit()
        return None if limit is None or broker_id in self.sync_state_set.union() else limit

    # -- called by the broker

    def log_grew(self) -> None:
        """Send an appended batch, and count it unless it must be on disk first. Called once for every batch."""
        for connection in self.connections:
            connection.pump()
        if not self._settings.acks_flushed:
            self._perform(self.sync_state_set.log_grew(self._counted_end()))

    def flushed(self) -> None:
        """Count the end of the log on disk, which has grown."""
        self._perform(self.sync_state_set.log_grew(self._counted_end()))

    def _counted_end(self) -> int:
        return self._log.flushed_offset() if self._settings.acks_flushed else self._log.max_offset()

    async def new_epoch(self, epoch: int, members: frozenset[int], set_epoch: int) -> None:
        """Begin a new epoch of a master that was elected again, and announce the epoch on live links. Data appended meanwhile
        belongs to the new epoch, so it is sent only after the epoch's entry is durable."""
        self._epoch_pending = True
        for connection in self.connections:
            connection.link.hold(Hold.NEW_EPOCH)
        try:
            start = self._log.max_offset()
            await self._epochs.store(self.history.append((epoch, start)))
            self._perform(self.sync_state_set.epoch_began(epoch, start, members, set_epoch, self._now_ms()))
            self._former_links.clear()
            for broker_id in sorted(self._cutting):  # it records this epoch after its kept epoch
                self._cutting.discard(broker_id)
                if broker_id in self._newest:
                    self._perform(self.sync_state_set.connected(broker_id, excluded=None))
        finally:
            self._epoch_pending = False
            for connection in self.connections:
                connection.release(Hold.NEW_EPOCH)

    def observe(self, members: frozenset[int], set_epoch: int) -> None:
        """Handle the controllers' SyncStateSet under the epoch of this mastership, from a read or a notice."""
        self._changing_set(lambda now_ms: self.sync_state_set.observe(members, set_epoch, now_ms))

    def alter_ended(self, alter: Alter, outcome: AlterOutcome) -> None:
        """Handle the outcome of the last sending of `alter`. After an impossible answer the outcome is unknown."""
        known: AlterOutcome = outcome
        if (why := self.sync_state_set.why_untrue(alter, outcome)) is not None:
            known = AlterUnknown()
            if self._untrue.failed(why, self._now_ms()):
                said = fields(source="answer", sender="a controller", why=why, hint=UNTRUE)
                logger.error("set disbelieved", extra=said)
        self._changing_set(lambda now_ms: self.sync_state_set.alter_ended(alter, known, now_ms))

    def _changing_set(self, change: Callable[[int], list[Action]]) -> None:
        before = self.sync_state_set.applied_members
        actions = change(self._now_ms())
        members = self.sync_state_set.applied_members
        if members != before:
            self._wanted.recovered(self._now_ms())
            logger.info(
                "sync state set",
                extra=fields(
                    members=sorted(members), before=sorted(before), set_epoch=self.sync_state_set.set_epoch
                ),
            )
        self._perform(actions)
        self._arm_timer()

    # -- consequences

    def _perform(self, actions: Iterable[Action]) -> None:
        for action in actions:
            if isinstance(action, Confirmed):
                self._confirmed(action.offset)
            elif isinstance(action, Alter):
                if self._wanted.failed(action.members, self._now_ms()):
                    said = fields(members=sorted(action.members), reason=action.reason)
                    logger.info("sync state set wanted", extra=said)
                self._controllers.alter_sync_state_set(action)
            else:
                self._controllers.read_sync_state_set()

    def _confirmed(self, offset: int) -> None:
        """Pass a new confirm offset to the log, to the waiters, and soon to the slaves."""
        if offset > self._log.confirm_offset():
            self._log.set_confirm_offset(offset)
            if self._confirm_timer is None and not self._ended:
                delay_ms = self._settings.confirm_notice_ms
                self._confirm_timer = self._loop.call_later(delay_ms / 1000, self._send_confirm_offset)
        self._on_confirm()

    def _send_confirm_offset(self) -> None:
        self._confirm_timer = None
        for connection in self.connections:
            connection.send_confirm_offset()

    def _tick(self) -> None:
        now_ms = self._now_ms()
        self._perform(self.sync_state_set.members_min_is(self._members_min(), now_ms))
        self._perform(self.sync_state_set.tick(now_ms))
        self._arm_timer()

    def _arm_timer(self) -> None:
        """Arm the timer again. Called when the SyncStateSet may need its tick sooner, after a change at the controllers but not
        after an ack."""
        if not self._ended:
            self._timer.due_at(self.sync_state_set.next_tick_ms)

    def _now_ms(self) -> int:
        return self._clock.monotonic_ms()

    async def end(self, reason: str) -> None:
        """Drop all links. On return no link holds a view of the log."""
        self._ended = True
        self._timer.cancel()
        if self._confirm_timer is not None:
            self._confirm_timer.cancel()
        while self._connections:
            connections = self.connections
            for connection in connections:
                connection.close(reason)
            for connection in connections:
                await connection.wait_closed()
