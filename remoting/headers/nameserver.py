"""Headers of requests to the name server."""

from __future__ import annotations

from dataclasses import dataclass

from remoting.header import Header
from remoting.wirefields import I32, I64, wire


@dataclass(slots=True)
class RegisterBrokerHeader(Header):
    """REGISTER_BROKER (103). `broker_id` is the role id, 0 on the master. A `body_crc32` of 0 is not checked."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: I64
    heartbeat_timeout_millis: I64 | None = None
    enable_acting_master: bool | None = None
    compressed: bool = False
    body_crc32: I32 = 0
    zone_name: str | None = wire("__ZONE_NAME", default=None)


@dataclass(slots=True)
class RegisterBrokerResponseHeader(Header):
    """The group's master, for a slave. Both fields are absent if the group has no master or the sender is the master."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


@dataclass(slots=True)
class UnregisterBrokerHeader(Header):
    """UNREGISTER_BROKER (104) and QUERY_DATA_VERSION (322), which have the same fields."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: I64


@dataclass(slots=True)
class QueryDataVersionResponseHeader(Header):
    """Reply to QUERY_DATA_VERSION (322)."""

    changed: bool


@dataclass(slots=True)
class GetRouteInfoHeader(Header):
    """GET_ROUTEINFO_BY_TOPIC (105)."""

    topic: str
    accept_standard_json_only: bool | None = None


@dataclass(slots=True)
class BrokerMemberGroupHeader(Header):
    """GET_BROKER_MEMBER_GROUP (901)."""

    broker_name: str
    cluster_name: str = ""


@dataclass(slots=True)
class BrokerNameHeader(Header):
    """WIPE_WRITE_PERM_OF_BROKER (205) and ADD_WRITE_PERM_OF_BROKER (327)."""

    broker_name: str


@dataclass(slots=True)
class WipeWritePermResponseHeader(Header):
    """Reply to WIPE_WRITE_PERM_OF_BROKER (205)."""

    wipe_topic_count: I32


@dataclass(slots=True)
class AddWritePermResponseHeader(Header):
    """Reply to ADD_WRITE_PERM_OF_BROKER (327)."""

    add_topic_count: I32


@dataclass(slots=True)
class DeleteTopicInNamesrvHeader(Header):
    """DELETE_TOPIC_IN_NAMESRV (216). Without `cluster_name` the topic is deleted in all clusters."""

    topic: str
    cluster_name: str | None = None


@dataclass(slots=True)
class ClusterHeader(Header):
    """GET_TOPICS_BY_CLUSTER (224)."""

    cluster: str


@dataclass(slots=True)
class PutKVConfigHeader(Header):
    """PUT_KV_CONFIG (100)."""

    namespace: str
    key: str
    value: str


@dataclass(slots=True)
class KVConfigHeader(Header):
    """GET_KV_CONFIG (101) and DELETE_KV_CONFIG (102)."""

    namespace: str
    key: str


@dataclass(slots=True)
class GetKVConfigResponseHeader(Header):
    """Reply to GET_KV_CONFIG (101)."""

    value: str | None = None


@dataclass(slots=True)
class NamespaceHeader(Header):
    """GET_KVLIST_BY_NAMESPACE (219)."""

    namespace: str
