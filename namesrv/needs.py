"""What the requests of a name server need. Upstream checks none of them."""

from __future__ import annotations

from accesscontrol.needs import ClusterRows, Table
from remoting.codes import RequestCode as Code

CLUSTER = "name server"
"""Name of the resource. Only administrators may send what servers do not send, so no policy names it."""


def name_server_table() -> Table:
    rows = ClusterRows(CLUSTER)
    return {
        **dict.fromkeys(
            (
                Code.REGISTER_BROKER, Code.UNREGISTER_BROKER, Code.BROKER_HEARTBEAT, Code.QUERY_DATA_VERSION,
                Code.REGISTER_TOPIC_IN_NAMESRV,
            ),
            rows.of_servers,
        ),
        **dict.fromkeys(
            (
                Code.GET_ROUTEINFO_BY_TOPIC, Code.GET_BROKER_CLUSTER_INFO, Code.GET_BROKER_MEMBER_GROUP,
                Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, Code.GET_TOPICS_BY_CLUSTER, Code.GET_SYSTEM_TOPIC_LIST_FROM_NS,
                Code.GET_UNIT_TOPIC_LIST, Code.GET_HAS_UNIT_SUB_TOPIC_LIST, Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
                Code.GET_KV_CONFIG, Code.GET_KVLIST_BY_NAMESPACE,
            ),
            rows.read_by_servers,
        ),
        Code.GET_NAMESRV_CONFIG: rows.reads,
        **dict.fromkeys(
            (
                Code.PUT_KV_CONFIG, Code.DELETE_KV_CONFIG, Code.UPDATE_NAMESRV_CONFIG, Code.WIPE_WRITE_PERM_OF_BROKER,
                Code.ADD_WRITE_PERM_OF_BROKER, Code.DELETE_TOPIC_IN_NAMESRV,
            ),
            rows.changes,
        ),
    }  # fmt: skip
