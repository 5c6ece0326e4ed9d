"""The name server's settings, under upstream's keys.

Invariant: a setting that asks for what this name server does not have is refused, not ignored.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pydantic import Field, field_validator

from mqruntime.settings import Settings


class NamesrvSettings(Settings):
    """What a name server can be told."""

    IGNORED: ClassVar[frozenset[str]] = frozenset(
        {
            "clientRequestThreadPoolNums",
            "clientRequestThreadPoolQueueCapacity",
            "clusterTest",
            "configBlackList",
            "configStorePath",
            "defaultThreadPoolNums",
            "defaultThreadPoolQueueCapacity",
            "enableShutdownGracefully",
            "enableTopicList",
            "needWaitForService",
            "productEnvName",
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
            "unRegisterBrokerQueueCapacity",
            "useEpollNativeSelector",
            "waitSecondsForService",
            "writeBufferHighWaterMark",
            "writeBufferLowWaterMark",
        }
    )

    bind_address: str = Field("127.0.0.1", alias="bindAddress")
    listen_port: int = Field(9876, alias="listenPort", ge=0, le=65535)
    kv_config_path: Path = Field(Path.home() / "namesrv" / "kvConfig.json", alias="kvConfigPath")
    scan_not_active_broker_interval_ms: int = Field(5000, alias="scanNotActiveBrokerInterval", ge=100)
    server_channel_max_idle_time_seconds: int = Field(120, alias="serverChannelMaxIdleTimeSeconds", ge=1)
    order_message_enable: bool = Field(False, alias="orderMessageEnable")
    return_order_topic_config_to_broker: bool = Field(True, alias="returnOrderTopicConfigToBroker")
    enable_all_topic_list: bool = Field(True, alias="enableAllTopicList")
    delete_topic_with_broker_registration: bool = Field(False, alias="deleteTopicWithBrokerRegistration")
    support_acting_master: bool = Field(False, alias="supportActingMaster")
    notify_min_broker_id_changed: bool = Field(False, alias="notifyMinBrokerIdChanged")

    enable_controller_in_namesrv: bool = Field(False, alias="enableControllerInNamesrv")

    @property
    def listens_on(self) -> str:
        return self.bind_address

    @field_validator("enable_controller_in_namesrv")
    @classmethod
    def _no_controller_inside(cls, value: bool) -> bool:
        if value:
            raise ValueError("must be false: run mqcontroller beside this process")
        return value

    @field_validator("support_acting_master", "notify_min_broker_id_changed")
    @classmethod
    def _no_acting_master(cls, value: bool) -> bool:
        if value:
            raise ValueError("must be false: controllers elect masters here, slaves do not act for them")
        return value
