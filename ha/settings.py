"""Timers and limits of replication, and the settings of a pair.

Invariant: all times are in ms, all sizes in bytes. Upstream's keys are named next to the fields. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ha.frames import BODY_SIZE_MAX


@dataclass(frozen=True, slots=True)
class HASettings:
    heartbeat_interval_ms: int = 5_000  # haSendHeartbeatInterval
    housekeeping_interval_ms: int = 20_000  # haHousekeepingInterval
    transfer_batch_size: int = 256 * 1024  # haTransferBatchSize; upstream's 32768 costs many more frames
    slave_not_caught_up_ms_max: int = 15_000  # haMaxTimeSlaveNotCatchup
    slave_disconnected_ms_max: int = 1_000  # then the master asks to shrink the set; a reconnect takes 50 ms
    sync_state_set_check_ms: int = 500
    alter_retry_ms: int = 500  # the wait before a rejected set is requested again
    join_lag_ms_max: int = 1_000  # sends wait for a slave this close, so that it can join
    join_ms_max: int = 2_000  # it is dropped if it has not caught up by then
    join_stall_ms_max: int = 1_000  # it is dropped, or leaves again, after so long without progress
    handshake_timeout_ms: int = 5_000
    connect_timeout_ms: int = 5_000
    reconnect_ms_min: int = 50
    reconnect_ms_max: int = 2_000
    full_log_wait_ms: int = 5_000  # so long that the master shrinks the set and continues without this slave
    confirm_notice_ms: int = 100  # an idle slave gets a new confirm offset within this time
    connections_max: int = 64
    slave_host_check: bool = True  # accept a slave only from the host that it registered at the controllers
    slave_role: str = ""  # of the certificates of slaves that have roles; any will do without it
    sync_from_last_file: bool = False  # syncFromLastFile
    async_learner: bool = False  # asyncLearner
    acks_flushed: bool = False  # allFlushInSyncStateSet: only data on disk counts and is acknowledged

    def __post_init__(self) -> None:
        if not 0 < self.transfer_batch_size <= BODY_SIZE_MAX:
            raise ValueError(
                f"haTransferBatchSize {self.transfer_batch_size} is not within 1..{BODY_SIZE_MAX}"
            )


@dataclass(frozen=True, slots=True)
class PairSettings:
    """Settings of a broker with a configured role."""

    waits_for_slave: bool = False  # SYNC_MASTER: a send is answered once one slave has it
    gap_max: int = 256 * 1024 * 1024  # haSlaveFallbehindMax; sends do not wait for a slave further behind
    master_ha_address: str | None = None  # haMasterAddress; None: the address comes from the name servers
