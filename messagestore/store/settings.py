"""Settings of the store, with upstream's keys and defaults. The broker's settings class inherits from this class."""

from __future__ import annotations

from enum import Enum
from typing import ClassVar

from pydantic import Field, field_validator

from messagestore.delaylevels import delay_levels_ms
from messagestore.log.retention import HOUR_MS, Rules, hours_of
from mqruntime.settings import OURS, Settings


class FlushDiskType(Enum):
    ASYNC_FLUSH = "ASYNC_FLUSH"
    SYNC_FLUSH = "SYNC_FLUSH"


class StoreSettings(Settings):
    """Sizes are in bytes, intervals in milliseconds."""

    UPSTREAM: ClassVar[dict[str, str]] = {
        "abandonTimers": OURS,
        "fileReservedSeconds": OURS,
        "hotCommitLogFiles": OURS,
        "maxHashSlotNum": "5000000",
        "maxIndexNum": "20000000",
        "scrubBytesPerSecond": OURS,
        "scrubInterval": OURS,
    }

    mapped_file_size_commit_log: int = Field(
        default=1 << 30,
        alias="mappedFileSizeCommitLog",
        ge=4096,
        description="size of a segment of the log; a store keeps the size it was made with",
    )
    mapped_file_size_consume_queue: int = Field(
        default=6_000_000,
        alias="mappedFileSizeConsumeQueue",
        ge=20,
        description="size of a consume queue's file; 20 bytes a message",
    )
    max_message_size: int = Field(
        default=4 << 20, alias="maxMessageSize", ge=1, le=(1 << 30), description="longest body that is stored"
    )
    flush_disk_type: FlushDiskType = Field(
        default=FlushDiskType.ASYNC_FLUSH,
        alias="flushDiskType",
        description="`ASYNC_FLUSH` or `SYNC_FLUSH`: whether an acknowledged message is on this disk, not in memory only",
    )
    flush_interval_commit_log: int = Field(
        default=500,
        alias="flushIntervalCommitLog",
        ge=1,
        description="how often the log is synced to disk when sends do not wait for it",
    )
    flush_interval_consume_queue: int = Field(
        default=1_000,
        alias="flushIntervalConsumeQueue",
        ge=1,
        description="how often consume queues are synced",
    )
    check_crc_on_recover: bool = Field(
        default=True,
        alias="checkCRCOnRecover",
        description="check each body when a store is recovered after a crash",
    )
    enabled_append_prop_crc: bool = Field(
        default=False,
        alias="enabledAppendPropCRC",
        description="a master ends each record with a CRC of all of it, the property `__CRC32#`, 20 bytes",
    )
    force_verify_prop_crc: bool = Field(
        default=False,
        alias="forceVerifyPropCRC",
        description="where a record has such a CRC, it is checked wherever the CRC of its body is. Not for a log in which "
        "`enabledAppendPropCRC` was switched off again: a message that is stored once more brings the CRC of its former record",
    )
    message_delay_level: str = Field(
        default="1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
        alias="messageDelayLevel",
        description="the delays of levels 1, 2, ...",
    )
    message_index_enable: bool = Field(
        default=True, alias="messageIndexEnable", description="messages can be looked up by key"
    )
    max_index_num: int = Field(
        default=0,
        alias="maxIndexNum",
        ge=0,
        le=100_000_000,
        description="keys in an index file; 0: one for each 512 bytes of a segment of the log",
    )
    max_hash_slot_num: int = Field(
        default=0,
        alias="maxHashSlotNum",
        ge=0,
        le=100_000_000,
        description="hash slots of an index file; 0: a quarter of `maxIndexNum`",
    )
    scrub_bytes_per_second: int = Field(
        default=8 << 20,
        alias="scrubBytesPerSecond",
        ge=0,
        description="how fast older segments are checked, and compared with queues, in the background; 0: not at all",
    )
    scrub_interval: int = Field(
        default=86_400_000,
        alias="scrubInterval",
        ge=1_000,
        description="time from the end of one such check of the whole log to the next",
    )
    hot_segments: int = Field(
        default=2,
        alias="hotCommitLogFiles",
        ge=1,
        description="newest segments whose messages leave from their mapping; of older ones copies leave, and what the page "
        "cache has lost is read in a thread",
    )

    abandon_timers: bool = Field(
        default=False,
        alias="abandonTimers",
        description="confirms that a store is opened although timer messages of a Java broker in it are never delivered",
    )

    # retention
    file_reserved_time: int = Field(
        default=72,
        alias="fileReservedTime",
        ge=0,
        description="hours for which the log is kept; a segment is as old as the newest message in it",
    )
    file_reserved_seconds: int = Field(
        default=0,
        alias="fileReservedSeconds",
        ge=0,
        description="the same in seconds; 0: `fileReservedTime` counts",
    )
    delete_when: str = Field(
        default="04",
        alias="deleteWhen",
        description="hours of the local day at which old segments are deleted, as `04` or `00;12`",
    )
    disk_max_used_space_ratio: int = Field(
        default=75,
        alias="diskMaxUsedSpaceRatio",
        ge=10,
        le=100,
        description="per cent of the disk in use above which old segments are deleted at any hour",
    )
    disk_space_clean_forcibly_ratio: int = Field(
        default=85,
        alias="diskSpaceCleanForciblyRatio",
        ge=10,
        le=100,
        description="per cent in use above which the oldest segments are deleted however young they are",
    )
    disk_space_warning_level_ratio: int = Field(
        default=90,
        alias="diskSpaceWarningLevelRatio",
        ge=10,
        le=100,
        description="per cent in use above which sends are refused until less than `diskSpaceCleanForciblyRatio` is; 100: "
        "never",
    )
    clean_file_forcibly_enable: bool = Field(
        default=True,
        alias="cleanFileForciblyEnable",
        description="whether a full disk deletes segments that are not old",
    )
    clean_resource_interval: int = Field(
        default=10_000,
        alias="cleanResourceInterval",
        ge=10,
        description="how often deletion is considered; first after six such intervals",
    )
    delete_file_batch_max: int = Field(
        default=10, alias="deleteFileBatchMax", ge=1, description="segments that are deleted at one time"
    )

    @field_validator("delete_when")
    @classmethod
    def _hours(cls, value: str) -> str:
        hours_of(value)
        return value

    @field_validator("message_delay_level")
    @classmethod
    def _delay_levels(cls, value: str) -> str:
        delay_levels_ms(value)
        return value

    @property
    def retention(self) -> Rules:
        """The current rules, which may change while the broker runs."""
        return Rules(
            reserved_ms=self.file_reserved_seconds * 1000 or self.file_reserved_time * HOUR_MS,
            delete_hours=hours_of(self.delete_when),
            clean_above=self.disk_max_used_space_ratio / 100,
            clean_forcibly_above=self.disk_space_clean_forcibly_ratio / 100,
            refuse_above=self.disk_space_warning_level_ratio / 100,
            may_clean_forcibly=self.clean_file_forcibly_enable,
            segments_max=self.delete_file_batch_max,
        )

    @property
    def index_entries(self) -> int:
        """The number of keys that fit into an index file."""
        return self.max_index_num or max(self.mapped_file_size_commit_log // 512, 64)

    @property
    def index_slots(self) -> int:
        return self.max_hash_slot_num or max(self.index_entries // 4, 16)
