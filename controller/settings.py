"""The controller's settings, under upstream's keys and spelling.

Invariant: the own id is one of the peers, and the port served is the one that the peers know."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Self

from pydantic import Field, model_validator

from mqruntime.settings import Settings

ALWAYS_BLACK_LISTED = frozenset({"rocketmqHome"})


class ControllerSettings(Settings):
    """What a controller can be told. Scan intervals are upper bounds: a lost master is noticed at once."""

    IGNORED: ClassVar[frozenset[str]] = frozenset(
        {
            "controllerRequestThreadPoolQueueCapacity",
            "controllerThreadPoolNums",
            "enableShutdownGracefully",
            "isProcessReadEvent",
            "jraftConfig",
            "listenPort",
            "metricGrpcExporterIntervalInMills",
            "metricGrpcExporterTimeOutInMills",
            "metricLoggingExporterIntervalInMills",
            "metricsExporterType",
            "metricsGrpcExporterHeader",
            "metricsGrpcExporterTarget",
            "metricsInDelta",
            "metricsLabel",
            "metricsPromExporterHost",
            "metricsPromExporterPort",
            "processReadEvent",
            "rocketmqHome",
            "serverAsyncSemaphoreValue",
            "serverCallbackExecutorThreads",
            "serverNettyWorkerGroupEnable",
            "serverOnewaySemaphoreValue",
            "serverPooledByteBufAllocatorEnable",
            "serverSelectorThreads",
            "serverSocketBacklog",
            "serverSocketRcvBufSize",
            "serverSocketSndBufSize",
            "serverWorkerThreads",
            "shutdownWaitTimeSeconds",
            "useEpollNativeSelector",
            "writeBufferHighWaterMark",
            "writeBufferLowWaterMark",
        }
    )

    bind_address: str = Field("", alias="bindAddress")
    controller_type: str = Field("DLedger", alias="controllerType", pattern="^DLedger$")
    group: str = Field(..., alias="controllerDLegerGroup", min_length=1)
    peer_list: str = Field(..., alias="controllerDLegerPeers", min_length=1)
    self_id: str = Field(..., alias="controllerDLegerSelfId", min_length=1)
    store_path: str = Field("", alias="controllerStorePath")
    mapped_file_size_bytes: int = Field(1 << 30, alias="mappedFileSize", ge=1 << 20)
    scan_not_active_broker_interval_ms: int = Field(5000, alias="scanNotActiveBrokerInterval", ge=10)
    scan_inactive_master_interval_ms: int = Field(5000, alias="scanInactiveMasterInterval", ge=10)
    elect_master_max_retry_count: int = Field(3, alias="electMasterMaxRetryCount", ge=0)
    enable_elect_unclean_master: bool = Field(False, alias="enableElectUncleanMaster")
    notify_broker_role_changed: bool = Field(True, alias="notifyBrokerRoleChanged")
    server_channel_max_idle_time_seconds: int = Field(120, alias="serverChannelMaxIdleTimeSeconds", ge=1)
    config_store_path: Path = Field(
        Path.home() / "controller" / "controller.properties", alias="configStorePath"
    )
    config_black_list: str = Field("configBlackList;configStorePath", alias="configBlackList")

    @model_validator(mode="after")
    def _own_id_is_a_peer(self) -> Self:
        if self.self_id not in self.peers:
            raise ValueError(f"controllerDLegerSelfId {self.self_id} is not among {self.peer_list}")
        return self

    @classmethod
    def by_key(cls) -> dict[str, str]:
        """Upstream key -> attribute."""
        return {field.alias or name: name for name, field in cls.model_fields.items()}

    @property
    def peers(self) -> dict[str, str]:
        """Id -> "host:port" of all controllers, in the order of the file ("n0-host:port;n1-host:port")."""
        found: dict[str, str] = {}
        for entry in filter(None, map(str.strip, self.peer_list.split(";"))):
            peer_id, dash, address = entry.partition("-")
            host, colon, port = address.rpartition(":")
            if not (dash and peer_id and colon and host and port.isascii() and port.isdigit()):
                raise ValueError(f"{entry!r} in controllerDLegerPeers is not ID-HOST:PORT")
            if not 0 < int(port) <= 65535 or peer_id in found:
                raise ValueError(f"{entry!r} in controllerDLegerPeers: bad port, or an id given twice")
            found[peer_id] = address
        return found

    @property
    def listen_port(self) -> int:
        """Raft and controller requests share the port of the own entry in the peers."""
        return int(self.peers[self.self_id].rpartition(":")[2])

    @property
    def listens_on(self) -> str:
        """The host of the own entry in the peers, unless bindAddress says another."""
        return self.bind_address or self.peers[self.self_id].rpartition(":")[0]

    @property
    def store_root(self) -> Path:
        """Without a path, one folder per id, so that controllers with upstream's sample files share a
        machine."""
        return Path(self.store_path) if self.store_path else Path.home() / "DLedgerController" / self.self_id

    @property
    def black_list(self) -> frozenset[str]:
        """The keys that a request may not change."""
        words = (word.strip() for word in self.config_black_list.split(";"))
        return ALWAYS_BLACK_LISTED | frozenset(filter(None, words))
