"""A slave of a set with elected masters. Upstream: AutoSwitchHAClient.

Invariant: as in Follower (ha/slave/follower.py), there is one connection at a time, and no change on disk is cancelled. This
includes changes of the epoch file."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from epochfile.history import why_too_far
from ha.counters import HACounters
from ha.epochs import KeptEpochs
from ha.errors import MasterUnread
from ha.frames import Handshake
from ha.log import ReplicatedLog
from ha.settings import HASettings
from ha.slave.connection import SlaveConnection
from ha.slave.follower import Follower
from ha.slave.link import Cut, LeftBehind, MasterProof, PersistEpochs, SlaveLink, StayOut
from mqruntime.clock import Clock
from mqruntime.log import fields
from mqruntime.network import Network
from mqruntime.repeatedfailure import RepeatedFailure
from mqruntime.tasks import Tasks

logger = logging.getLogger("ha.slave")

STAYS_OUT = (
    "it would lose confirmed data. To keep this log, elect this replica: mqadmin electMaster. To discard the log from the "
    "offset where the logs diverge: mqadmin updateBrokerConfig -k allowTruncationTo -v OFFSET. To discard all of it: mqadmin "
    "resyncBroker"
)
LEFT_BEHIND = (
    "the master's retention has deleted what follows here, so this store holds nothing of the master's log: mqadmin "
    "resyncBroker empties it and fetches the master's log from its start. To keep more for slow replicas raise "
    "slaveCatchupReserveBytes"
)


NO_MASTER = (
    "no master of this set has such an epoch: check what listens at that address, and stop it; it was ignored"
)


class MasterWitness(Protocol):
    """Asks the master that the controllers named for facts that this master's epoch file may not contain."""

    def names(self, epoch: int) -> bool:
        """Whether the master that would be asked is the master of `epoch`."""
        ...

    async def leads(self) -> int | None:
        """The newest masterEpoch that an upstream master reports to have led; None if the master records all of its epochs.
        Raises MasterUnread."""
        ...

    async def record_at(self, offset: int) -> bytes | None:
        """See MasterRecords.record_at. Raises MasterUnread."""
        ...


