"""Deletion of old segments in rounds.

Invariant: no data is deleted at or above the lowest of these positions: the confirmed end in the checkpoint on disk; the
position at which a connected slave still reads (at most slaveCatchupReserveBytes before the log's end); the first undelivered
delayed message; the first open half message; and the start of data that a valid lease holds. No failure here stops the broker:
failed deletions are repeated in the next round."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from broker.retention.leases import Leases
from broker.settings.broker import BrokerSettings
from ha.service.replication import Replication
from messagestore.log.retention import MANUAL_ROUNDS, Moment, RetentionDecision, RetentionHold, decide, is_due
from messagestore.store.brokerstore import BrokerStore
from messagestore.store.trimming import Trimmed
from mqruntime.clock import Clock
from mqruntime.log import fields
from mqruntime.repeatedfailure import RepeatedFailure

logger = logging.getLogger("broker.retention")

FIRST_INTERVALS = 6  # the first round is late, because a start has more urgent work
FULL_LOOK_MS = 1_000  # while sends are refused
HELD_REMIND_MS = 600_000


class Cleaner:
    """The rounds. `local_hour(wall ms)` is the hour of the local day. `undelivered()` is the position of the first delayed
    message that is not delivered yet, None if there is none. `open_half()` is the position of the first open half message."""

    def __init__(
        self,
        *,
        store: BrokerStore,
        ha: Replication,
        leases: Leases,
        settings: BrokerSettings,
        clock: Clock,
        local_hour: Callable[[int], int],
        undelivered: Callable[[], int | None],
        open_half: Callable[[], int | None],
        on_trimmed: Callable[[], None],
    ) -> None:
        self._store = store
        self._ha = ha
        self._leases = leases
        self._settings = settings
        self._clock = clock
        self._local_hour = local_hour
        self._undelivered = undelivered
        self._open_half = open_half
        self._on_trimmed = on_trimmed
        self._rounds_asked = 0
        self._failure = RepeatedFailure()
        self._held = RepeatedFailure(HELD_REMIND_MS)
        self.held: RetentionHold | None = None
        """The reason why the oldest segment, which was due, was kept in the last round; None if it was not kept."""

    async def run(self) -> None:
        await asyncio.sleep(FIRST_INTERVALS * self._settings.clean_resource_interval / 1000)
        while True:
            await self.clean()
            interval_ms = self._settings.clean_resource_interval
            if self._store.disk_too_full:
                interval_ms = min(interval_ms, FULL_LOOK_MS)
            await asyncio.sleep(interval_ms / 1000)

    def ask(self) -> None:
        """Delete old segments in the next round at any hour, on an operator's request."""
        self._rounds_asked = MANUAL_ROUNDS

    async def clean(self) -> None:
        """Run one round."""
        try:
            await self._clean()
        except OSError as error:
            if self._failure.failed(error.errno, self._clock.monotonic_ms()):
                logger.warning("old segments cannot be deleted, retrying", extra=fields(why=error))
        else:
            self._failure.recovered(self._clock.monotonic_ms())

    async def follow(self) -> None:
        """Trim the queues and the index to the log's start. Raises OSError."""
        trimmed = await self._store.follow_log()
        logger.info("queues cleaned", extra=fields(**trimmed._asdict()))

    async def _clean(self) -> None:
        rules, now_ms = self._settings.retention, self._clock.now_ms()
        moment = Moment(
            now_ms, self._local_hour(now_ms), self._store.disk_space().used, self._rounds_asked > 0
        )
        self._rounds_asked = max(self._rounds_asked - 1, 0)
        self._look_at_disk(rules.refuses_sends(self._store.disk_too_full, moment.disk_used), moment.disk_used)
        decision = RetentionDecision(self._store.min_offset(), 0, 0, None)
        if is_due(moment, rules):
            segments = await self._store.oldest_segments(rules.segments_max)
            leases = await self._leases.holds(now_ms)
            if segments:
                decision = decide(segments, [*leases, *self._holds()], moment, rules)
        self._look_at_hold(decision.held)
        trimmed = await self._store.begin_at(
            decision.end, lambda: decision.end <= min(hold.offset for hold in self._holds())
        )
        await self._ha.truncate_epoch_prefix(self._store.min_offset())
        self._log_trimmed(trimmed, decision, moment)

    def _holds(self) -> list[RetentionHold]:
        """The present holds, which may change at any moment."""
        holds = [
            RetentionHold(self._store.vouched_offset(), "not confirmed, or not yet known to be after a crash")
        ]
        read_from = self._ha.read_from()
        if read_from is not None:
            spared_from = self._store.max_offset() - self._settings.slave_catchup_reserve
            holds.append(RetentionHold(max(read_from, spared_from), "a connected slave still reads it"))
        undelivered = self._undelivered()
        if undelivered is not None:
            holds.append(RetentionHold(undelivered, "a delayed message there is not delivered yet"))
        open_half = self._open_half()
        if open_half is not None:
            holds.append(RetentionHold(open_half, "a transaction that began there is not ended yet"))
        return holds

    def _look_at_disk(self, too_full: bool, used: float) -> None:
        if too_full and not self._store.disk_too_full:
            logger.error(
                "the disk is too full, sends are rejected: make room, or let retention do it (fileReservedTime)",
                extra=fields(used=f"{used:.2f}", limit=self._settings.disk_space_warning_level_ratio),
            )
        elif self._store.disk_too_full and not too_full:
            logger.info("the disk has room again, sends are accepted", extra=fields(used=f"{used:.2f}"))
        self._store.disk_too_full = too_full

    def _look_at_hold(self, held: RetentionHold | None) -> None:
        self.held = held
        if held is None:
            self._held.recovered(self._clock.monotonic_ms())
        elif self._held.failed(held.why, self._clock.monotonic_ms()):
            logger.info(
                "segment kept past retention", extra=fields(at=self._store.min_offset(), why=held.why)
            )

    def _log_trimmed(self, trimmed: Trimmed, decision: RetentionDecision, moment: Moment) -> None:
        if not any(trimmed):
            return
        self._on_trimmed()
        said = fields(
            log_min=self._store.min_offset(),
            by_force=decision.by_force,
            disk=f"{moment.disk_used:.2f}",
            **trimmed._asdict(),
        )
        logger.info("old segments deleted", extra=said)
