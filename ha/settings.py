"""Timers and limits of replication, and what a pair is told.

Invariant: all times are ms, all sizes bytes; names of upstream's keys stand beside the fields that have one. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ha.frames import BODY_SIZE_MAX


@dataclass(frozen=True, slots=True)
class HASettings:
    heartbeat_interval_ms: int = 5_000  # haSendHeartbeatInterval
    housekeeping_interval_ms: int = 20_000  # haHousekeepingInterval
    transfer_batch_size: int = 256 * 1024  # haTransferBatchSize; upstream's 32768 costs many more frames
    slave_not_caught_up_ms_max: int = 15_000  # haMaxTimeSlaveNotCatchup
    slave_disconnected_ms_max: int = 1_000  # then the master asks to shrink; a reconnect takes 50 ms
    sync_state_set_check_ms: int = 500
    alter_retry_ms: int = 500  # a set that the controllers did not take is asked for again no sooner
    join_lag_ms_max: int = 1_000  # a slave this close is waited for, so that it can enter the set
    join_ms_max: int = 2_000  # and given up if it has not caught up by then
    join_stall_ms_max: int = (
        1_000  # or sooner, when its acks stand still so long; one that has just entered leaves again
    )
    handshake_timeout_ms: int = 5_000
    connect_timeout_ms: int = 5_000
    reconnect_ms_min: int = 50
    reconnect_ms_max: int = 2_000
    full_log_wait_ms: int = (
        5_000  # away long enough for the master to shrink the set and go on without this slave
    )
    confirm_notice_ms: int = 100  # an idle slave learns a new confirm offset this late at most
    connections_max: int = 64
    slave_host_check: bool = (
        True  # a slave is believed only from the host that it registered at the controllers
    )
    sync_from_last_file: bool = False  # syncFromLastFile
    async_learner: bool = False  # asyncLearner
    acks_flushed: bool = False  # allFlushInSyncStateSet: an end counts, and is told, when it is on disk

    def __post_init__(self) -> None:
        if not 0 < self.transfer_batch_size <= BODY_SIZE_MAX:
            raise ValueError(
                f"haTransferBatchSize {self.transfer_batch_size} is not within 1..{BODY_SIZE_MAX}"
            )


@dataclass(frozen=True, slots=True)
class PairSettings:
    """Of a broker whose role its configuration says."""

    waits_for_slave: bool = False  # SYNC_MASTER: a send is answered once one slave has it
    gap_max: int = 256 * 1024 * 1024  # haSlaveFallbehindMax; a slave further behind is not waited for
    master_ha_address: str | None = None  # haMasterAddress; None: as name servers say
