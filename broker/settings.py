"""The broker's settings, under upstream's keys; those of its store come with them.

Invariant: what they promise together is one of the contracts of `broker.contract`; what no contract of ours can
honour (DLedger commit logs, acting masters) is refused."""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path
from typing import ClassVar, Self

from pydantic import Field, field_validator, model_validator

from broker.clientsettings import ClientSettings
from ha.frames import BODY_SIZE_MAX
from ha.settings import HASettings
from messagestore.settings import StoreSettings
from mqruntime.metricsettings import MetricsSettings
from mqruntime.nettykeys import NETTY_SERVER_KEYS
from mqruntime.settings import OURS


class BrokerSettings(StoreSettings, ClientSettings, MetricsSettings):
    """What a broker can be told; ms and bytes unless a key says otherwise."""

    IGNORED: ClassVar[frozenset[str]] = MetricsSettings.IGNORED | NETTY_SERVER_KEYS | frozenset(
        {
            "brokerId", "brokerRole", "checkSyncStateSetPeriod", "clusterTopicEnable", "brokerTopicEnable",
            "flushConsumerOffsetHistoryInterval", "forceRegister", "flushDelayOffsetInterval", "rocketmqHome",
            "sendMessageThreadPoolNums", "skipPreOnline", "timerWheelEnable", "totalReplicas",
            "traceTopicEnable", "transactionCheckInterval", "transactionCheckMax", "transactionTimeOut",
            "transientStorePoolEnable", "waitTimeMillsInSendQueue", "warmMapedFileEnable",
        }
    )  # fmt: skip

    WITHOUT_EFFECT: ClassVar[dict[str, str]] = dict.fromkeys(
        ("cleanFileForciblyEnable", "deleteWhen", "diskMaxUsedSpaceRatio", "fileReservedTime"),
        "has no effect: the log is kept whole; watch the disk, and make room by hand",
    ) | dict.fromkeys(
        ("enableAutoInSyncReplicas", "inSyncReplicas"),
        "has no effect: a send waits for the whole SyncStateSet, minInSyncReplicas at least",
    )

    UPSTREAM: ClassVar[dict[str, str]] = (
        StoreSettings.UPSTREAM
        | ClientSettings.UPSTREAM
        | MetricsSettings.UPSTREAM
        | {
            "allAckInSyncStateSet": "false",
            "bindAddress": "every address",
            "brokerIP1": "first address that is not loopback",
            "brokerIP2": "first address that is not loopback",
            "brokerName": "the host's name",
            "enableControllerMode": "false",
            "fastListenPort": OURS,
            "haListenPort": "10912",
            "haTransferBatchSize": "32768",
            "slaveSyncInterval": OURS,
            "waitingSendsMax": OURS,
        }
    )

    # identity and addresses
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
        description="name of the broker set; its replicas share it, controllers tell them apart by id",
    )
    broker_ip1: str = Field(
        "127.0.0.1", alias="brokerIP1", description="IP address told to clients and controllers"
    )
    broker_ip2: str = Field(
        "", alias="brokerIP2", description="IP address told to slaves; empty: `brokerIP1`"
    )
    bind_address: str = Field(
        "",
        alias="bindAddress",
        description="host that the ports are opened on; empty: `brokerIP1`; a wider one is warned of",
    )
    listen_port: int = Field(
        10911,
        alias="listenPort",
        ge=0,
        le=65535,
        description="port for clients, admin tools and other brokers; 0 takes a free one",
    )
    fast_listen_port: int = Field(
        0, alias="fastListenPort", ge=0, le=65535, description="second port for the same; 0: `listenPort` - 2"
    )
    ha_listen_port: int = Field(
        0,
        alias="haListenPort",
        ge=0,
        le=65535,
        description="port that slaves fetch the log from; 0: `listenPort` + 1",
    )
    namesrv_addr: str = Field("", alias="namesrvAddr", description="name servers, `host:port;host:port`")
    controller_addr: str = Field(
        "", alias="controllerAddr", description="controllers, `host:port;host:port`; required"
    )
    enable_controller_mode: bool = Field(
        True, alias="enableControllerMode", description="must be true: roles come from controllers only"
    )
    server_channel_max_idle_time_seconds: int = Field(
        120,
        alias="serverChannelMaxIdleTimeSeconds",
        ge=1,
        description="a connection on which nothing moves for so long is closed",
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
        description="taken when it names the folder `commitlog` below the root",
    )
    store_path_consume_queue: str = Field(
        "",
        alias="storePathConsumeQueue",
        description="taken when it names the folder `consumequeue` below the root",
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

    # replication and acknowledgement
    all_ack_in_sync_state_set: bool = Field(
        True, alias="allAckInSyncStateSet", description="a send waits for every member of the SyncStateSet"
    )
    min_in_sync_replicas: int = Field(
        1,
        alias="minInSyncReplicas",
        ge=1,
        description="with fewer members in the SyncStateSet, sends are refused",
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
    async_learner: bool = Field(
        False, alias="asyncLearner", description="this replica never joins the SyncStateSet"
    )
    sync_from_last_file: bool = Field(
        False,
        alias="syncFromLastFile",
        description="an empty replica begins with its master's newest segment",
    )
    ha_send_heartbeat_interval: int = Field(
        5_000,
        alias="haSendHeartbeatInterval",
        ge=10,
        description="a quiet replication link is told that it lives so often",
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
    ha_max_time_slave_not_catchup: int = Field(
        15_000,
        alias="haMaxTimeSlaveNotCatchup",
        ge=10,
        description="a connected slave behind for longer leaves the SyncStateSet",
    )
    slave_sync_interval: int = Field(
        1_000,
        alias="slaveSyncInterval",
        ge=10,
        description="how often a slave copies topics, groups and offsets from its master",
    )

    # what upstream has and controller mode here has not
    enable_d_leger_commit_log: bool = Field(
        False, alias="enableDLegerCommitLog", description="must be false: replication follows the controllers"
    )
    enable_slave_acting_master: bool = Field(
        False,
        alias="enableSlaveActingMaster",
        description="must be false: controllers elect a master instead",
    )
    duplication_enable: bool = Field(False, alias="duplicationEnable", description="must be false")

    @field_validator("enable_d_leger_commit_log", "enable_slave_acting_master", "duplication_enable")
    @classmethod
    def _absent(cls, value: bool) -> bool:
        if value:
            raise ValueError("must be false: it does not go with controller mode here")
        return value

    @field_validator("broker_ip1", "broker_ip2")
    @classmethod
    def _ip_address(cls, value: str) -> str:
        if value:
            ip_address(value)  # records and message ids hold the raw address
        return value

    @field_validator("namesrv_addr", "controller_addr")
    @classmethod
    def _addresses(cls, value: str) -> str:
        for address in addresses(value):
            host, _, port = address.rpartition(":")
            if not (host and port.isascii() and port.isdigit() and 0 < int(port) <= 65535):
                raise ValueError(f"{address!r} is not HOST:PORT; several are separated by ;")
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
    def _derived_ports(self) -> Self:
        for key, port, cause in (
            ("haListenPort", self.ha_port, "listenPort + 1"),
            ("fastListenPort", self.fast_port, "listenPort - 2"),
        ):
            if self.listen_port and not 0 < port <= 65535:
                raise ValueError(f"{key} would be {cause} = {port}; set {key}, or another listenPort")
        return self

    @model_validator(mode="after")
    def _heard_in_time(self) -> Self:
        if self.broker_heartbeat_interval >= self.controller_heart_beat_timeout_mills:
            raise ValueError(
                f"brokerHeartbeatInterval {self.broker_heartbeat_interval} must be less than "
                f"controllerHeartBeatTimeoutMills {self.controller_heart_beat_timeout_mills}, some times over: controllers "
                "would take this broker for dead between two heartbeats"
            )
        return self

    @field_validator("enable_controller_mode")
    @classmethod
    def _controller_mode(cls, value: bool) -> bool:
        if not value:
            raise ValueError("must be true: this broker takes its role from controllers only")
        return value

    @property
    def address(self) -> str:
        """What clients and controllers call us."""
        return f"{self.broker_ip1}:{self.listen_port}"

    @property
    def listens_on(self) -> str:
        """The host that all ports are opened on."""
        return self.bind_address or self.broker_ip1

    @property
    def ha_port(self) -> int:
        return self.ha_listen_port or (self.listen_port + 1 if self.listen_port else 0)

    @property
    def ha_host(self) -> str:
        """The host part of the address told to slaves."""
        return self.broker_ip2 or self.broker_ip1

    @property
    def fast_port(self) -> int:
        """Upstream's fast (VIP) port: Java slaves ask for topics there."""
        return self.fast_listen_port or max(self.listen_port - 2, 0)

    @property
    def replication(self) -> HASettings:
        """What the HA service is told."""
        return HASettings(
            heartbeat_interval_ms=self.ha_send_heartbeat_interval,
            housekeeping_interval_ms=self.ha_housekeeping_interval,
            transfer_batch_size=self.ha_transfer_batch_size,
            slave_not_caught_up_ms_max=self.ha_max_time_slave_not_catchup,
            sync_from_last_file=self.sync_from_last_file,
            async_learner=self.async_learner,
        )

    @property
    def controllers(self) -> list[str]:
        return addresses(self.controller_addr)

    @property
    def name_servers(self) -> list[str]:
        return addresses(self.namesrv_addr)


def addresses(text: str) -> list[str]:
    """`host:port;host:port` as a list, blanks and empty parts dropped."""
    return [part.strip() for part in text.split(";") if part.strip()]
