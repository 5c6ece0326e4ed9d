"""The slave of a pair. Upstream: DefaultHAClient.

Invariant: the slave follows a master only if the master's log has the last complete record of the slave's log at the same
offset, byte for byte. The protocol itself compares nothing. Without this check, after a master lost the end of its log, new
bytes of the master would follow old bytes that only the slave has. If only the master's HA address is known, the master cannot
be asked for records, and is followed without this check."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from ha.classic.slave import ClassicSlaveLink
from ha.counters import HACounters
from ha.errors import MasterUnread
from ha.log import ReplicatedLog
from ha.settings import HASettings
from ha.slave.connection import SlaveConnection
from ha.slave.follower import Follower
from ha.slave.link import Cut, LeftBehind, PersistEpochs, StayOut
from mqruntime.clock import Clock
from mqruntime.log import fields
from mqruntime.network import Network
from mqruntime.repeatedfailure import RepeatedFailure
from mqruntime.tasks import Tasks

logger = logging.getLogger("ha.classic")

NOT_FOLLOWED = "this slave does not follow its master"
PARTED = (
    "the master does not have the last record of this log: one of the two lost data, or wrote data that the other has not. To "
    "keep this log, stop the master and start this broker instead, with brokerRole and brokerId of the master. To discard it, "
    "stop this broker and empty its store"
)
LEFT_BEHIND = (
    "the master's retention has deleted the end of this log, so the two logs cannot be compared any more. Stop this broker, "
    "empty its store, and start it: it begins with the last file of its master's log. To keep more for slow slaves raise "
    "slaveCatchupReserveBytes of the master"
)


class MasterRecords(Protocol):
    """Reads records of the master."""

    async def record_at(self, offset: int) -> bytes | None:
        """The record that begins at `offset` of the master's log; None if no record begins there. Raises MasterUnread."""
        ...

    async def begins_at(self) -> int:
        """Start of the master's log. Raises MasterUnread."""
        ...


class PairSlave(Follower):
    def __init__(
        self,
        log: ReplicatedLog,
        records: MasterRecords | None,
        *,
        settings: HASettings,
        clock: Clock,
        network: Network,
        tasks: Tasks,
        counters: HACounters,
        on_confirm: Callable[[], None],
        on_caught_up: Callable[[], None],
    ) -> None:
        self._records = records
        self._parted = RepeatedFailure()
        self.stays_out: StayOut | LeftBehind | None = None
        """The reason why the slave does not follow its master until an operator acts; None if it follows."""
        super().__init__(
            log,
            settings=settings,
            clock=clock,
            network=network,
            tasks=tasks,
            counters=counters,
            on_confirm=on_confirm,
            on_caught_up=on_caught_up,
            name="ha-pair-slave",
        )

    async def _prepare(self) -> int | None:
        if self._log.max_offset() == 0 and not await self._durably(self._log.reset_beginning()):
            return self._settings.full_log_wait_ms
        if self._records is None or (last := await self._log.last_record()) is None:
            return None
        offset, content = last
        if offset + len(content) < self._log.max_offset() and not await self._durably(
            self._cut_to(offset + len(content))
        ):
            return self._settings.full_log_wait_ms
        try:
            there = await self._records.record_at(offset)
            master_min = await self._records.begins_at() if there is None else 0
        except MasterUnread as error:
            if self._parted.failed(type(error), self._clock.monotonic_ms()):
                logger.warning("master not asked for its records, retrying", extra=fields(why=error))
            return self._settings.reconnect_ms_max
        if there == content:
            self._parted.recovered(self._clock.monotonic_ms())
            self.stays_out = None
            return None
        log_end = self._log.max_offset()
        if offset < master_min:
            self.stays_out = LeftBehind(master_min, log_end)
        else:
            self.stays_out = StayOut(offset, self._log.confirm_offset(), log_end)
        if self._parted.failed((type(self.stays_out), offset), self._clock.monotonic_ms()):
            self._log_not_followed(self.stays_out, offset, "nothing" if there is None else "another record")
        return self._settings.full_log_wait_ms

    def _log_not_followed(self, why: StayOut | LeftBehind, offset: int, there: str) -> None:
        said = {"master": self._address, "last_record": offset, "log_end": why.log_end}
        if isinstance(why, LeftBehind):
            logger.error(NOT_FOLLOWED, extra=fields(master_min=why.master_min, **said, hint=LEFT_BEHIND))
        else:
            logger.error(NOT_FOLLOWED, extra=fields(there=there, **said, hint=PARTED))

    async def _cut_to(self, end: int) -> None:
        """Cut the log to `end`. The rest of a segment may follow the last record, and the master may have filled this rest
        differently."""
        await self._log.truncate(end)

    def _new_link(self) -> ClassicSlaveLink:
        return ClassicSlaveLink(
            log_end=self._log.max_offset(),
            segment_size_bytes=self._log.segment_size_bytes,
            heartbeat_interval_ms=self._settings.heartbeat_interval_ms,
            housekeeping_interval_ms=self._settings.housekeeping_interval_ms,
            now_ms=self._clock.monotonic_ms(),
        )

    async def _perform(self, step: Cut | PersistEpochs, connection: SlaveConnection) -> None:
        raise AssertionError(f"a classic link wants nothing durable: {step}")
