"""Headers of the name server's requests: 100-105, 205, 216, 217, 219, 224, 322, 327, 901."""

from __future__ import annotations

from dataclasses import dataclass

from remoting.header import Header
from remoting.wirefields import I32, I64, wire


@dataclass(slots=True)
class RegisterBrokerHeader(Header):
    """103; `broker_id` is the role id, 0 on the master. `body_crc32` 0 means unchecked."""

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
    """The group's master as a slave needs it; both absent for the master itself or when there is none."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


@dataclass(slots=True)
class UnregisterBrokerHeader(Header):
    """104, and the same fields in 322."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: I64


@dataclass(slots=True)
class QueryDataVersionResponseHeader(Header):
    """Reply to 322."""

    changed: bool


@dataclass(slots=True)
class GetRouteInfoHeader(Header):
    """105"""

    topic: str
    accept_standard_json_only: bool | None = None


@dataclass(slots=True)
class BrokerMemberGroupHeader(Header):
    """901"""

    broker_name: str
    cluster_name: str = ""


@dataclass(slots=True)
class BrokerNameHeader(Header):
    """205 and 327"""

    broker_name: str


@dataclass(slots=True)
class WipeWritePermResponseHeader(Header):
    """Reply to 205."""

    wipe_topic_count: I32


@dataclass(slots=True)
class AddWritePermResponseHeader(Header):
    """Reply to 327."""

    add_topic_count: I32


@dataclass(slots=True)
class DeleteTopicInNamesrvHeader(Header):
    """216; without `cluster_name` the topic goes everywhere."""

    topic: str
    cluster_name: str | None = None


@dataclass(slots=True)
class ClusterHeader(Header):
    """224"""

    cluster: str


@dataclass(slots=True)
class PutKVConfigHeader(Header):
    """100"""

    namespace: str
    key: str
    value: str


@dataclass(slots=True)
class KVConfigHeader(Header):
    """101 and 102"""

    namespace: str
    key: str


@dataclass(slots=True)
class GetKVConfigResponseHeader(Header):
    """Reply to 101."""

    value: str | None = None


@dataclass(slots=True)
class NamespaceHeader(Header):
    """219"""

    namespace: str