class SlaveClient(Follower):
    def __init__(
        self,
        log: ReplicatedLog,
        epochs: KeptEpochs,
        *,
        broker_id: int,
        epoch: Callable[[], int],
        settings: HASettings,
        clock: Clock,
        network: Network,
        tasks: Tasks,
        counters: HACounters,
        on_confirm: Callable[[], None],
        on_caught_up: Callable[[], None],
        on_ended: Callable[[], None],
        truncation_allowed: Callable[[], int | None],
        witness: MasterWitness | None,
    ) -> None:
        """`epoch()` is the newest accepted epoch. `on_ended` is called when an established connection ends, unless `stop` ended
        it. For `truncation_allowed` see SlaveLink; one permission allows one cut. Once the master's epochs have contradicted
        this broker's epochs, `witness` is asked before each link."""
        self._epochs = epochs
        self._broker_id = broker_id
        self._epoch = epoch
        self._on_ended = on_ended
        self._truncation_allowed = truncation_allowed
        self._word_used: int | None = None
        self._witness = witness
        self._is_doubted = False
        self._proof: MasterProof | None = None
        self._stays_out = RepeatedFailure()
        self._disbelieved = RepeatedFailure()
        self.stays_out: StayOut | LeftBehind | None = None
        """The reason why this replica does not follow its master until an operator acts; None if it follows."""
        super().__init__(
            log,
            settings=settings,
            clock=clock,
            network=network,
            tasks=tasks,
            counters=counters,
            on_confirm=on_confirm,
            on_caught_up=on_caught_up,
            name=f"ha-slave id={broker_id}",
        )

    async def _prepare(self) -> int | None:
        if not await self._durably(self._epochs.settle()):
            return self._settings.full_log_wait_ms
        if self._settings.acks_flushed:
            await self._log.flush()  # the first ack contains the end of the log
        self._proof = await self._proof_of_master() if self._is_doubted else None
        return None

    async def _proof_of_master(self) -> MasterProof | None:
        """The proof for the next link; None if there is none, and then the link works without a proof."""
        witness, asked_for, address = self._witness, self._epoch(), self._address
        if witness is None or not witness.names(asked_for):
            return None
        try:
            if (epoch := await witness.leads()) is None:
                return None
            same_end = 0
            if (last := await self._log.last_record()) is not None:
                offset, content = last
                if await witness.record_at(offset) == content:
                    same_end = offset + len(content)
        except MasterUnread as error:
            logger.info("master not asked for its epoch, retrying", extra=fields(why=error))
            return None
        if not witness.names(asked_for) or self._address != address:
            return None  # the answer is from another master or address
        logger.info(
            "master asked for its epoch",
            extra=fields(
                master=self._address, leads=epoch, same_end=same_end, log_end=self._log.max_offset()
            ),
        )
        return MasterProof(epoch, same_end)

    def flushed(self) -> None:
        """Called when more of the log is on disk: a link that waits for this acknowledges it."""
        if self.connection is not None:
            self.connection.flushed()

    def _new_link(self) -> SlaveLink:
        allowed = self._truncation_allowed()
        return SlaveLink(
            handshake=Handshake(
                self._broker_id,
                self._settings.sync_from_last_file,
                self._settings.async_learner,
                self._settings.acks_flushed,
            ),
            history=self._epochs.history,
            epoch=self._epoch(),
            log_min=self._log.min_offset(),
            log_end=self._log.max_offset(),
            confirm_offset=self._log.confirm_offset(),
            truncation_allowed=None if allowed == self._word_used else allowed,
            flushed_end=self._log.flushed_offset() if self._settings.acks_flushed else None,
            segment_size_bytes=self._log.segment_size_bytes,
            heartbeat_interval_ms=self._settings.heartbeat_interval_ms,
            housekeeping_interval_ms=self._settings.housekeeping_interval_ms,
            handshake_timeout_ms=self._settings.handshake_timeout_ms,
            now_ms=self._clock.monotonic_ms(),
            proof=self._proof,
            epoch_max=self._epoch(),
        )

    def epoch_named(self, epoch: int) -> None:
        """Note that controllers named `epoch` as an epoch of the followed master."""
        if self.connection is not None and isinstance(self.connection.link, SlaveLink):
            self.connection.link.epoch_named(epoch)

    async def _perform(self, step: Cut | PersistEpochs, connection: SlaveConnection) -> None:
        link = connection.link
        assert isinstance(link, SlaveLink)
        if isinstance(step, PersistEpochs):
            if step.log_begins is not None:
                await self._log.begin_empty_at(step.log_begins)
            await self._epochs.store(step.history)
            connection.step_done(link.persisted(self._clock.monotonic_ms()))
            return
        if step.offset < self._log.confirm_offset():
            self._word_used = self._truncation_allowed()
        boundary = await self._log.truncate(step.offset)
        logger.warning(
            "log truncated",
            extra=fields(
                log_end=step.log_end,
                to=boundary,
                bytes=step.log_end - boundary,
                own_epochs=step.own,
                master_epochs=step.master,
                why="the master's log differs from here",
            ),
        )
        self._counters.truncations += 1
        connection.step_done(link.cut_done(boundary, self._clock.monotonic_ms()))

    def _link_ended(self) -> None:
        self._on_ended()

    def _stayed_out(self, connection: SlaveConnection, address: str) -> bool:
        self.stays_out = why = connection.stays_out
        self._is_doubted = self._is_doubted or connection.is_doubted
        self._log_disbelieved(connection, address)
        # `master_min` moves with every deleted segment
        what = LeftBehind if isinstance(why, LeftBehind) else why
        if why is not None and self._stays_out.failed(what, self._clock.monotonic_ms()):
            self._log_stays_out(why, address)
        return why is not None

    def _log_disbelieved(self, connection: SlaveConnection, address: str) -> None:
        link = connection.link
        if not isinstance(link, SlaveLink) or link.epoch_ahead is None:
            return
        why = why_too_far(link.epoch_ahead, self._epoch())
        if why is not None and self._disbelieved.failed(address, self._clock.monotonic_ms()):
            logger.error(
                "epoch disbelieved", extra=fields(source="master", sender=address, why=why, hint=NO_MASTER)
            )

    def _log_stays_out(self, why: StayOut | LeftBehind, address: str) -> None:
        if isinstance(why, LeftBehind):
            said = fields(master=address, master_min=why.master_min, log_end=why.log_end, hint=LEFT_BEHIND)
            logger.error("this replica cannot follow its master", extra=said)
            return
        logger.error(
            "this replica does not follow its master",
            extra=fields(
                master=address,
                logs_part_at=why.offset,
                confirm_offset=why.confirm_offset,
                log_end=why.log_end,
                hint=STAYS_OUT,
            ),
        )
