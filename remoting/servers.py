"""A table of the kinds of servers that answer each request. A server that gets a request for another kind of server says so in
its error.

Invariant: the table does not contain codes that clients or DLedger members answer. A code that two kinds of servers answer is
listed for both."""

from __future__ import annotations

from enum import Enum

from remoting.codes import RequestCode

Code = RequestCode


class Server(Enum):
    """The value is the plural of the server's kind."""

    BROKER = "brokers"
    NAME_SERVER = "name servers"
    CONTROLLER = "controllers"


ANSWERED_BY_NAME_SERVERS = frozenset({
    Code.PUT_KV_CONFIG, Code.GET_KV_CONFIG, Code.DELETE_KV_CONFIG, Code.GET_KVLIST_BY_NAMESPACE, Code.REGISTER_BROKER,
    Code.UNREGISTER_BROKER, Code.BROKER_HEARTBEAT, Code.QUERY_DATA_VERSION, Code.GET_ROUTEINFO_BY_TOPIC,
    Code.GET_BROKER_CLUSTER_INFO, Code.GET_BROKER_MEMBER_GROUP, Code.WIPE_WRITE_PERM_OF_BROKER,
    Code.ADD_WRITE_PERM_OF_BROKER, Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, Code.DELETE_TOPIC_IN_NAMESRV,
    Code.REGISTER_TOPIC_IN_NAMESRV, Code.GET_TOPICS_BY_CLUSTER, Code.GET_SYSTEM_TOPIC_LIST_FROM_NS,
    Code.GET_UNIT_TOPIC_LIST, Code.GET_HAS_UNIT_SUB_TOPIC_LIST, Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
    Code.UPDATE_NAMESRV_CONFIG, Code.GET_NAMESRV_CONFIG,
})  # fmt: skip
ANSWERED_BY_CONTROLLERS = frozenset({
    Code.CONTROLLER_ALTER_SYNC_STATE_SET, Code.CONTROLLER_ELECT_MASTER, Code.CONTROLLER_REGISTER_BROKER,
    Code.CONTROLLER_GET_REPLICA_INFO, Code.CONTROLLER_GET_METADATA_INFO, Code.CONTROLLER_GET_SYNC_STATE_DATA,
    Code.UPDATE_CONTROLLER_CONFIG, Code.GET_CONTROLLER_CONFIG, Code.CLEAN_BROKER_DATA, Code.CONTROLLER_GET_NEXT_BROKER_ID,
    Code.CONTROLLER_APPLY_BROKER_ID, Code.BROKER_HEARTBEAT, Code.GIVE_UP_REPLICA,
})  # fmt: skip
ANSWERED_BY_CLIENTS = frozenset({
    Code.CHECK_TRANSACTION_STATE, Code.NOTIFY_CONSUMER_IDS_CHANGED, Code.RESET_CONSUMER_CLIENT_OFFSET,
    Code.GET_CONSUMER_STATUS_FROM_CLIENT, Code.PUSH_REPLY_MESSAGE_TO_CLIENT,
})  # fmt: skip


def servers_of(code: int) -> list[Server]:
    """The kinds of servers that answer this request; empty if unknown."""
    try:
        request = RequestCode(code)
    except ValueError:
        return []
    elsewhere = [
        server
        for server, codes in (
            (Server.NAME_SERVER, ANSWERED_BY_NAME_SERVERS),
            (Server.CONTROLLER, ANSWERED_BY_CONTROLLERS),
        )
        if request in codes
    ]
    is_members = request.name.startswith("DLEDGER_")
    return elsewhere or ([] if is_members or request in ANSWERED_BY_CLIENTS else [Server.BROKER])


def who_else(code: int, here: Server) -> str:
    """The kinds of servers that answer this request, if servers of the kind `here` do not answer it; else ""."""
    servers = servers_of(code)
    return "" if here in servers else " and ".join(server.value for server in servers)


def directions(code: int, here: Server) -> str:
    """The text that a server of the kind `here` adds when it rejects a request that others answer; "" for any other."""
    others = who_else(code, here)
    return f"; {others} answer {RequestCode(code).name}, ask one of them" if others else ""
