"""One mastership of this broker: its links, its SyncStateSet, and what follows when either moves.

Invariant: of several links with one broker id only the newest counts. The log's confirm offset is the
SyncStateSet's, and whoever waits for it is told after every change."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from epochfile.history import EpochHistory
from ha.counters import HACounters
from ha.epochs import KeptEpochs
from ha.frames import Handshake
from ha.log import ReplicatedLog
from ha.master.connection import MasterConnection
from ha.master.duplicateids import DuplicateIds
from ha.settings import HASettings
from ha.syncstateset import Limits, SyncStateSet
from mqruntime.clock import Clock
from mqruntime.log import fields
from mqruntime.tasks import Tasks

logger = logging.getLogger("ha.master")


class Mastership:
    """Lives from one change to master to the next change of role. Also the MasterView of its links."""

    def __init__(
        self,
        log: ReplicatedLog,
        epochs: KeptEpochs,
        *,
        broker_id: int,
        sync_state_set: frozenset[int],
        sync_state_set_epoch: int,
        settings: HASettings,
        clock: Clock,
        tasks: Tasks,
        counters: HACounters,
        on_sync_state_set_wanted: Callable[[frozenset[int], str], None],
        on_confirm: Callable[[int], None],
    ) -> None:
        self.log = log
        self.settings = settings
        self.clock = clock
        self.tasks = tasks
        self.counters = counters
        self.broker_id = broker_id
        self.sending_held = False
        self.protocol_errors = 0
        self._ended = False
        self._epochs = epochs
        self._loop = asyncio.get_running_loop()
        self._on_wanted = on_sync_state_set_wanted
        self._on_confirm = on_confirm
        self._connections: dict[MasterConnection, None] = {}  # in order of arrival
        self._newest: dict[int, MasterConnection] = {}  # by broker id
        self._duplicate_ids = DuplicateIds()
        self._close_reasons: dict[MasterConnection, str] = {}
        self._last_wanted: tuple[frozenset[int], int] = (frozenset(), 0)
        self._confirm_timer: asyncio.TimerHandle | None = None
        last = self.history.last()
        assert last is not None, "a mastership begins with its epoch entry"
        self.sync_state_set = SyncStateSet(
            own_id=broker_id,
            members=sync_state_set,
            set_epoch=sync_state_set_epoch,
            epoch_start=last.start_offset,
            log_end=log.max_offset(),
            confirm_offset=log.confirm_offset(),
            limits=Limits(
                not_caught_up_ms_max=settings.slave_not_caught_up_ms_max,
                disconnected_ms_max=settings.slave_disconnected_ms_max,
                join_lag_ms_max=settings.join_lag_ms_max,
                join_ms_max=settings.join_ms_max,
            ),
            now_ms=clock.monotonic_ms(),
        )
        self._check_timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Once whoever is told can also ask."""
        self._settle(always_tell=True)
        self._check_regularly()

    # -- what the links read

    @property
    def segment_size_bytes(self) -> int:
        return self.log.segment_size_bytes

    @property
    def log_min(self) -> int:
        return self.log.min_offset()

    @property
    def log_end(self) -> int:
        return self.log.max_offset()

    @property
    def history(self) -> EpochHistory:
        return self._epochs.history

    @property
    def confirm_offset(self) -> int:
        return self.sync_state_set.confirm_offset

    @property
    def connections(self) -> list[MasterConnection]:
        return list(self._connections)

    # -- what the links tell

    def opened(self, connection: MasterConnection) -> None:
        self._connections[connection] = None
        if self._ended:
            connection.close("change of role")

    def greeted(self, connection: MasterConnection, handshake: Handshake) -> None:
        broker_id = handshake.slave_broker_id
        former = self._newest.get(broker_id)
        self._newest[broker_id] = connection
        self.sync_state_set.connected(broker_id, is_async_learner=handshake.is_async_learner)
        logger.info("slave connected", extra=fields(slave=broker_id, address=connection.address))
        if former is not None:
            former.close("replaced by a newer connection of this broker")
            self._duplicate_ids.replaced(
                broker_id, former.address, connection.address, self.clock.monotonic_ms()
            )

    def acked(self, connection: MasterConnection, offset: int) -> None:
        broker_id, now_ms = connection.slave_broker_id, self.clock.monotonic_ms()
        if self._newest.get(broker_id) is not connection:
            return
        self.sync_state_set.acked(broker_id, offset, connection.link.caught_up_ms, now_ms)
        self._settle()
        if broker_id not in self.sync_state_set.applied_members:
            self._check_set(now_ms)

    def protocol_error(self) -> None:
        self.protocol_errors += 1

    def closing(self, connection: MasterConnection, reason: str) -> None:
        self._close_reasons.setdefault(connection, reason)

    def lost(self, connection: MasterConnection, why: str) -> None:
        self._connections.pop(connection, None)
        broker_id = connection.slave_broker_id
        reason = self._close_reasons.pop(connection, why)
        logger.info("slave gone", extra=fields(slave=broker_id, address=connection.address, reason=reason))
        if self._newest.get(broker_id) is connection:
            del self._newest[broker_id]
            self.sync_state_set.disconnected(broker_id, self.clock.monotonic_ms())
            self._settle()

    # -- what the broker tells

    def log_grew(self) -> None:
        """One call for every batch appended: send it, and count it."""
        for connection in self.connections:
            connection.pump()
        self.sync_state_set.log_grew(self.log.max_offset())
        self._settle()

    async def new_epoch(self, epoch: int, members: frozenset[int], set_epoch: int) -> None:
        """Elected again while master: live links learn the epoch. What is appended meanwhile is sent afterwards,
        because it belongs to the new epoch, whose entry is not durable before."""
        self.sending_held = True
        try:
            start = self.log.max_offset()
            await self._epochs.store(self.history.append((epoch, start)))
        finally:
            self.sending_held = False
        self.sync_state_set.epoch_began(start, members, set_epoch)
        self._settle(always_tell=True)
        for connection in self.connections:
            connection.pump()

    def propose(self, members: frozenset[int]) -> bool:
        return self._settled(self.sync_state_set.propose(members))

    def applied(self, members: frozenset[int], set_epoch: int) -> bool:
        before = self.sync_state_set.applied_members
        if not self.sync_state_set.applied(members, set_epoch):
            return False
        if members != before:
            logger.info(
                "sync state set",
                extra=fields(members=sorted(members), before=sorted(before), set_epoch=set_epoch),
            )
        self._settle(always_tell=True)
        return True

    def proposal_failed(self, *, definite: bool) -> None:
        self.sync_state_set.proposal_failed(definite=definite)
        self._settle()

    def _settled(self, answer: bool) -> bool:
        self._settle()
        return answer

    # -- consequences

    def _settle(self, *, always_tell: bool = False) -> None:
        """Pass a new confirm offset on: to the log, to who waits for it, and soon to the slaves."""
        confirm_offset = self.sync_state_set.confirm_offset
        moved = confirm_offset > self.log.confirm_offset()
        if moved:
            self.log.set_confirm_offset(confirm_offset)
            if self._confirm_timer is None:
                delay_ms = self.settings.confirm_notice_ms
                self._confirm_timer = self._loop.call_later(delay_ms / 1000, self._tell_confirm_offset)
        if moved or always_tell:
            self._on_confirm(confirm_offset)

    def _tell_confirm_offset(self) -> None:
        self._confirm_timer = None
        for connection in self.connections:
            connection.tell_confirm_offset()

    def _check_regularly(self) -> None:
        self._check_timer = self._loop.call_later(
            self.settings.sync_state_set_check_ms / 1000, self._check_regularly
        )
        self._check_set(self.clock.monotonic_ms())
        self._settle()

    def _check_set(self, now_ms: int) -> None:
        wanted = self.sync_state_set.wanted(now_ms)
        if wanted is None:
            return
        members, told_ms = self._last_wanted
        if wanted.members == members and now_ms - told_ms < self.settings.wanted_repeat_ms:
            return
        self._last_wanted = (wanted.members, now_ms)
        logger.info(
            "sync state set wanted", extra=fields(members=sorted(wanted.members), reason=wanted.reason)
        )
        self._on_wanted(wanted.members, wanted.reason)

    async def end(self, reason: str) -> None:
        """Drop all links; on return no view of the log is held by any of them."""
        self._ended = True
        if self._check_timer is not None:
            self._check_timer.cancel()
        if self._confirm_timer is not None:
            self._confirm_timer.cancel()
        while self._connections:
            connections = self.connections
            for connection in connections:
                connection.close(reason)
            for connection in connections:
                await connection.wait_closed()
