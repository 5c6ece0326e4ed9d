"""Settings for the replication of a broker's log, and for the replicas that a send waits for.

Invariant: these settings together determine one of the contracts in `broker.role.contract`."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from ha.frames import BODY_SIZE_MAX
from ha.settings import HASettings
from mqruntime.settings import OURS, Settings


class ReplicationSettings(Settings):
    """The settings of a broker about its replicas; in ms and bytes."""

    UPSTREAM: ClassVar[dict[str, str]] = {
        "allAckInSyncStateSet": "false",
        "allFlushInSyncStateSet": OURS,
        "allowTruncationTo": OURS,
        "haTransferBatchSize": "32768",
        "haSlaveHostCheck": OURS,
        "slaveCatchupReserveBytes": OURS,
        "slaveSyncInterval": OURS,
        "waitingSendsMax": OURS,
        "yieldAfterMillis": OURS,
    }

    all_ack_in_sync_state_set: bool = Field(
        True, alias="allAckInSyncStateSet", description="a send waits for every member of the SyncStateSet"
    )
    all_flush_in_sync_state_set: bool = Field(
        False,
        alias="allFlushInSyncStateSet",
        description="every member of the SyncStateSet has a message on its disk before it is acknowledged; the same on all "
        "brokers of a set, with `flushDiskType=SYNC_FLUSH`",
    )
    min_in_sync_replicas: int = Field(
        1,
        alias="minInSyncReplicas",
        ge=1,
        description="with fewer members in the SyncStateSet, sends are rejected",
    )
    yield_after: int = Field(
        5_000,
        alias="yieldAfterMillis",
        ge=100,
        description="a broker that could not lead for so long reports that to the controllers, and a fit replica takes over",
    )
    slave_timeout: int = Field(
        3_000, alias="slaveTimeout", ge=1, description="how long a send waits for its replicas"
    )
    waiting_sends_max: int = Field(
        50_000,
        alias="waitingSendsMax",
        ge=1,
        description="sends that may wait for replicas at one time; more are answered busy",
    )
    allow_truncation_to: int | None = Field(
        None,
        alias="allowTruncationTo",
        ge=0,
        description="once, by an operator: this replica may cut its log to this offset even where it is confirmed",
    )
    async_learner: bool = Field(
        False, alias="asyncLearner", description="this replica never joins the SyncStateSet"
    )
    sync_from_last_file: bool = Field(
        False,
        alias="syncFromLastFile",
        description="an empty replica starts with its master's newest segment",
    )
    ha_send_heartbeat_interval: int = Field(
        5_000,
        alias="haSendHeartbeatInterval",
        ge=10,
        description="interval of keep-alives on a quiet replication link",
    )
    ha_housekeeping_interval: int = Field(
        20_000,
        alias="haHousekeepingInterval",
        ge=10,
        description="a replication link that was silent for so long is closed",
    )
    ha_transfer_batch_size: int = Field(
        256 * 1024,
        alias="haTransferBatchSize",
        ge=1,
        le=BODY_SIZE_MAX,
        description="largest piece of log that is sent to a slave at once",
    )
    ha_flow_control_enable: bool = Field(
        False,
        alias="haFlowControlEnable",
        description="`maxHaTransferByteInSecond` is in force",
    )
    max_ha_transfer_byte_in_second: int = Field(
        100 << 20,
        alias="maxHaTransferByteInSecond",
        ge=1,
        description="log that is sent to one slave in a second while it is not in the SyncStateSet; above the rate of "
        "producers, or it never catches up. Not in pairs",
    )
    ha_max_time_slave_not_catchup: int = Field(
        15_000,
        alias="haMaxTimeSlaveNotCatchup",
        ge=10,
        description="a connected slave behind for longer leaves the SyncStateSet",
    )
    ha_slave_host_check: bool = Field(
        True,
        alias="haSlaveHostCheck",
        description="a slave's link is accepted only from the host of the address that it registered at the controllers, and a "
        "hand-over only from the hosts of `controllerAddr`; false where replication takes another network, as with "
        "`brokerIP2`, or passes address translation",
    )
    slave_catchup_reserve: int = Field(
        16 << 30,
        alias="slaveCatchupReserveBytes",
        ge=0,
        description="retention keeps data that a connected slave has still to read, up to so much log from the end; older data "
        "may be deleted under it, and it must resync",
    )
    slave_sync_interval: int = Field(
        1_000,
        alias="slaveSyncInterval",
        ge=10,
        description="how often a slave copies offsets from its master",
    )

    @property
    def catch_up_limit(self) -> int | None:
        """Limit of the bytes per second that a slave gets while it catches up; None for no limit."""
        return self.max_ha_transfer_byte_in_second if self.ha_flow_control_enable else None

    @property
    def replication(self) -> HASettings:
        """The settings of the HA service."""
        return HASettings(
            heartbeat_interval_ms=self.ha_send_heartbeat_interval,
            housekeeping_interval_ms=self.ha_housekeeping_interval,
            transfer_batch_size=self.ha_transfer_batch_size,
            slave_not_caught_up_ms_max=self.ha_max_time_slave_not_catchup,
            slave_host_check=self.ha_slave_host_check,
            sync_from_last_file=self.sync_from_last_file,
            async_learner=self.async_learner,
            acks_flushed=self.all_flush_in_sync_state_set,
        )
