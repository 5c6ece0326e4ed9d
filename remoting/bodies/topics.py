"""Topic configurations, alone and as the table that a broker registers or sends to its slaves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from remoting.bodies.body import Body, WrittenOnce
from remoting.bodies.dataversion import DataVersion
from remoting.wirefields import I32, I64

PERM_INHERIT = 1
PERM_WRITE = 2
PERM_READ = 4


@dataclass(frozen=True, slots=True)
class TopicConfig(WrittenOnce):
    """One topic on one broker; also the reply to GET_TOPIC_CONFIG (351)."""

    topic_name: str
    read_queue_nums: I32 = 16
    write_queue_nums: I32 = 16
    perm: I32 = PERM_READ | PERM_WRITE
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: I32 = 0
    order: bool = False
    attributes: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class TopicConfigList(Body):
    """Body of UPDATE_AND_CREATE_TOPIC_LIST (18)."""

    topic_config_list: list[TopicConfig] = field(default_factory=list)


@dataclass(slots=True)
class TopicConfigWrapper(Body):
    """All topics of a broker. It is the reply to GET_ALL_TOPIC_CONFIG (21) and part of REGISTER_BROKER (103). The mapping
    members belong to static topics."""

    topic_config_table: dict[str, TopicConfig] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)
    mapping_data_version: DataVersion = field(default_factory=DataVersion)
    topic_queue_mapping_detail_map: dict[str, Any] = field(default_factory=dict)
    topic_queue_mapping_info_map: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class TopicsForSlaves(TopicConfigWrapper):
    """Reply to GET_ALL_TOPIC_CONFIG (21). `deleted_topics` is an extension: where the log ended when each topic was deleted."""

    deleted_topics: dict[str, I64] = field(default_factory=dict)
