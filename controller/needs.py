"""What the requests of a controller's port need. Upstream checks none of them."""

from __future__ import annotations

from accesscontrol.needs import ClusterRows, Row, Table
from dledger.node.needs import member_table
from remoting.codes import RequestCode as Code
from remoting.command import RemotingCommand
from remoting.header import read_bool

CLUSTER = "controllers"
"""Name of the resource. Only administrators may send what servers do not send, so no policy names it."""


def controller_table() -> Table:
    rows = ClusterRows(CLUSTER)
    return {
        **member_table(rows),
        **dict.fromkeys(
            (
                Code.BROKER_HEARTBEAT, Code.CONTROLLER_ALTER_SYNC_STATE_SET, Code.CONTROLLER_REGISTER_BROKER,
                Code.CONTROLLER_GET_NEXT_BROKER_ID, Code.CONTROLLER_APPLY_BROKER_ID, Code.GIVE_UP_REPLICA,
            ),
            rows.of_servers,
        ),
        Code.CONTROLLER_ELECT_MASTER: Row(
            rows.changes.needs,
            from_servers=_elects_itself,
            is_administrative=True,
            may_be_open=False,
            is_of_cluster=True,
        ),
        **dict.fromkeys(
            (
                Code.CONTROLLER_GET_REPLICA_INFO, Code.CONTROLLER_GET_METADATA_INFO, Code.CONTROLLER_GET_SYNC_STATE_DATA,
            ),
            rows.read_by_servers,
        ),
        Code.GET_CONTROLLER_CONFIG: rows.reads,
        **dict.fromkeys((Code.UPDATE_CONTROLLER_CONFIG, Code.CLEAN_BROKER_DATA), rows.changes),
    }  # fmt: skip


def _elects_itself(request: RemotingCommand) -> bool:
    """Whether a broker asks for an election, and does not designate the master, which administrators do."""
    return read_bool(request.ext.get("designateElect", "false")) is False
