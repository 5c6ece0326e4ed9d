"""The name server's settings, under upstream's keys.

Invariant: a setting that asks for an unsupported feature is rejected and never ignored."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pydantic import Field, field_validator

from accesscontrol.settings import PortAccessSettings
from mqruntime.hostports import check_host
from mqruntime.metricsettings import MetricsSettings
from mqruntime.nettykeys import NETTY_SERVER_KEYS
from mqruntime.proxysettings import ProxySettings
from mqruntime.settings import OURS
from mqruntime.tlssettings import TlsSettings


class NamesrvSettings(MetricsSettings, TlsSettings, ProxySettings, PortAccessSettings):
    """Settings of a name server."""

    IGNORED: ClassVar[frozenset[str]] = (
        PortAccessSettings.ACCESS_IGNORED
        | NETTY_SERVER_KEYS
        | frozenset(
            {
                "clientRequestThreadPoolNums",
                "clientRequestThreadPoolQueueCapacity",
                "clusterTest",
                "configBlackList",
                "configStorePath",
                "defaultThreadPoolNums",
                "defaultThreadPoolQueueCapacity",
                "enableTopicList",
                "needWaitForService",
                "productEnvName",
                "rocketmqHome",
                "unRegisterBrokerQueueCapacity",
                "waitSecondsForService",
            }
        )
    )

    UPSTREAM: ClassVar[dict[str, str]] = (
        TlsSettings.UPSTREAM
        | ProxySettings.UPSTREAM
        | PortAccessSettings.ACCESS_UPSTREAM
        | {
            "bindAddress": "every address",
            "metricsExporterType": OURS,
            "metricsLabel": OURS,
            "metricsPromExporterHost": OURS,
            "metricsPromExporterPort": OURS,
        }
    )

    bind_address: str = Field(
        "127.0.0.1",
        alias="bindAddress",
        description="host that the port is opened on; a wider one is warned of",
    )
    listen_port: int = Field(
        9876,
        alias="listenPort",
        ge=0,
        le=65535,
        description="port for brokers, clients and admin tools; 0 takes a free one",
    )
    authentication_whitelist: str = Field(
        "105",
        alias="authenticationWhitelist",
        description="request codes that need no signature; clients need 105, because a name server knows no other users than "
        "administrators",
    )
    kv_config_path: Path = Field(
        Path.home() / "namesrv" / "kvConfig.json",
        alias="kvConfigPath",
        description="file of the key-value configuration; with a controller inside, unless it is set, `kvConfig.json` in the "
        "controller's store",
    )
    scan_not_active_broker_interval_ms: int = Field(
        5000,
        alias="scanNotActiveBrokerInterval",
        ge=100,
        description="how often silent brokers are looked for; ended connections count at once",
    )
    server_channel_max_idle_time_seconds: int = Field(
        120,
        alias="serverChannelMaxIdleTimeSeconds",
        ge=1,
        description="a connection on which nothing moves for so long is closed",
    )
    order_message_enable: bool = Field(
        False, alias="orderMessageEnable", description="routes include the order configuration of their topic"
    )
    return_order_topic_config_to_broker: bool = Field(
        True,
        alias="returnOrderTopicConfigToBroker",
        description="registering brokers get the order configuration",
    )
    enable_all_topic_list: bool = Field(
        True, alias="enableAllTopicList", description="answer requests for the list of all topics (206)"
    )
    delete_topic_with_broker_registration: bool = Field(
        False,
        alias="deleteTopicWithBrokerRegistration",
        description="topics that a broker no longer registers lose their routes at once",
    )
    support_acting_master: bool = Field(
        False, alias="supportActingMaster", description="must be false: controllers elect masters"
    )
    notify_min_broker_id_changed: bool = Field(
        False, alias="notifyMinBrokerIdChanged", description="must be false"
    )

    enable_controller_in_namesrv: bool = Field(
        False,
        alias="enableControllerInNamesrv",
        description="run a controller in this process, with the settings of `mqcontroller` in the same file",
    )

    @property
    def listens_on(self) -> str:
        return self.bind_address

    @field_validator("bind_address")
    @classmethod
    def _bound_host(cls, value: str) -> str:
        return check_host(value) if value else value

    @field_validator("support_acting_master", "notify_min_broker_id_changed")
    @classmethod
    def _no_acting_master(cls, value: bool) -> bool:
        if value:
            raise ValueError("must be false: controllers elect masters here, slaves do not act for them")
        return value
