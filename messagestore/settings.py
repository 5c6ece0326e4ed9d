"""Settings of the store: upstream's keys and defaults; the broker's settings class inherits from this one."""

from __future__ import annotations

from enum import Enum

from pydantic import Field

from mqruntime.settings import Settings


class FlushDiskType(Enum):
    ASYNC_FLUSH = "ASYNC_FLUSH"
    SYNC_FLUSH = "SYNC_FLUSH"


class StoreSettings(Settings):
    """Sizes in bytes, intervals in milliseconds."""

    mapped_file_size_commit_log: int = Field(default=1 << 30, alias="mappedFileSizeCommitLog", ge=4096)
    mapped_file_size_consume_queue: int = Field(default=6_000_000, alias="mappedFileSizeConsumeQueue", ge=20)
    max_message_size: int = Field(default=4 << 20, alias="maxMessageSize", ge=1, le=(1 << 30))
    flush_disk_type: FlushDiskType = Field(default=FlushDiskType.ASYNC_FLUSH, alias="flushDiskType")
    flush_interval_commit_log: int = Field(default=500, alias="flushIntervalCommitLog", ge=1)
    flush_interval_consume_queue: int = Field(default=1_000, alias="flushIntervalConsumeQueue", ge=1)
    check_crc_on_recover: bool = Field(default=True, alias="checkCRCOnRecover")
    message_delay_level: str = Field(
        default="1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h", alias="messageDelayLevel"
    )
    hot_segments: int = Field(
        default=2, alias="hotCommitLogFiles", ge=1, description="ours: newest files read by mapping"
    )
