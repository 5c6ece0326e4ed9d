"""The broker's settings, under upstream's keys, including the settings of its parts.

Invariant: settings that this broker does not support (acting masters, folders elsewhere) are rejected. Settings without effect
on which an operator may rely cause a warning."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Self

from pydantic import Field, field_validator, model_validator

from accesscontrol.settings import AccessSettings
from broker.settings.addresses import AddressSettings
from broker.settings.clients import ClientSettings
from broker.settings.pair import PairKeys
from broker.settings.replication import ReplicationSettings
from broker.settings.transactions import TransactionSettings
from messagestore.store.settings import FlushDiskType, StoreSettings
from mqruntime.metricsettings import MetricsSettings
from mqruntime.nettykeys import NETTY_SERVER_KEYS
from mqruntime.proxysettings import ProxySettings
from mqruntime.tlssettings import TlsSettings

UNDER_CONTROLLERS = frozenset(
    {
        "allowTruncationTo", "brokerElectionPriority", "brokerHeartbeatInterval", "controllerHeartBeatTimeoutMills",
        "haFlowControlEnable", "maxHaTransferByteInSecond", "minInSyncReplicas", "syncControllerMetadataPeriod",
    }
)  # fmt: skip
"""Keys that have an effect only if controllers elect the master."""


class BrokerSettings(
    StoreSettings,
    AddressSettings,
    ReplicationSettings,
    PairKeys,
    ClientSettings,
    TransactionSettings,
    MetricsSettings,
    TlsSettings,
    ProxySettings,
    AccessSettings,
):
    """All settings of a broker; in ms and bytes unless the key names another unit."""

    IGNORED: ClassVar[frozenset[str]] = MetricsSettings.IGNORED | AccessSettings.ACCESS_IGNORED | NETTY_SERVER_KEYS | frozenset(
        {
            "checkSyncStateSetPeriod", "clusterTopicEnable", "brokerTopicEnable",
            "deleteCommitLogFilesInterval", "deleteConsumeQueueFilesInterval", "destroyMapedFileIntervalForcibly",
            "enableBatchPush", "redeleteHangedFileInterval",
            "flushConsumerOffsetHistoryInterval", "forceRegister", "flushDelayOffsetInterval",
            "rocketmqHome",
            "sendMessageThreadPoolNums", "skipPreOnline", "timerWheelEnable", "totalReplicas",
            "transientStorePoolEnable", "waitTimeMillsInSendQueue", "warmMapedFileEnable",
        }
    )  # fmt: skip

    WITHOUT_EFFECT: ClassVar[dict[str, str]] = PairKeys.WITHOUT_EFFECT | dict.fromkeys(
        ("enableAutoInSyncReplicas", "inSyncReplicas"),
        "has no effect: a send waits for the whole SyncStateSet, minInSyncReplicas at least",
    )

    UPSTREAM: ClassVar[dict[str, str]] = (
        StoreSettings.UPSTREAM
        | AddressSettings.UPSTREAM
        | ReplicationSettings.UPSTREAM
        | PairKeys.UPSTREAM
        | ClientSettings.UPSTREAM
        | MetricsSettings.UPSTREAM
        | TlsSettings.UPSTREAM
        | ProxySettings.UPSTREAM
        | AccessSettings.ACCESS_UPSTREAM
        | {
            "brokerName": "the host's name",
        }
    )

    # identity
    broker_cluster_name: str = Field(
        "DefaultCluster",
        alias="brokerClusterName",
        min_length=1,
        pattern=r"^[^#]+$",
        description="name of the cluster",
    )
    broker_name: str = Field(
        "broker-a",
        alias="brokerName",
        min_length=1,
        pattern=r"^[^#]+$",
        description="name of the broker set; its replicas share it and differ by id",
    )
    # files
    store_path_root_dir: Path = Field(
        Path.home() / "store",
        alias="storePathRootDir",
        description="folder of log, queues, tables and identity; one process at a time",
    )
    store_path_commit_log: str = Field(
        "",
        alias="storePathCommitLog",
        description="accepted when it names the folder `commitlog` below the root",
    )
    store_path_consume_queue: str = Field(
        "",
        alias="storePathConsumeQueue",
        description="accepted when it names the folder `consumequeue` below the root",
    )
    store_path_broker_identity: str = Field(
        "",
        alias="storePathBrokerIdentity",
        description="file name of the identity below the root; empty: `brokerIdentity`",
    )
    store_path_epoch_file: str = Field(
        "",
        alias="storePathEpochFile",
        description="file name of the epochs below the root; empty: `epochFileCheckpoint`",
    )

    # controllers and name servers
    sync_broker_metadata_period: int = Field(
        5_000,
        alias="syncBrokerMetadataPeriod",
        ge=10,
        description="how often the controllers are asked for master and SyncStateSet",
    )
    sync_controller_metadata_period: int = Field(
        10_000,
        alias="syncControllerMetadataPeriod",
        ge=10,
        description="how often the leading controller is looked for",
    )
    controller_heart_beat_timeout_mills: int = Field(
        10_000,
        alias="controllerHeartBeatTimeoutMills",
        ge=100,
        description="silence after which controllers take this broker for dead",
    )
    broker_heartbeat_interval: int = Field(
        1_000,
        alias="brokerHeartbeatInterval",
        ge=10,
        description="time between heartbeats to each controller",
    )
    broker_election_priority: int = Field(
        2**31 - 1,
        alias="brokerElectionPriority",
        ge=0,
        le=2**31 - 1,
        description="among equals the lower one is elected",
    )
    register_name_server_period: int = Field(
        30_000,
        alias="registerNameServerPeriod",
        ge=100,
        description="time between registrations when nothing changes",
    )
    register_broker_timeout_mills: int = Field(
        24_000,
        alias="registerBrokerTimeoutMills",
        ge=100,
        description="how long a name server may take to answer one",
    )

    # keys of upstream that are not supported in controller mode
    enable_slave_acting_master: bool = Field(
        False,
        alias="enableSlaveActingMaster",
        description="must be false: controllers elect a master instead",
    )
    duplication_enable: bool = Field(False, alias="duplicationEnable", description="must be false")

    @field_validator("enable_slave_acting_master", "duplication_enable")
    @classmethod
    def _absent(cls, value: bool) -> bool:
        if value:
            raise ValueError("must be false: it does not go with controller mode here")
        return value

    @field_validator("store_path_broker_identity", "store_path_epoch_file")
    @classmethod
    def _below_the_root(cls, value: str) -> str:
        if value.startswith("/"):
            raise ValueError("must be a name below storePathRootDir")
        return value

    @model_validator(mode="after")
    def _folders_below_the_root(self) -> Self:
        for key, value, folder in (
            ("storePathCommitLog", self.store_path_commit_log, "commitlog"),
            ("storePathConsumeQueue", self.store_path_consume_queue, "consumequeue"),
        ):
            if value and Path(value) != self.store_path_root_dir / folder:
                raise ValueError(f"{key} must be {self.store_path_root_dir / folder}, or not be set")
        return self

    @model_validator(mode="after")
    def _on_disk_everywhere(self) -> Self:
        if not self.all_flush_in_sync_state_set:
            return self
        if self.flush_disk_type is not FlushDiskType.SYNC_FLUSH or not self.all_ack_in_sync_state_set:
            raise ValueError(
                "allFlushInSyncStateSet=true promises that all members of the SyncStateSet have a message on disk: it needs "
                "flushDiskType=SYNC_FLUSH and allAckInSyncStateSet=true"
            )
        return self

    @model_validator(mode="after")
    def _a_pair(self) -> Self:
        if (why := self.why_no_pair()) is not None:
            raise ValueError(why)
        if self.pair is not None and self.all_flush_in_sync_state_set:
            raise ValueError(
                "allFlushInSyncStateSet=true needs enableControllerMode=true: a pair has no SyncStateSet"
            )
        return self

    @model_validator(mode="after")
    def _users_follow_the_set(self) -> Self:
        if self.authentication_enabled and self.pair is not None:
            raise ValueError(
                "authenticationEnabled=true needs controllers or Raft mode: the slave of a pair does not copy users"
            )
        if self.authentication_enabled and self.inner_keys is None:
            raise ValueError(
                "authenticationEnabled=true needs innerClientAuthenticationCredentials: brokers sign what they send each other"
            )
        return self

    @model_validator(mode="after")
    def _a_group(self) -> Self:
        if (why := self.why_no_group() or self.why_no_ledger(self.store_path_root_dir)) is not None:
            raise ValueError(why)
        if self.raft_group is None:
            return self
        if self.enable_controller_mode and "enable_controller_mode" in self.model_fields_set:
            raise ValueError(
                "enableDLegerCommitLog=true and enableControllerMode=true contradict each other: members of a Raft group elect "
                "their leader, or controllers a master"
            )
        if self.all_flush_in_sync_state_set:
            raise ValueError(
                "allFlushInSyncStateSet=true has no place in Raft mode: a majority has each message on disk before it is "
                "answered"
            )
        return self

    @model_validator(mode="after")
    def _heartbeats_in_time(self) -> Self:
        if self.broker_heartbeat_interval >= self.controller_heart_beat_timeout_mills:
            raise ValueError(
                f"brokerHeartbeatInterval {self.broker_heartbeat_interval} must be less than "
                f"controllerHeartBeatTimeoutMills {self.controller_heart_beat_timeout_mills}, some times over: controllers "
                "would take this broker for dead between two heartbeats"
            )
        return self

    @property
    def under_controllers(self) -> bool:
        """Whether controllers elect the master."""
        return self.pair is None and self.raft_group is None

    @property
    def idle_keys(self) -> frozenset[str]:
        """Keys that have no effect in this mode."""
        return frozenset() if self.under_controllers else UNDER_CONTROLLERS

    @property
    def send_wait_ms(self) -> int:
        """The longest time that a send waits for its answer."""
        return self.sync_flush_timeout if self.pair is not None else self.slave_timeout

    @property
    def warnings(self) -> list[str]:
        if not self.ha_slave_host_check or self.ha_host == self.broker_ip1:
            return super().warnings
        return [
            *super().warnings,
            f"brokerIP2 {self.broker_ip2} is not brokerIP1: slaves that come from that network are refused, for controllers "
            "know brokers by their brokerIP1; set haSlaveHostCheck=false on all brokers of the set",
        ]
