"""Settings for clients: automatically created topics, waiting pulls, and the size of an answer.

Invariant: every limit is positive, so none of these settings can stop a broker."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from messagestore.systemtopics import TRACE_TOPIC
from mqruntime.settings import OURS, Settings

PERM_READ_WRITE = 6
TOPIC_QUEUES_MAX = 1 << 16


class ClientSettings(Settings):
    """The settings of a broker about clients; in ms and bytes unless the key names another unit."""

    UPSTREAM: ClassVar[dict[str, str]] = {"maxPullRequestHeld": OURS, "shutdownForwardSeconds": OURS}

    broker_permission: int = Field(
        PERM_READ_WRITE, alias="brokerPermission", ge=0, le=7, description="4 read, 2 write, 6 both"
    )
    auto_create_topic_enable: bool = Field(
        True, alias="autoCreateTopicEnable", description="a send to an unknown topic creates it"
    )
    default_topic_queue_nums: int = Field(
        8,
        alias="defaultTopicQueueNums",
        ge=1,
        le=TOPIC_QUEUES_MAX,
        description="most queues that a topic gets in that way",
    )
    auto_create_subscription_group: bool = Field(
        True,
        alias="autoCreateSubscriptionGroup",
        description="an unknown consumer group is created when it is first seen",
    )
    enable_property_filter: bool = Field(
        False,
        alias="enablePropertyFilter",
        description="accept SQL92 expressions, which select messages by their properties",
    )
    slave_read_enable: bool = Field(False, alias="slaveReadEnable", description="slaves serve pulls")
    access_message_in_memory_max_ratio: int = Field(
        40,
        alias="accessMessageInMemoryMaxRatio",
        ge=0,
        le=100,
        description="with `slaveReadEnable`: a consumer that reads further below the log's end than this part of the machine's "
        "memory, in percent, is sent to a slave, which keeps consumers down to 10 percent less",
    )
    long_polling_enable: bool = Field(
        True,
        alias="longPollingEnable",
        description="a pull that finds nothing waits as long as its client allows",
    )
    short_polling_time_mills: int = Field(
        1_000, alias="shortPollingTimeMills", ge=1, description="how long it waits when long polling is off"
    )
    lite_pull_message_enable: bool = Field(
        True, alias="litePullMessageEnable", description="accept lite pull requests (361)"
    )
    max_transfer_bytes: int = Field(
        256 * 1024,
        alias="maxTransferBytesOnMessageInMemory",
        ge=1,
        description="most bytes in the answer to one pull",
    )
    max_transfer_count: int = Field(
        32,
        alias="maxTransferCountOnMessageInMemory",
        ge=1,
        description="most messages in the answer to one pull",
    )
    held_pulls_max: int = Field(
        100_000,
        alias="maxPullRequestHeld",
        ge=1,
        description="pulls that may wait at one time; more are answered at once",
    )
    shutdown_forward_seconds: int = Field(
        35,
        alias="shutdownForwardSeconds",
        ge=0,
        le=3600,
        description="a master that is stopped transfers its role first, and forwards requests of clients for so long "
        "(seconds); 0: it stops at once",
    )
    store_reply_message_enable: bool = Field(
        True,
        alias="storeReplyMessageEnable",
        description="a reply to a request is stored, too, in the topic `<cluster>_REPLY_TOPIC`",
    )
    trace_topic_enable: bool = Field(
        False,
        alias="traceTopicEnable",
        description="create the topic for message traces of clients",
    )
    msg_trace_topic_name: str = Field(
        TRACE_TOPIC,
        alias="msgTraceTopicName",
        pattern=r"^[%|a-zA-Z0-9_-]{1,127}$",
        description="its name; clients use another one by their own setting",
    )
    use_server_side_reset_offset: bool = Field(
        True,
        alias="useServerSideResetOffset",
        description="a consumer group that an administrator moves is notified with its next pull; else also its consumers, "
        "which must be connected, by a request (220)",
    )
    flush_consumer_offset_interval: int = Field(
        5_000,
        alias="flushConsumerOffsetInterval",
        ge=10,
        description="how often consumer offsets are written to disk",
    )
