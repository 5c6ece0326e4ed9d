"""The controller's settings, under upstream's keys and spelling.

Invariant: this controller's id is one of the peers, and the controller listens at the port of that peer."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Self

from pydantic import Field, field_validator, model_validator

from accesscontrol.settings import PortAccessSettings
from dledger.raft.membership import parsed_peers
from dledger.raft.settings import DLedgerSettings
from mqruntime.hostports import check_host
from mqruntime.metricsettings import MetricsSettings
from mqruntime.nettykeys import NETTY_SERVER_KEYS
from mqruntime.proxysettings import ProxySettings
from mqruntime.settings import OURS
from mqruntime.tlssettings import TlsSettings

TIMING = DLedgerSettings()
ALWAYS_BLACK_LISTED = frozenset({"rocketmqHome"})


class ControllerSettings(MetricsSettings, TlsSettings, ProxySettings, PortAccessSettings):
    """The settings of a controller. Scan intervals are only upper bounds, because a lost master is usually noticed at once."""

    IGNORED: ClassVar[frozenset[str]] = (
        MetricsSettings.IGNORED
        | PortAccessSettings.ACCESS_IGNORED
        | NETTY_SERVER_KEYS
        | frozenset(
            {
                "controllerRequestThreadPoolQueueCapacity",
                "controllerThreadPoolNums",
                "isProcessReadEvent",
                "jraftConfig",
                "listenPort",
                "processReadEvent",
                "rocketmqHome",
            }
        )
    )

    UPSTREAM: ClassVar[dict[str, str]] = (
        MetricsSettings.UPSTREAM
        | TlsSettings.UPSTREAM
        | ProxySettings.UPSTREAM
        | PortAccessSettings.ACCESS_UPSTREAM
        | {
            "bindAddress": "every address",
            "controllerDLegerGroup": "null",
            "controllerDLegerPeers": "null",
            "controllerDLegerSelfId": "null",
            "controllerStorePath": "`~/DLedgerController`",
            "electionTimeoutMaxMs": OURS,
            "electionTimeoutMinMs": OURS,
            "heartBeatTimeIntervalMs": OURS,
            "memberAddressesChecked": OURS,
            "snapshotEntries": OURS,
        }
    )

    bind_address: str = Field(
        "",
        alias="bindAddress",
        description="host that the port is opened on; empty: the host of the own peer entry",
    )
    controller_type: str = Field(
        "DLedger",
        alias="controllerType",
        pattern="^DLedger$",
        description="`DLedger`, Raft with files of DLedger's form",
    )
    group: str = Field(
        ..., alias="controllerDLegerGroup", min_length=1, description="name of the group; required"
    )
    peer_list: str = Field(
        ...,
        alias="controllerDLegerPeers",
        min_length=1,
        description="all controllers, `n0-host:port;n1-host:port;n2-host:port`; required",
    )
    self_id: str = Field(
        ..., alias="controllerDLegerSelfId", min_length=1, description="which of them this one is; required"
    )
    member_addresses_checked: bool = Field(
        True,
        alias="memberAddressesChecked",
        description="accept a controller's messages only from the host of its entry in the peers; false where addresses are "
        "translated on the way",
    )
    store_path: str = Field(
        "",
        alias="controllerStorePath",
        description="folder of its log and state; empty: `~/DLedgerController/<self id>`",
    )
    mapped_file_size_bytes: int = Field(
        1 << 30, alias="mappedFileSize", ge=1 << 20, description="size of a file of the log"
    )
    snapshot_entries: int = Field(
        50_000,
        alias="snapshotEntries",
        ge=0,
        description="changes between two snapshots of the state; older files of the log are then deleted, but for a fifth of "
        "as many changes; 0: no snapshots, and a start applies the whole log",
    )
    heartbeat_interval_ms: int = Field(
        TIMING.heartbeat_interval_ms,
        alias="heartBeatTimeIntervalMs",
        ge=10,
        description="interval of the leading controller's heartbeats; at most half of `electionTimeoutMinMs`",
    )
    election_timeout_min_ms: int = Field(
        TIMING.election_timeout_min_ms,
        alias="electionTimeoutMinMs",
        ge=20,
        description="a leading controller that is not heard is replaced after a random time between this one, at least "
        "three writes of the slowest controller's disk, ...",
    )
    election_timeout_max_ms: int = Field(
        TIMING.election_timeout_max_ms,
        alias="electionTimeoutMaxMs",
        description="... and this one; one whose process ended is replaced at once. The same on all controllers",
    )
    scan_not_active_broker_interval_ms: int = Field(
        5000,
        alias="scanNotActiveBrokerInterval",
        ge=10,
        description="longest time until a silent broker is noticed; ended connections are at once",
    )
    scan_inactive_master_interval_ms: int = Field(
        5000,
        alias="scanInactiveMasterInterval",
        ge=10,
        description="longest time until a set without a living master is looked at again",
    )
    elect_master_max_retry_count: int = Field(
        3,
        alias="electMasterMaxRetryCount",
        ge=0,
        description="accepted for compatibility: a lost master is replaced as soon as a broker may be elected",
    )
    enable_elect_unclean_master: bool = Field(
        False,
        alias="enableElectUncleanMaster",
        description="allow a master outside the SyncStateSet; acknowledged messages may be lost",
    )
    notify_broker_role_changed: bool = Field(
        True, alias="notifyBrokerRoleChanged", description="notify brokers of elections at once"
    )
    server_channel_max_idle_time_seconds: int = Field(
        120,
        alias="serverChannelMaxIdleTimeSeconds",
        ge=1,
        description="a connection on which nothing moves for so long is closed",
    )
    config_store_path: Path = Field(
        Path.home() / "controller" / "controller.properties",
        alias="configStorePath",
        description="accepted for compatibility: run-time updates (1009) last until the controller ends; the settings in force "
        "are written to `controller.properties` below `controllerStorePath`, for people to read",
    )
    config_black_list: str = Field(
        "configBlackList;configStorePath",
        alias="configBlackList",
        description="keys that a run-time update may not change",
    )

    @field_validator("bind_address")
    @classmethod
    def _bound_host(cls, value: str) -> str:
        return check_host(value) if value else value

    @model_validator(mode="after")
    def _own_id_is_a_peer(self) -> Self:
        if self.self_id not in self.peers:
            raise ValueError(f"controllerDLegerSelfId {self.self_id} is not among {self.peer_list}")
        return self

    @model_validator(mode="after")
    def _timeouts_fit(self) -> Self:
        """Check that the timeouts fit together. Raises ValueError."""
        assert self.timing
        return self

    @property
    def timing(self) -> DLedgerSettings:
        """Timing of the group's Raft. Raises ValueError for times that do not fit together."""
        return DLedgerSettings(
            heartbeat_interval_ms=self.heartbeat_interval_ms,
            election_timeout_min_ms=self.election_timeout_min_ms,
            election_timeout_max_ms=self.election_timeout_max_ms,
            push_timeout_ms=self.election_timeout_min_ms,
            snapshot_entries=self.snapshot_entries,
            snapshot_margin_entries=self.snapshot_entries // 5,
        )

    @property
    def peers(self) -> dict[str, str]:
        """Id -> "host:port" of all controllers, in the order of the file ("n0-host:port;n1-host:port")."""
        return parsed_peers(self.peer_list, "controllerDLegerPeers")

    @property
    def listen_port(self) -> int:
        """Port of this controller in the peers, shared by Raft and controller requests."""
        return int(self.peers[self.self_id].rpartition(":")[2])

    @property
    def listens_on(self) -> str:
        """bindAddress if it is set, else the host of this controller in the peers."""
        return self.bind_address or self.peers[self.self_id].rpartition(":")[0]

    @property
    def store_root(self) -> Path:
        """The store's folder. The default is one folder per id, so that controllers with upstream's sample files can share a
        machine."""
        return Path(self.store_path) if self.store_path else Path.home() / "DLedgerController" / self.self_id

    @property
    def black_list(self) -> frozenset[str]:
        """Keys that a request may not change."""
        words = (word.strip() for word in self.config_black_list.split(";"))
        return ALWAYS_BLACK_LISTED | frozenset(filter(None, words))
