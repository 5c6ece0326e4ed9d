"""Configurations of consumer groups."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from remoting.bodies.body import Body, WrittenOnce
from remoting.bodies.dataversion import DataVersion
from remoting.wirefields import I32, I64


def _custom_retry_policy() -> dict[str, Any]:
    return {"type": "CUSTOMIZED"}


@dataclass(frozen=True, slots=True)
class SubscriptionGroupConfig(WrittenOnce):
    """One consumer group on one broker. It is the body of UPDATE_AND_CREATE_SUBSCRIPTIONGROUP (200) and the reply to
    GET_SUBSCRIPTIONGROUP_CONFIG (352)."""

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: I32 = 1
    retry_max_times: I32 = 16
    group_retry_policy: dict[str, Any] = field(default_factory=_custom_retry_policy)
    broker_id: I64 = 0
    which_broker_when_consume_slowly: I64 = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: I32 = 0
    consume_timeout_minute: I32 = 15
    subscription_data_set: list[Any] | None = None
    attributes: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class DeleteGroupsBody(Body):
    """Body of DELETE_SUBSCRIPTION_GROUP_LIST (5003): the groups to delete, optionally with their offsets."""

    group_name_list: list[str] = field(default_factory=list)
    clean_offset: bool = False


@dataclass(slots=True)
class SubscriptionGroupList(Body):
    """Body of UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST (225)."""

    group_config_list: list[SubscriptionGroupConfig] = field(default_factory=list)


@dataclass(slots=True)
class SubscriptionGroupWrapper(Body):
    """All groups of a broker: the reply to GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201). `forbidden_table` maps group and topic
    to forbidden bits."""

    subscription_group_table: dict[str, SubscriptionGroupConfig] = field(default_factory=dict)
    forbidden_table: dict[str, dict[str, I32]] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)


@dataclass(slots=True)
class MessageRequestModes(Body):
    """Reply to GET_ALL_MESSAGE_REQUEST_MODE (402): topic, group, mode."""

    message_request_mode_map: dict[str, dict[str, Any]] = field(default_factory=dict)
